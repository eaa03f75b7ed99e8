"""The errors of durable runs: what a workflow sees of a failed step, and what a client sees of a run."""

from __future__ import annotations

from typing import Literal

from iii_runtime.core.errors import IiiError, NonRetryableError
from iii_runtime.core.runs.facts import Key
from iii_runtime.core.runs.failure import Failure

INTERRUPTED = "StepInterrupted"
"""Type of the failure of a step that must not be repeated, and whose end nobody saw."""
START_TO_CLOSE = "DeadlineExceededError"
"""Type of the failure of an attempt that took too long: what the executor raises."""
SCHEDULE_TO_CLOSE = "ScheduleToCloseTimeout"
"""Type of the failure of a step whose next attempt would begin after schedule-to-close."""


class RunError(IiiError):
    """Root of the errors of durable runs."""

    code = "run_error"


class RecordedError(RunError):
    """An error as it was recorded: stands for an exception of any class, in a chain of causes.

    Its text begins with the original type; its stack is a note, which a traceback shows.

    Attributes:
        type: The original type.
        failure: What was recorded.
    """

    code = "recorded"

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.type}: {failure.message}" if failure.message else failure.type)
        self.type = failure.type
        self.failure = failure
        if failure.stack:
            self.add_note(f"recorded at:\n{failure.stack.rstrip()}")
        self.__cause__ = RecordedError(failure.cause) if failure.cause is not None else None


class StepError(RunError):
    """A step failed, and will not be tried again. `await ctx.step(...)` raises it, on every replay alike.

    Attributes:
        step: Name of the step.
        attempts: How many attempts failed.
        type: Type of the last error: the name of its class, or the type it gave itself.
        failure: The last error as it was recorded. `__cause__` is the same as an exception.
    """

    code = "step_failed"

    def __init__(self, key: Key, failure: Failure, attempts: int) -> None:
        times = "once" if attempts == 1 else f"{attempts} times"
        super().__init__(f"{key} failed {times}, and is not tried again: {failure.type}: {failure.message}")
        self.key = key
        self.step = key.name
        self.attempts = attempts
        self.type = failure.type
        self.failure = failure
        self.__cause__ = RecordedError(failure)


class StepTimeoutError(StepError):
    """A step did not end in time: its last attempt took too long, or the next would begin after schedule-to-close."""

    code = "step_timeout"


class StepInterruptedError(StepError):
    """The host died while a step ran that must not be repeated. Nobody knows how far it came."""

    code = "step_interrupted"


def step_error(key: Key, failure: Failure, attempts: int) -> StepError:
    """Return the error that a workflow sees of a step that failed for good."""
    if failure.type == INTERRUPTED:
        return StepInterruptedError(key, failure, attempts)
    if failure.type in (START_TO_CLOSE, SCHEDULE_TO_CLOSE):
        return StepTimeoutError(key, failure, attempts)
    return StepError(key, failure, attempts)


class RunNotCompletedError(RunError):
    """A run has ended without a result. Each way of ending has a class of its own.

    Attributes:
        workflow_id: Its workflow id.
        run_id: The run.
        failure: What it ended with, where there is such a thing. `__cause__` is the same as an exception.
        reason: Why somebody ended it, if they said so.
    """

    code = "run_not_completed"
    ended = "ended without a result"

    def __init__(self, workflow_id: str, run_id: str, failure: Failure | None = None, reason: str = "") -> None:
        told = f"{failure.type}: {failure.message}" if failure is not None else reason
        super().__init__(f"run '{workflow_id}' ({run_id}) {self.ended}{': ' + told if told else ''}")
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.failure = failure
        self.reason = reason
        self.__cause__ = RecordedError(failure) if failure is not None else None


class RunFailedError(RunNotCompletedError):
    """The workflow raised. What it raised is the cause."""

    code = "run_failed"
    ended = "failed"


class RunCancelledError(RunNotCompletedError):
    """The run was asked to end itself, and did."""

    code = "run_cancelled"
    ended = "was cancelled"


class RunTerminatedError(RunNotCompletedError):
    """The run was ended from outside, without another line of its code."""

    code = "run_terminated"
    ended = "was terminated"


class RunTimedOutError(RunNotCompletedError):
    """The run reached its longest life."""

    code = "run_timed_out"
    ended = "timed out"


class RunNotFoundError(RunError):
    """There is no run of this workflow id, or none with this run id; it may have been deleted after its retention."""

    code = "run_not_found"

    def __init__(self, workflow_id: str, run_id: str | None = None) -> None:
        which = f" with the run id '{run_id}'" if run_id is not None else ""
        super().__init__(f"there is no run of the workflow id '{workflow_id}'{which}.")
        self.workflow_id = workflow_id
        self.run_id = run_id


class RunClosedError(RunError):
    """The run has ended, and takes nothing more. Nothing was stored.

    Attributes:
        status: How it ended.
    """

    code = "run_closed"

    def __init__(self, workflow_id: str, run_id: str, status: str) -> None:
        super().__init__(f"run '{workflow_id}' ({run_id}) is closed ({status}), and takes nothing more.")
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.status = status


class RunAlreadyStartedError(RunError):
    """The workflow id is in use, or was, and the policies of the start do not allow another run. Nothing was started.

    Attributes:
        run_id: The run that is there.
        status: What it is.
    """

    code = "run_already_started"

    def __init__(self, workflow_id: str, run_id: str, status: str) -> None:
        super().__init__(
            f"the workflow id '{workflow_id}' has a run already ({run_id}, {status}), and the policies of this start "
            "allow no other one."
        )
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.status = status


class InboxFullError(RunError):
    """A run has as many messages waiting as it may have. Nothing was stored; send it again later."""

    code = "inbox_full"

    def __init__(self, workflow_id: str, limit: int) -> None:
        super().__init__(f"run '{workflow_id}' has {limit} messages waiting, which is the limit. Send it again later.")
        self.workflow_id = workflow_id
        self.limit = limit


class QueryError(RunError):
    """A query was not answered: it has no such name, its arguments do not fit, or its handler raised."""

    code = "query_failed"


class WorkflowDivergedError(RunError):
    """The code of a workflow asks for other things than its journal has. The run is parked, and nothing was run.

    Put the old code back, or let `ctx.patched` choose between old and new, and resume the run.
    """

    code = "workflow_diverged"


class LimitError(RunError, NonRetryableError):
    """Something is larger than a run may hold. Another attempt would come to the same.

    Attributes:
        where: What is too large, such as `the result of step 'report'`.
        limit: The limit it exceeds.
    """

    code = "limit_exceeded"

    def __init__(self, where: str, limit: int, unit: Literal["bytes", "steps", "facts", "days"], found: int) -> None:
        IiiError.__init__(self, f"{where}: {found:,} {unit}, and the limit is {limit:,}.")
        self.where = where
        self.limit = limit


class UnsafeWorkflowCallError(RunError):
    """A workflow called something whose outcome differs on a replay. The text says what to use in its place."""

    code = "unsafe_workflow_call"

    def __init__(self, called: str, instead: str) -> None:
        super().__init__(f"{called} cannot be used in a workflow: a replay would see another outcome. Use {instead}.")
