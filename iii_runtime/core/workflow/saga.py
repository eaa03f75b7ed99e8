"""Sagas: what was done is undone by steps, in reverse order, when a block is left by an error or a cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, ParamSpec

from iii_runtime.core.errors import message_of
from iii_runtime.core.frozen import frozen
from iii_runtime.core.payload import check_name
from iii_runtime.core.workflow.loop import WorkflowLoop
from iii_runtime.core.workflow.options import StepOptions
from iii_runtime.core.workflow.retry import DEFAULT_RETRY, RetryPolicy
from iii_runtime.core.workflow.steps import Step, StepRequests, name_of

P = ParamSpec("P")


@frozen(kw_only=True)
class _Undo:
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    options: StepOptions
    name: str


class Compensations:
    """Where compensations with the same options are registered: what `saga.options` returns."""

    def __init__(self, registered: list[_Undo], options: StepOptions, name: str | None) -> None:
        self._registered = registered
        self._options = options
        self._name = name

    def compensate(self, function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Register a compensation; see `Saga.compensate`."""
        name = check_name(name_of(function) if self._name is None else self._name, "the name of a compensation")
        self._registered.append(
            _Undo(function=function, arguments=args, keywords=kwargs, options=self._options, name=name)
        )


class Saga:
    """A block whose compensations run when it is left by an error or a cancellation.

    They run in strictly reverse order, each as a durable step. One that fails does not stop the others. The original
    error goes on: failed compensations are its notes, and its `compensation_failures`. A cancellation does not reach
    the compensations.

        async with ctx.saga() as saga:
            saga.compensate(refund, order)   # before the step, if it may have happened without an answer
            await ctx.step(charge, order)
    """

    def __init__(self, loop: WorkflowLoop, requests: StepRequests) -> None:
        self._loop = loop
        self._requests = requests
        self._registered: list[_Undo] = []

    def compensate(self, function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Register a function that undoes something. It may run more than once: make it idempotent."""
        self.options().compensate(function, *args, **kwargs)

    def options(
        self,
        *,
        name: str | None = None,
        retry: RetryPolicy = DEFAULT_RETRY,
        start_to_close: timedelta | None = None,
        schedule_to_close: timedelta | None = None,
    ) -> Compensations:
        """Return a place for compensations with a name, retries and timeouts of their own."""
        options = StepOptions(retry=retry, start_to_close=start_to_close, schedule_to_close=schedule_to_close)
        return Compensations(self._registered, options, name)

    async def __aenter__(self) -> Saga:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        # Anything else is no outcome of the workflow: it is put to sleep, or its host ends.
        if isinstance(error, Exception | asyncio.CancelledError):
            await self._compensate(error)

    async def _compensate(self, original: BaseException) -> None:
        was_cancelled = self._loop.is_cancelled
        failures = []
        while self._registered:
            undo = self._registered.pop()
            step = self._requests.ask(
                undo.function, undo.arguments, undo.keywords, name=undo.name, options=undo.options
            )
            await _ended(step)
            failure = step.exception()
            if failure is not None:
                failures.append(failure)
                original.add_note(f"a compensation failed: {message_of(failure)}")
        if failures:
            original.compensation_failures = failures  # type: ignore[attr-defined]
        task = asyncio.current_task()
        if self._loop.is_cancelled and not was_cancelled and task is not None and task.cancelling():
            # The run was cancelled meanwhile. That strikes at the next await, if the original error is caught.
            task.uncancel()
            task.cancel()


async def _ended(step: Step[Any]) -> None:
    """Return when a step has an outcome, whatever is cancelled meanwhile."""
    while not step.done():
        try:
            await asyncio.wait([step])
        except asyncio.CancelledError:
            continue
