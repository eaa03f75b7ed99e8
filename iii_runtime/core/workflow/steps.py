"""The steps of one run: what the workflow asked for, and what has no outcome yet."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from iii_runtime.core.payload import check_name
from iii_runtime.core.runs.errors import LimitError, step_error
from iii_runtime.core.runs.facts import AttemptFailed, Key, StepCompleted, StepFailed
from iii_runtime.core.runs.value_hints import hint_of
from iii_runtime.core.runs.values import decode_value
from iii_runtime.core.workflow.commands import RunStep, WithdrawStep
from iii_runtime.core.workflow.loop import WorkflowLoop
from iii_runtime.core.workflow.options import StepOptions
from iii_runtime.core.workflow.outbox import Outbox
from iii_runtime.core.workflow.tasks import WorkflowFuture
from iii_runtime.core.workflow.timers import instant

T = TypeVar("T")

if TYPE_CHECKING:

    class Step(WorkflowFuture[T], Coroutine[Any, Any, T]):
        """A step that was asked for. To a type checker it is a coroutine too, for `create_task` takes it."""

        def __init__(self, number: int, *, loop: asyncio.AbstractEventLoop, withdraw: Callable[[], None]) -> None: ...
        def send(self, value: Any, /) -> Any: ...  # noqa: D102
        def throw(self, *error: Any) -> Any: ...  # noqa: D102
        def close(self) -> None: ...  # noqa: D102

else:

    class Step(WorkflowFuture):
        """A step that was asked for: a future of its result. When it is cancelled the step is withdrawn."""

        def __init__(self, number, *, loop, withdraw):
            super().__init__(number, loop=loop)
            self._withdraw = withdraw

        def cancel(self, msg=None):
            """Withdraw the step, if it has no outcome."""
            if not super().cancel(msg):
                return False
            self._withdraw()
            return True


class OpenStep:
    """A step without an outcome.

    Attributes:
        name: Its name.
        occurrence: How many of this name were asked for before it.
        requested_ms: When it was asked for.
        attempts: How many attempts have failed.
        next_at_ms: When the next attempt begins; None before the first failure.
    """

    __slots__ = (
        "arguments",
        "attempts",
        "entry",
        "function",
        "future",
        "keywords",
        "name",
        "next_at_ms",
        "occurrence",
        "options",
        "requested_ms",
    )

    def __init__(
        self,
        name: str,
        occurrence: int,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        keywords: Mapping[str, Any],
        options: StepOptions,
        requested_ms: int,
    ) -> None:
        self.name = name
        self.occurrence = occurrence
        self.function = function
        self.arguments = arguments
        self.keywords = keywords
        self.options = options
        self.requested_ms = requested_ms
        self.attempts = 0
        self.next_at_ms: int | None = None
        self.entry = 0
        self.future: Step[Any] | None = None

    def __str__(self) -> str:
        if not self.attempts:
            return str(self.key)
        times = "attempt" if self.attempts == 1 else "attempts"
        next_at = "" if self.next_at_ms is None else f", next at {instant(self.next_at_ms).isoformat()}"
        return f"{self.key}, {self.attempts} {times} failed{next_at}"

    @property
    def key(self) -> Key:
        """Its identity."""
        return Key("step", self.name, self.occurrence)

    def command(self) -> RunStep:
        """Return the command that runs it."""
        return RunStep(
            key=self.key,
            function=self.function,
            arguments=self.arguments,
            keywords=self.keywords,
            options=self.options,
            requested_ms=self.requested_ms,
        )


class StepRequests:
    """What the workflow asked for.

    Args:
        loop: The loop it runs on.
        outbox: Where commands go.
        max_steps: How many steps it may ask for.
    """

    def __init__(self, loop: WorkflowLoop, outbox: Outbox, max_steps: int) -> None:
        self.failed: list[Step[Any]] = []
        self._loop = loop
        self._outbox = outbox
        self._max_steps = max_steps
        self._count = 0
        self._occurrences: dict[str, int] = {}
        self._open: dict[tuple[str, int], OpenStep] = {}

    @property
    def open(self) -> list[OpenStep]:
        """The steps without an outcome, in the order in which they were asked for."""
        return list(self._open.values())

    def ask(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        keywords: Mapping[str, Any],
        *,
        name: str | None,
        options: StepOptions,
    ) -> Step[Any]:
        """Ask for a step; return the future of its result.

        Raises:
            MisplacedCallError: The workflow does not run.
            PayloadError: The name is none.
            LimitError: It is one more than the workflow may ask for. The run fails then.
        """
        loop = self._loop
        loop.check("ctx.step")
        name = name_of(function) if name is None else name
        occurrence = self._occurrences.get(name, 0)
        if not occurrence:
            check_name(name, "the name of a step")
        if loop.is_dying:
            return Step(loop.next_number(), loop=loop, withdraw=_nothing)
        self._count += 1
        if self._count > self._max_steps:
            error = LimitError(f"steps of this run, with step '{name}'", self._max_steps, "steps", self._count)
            loop.fatal = loop.fatal or error
            raise error
        self._occurrences[name] = occurrence + 1
        step = OpenStep(name, occurrence, function, arguments, keywords, options, loop.now_ms)
        future: Step[Any] = Step(loop.next_number(), loop=loop, withdraw=functools.partial(self._withdraw, step))
        step.future = future
        step.entry = self._outbox.add(step.command)
        self._open[name, occurrence] = step
        return future

    def find(self, key: Key) -> OpenStep | None:
        """Return the step of this key, if it has no outcome and is still waited for."""
        return self._open.get((key.name, key.occurrence))

    def was_asked(self, key: Key) -> bool:
        """Return whether the workflow has asked for a step, whatever became of it."""
        return key.occurrence < self._occurrences.get(key.name, 0)

    def complete(self, step: OpenStep, fact: StepCompleted) -> None:
        """Let a step return what was stored."""
        future = self._take(step)
        try:
            value = decode_value(fact.value, hint_of(step.function), f"the stored result of step '{step.name}'")
        except Exception as error:  # noqa: BLE001 - the classes of the user's own, made again
            self._fail(future, error)
        else:
            future.set_result(value)

    def fail(self, step: OpenStep, fact: StepFailed) -> None:
        """Let a step raise what was stored."""
        self._fail(self._take(step), step_error(fact.key, fact.failure, fact.attempts))

    def note(self, step: OpenStep, fact: AttemptFailed) -> None:
        """Note that an attempt has failed and another one follows."""
        step.attempts, step.next_at_ms = fact.attempt, fact.next_at_ms

    def _take(self, step: OpenStep) -> Step[Any]:
        del self._open[step.name, step.occurrence]
        self._outbox.discard(step.entry)
        future, step.future = step.future, None
        assert future is not None  # noqa: S101 - an open step has one
        return future

    def _fail(self, future: Step[Any], error: Exception) -> None:
        future.set_exception(error)
        self.failed.append(future)

    def _withdraw(self, step: OpenStep) -> None:
        self._take(step)
        if not self._loop.is_dying and not self._outbox.discard(step.entry):
            self._outbox.add(lambda: WithdrawStep(key=step.key))


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a step that has no other: that of its function."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        return type(function).__name__
    if name == "<lambda>":  # its qualified name tells where it is written
        return str(getattr(function, "__qualname__", name)).replace("<locals>.", "")
    return name


def _nothing() -> None:
    """Withdraw nothing: what a dying workflow asks for was never asked for."""
