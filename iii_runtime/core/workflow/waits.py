"""Waiting for something that happens within the workflow, with a timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from datetime import timedelta
from typing import Any

from iii_runtime.core.workflow.loop import WorkflowLoop
from iii_runtime.core.workflow.timers import seconds_of


async def wait_for_future(
    loop: WorkflowLoop, future: asyncio.Future[Any], timeout: timedelta | float | None, what: str
) -> Any:
    """Await a future; the same on every version of Python, which `asyncio.wait_for` is not.

    Raises:
        TimeoutError: It has no result when the time is over.
    """
    if timeout is None:
        return await future

    def expire() -> None:
        if not future.done():
            future.set_exception(TimeoutError(f"{what} took longer than {timeout}"))

    handle = loop.call_later(seconds_of(timeout, f"the timeout of {what}"), expire)
    try:
        return await future
    finally:
        handle.cancel()


class Conditions:
    """What a workflow waits for by looking at its own variables: looked at after each fact."""

    def __init__(self, loop: WorkflowLoop) -> None:
        self._loop = loop
        self._waiting: dict[asyncio.Future[None], tuple[Callable[[], object], Context]] = {}

    def __str__(self) -> str:
        names = (
            getattr(predicate, "__qualname__", type(predicate).__name__) for predicate, _ in self._waiting.values()
        )
        return ", ".join(f"the condition {name.replace('<locals>.', '')}" for name in names)

    async def wait_until(self, predicate: Callable[[], object], timeout: timedelta | float | None) -> None:
        """Return when `predicate` is true.

        Raises:
            TimeoutError: It is not true in time.
        """
        self._loop.check("ctx.wait_until")
        if self._look(predicate):
            return
        future = self._loop.create_future()
        self._waiting[future] = predicate, copy_context()
        try:
            await wait_for_future(self._loop, future, timeout, "ctx.wait_until")
        finally:
            self._waiting.pop(future, None)

    def wake(self) -> bool:
        """Let those waits end whose predicate is true, or raises; return whether there was one."""
        is_any = False
        for future, (predicate, context) in list(self._waiting.items()):
            if future.done():
                continue
            try:
                if not context.run(self._look, predicate):
                    continue
            except Exception as error:  # noqa: BLE001 - it is raised where the workflow waits
                future.set_exception(error)
            else:
                future.set_result(None)
            is_any = True
        return is_any

    def _look(self, predicate: Callable[[], object]) -> bool:
        self._loop.is_reading, was_reading = True, self._loop.is_reading
        try:
            return bool(predicate())
        finally:
            self._loop.is_reading = was_reading
