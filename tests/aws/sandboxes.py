"""Sandboxes of Lambdas beside each other in one process, and the threads they run on."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from iii_runtime.core.trigger_request import TriggerRequest
from iii_runtime.hosts.aws_lambda.context import LambdaContext
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.hosts.loop_invoker import LoopInvoker

T = TypeVar("T")

_invoker: ContextVar[LoopInvoker | None] = ContextVar("sandbox_invoker", default=None)


class SharedSandbox(Sandbox):
    """A sandbox beside others in one process: the workers belong to the one whose code runs.

    Between two invocations it is frozen, as on AWS: its loop stands still.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._is_thawed = threading.Event()
        self._freeze()

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], context: LambdaContext) -> T:
        """Do some work, and freeze."""
        self._is_thawed.set()
        try:
            return super().run(work, context)
        finally:
            self._freeze()

    def close(self) -> None:
        """End its threads."""
        self._is_thawed.set()
        super().close()

    def _freeze(self) -> None:
        self._is_thawed.clear()
        self._loop.call_soon_threadsafe(self._is_thawed.wait)

    @contextmanager
    def _attached(self) -> Iterator[None]:
        token = _invoker.set(self._invoker)
        try:
            yield
        finally:
            _invoker.reset(token)


class ContextInvoker:
    """What is attached to workers that several sandboxes share.

    Args:
        outside: Carries out what code outside of every function asks for.
    """

    def __init__(self, outside: Callable[[TriggerRequest], Any]) -> None:
        self._outside = outside

    def trigger(self, request: TriggerRequest) -> Any:
        """Carry out a request in the sandbox whose code asks."""
        invoker = _invoker.get()
        return self._outside(request) if invoker is None else invoker.trigger(request)

    async def trigger_async(self, request: TriggerRequest) -> Any:
        """Carry out a request in the sandbox whose code asks."""
        invoker = _invoker.get()
        if invoker is None:
            return await in_thread(lambda: self._outside(request))
        return await invoker.trigger_async(request)


async def in_thread(body: Callable[[], T]) -> T:
    """Run `body` on a thread of its own, which ends with the process if it hangs."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(outcome: Callable[[], None]) -> None:
        if not future.done():
            outcome()

    def run() -> None:
        try:
            value = context.run(body)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the outcome
            told = error
            outcome = lambda: future.set_exception(told)  # noqa: E731
        else:
            outcome = lambda: future.set_result(value)  # noqa: E731
        with contextlib.suppress(RuntimeError):  # the test has ended
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=run, name="aws-invocation", daemon=True).start()
    return await future


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and return when it has ended."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
