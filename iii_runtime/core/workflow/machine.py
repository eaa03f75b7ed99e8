"""The workflow machine: one run of one workflow, driven by facts. It does nothing but say what it wants.

Fed the same facts in the same order it comes to the same place, asks for the same things and ends the same way. One
fact, one drain: how facts are grouped cannot change anything.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from iii_runtime.core.errors import message_of
from iii_runtime.core.payload import Json
from iii_runtime.core.runs.facts import (
    AttemptFailed,
    AttemptStarted,
    CancelRequested,
    Fact,
    Patched,
    SignalReceived,
    StepCompleted,
    StepFailed,
    Suspended,
    TimerFired,
)
from iii_runtime.core.workflow.commands import Command, Complete, EndCancelled, Fail, RecordPatch, SetTimer
from iii_runtime.core.workflow.context import Parts, RunInfo, WorkflowContext
from iii_runtime.core.workflow.disposal import dispose_of
from iii_runtime.core.workflow.divergence import diverged
from iii_runtime.core.workflow.loop import WorkflowLoop, is_unheard, silence
from iii_runtime.core.workflow.outbox import Outbox
from iii_runtime.core.workflow.patches import Patches
from iii_runtime.core.workflow.queries import Queries
from iii_runtime.core.workflow.signals import Signals
from iii_runtime.core.workflow.steps import OpenStep, StepRequests
from iii_runtime.core.workflow.timers import Timers, instant
from iii_runtime.core.workflow.waits import Conditions

_log = logging.getLogger("iii_runtime.run")
_NOTES = (AttemptFailed, AttemptStarted, Patched, Suspended)
"""Facts that tell the workflow nothing. They have no part in its time."""

MAX_STEPS = 10_000

Closing: TypeAlias = "Complete | Fail | EndCancelled"


class Machine:
    """One run of a workflow. Not for several threads at once; always to be disposed of, ended runs included.

    Args:
        function: The workflow: called with its context, it returns a coroutine.
        workflow: Its function id, for log lines.
        workflow_id: Chosen by whoever started the run.
        run_id: Identity of the run. Random numbers and uuids follow from it.
        started_ms: When it was started, Unix milliseconds.
        max_steps: How many steps it may ask for.

    Attributes:
        closed: How the workflow has ended; None while it goes on.
        now_ms: Time of the last fact, Unix milliseconds; it never goes back.
    """

    def __init__(
        self,
        function: Callable[[WorkflowContext], object],
        *,
        workflow: str,
        workflow_id: str,
        run_id: str,
        started_ms: int,
        max_steps: int = MAX_STEPS,
    ) -> None:
        self.closed: Closing | None = None
        self.now_ms = started_ms
        self._function = function
        self._fields = {"workflow": workflow, "workflow_id": workflow_id, "run_id": run_id}
        self._info = RunInfo(workflow=workflow, workflow_id=workflow_id, run_id=run_id, started_ms=started_ms)
        self._outbox = Outbox()
        self._timers = Timers(self._outbox)
        self._loop = WorkflowLoop(run_id, started_ms, self._timers, self._report)
        self._steps = StepRequests(self._loop, self._outbox, max_steps)
        self._signals = Signals(self._loop, self._report)
        self._queries = Queries(self._loop)
        self._conditions = Conditions(self._loop)
        self._patches = Patches(self._loop, self._outbox)
        self._main: asyncio.Task[Any] | None = None
        self._position = 0
        self._is_told = False

    def start(self, history: Sequence[Fact] = ()) -> list[Command]:
        """Begin the workflow and repeat its past.

        Returns:
            What it wants now: steps without an outcome, timers that have not fired, its end.

        Raises:
            WorkflowDivergedError: The journal does not fit the code.
        """
        self._patches.know(fact.patch_id for fact in history if isinstance(fact, Patched))
        self._patches.is_replaying = bool(history)
        with self._loop.entered():
            self._main = self._loop.context.run(self._loop.create_task, self._run())
            self._settle()
            for fact in history:
                self._take(fact, is_new=False)
        self._patches.is_replaying = False
        return self._commands()

    def feed(self, fact: Fact) -> list[Command]:
        """Take a new fact; return what the workflow wants beyond what it wanted before.

        A workflow that has ended takes nothing more.

        Raises:
            WorkflowDivergedError: It did not ask for that.
        """
        with self._loop.entered():
            self._take(fact, is_new=True)
        return self._commands()

    def expects(self, fact: Fact) -> bool:
        """Return whether a fact would tell the workflow something now: nobody has withdrawn what it is about."""
        if self.closed is not None:
            return False
        match fact:
            case StepCompleted() | StepFailed() | AttemptFailed() | AttemptStarted():
                return self._steps.find(fact.key) is not None
            case TimerFired():
                timer = self._timers.open.get(fact.number)
                return timer is not None and timer.deadline_ms == fact.deadline_ms
            case _:
                return True

    @property
    def open_steps(self) -> list[OpenStep]:
        """The steps without an outcome, in the order in which they were asked for."""
        return self._steps.open

    def next_timer(self) -> SetTimer | None:
        """Return the timer that is due first; None if there is none."""
        timer = self._timers.next()
        return None if timer is None else timer.command()

    @property
    def next_deadline_ms(self) -> int | None:
        """When the first timer is due; None if there is none."""
        timer = self._timers.next()
        return None if timer is None else timer.deadline_ms

    def waiting_for(self) -> list[str]:
        """Return in words what the workflow waits for."""
        timers = [
            f"timer {each.number}, due at {instant(each.deadline_ms).isoformat()}"
            for each in self._timers.open.values()
        ]
        signals = [f"signal '{name}'" for name in self._signals.awaited]
        condition = str(self._conditions)
        return [*map(str, self._steps.open), *timers, *signals, *([condition] if condition else [])]

    def query(self, name: str, arguments: Sequence[Json] = ()) -> Any:
        """Return the workflow's answer to a question; it changes nothing. A workflow that has ended answers too.

        Raises:
            QueryError: There is no such query, the arguments do not fit it, or its handler raised.
        """
        return self._queries.answer(name, arguments)

    def dispose(self) -> None:
        """End the coroutines of the workflow, without effect. On the thread that fed it; a second time does nothing."""
        if self._loop.is_dying:
            return
        self._timers.is_dying = True
        for step in self._steps.failed:
            silence(step)
        dispose_of(self._loop, self._info.workflow)

    async def _run(self) -> Any:
        context = WorkflowContext(
            self._info,
            Parts(
                loop=self._loop,
                steps=self._steps,
                signals=self._signals,
                queries=self._queries,
                conditions=self._conditions,
                patches=self._patches,
            ),
        )
        result = self._function(context)
        return await result if inspect.isawaitable(result) else result

    def _take(self, fact: Fact, *, is_new: bool) -> None:
        self._position += 1
        self.now_ms = max(self.now_ms, fact.at_ms)
        if self.closed is not None:
            if not is_new and isinstance(fact, StepCompleted | StepFailed | TimerFired):
                raise diverged(self._position, fact, "the workflow has ended before it", [])
            return
        if isinstance(fact, _NOTES):
            self._note(fact)
            return
        self._loop.now_ms = max(self._loop.now_ms, fact.at_ms)
        match fact:
            case StepCompleted() | StepFailed():
                self._resolve(fact)
            case TimerFired():
                self._fire(fact)
            case SignalReceived():
                self._loop.context.run(self._signals.receive, fact.name, fact.value)
            case CancelRequested():
                self._cancel(fact)
        self._settle()

    def _note(self, fact: AttemptFailed | AttemptStarted | Patched | Suspended) -> None:
        if isinstance(fact, AttemptFailed | AttemptStarted):
            step = self._wanted(fact)
            if step is not None and isinstance(fact, AttemptFailed):
                self._steps.note(step, fact)

    def _resolve(self, fact: StepCompleted | StepFailed) -> None:
        step = self._wanted(fact)
        if step is None:
            return
        if isinstance(fact, StepCompleted):
            self._steps.complete(step, fact)
        else:
            self._steps.fail(step, fact)

    def _wanted(self, fact: StepCompleted | StepFailed | AttemptFailed | AttemptStarted) -> OpenStep | None:
        """Return the step a fact is about; None if the workflow has withdrawn it."""
        step = self._steps.find(fact.key)
        if step is None and not self._steps.was_asked(fact.key):
            raise diverged(self._position, fact, "the workflow has not asked for that step", self.waiting_for())
        return step

    def _fire(self, fact: TimerFired) -> None:
        timer = self._timers.open.get(fact.number)
        if timer is None:
            if fact.number >= self._timers.count:
                raise diverged(self._position, fact, "the workflow has not set that timer", self.waiting_for())
            return
        if timer.deadline_ms != fact.deadline_ms:
            why = f"the workflow has set it for {instant(timer.deadline_ms).isoformat()}"
            raise diverged(self._position, fact, why, self.waiting_for())
        self._timers.take(fact.number)
        self._loop.call_soon(timer.callback, *timer.args, context=timer.context)

    def _cancel(self, fact: CancelRequested) -> None:
        if not self._loop.is_cancelled and self._main is not None:
            self._loop.is_cancelled = True
            self._main.cancel(fact.reason or None)

    def _settle(self) -> None:
        """Run the workflow until it waits for a fact, or has ended."""
        main = self._main
        assert main is not None  # noqa: S101 - it was started
        self._loop.drain()
        while self._loop.fatal is None and not main.done() and self._conditions.wake():
            self._loop.drain()
        if self._loop.fatal is not None:
            self.closed = Fail(error=self._loop.fatal)
        elif main.done():
            self.closed = self._end_of(main)
        if self.closed is not None:
            self._tell_of_loose_ends(main)

    def _end_of(self, main: asyncio.Task[Any]) -> Closing:
        try:
            return Complete(value=main.result())
        except asyncio.CancelledError as error:
            return EndCancelled(error=error) if self._loop.is_cancelled else Fail(error=error)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the run has ended with it
            return Fail(error=error)

    def _tell_of_loose_ends(self, main: asyncio.Task[Any]) -> None:
        for future in (*self._loop.tasks, *self._steps.failed):
            if future is not main and future.done() and is_unheard(future):
                error = future.exception()
                assert error is not None  # noqa: S101 - an unheard future has failed
                self._report("a task or step failed, and the workflow ended without awaiting it", error)
        if main.done():
            silence(main)
        if isinstance(self.closed, Complete) and self._steps.open and not self._patches.is_replaying:
            steps = ", ".join(map(str, self._steps.open))
            _log.warning("the workflow ended without awaiting steps", extra={"iii": {**self._fields, "steps": steps}})

    def _commands(self) -> list[Command]:
        commands = self._outbox.take()
        if self.closed is None or self._is_told:
            return commands if self.closed is None else []
        self._is_told = True
        patches: list[Command] = [each for each in commands if isinstance(each, RecordPatch)]
        return [*patches, self.closed]

    def _report(self, what: str, error: BaseException) -> None:
        if self._patches.is_replaying:
            return
        _log.error(what, extra={"iii": {**self._fields, "error": f"{type(error).__name__}: {message_of(error)}"}})
