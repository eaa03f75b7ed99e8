"""Running one function: find it, bind its input, run its body, turn what went wrong into one typed error."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from inspect import isawaitable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from iii_runtime.core.call import Call
from iii_runtime.core.errors import (
    DeadlineExceededError,
    FunctionBusyError,
    InputInvalidError,
    InvocationError,
    StoreError,
    message_of,
)
from iii_runtime.core.handler import HandlerPlan
from iii_runtime.core.invocation import Invocation, enter_invocation
from iii_runtime.core.payload import Json, PayloadError, to_json
from iii_runtime.core.registry import FunctionSpec
from iii_runtime.core.trace import child_traceparent
from iii_runtime.engine.app import App
from iii_runtime.ports.clock import IdSource
from iii_runtime.ports.executor import Executor
from iii_runtime.ports.meter import Meter, NoMeter
from iii_runtime.ports.remote_functions import RemoteFunctions


class Workflows(Protocol):
    """What a call of a workflow's function means."""

    async def invoke(self, function: FunctionSpec, call: Call, within: timedelta) -> Any:
        """Start a run; a caller who waits for an answer gets its result."""
        ...


MAX_DEPTH = 64
LAST_CALLS = timedelta(milliseconds=500)
"""What a function that is called has beyond the time of its caller: it may be part of the caller's end."""

_PACKAGE = str(Path(__file__).resolve().parent.parent)


class FunctionInvoker:
    """Runs registered functions: here, or in their own hosts if their code is not in this process.

    Attributes:
        remaining: How long this host may still run, if it is bounded; no function is given more.
        workflows: What starts runs of workflows; None where nothing does.
    """

    def __init__(
        self,
        app: App,
        executor: Executor,
        ids: IdSource,
        remote: RemoteFunctions | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._app = app
        self._executor = executor
        self._ids = ids
        self._remote = remote
        self._meter = meter or NoMeter()
        self.remaining: Callable[[], timedelta | None] = lambda: None
        self.workflows: Workflows | None = None

    def is_remote(self, function_id: str) -> bool:
        """Return whether a registered function runs in a host of its own."""
        function = self._app.catalog.functions.get(function_id)
        return function is not None and function.plan is None

    async def invoke(self, call: Call, caller: Invocation | None = None) -> Json:
        """Run the function and return its result as JSON: a deep copy that shares nothing with the handler.

        Args:
            call: What to run.
            caller: The invocation that waits for it: it has no more than half a second beyond the time of that one.

        Raises:
            InvocationError: `function_not_found`, `VALIDATION_FAILED`, `TIMEOUT`, `function_busy` (it did not run), or
                `invocation_failed` with the handler's exception as `__cause__`.
        """
        result = await self.invoke_raw(call, caller)
        try:
            return to_json(result, "result")
        except PayloadError as error:
            raise InvocationError(
                "invocation_failed",
                f"function '{call.function_id}' returned no JSON: {error.message}",
                call.function_id,
            ) from error

    async def invoke_raw(self, call: Call, caller: Invocation | None = None) -> Any:
        """Do what `invoke` does and return the handler's own result, for callers that know more than JSON (http)."""
        function = self._app.function(call.function_id)
        invocation = self._invocation(call)
        if call.depth > MAX_DEPTH:
            raise InvocationError(
                "invocation_failed",
                f"function '{call.function_id}' is called {call.depth} levels deep; the limit is {MAX_DEPTH}.",
                call.function_id,
            )
        limit = self._limit(function, call, caller)
        if function.plan is None:
            return await self._run_elsewhere(function, call, limit)
        if function.workflow is not None:
            return await self._start_run(function, call, limit)
        try:
            return await self._run(function.plan, call, invocation, limit)
        except DeadlineExceededError as error:
            self._meter.add("FunctionErrors", function_id=function.id)
            raise InvocationError(
                "TIMEOUT",
                f"function '{function.id}' did not end within {limit.total_seconds():g} s.",
                function.id,
                invocation_id=invocation.id,
            ) from error
        except InputInvalidError as error:
            raise InvocationError(error.code, error.message, function.id, invocation_id=invocation.id) from error
        except FunctionBusyError as error:
            message = f"function '{function.id}' was not started: {error.message}"
            raise InvocationError(error.code, message, function.id, invocation_id=invocation.id) from error
        except Exception as error:
            self._meter.add("FunctionErrors", function_id=function.id)
            raise InvocationError(
                "invocation_failed", message_of(error), function.id, handler_stack(error), invocation.id
            ) from error

    def _limit(self, function: FunctionSpec, call: Call, caller: Invocation | None) -> timedelta:
        limit, remaining = call.timeout or self._app.timeout_of(function), self.remaining()
        if caller is not None and caller.ends_at is not None:
            left = timedelta(seconds=max(caller.ends_at - time.monotonic(), 0))
            limit = min(limit, left + LAST_CALLS)
        return limit if remaining is None else max(min(limit, remaining), timedelta(0))

    async def _start_run(self, function: FunctionSpec, call: Call, limit: timedelta) -> Any:
        if self.workflows is None:
            message = f"'{function.id}' is a workflow, and this host cannot run workflows yet: use the embedded host."
            raise InvocationError("workflows_unavailable", message, function.id)
        try:
            return await self.workflows.invoke(function, call, limit)
        except InputInvalidError as error:
            raise InvocationError(error.code, error.message, function.id) from error

    async def _run_elsewhere(self, function: FunctionSpec, call: Call, limit: timedelta) -> Json:
        if self._remote is None:
            message = f"the code of function '{function.id}' is not in this process, which has no way to call it."
            raise InvocationError("function_not_found", message, function.id)
        try:
            return await self._remote.invoke(call, limit)
        except FunctionBusyError as error:
            raise InvocationError(error.code, error.message, function.id) from error
        except StoreError as error:
            raise InvocationError(error.code, error.message, function.id) from error

    async def _run(self, plan: HandlerPlan, call: Call, invocation: Invocation, timeout: timedelta) -> Any:
        def begin() -> None:
            enter_invocation(replace(invocation, ends_at=time.monotonic() + timeout.total_seconds()))

        def body() -> Any:
            begin()
            return plan.bind(call.payload, call.source, call.metadata)()

        def rest() -> Any:
            begin()
            return result

        result = await self._executor.run(body, is_async=plan.is_async, timeout=timeout)
        # A plain function may return a coroutine: a decorator around `async def` does.
        return await self._executor.run(rest, is_async=True, timeout=timeout) if isawaitable(result) else result

    def _invocation(self, call: Call) -> Invocation:
        identity = call.identity or self._ids.new_id()
        return Invocation(
            id=identity,
            function_id=call.function_id,
            source=call.source,
            queue=call.queue,
            message_receipt_id=call.receipt,
            attempt=call.attempt,
            max_attempts=call.max_attempts,
            hops=call.hops,
            depth=call.depth,
            traceparent=child_traceparent(call.traceparent, identity),
            baggage=call.baggage,
        )


def handler_stack(error: BaseException) -> str:
    """Return the traceback of an error from the handler's first frame on, without the runtime's own before it."""
    start: TracebackType | None = error.__traceback__
    while start is not None and start.tb_next is not None and start.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        start = start.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, start))
    except BaseException:  # noqa: BLE001 - an exception may describe itself with code of the user's that fails
        return "".join(traceback.format_tb(start))
