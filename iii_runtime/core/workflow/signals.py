"""Signals: kept in order until a wait or a handler takes them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from iii_runtime.core.payload import Json, check_name
from iii_runtime.core.runs.values import decode_value
from iii_runtime.core.workflow.handlers import ArgumentsUnfitError, Handler
from iii_runtime.core.workflow.loop import WorkflowLoop
from iii_runtime.core.workflow.waits import wait_for_future

F = TypeVar("F", bound=Callable[..., Any])


class Signals:
    """The signals of one run.

    A signal goes to the first wait for its name, else to its handler, else it is kept.

    Args:
        loop: The loop of the workflow.
        report: Told of a signal that no handler can take.
    """

    def __init__(self, loop: WorkflowLoop, report: Callable[[str, BaseException], None]) -> None:
        self._loop = loop
        self._report = report
        self._kept: dict[str, deque[Json]] = {}
        self._handlers: dict[str, Handler] = {}
        self._waits: dict[str, dict[asyncio.Future[Json], None]] = {}

    @property
    def awaited(self) -> list[str]:
        """Names of the signals that are waited for."""
        return [name for name, waits in self._waits.items() if waits]

    def receive(self, name: str, value: Json) -> None:
        """Take a signal."""
        self._kept.setdefault(name, deque()).append(value)
        self._hand_out(name)

    def handle(self, name: str, function: F) -> F:
        """Register a handler; signals that are kept go to it in order, before the workflow goes on."""
        check_name(name, "the name of a signal")
        self._handlers[name] = Handler(function, f"signal '{name}'")
        self._hand_out(name)
        return function

    async def wait_for(self, name: str, timeout: timedelta | float | None) -> Any:
        """Return the payload of the next signal of this name; it is consumed.

        Raises:
            TimeoutError: None came in time.
        """
        self._loop.check("ctx.wait_for_signal")
        check_name(name, "the name of a signal")
        future = self._loop.create_future()
        self._waits.setdefault(name, {})[future] = None
        self._hand_out(name)
        try:
            return decode_value(await wait_for_future(self._loop, future, timeout, f"signal '{name}'"))
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                # The signal came, and the wait was cancelled before it could return it.
                self._kept.setdefault(name, deque()).appendleft(future.result())
                self._hand_out(name)
            raise
        finally:
            self._waits[name].pop(future, None)

    def _hand_out(self, name: str) -> None:
        kept, waits = self._kept.get(name), self._waits.get(name)
        while kept and waits:
            future = next(iter(waits))
            del waits[future]
            if not future.done():
                future.set_result(kept.popleft())
        handler = self._handlers.get(name)
        while kept and handler is not None:
            self._loop.call_soon(self._call, handler, kept.popleft(), context=self._loop.context.copy())

    def _call(self, handler: Handler, value: Json) -> None:
        """Call a handler. What it raises ends the run; a signal that does not fit it is passed over."""
        try:
            call = handler.bind([value])
        except ArgumentsUnfitError as error:
            self._report(f"{handler.what} was passed over", error)
            return
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - there is no other place where the workflow could learn of it
            self._loop.fatal = self._loop.fatal or error
            return
        if asyncio.iscoroutine(result):
            self._loop.create_task(self._finish(result), name=handler.what)

    async def _finish(self, handling: Coroutine[Any, Any, Any]) -> None:
        try:
            await handling
        except Exception as error:  # noqa: BLE001 - as above
            self._loop.fatal = self._loop.fatal or error
