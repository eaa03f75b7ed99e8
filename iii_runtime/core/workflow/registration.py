"""What a workflow is registered with, and how its function is called."""

from __future__ import annotations

from datetime import timedelta

from iii_runtime.core.errors import RegistrationError
from iii_runtime.core.frozen import frozen
from iii_runtime.core.function_options import FunctionSettings

MAX_STEPS = 10_000
MAX_RUN_TIMEOUT = timedelta(days=366)


class WorkflowSettings(FunctionSettings, total=False):
    """The keywords of `Worker.workflow` that become `WorkflowOptions` and `FunctionOptions`."""

    workflow_id: str | None
    run_timeout: timedelta | None
    on_failure: str | None
    max_steps: int


@frozen(kw_only=True)
class WorkflowOptions:
    """How runs of a workflow are started and bounded.

    Attributes:
        workflow_id: Dotted path into the input of a run that a trigger starts, such as `order.id`: what is there is the
            workflow id. Without one it follows from what started the run.
        run_timeout: Longest life of a run; a run that reaches it ends as timed out, without another line of its code.
        on_failure: Function that is enqueued when a run has failed, timed out, or was cancelled or terminated.
        max_steps: Steps a run may ask for, 1 to 10,000.
    """

    workflow_id: str | None = None
    run_timeout: timedelta | None = None
    on_failure: str | None = None
    max_steps: int = MAX_STEPS


def read_workflow_options(settings: WorkflowSettings, function_id: str) -> WorkflowOptions:
    """Return the options that a registration gives.

    Raises:
        RegistrationError: A value that cannot work.
    """
    path: object = settings.get("workflow_id")
    if path is not None and (not isinstance(path, str) or not all(path.split("."))):
        raise RegistrationError(
            f"workflow '{function_id}': workflow_id must be a dotted path into the input, such as 'order.id', found "
            f"{path!r:.80}."
        )
    timeout: object = settings.get("run_timeout")
    if timeout is not None and (not isinstance(timeout, timedelta) or not timedelta(0) < timeout <= MAX_RUN_TIMEOUT):
        raise RegistrationError(
            f"workflow '{function_id}': run_timeout must be a timedelta above 0 and at most {MAX_RUN_TIMEOUT.days} "
            f"days, found {timeout!r:.80}."
        )
    on_failure: object = settings.get("on_failure")
    if on_failure is not None and (not isinstance(on_failure, str) or not on_failure.strip()):
        raise RegistrationError(
            f"workflow '{function_id}': on_failure must be a function id, found {on_failure!r:.80}."
        )
    steps: object = settings.get("max_steps", MAX_STEPS)
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= MAX_STEPS:
        raise RegistrationError(
            f"workflow '{function_id}': max_steps must be an integer from 1 to {MAX_STEPS}, found {steps!r:.80}."
        )
    return WorkflowOptions(
        workflow_id=settings.get("workflow_id"),
        run_timeout=settings.get("run_timeout"),
        on_failure=settings.get("on_failure"),
        max_steps=steps,
    )
