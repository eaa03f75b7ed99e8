"""Running one function: find it, bind its input, run its body, turn what went wrong into one typed error."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from datetime import timedelta
from inspect import isawaitable
from pathlib import Path
from types import TracebackType
from typing import Any

from iii_runtime.core.errors import DeadlineExceededError, InputInvalidError, InvocationError, message_of
from iii_runtime.core.invocation import Invocation, Source, enter_invocation
from iii_runtime.core.payload import Json, PayloadError, to_json
from iii_runtime.core.registry import FunctionSpec
from iii_runtime.core.trace import child_traceparent
from iii_runtime.engine.app import App
from iii_runtime.ports.clock import IdSource
from iii_runtime.ports.executor import Executor

MAX_DEPTH = 64
_PACKAGE = str(Path(__file__).resolve().parent.parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a function.

    Attributes:
        function_id: The function.
        payload: Its raw input.
        source: What started it.
        identity: Id of the invocation; a fresh one by default.
        metadata: Sidecar for handlers that declare `metadata`.
        timeout: Overrides the function's own timeout.
        queue: Queue of the message it serves.
        receipt: Receipt of that message.
        attempt: Number of the attempt.
        max_attempts: Attempts the queue grants in total.
        hops: Enqueues behind it.
        depth: Direct calls behind it.
        traceparent: Trace context to continue.
        baggage: Baggage to carry on.
    """

    function_id: str
    payload: Json = None
    source: Source = "direct"
    identity: str | None = None
    metadata: Json = None
    timeout: timedelta | None = None
    queue: str | None = None
    receipt: str | None = None
    attempt: int = 1
    max_attempts: int | None = None
    hops: int = 0
    depth: int = 0
    traceparent: str | None = None
    baggage: str | None = None


class FunctionInvoker:
    """Runs registered functions."""

    def __init__(self, app: App, executor: Executor, ids: IdSource) -> None:
        self._app = app
        self._executor = executor
        self._ids = ids

    async def invoke(self, call: Call) -> Json:
        """Run the function and return its result as JSON: a deep copy that shares nothing with the handler.

        Raises:
            InvocationError: `function_not_found`, `VALIDATION_FAILED`, `TIMEOUT`, or `invocation_failed` with the
                handler's exception as `__cause__`.
        """
        result = await self.invoke_raw(call)
        try:
            return to_json(result, "result")
        except PayloadError as error:
            raise InvocationError(
                "invocation_failed",
                f"function '{call.function_id}' returned no JSON: {error.message}",
                call.function_id,
            ) from error

    async def invoke_raw(self, call: Call) -> Any:
        """Do what `invoke` does and return the handler's own result, for callers that know more than JSON (http)."""
        function = self._app.function(call.function_id)
        invocation = self._invocation(call)
        if call.depth > MAX_DEPTH:
            raise InvocationError(
                "invocation_failed",
                f"function '{call.function_id}' is called {call.depth} levels deep; the limit is {MAX_DEPTH}.",
                call.function_id,
            )
        try:
            return await self._run(function, call, invocation)
        except DeadlineExceededError as error:
            limit = call.timeout or self._app.timeout_of(function)
            raise InvocationError(
                "TIMEOUT",
                f"function '{function.id}' did not end within {limit.total_seconds():g} s.",
                function.id,
                invocation_id=invocation.id,
            ) from error
        except InputInvalidError as error:
            raise InvocationError(error.code, error.message, function.id, invocation_id=invocation.id) from error
        except Exception as error:
            raise InvocationError(
                "invocation_failed", message_of(error), function.id, handler_stack(error), invocation.id
            ) from error

    async def _run(self, function: FunctionSpec, call: Call, invocation: Invocation) -> Any:
        plan, timeout = function.plan, call.timeout or self._app.timeout_of(function)

        def body() -> Any:
            enter_invocation(invocation)
            return plan.bind(call.payload, call.source, call.metadata)()

        def rest() -> Any:
            enter_invocation(invocation)
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
