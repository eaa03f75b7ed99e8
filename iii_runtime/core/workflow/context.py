"""What a workflow is given: durable steps, time, randomness, signals and queries."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Coroutine, MutableMapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple, ParamSpec, TypeVar, overload
from uuid import UUID

from iii_runtime.core.logger import LOGGER_NAME
from iii_runtime.core.workflow.loop import WorkflowLoop
from iii_runtime.core.workflow.options import StepOptions
from iii_runtime.core.workflow.patches import Patches
from iii_runtime.core.workflow.queries import Queries
from iii_runtime.core.workflow.retry import DEFAULT_RETRY, RetryPolicy
from iii_runtime.core.workflow.saga import Saga
from iii_runtime.core.workflow.signals import Signals
from iii_runtime.core.workflow.steps import Step, StepRequests
from iii_runtime.core.workflow.timers import instant, ms_of, seconds_of
from iii_runtime.core.workflow.waits import Conditions

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_DEFAULT = StepOptions()


class RunInfo(NamedTuple):
    """Which run it is.

    Attributes:
        workflow: Function id of the workflow.
        workflow_id: Chosen by whoever started it.
        run_id: Identity of this run.
        started_ms: When it was started, Unix milliseconds.
    """

    workflow: str
    workflow_id: str
    run_id: str
    started_ms: int


class Parts(NamedTuple):
    """What a context hands its calls to."""

    loop: WorkflowLoop
    steps: StepRequests
    signals: Signals
    queries: Queries
    conditions: Conditions
    patches: Patches


class Steps:
    """Steps with options of their own: what `ctx.options` returns.

    Args:
        requests: Where steps are asked for.
        options: Retries and timeouts.
        name: Name of the steps; that of the function if None.
    """

    def __init__(self, requests: StepRequests, options: StepOptions, name: str | None) -> None:
        self._requests = requests
        self._options = options
        self._name = name

    @overload
    def step(self, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> Step[T]: ...

    @overload
    def step(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Step[T]: ...

    def step(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Step[Any]:
        """Run a function as a durable step; see `WorkflowContext.step`."""
        return self._requests.ask(function, args, kwargs, name=self._name, options=self._options)


class WorkflowContext:
    """The way of a workflow to everything outside it. Its first argument.

    Plain asyncio is durable in a workflow: `gather`, `wait`, `timeout`, `sleep`, `TaskGroup`, tasks, events, queues,
    cancellation. Everything else that has an effect, or whose outcome may differ, belongs in a step.

    Attributes:
        workflow_id: Chosen by whoever started it.
        run_id: Identity of this run.
    """

    def __init__(self, info: RunInfo, parts: Parts) -> None:
        self.workflow_id = info.workflow_id
        self.run_id = info.run_id
        self._info = info
        self._logger: WorkflowLogger | None = None
        self._parts = parts
        self._steps = Steps(parts.steps, _DEFAULT, None)
        self._random: random.Random | None = None
        self._ids: random.Random | None = None

    @overload
    def step(self, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> Step[T]: ...

    @overload
    def step(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Step[T]: ...

    def step(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Step[Any]:
        """Run a function as a durable step, at least once; await what is returned for its result.

        It is asked for at once, and runs when the workflow awaits something. Once it has an outcome it never runs
        again; the result is what comes back from its stored form.

        Args:
            function: What to call; synchronous or asynchronous.
            *args: Its positional arguments.
            **kwargs: Its keyword arguments.

        Raises:
            StepError: From the await: it failed, and will not be tried again.
            MisplacedCallError: The workflow does not run: a step cannot ask for steps.
            LimitError: The run has asked for as many steps as it may. It fails then.
        """
        return self._steps.step(function, *args, **kwargs)

    def options(
        self,
        *,
        name: str | None = None,
        retry: RetryPolicy = DEFAULT_RETRY,
        start_to_close: timedelta | None = None,
        schedule_to_close: timedelta | None = None,
        at_most_once: bool = False,
    ) -> Steps:
        """Return steps with a name, retries and timeouts of their own: `await ctx.options(name="x").step(function)`.

        The parameters are those of `StepOptions`.
        """
        options = StepOptions(
            retry=retry, start_to_close=start_to_close, schedule_to_close=schedule_to_close, at_most_once=at_most_once
        )
        return Steps(self._parts.steps, options, name)

    async def sleep(self, duration: timedelta | float) -> None:
        """Sleep durably. Zero or less returns at once.

        Raises:
            LimitError: It is longer than 366 days.
        """
        loop = self._parts.loop
        future = loop.create_future()
        handle = loop.call_later(seconds_of(duration, "a sleep"), _wake, future)
        try:
            await future
        finally:
            handle.cancel()

    async def sleep_until(self, moment: datetime) -> None:
        """Sleep durably until a time, which must have a time zone. One that has passed returns at once.

        Raises:
            LimitError: It is more than 366 days away.
        """
        await self.sleep((ms_of(moment) - self._parts.loop.now_ms) / 1000)

    def now(self) -> datetime:
        """Return the time of the last thing that happened to the run, in UTC: the same on every replay."""
        return instant(self._parts.loop.now_ms)

    def random(self) -> random.Random:
        """Return the run's source of random numbers: the same numbers on every replay."""
        self._parts.loop.check("ctx.random")
        if self._random is None:
            self._random = random.Random(f"random {self.run_id}")  # noqa: S311 - must be repeatable
        return self._random

    def uuid4(self) -> UUID:
        """Return a new uuid: the same on every replay."""
        self._parts.loop.check("ctx.uuid4")
        if self._ids is None:
            self._ids = random.Random(f"uuid4 {self.run_id}")  # noqa: S311 - must be repeatable
        return UUID(int=self._ids.getrandbits(128), version=4)

    @property
    def logger(self) -> WorkflowLogger:
        """A logger whose lines carry the ids of the run, and which is silent while the past is repeated."""
        if self._logger is None:
            self._logger = WorkflowLogger(self._info, self._parts)
        return self._logger

    def patched(self, patch_id: str) -> bool:
        """Return whether this run takes the new branch of a change of its code.

        Runs that have passed this place before the change say False, others True; the answer never changes within a
        run.
        """
        return self._parts.patches.is_taken(patch_id)

    def on_signal(self, name: str) -> Callable[[F], F]:
        """Register the handler of a signal, which is called with the payload.

        Signals that came before are handled first. One whose payload does not fit is logged and passed over; what a
        handler raises fails the run.
        """
        self._parts.loop.check("ctx.on_signal")
        return lambda function: self._parts.signals.handle(name, function)

    async def wait_for_signal(self, name: str, timeout: timedelta | float | None = None) -> Any:
        """Return the payload of the next signal of this name, one that came before included. One wait takes one signal.

        Raises:
            TimeoutError: None came in time.
        """
        return await self._parts.signals.wait_for(name, timeout)

    async def wait_until(self, predicate: Callable[[], object], timeout: timedelta | float | None = None) -> None:
        """Return when `predicate()` is true. It may only read; it is asked now, and after everything that happens.

        Raises:
            TimeoutError: It was not true in time.
        """
        await self._parts.conditions.wait_until(predicate, timeout)

    def on_query(self, name: str) -> Callable[[F], F]:
        """Register the handler of a query: a plain function that reads and returns. It answers after the end too."""
        self._parts.loop.check("ctx.on_query")
        return lambda function: self._parts.queries.handle(name, function)

    def saga(self) -> Saga:
        """Return a block whose steps are undone, in reverse order, when it is left by an error or a cancellation."""
        return Saga(self._parts.loop, self._parts.steps)


class WorkflowLogger(logging.LoggerAdapter[logging.Logger]):
    """The logger of a run: silent while the past is repeated."""

    def __init__(self, info: RunInfo, parts: Parts) -> None:
        super().__init__(logging.getLogger(LOGGER_NAME), {})
        self._fields = {"function_id": info.workflow, "workflow_id": info.workflow_id, "run_id": info.run_id}
        self._parts = parts

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name is logging's
        """Return whether a line of this level is written now."""
        is_silent = self._parts.patches.is_replaying or self._parts.loop.is_dying
        return not is_silent and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the ids of the run to a line."""
        extra = dict(kwargs.get("extra") or {})
        own = extra.get("iii")
        extra["iii"] = {**self._fields, **(own if isinstance(own, dict) else {})}
        kwargs["extra"] = extra
        return msg, kwargs


def _wake(future: Any) -> None:
    if not future.done():
        future.set_result(None)
