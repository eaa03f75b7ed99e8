"""Lambda in this process: functions by name, each with sandboxes that are kept warm, invoked as AWS does.

A sandbox is the engine of the code under test; its handler is the one that the plan names, called without the start of
a real Lambda, which reads the environment of the process.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from botocore.response import StreamingBody

from iii_runtime.core.payload import Json
from iii_runtime.hosts.aws_lambda.bootstrap import Handle
from iii_runtime.hosts.aws_lambda.context import LambdaContext
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.plan.app_plan import PlannedFunction
from iii_runtime.ports.clock import Clock
from tests.aws.calls import Answered, Call, refuse, watched_by
from tests.aws.invocations import Invocation, Killed, Overseer

T = TypeVar("T")

_log = logging.getLogger("tests.aws")

LARGEST_SYNCHRONOUS = 6 * 1024 * 1024
LARGEST_EVENT = 1024 * 1024


class FunctionFailedError(Exception):
    """An invocation ended with an error of the function.

    Attributes:
        payload: What Lambda returns then.
    """

    def __init__(self, payload: dict[str, Json]) -> None:
        super().__init__(f"{payload.get('errorType')}: {payload.get('errorMessage')}")
        self.payload = payload


@dataclass(slots=True)
class HostedFunction:
    """A function, its handler, and its idle sandboxes."""

    plan: PlannedFunction
    handle: Handle
    open: Callable[[PlannedFunction], Sandbox]
    idle: list[Sandbox] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingEvent:
    """An asynchronous invocation that Lambda has accepted."""

    function: str
    payload: Json


class LambdaService:
    """All functions of the account.

    Args:
        open_sandbox: Makes a sandbox of a function.
        clock: The clock.

    Attributes:
        overseer: Sees every request of every invocation, if set.
        events: Accepted asynchronous invocations, oldest first.
        services: What answers the requests to a service, in place of moto.
        running: Invocations that have not ended.
        throttled: Names of functions that answer 429.
    """

    def __init__(self, open_sandbox: Callable[[PlannedFunction], Sandbox], clock: Clock) -> None:
        self.clock = clock
        self.overseer: Overseer | None = None
        self.events: deque[PendingEvent] = deque()
        self.running: list[Invocation] = []
        self.throttled: set[str] = set()
        self.on_event: Callable[[], None] = lambda: None
        self.services: dict[str, Callable[[Call], Answered]] = {"lambda": self.answer}
        self._open = open_sandbox
        self._functions: dict[str, HostedFunction] = {}
        self._lock = threading.RLock()
        self._count = 0

    def host(self, plan: PlannedFunction) -> None:
        """Create or replace a function."""
        module = importlib.import_module(plan.handler.rpartition(".")[0])
        handle = cast(Handle, module.__dict__.get("handle") or module.__dict__["_handle"])
        self._functions[plan.name] = HostedFunction(plan, handle, self._open)

    def remove(self, name: str) -> None:
        """Delete a function."""
        function = self._functions.pop(name)
        for sandbox in function.idle:
            sandbox.close()

    def begin(self, name: str) -> Invocation:
        """Begin an invocation: it counts as running, and its time, from now on, whenever its thread gets to it.

        Raises:
            LookupError: There is no such function.
        """
        function = self._functions[name]
        with self._lock:
            self._count += 1
            request_id = f"00000000-0000-4000-8000-{self._count:012d}"
            timeout = function.plan.timeout
            invocation = Invocation(
                name, request_id, timeout, self.clock.now() + timeout, self.overseer, self.clock, self.services
            )
            invocation.sandbox = function.idle.pop() if function.idle else None
            self.running.append(invocation)
        return invocation

    def invoke(self, name: str, event: Json) -> Json:
        """Run a function and return what its handler returns.

        Raises:
            FunctionFailedError: The handler raised, or its sandbox was killed.
            LookupError: There is no such function.
        """
        return self.carry_out(self.begin(name), event)

    def carry_out(self, invocation: Invocation, event: Json) -> Json:
        """Do what has begun, and return what the handler returns.

        Raises:
            FunctionFailedError: The handler raised, or the sandbox was killed, perhaps before this.
        """
        handle = self._functions[invocation.function].handle
        # The handler gets what JSON makes of the event, as on AWS, and nothing of the caller's.
        given = json.loads(json.dumps(event))
        result = self._run(invocation, lambda sandbox, context: handle(sandbox, given, context))
        return cast(Json, json.loads(json.dumps(result)))

    def run_inside(self, name: str, body: Callable[[Sandbox, LambdaContext], T]) -> T:
        """Run something in a sandbox of a function, as an invocation.

        Raises:
            FunctionFailedError: It raised, or the sandbox was killed.
        """
        return self._run(self.begin(name), body)

    def answer(self, call: Call) -> Answered:
        """Answer a request to Lambda."""
        if call.operation != "Invoke":
            return refuse("NotImplemented", f"{call.operation} is not simulated")
        name = str(call.parameters["FunctionName"]).rpartition(":")[2]
        given = call.parameters.get("Payload") or b"null"
        payload = given.encode() if isinstance(given, str) else bytes(given)
        is_event = call.parameters.get("InvocationType") == "Event"
        if name not in self._functions:
            return refuse("ResourceNotFoundException", f"Function not found: {name}", 404)
        if name in self.throttled:
            return refuse("TooManyRequestsException", "Rate Exceeded.", 429)
        if len(payload) > (LARGEST_EVENT if is_event else LARGEST_SYNCHRONOUS):
            return refuse("RequestEntityTooLargeException", f"{len(payload)} bytes", 413)
        if is_event:
            self.events.append(PendingEvent(function=name, payload=json.loads(payload)))
            self.on_event()
            return _invoked(202, b"", None)
        try:
            result = self.invoke(name, json.loads(payload))
        except FunctionFailedError as failure:
            return _invoked(200, json.dumps(failure.payload).encode(), "Unhandled")
        return _invoked(200, json.dumps(result).encode(), None)

    def discard_sandboxes(self) -> None:
        """End every life: what runs is killed, what is idle is closed, the next invocations start anew."""
        with self._lock:
            for invocation in self.running:
                invocation.kill()
            idle = [sandbox for function in self._functions.values() for sandbox in function.idle]
            for function in self._functions.values():
                function.idle.clear()
        for sandbox in idle:
            sandbox.close()

    def close(self) -> None:
        """End everything."""
        self.discard_sandboxes()
        self._functions.clear()

    def _run(self, invocation: Invocation, body: Callable[[Sandbox, LambdaContext], T]) -> T:
        function = self._functions[invocation.function]
        try:
            with watched_by(invocation):
                invocation.check()
                sandbox = invocation.sandbox or function.open(function.plan)
                invocation.sandbox = sandbox
                result = body(sandbox, cast(LambdaContext, invocation))
                invocation.ends()
        except Killed:
            self._throw_away(invocation)
            raise _killed() from None
        except Exception as error:
            if invocation.is_dead:
                self._throw_away(invocation)
                raise _killed() from None
            self._keep(function, invocation)
            _log.debug("invocation of %s failed", invocation.function, exc_info=error)
            raise FunctionFailedError(_failure(error)) from error
        else:
            self._keep(function, invocation)
            return result
        finally:
            with self._lock:
                self.running.remove(invocation)

    def _keep(self, function: HostedFunction, invocation: Invocation) -> None:
        if invocation.sandbox is None:
            return
        with self._lock:
            is_hosted = self._functions.get(invocation.function) is function
            if is_hosted and not invocation.is_dead:
                function.idle.append(invocation.sandbox)
                return
        self._throw_away(invocation)

    def _throw_away(self, invocation: Invocation) -> None:
        if invocation.sandbox is not None:
            with contextlib.suppress(RuntimeError):  # its loop may have ended with it
                invocation.sandbox.close()


def _killed() -> FunctionFailedError:
    return FunctionFailedError({"errorType": "Runtime.ExitError", "errorMessage": "the sandbox was killed"})


def _invoked(status: int, payload: bytes, error: str | None) -> Answered:
    reply: dict[str, Any] = {"StatusCode": status, "Payload": StreamingBody(io.BytesIO(payload), len(payload))}
    if error is not None:
        reply["FunctionError"] = error
    metadata = {"HTTPStatusCode": status, "RequestId": "test", "HTTPHeaders": {}, "RetryAttempts": 0}
    return Answered(reply={**reply, "ResponseMetadata": metadata}, status=200)


def _failure(error: Exception) -> dict[str, Json]:
    return {"errorType": type(error).__name__, "errorMessage": str(error)}
