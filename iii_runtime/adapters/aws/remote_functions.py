"""Functions in Lambdas of their own, called by Invoke. Nothing is sent twice: a lost answer is a failure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import NoReturn

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ProxyConnectionError,
)

from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.aws.failures import Failure, classify
from iii_runtime.adapters.aws.remote_calls import EVENT_LIMIT, pack_call, unpack_answer
from iii_runtime.core.call import Call
from iii_runtime.core.errors import FunctionBusyError, FunctionInterruptedError, InvocationError, StoreError
from iii_runtime.core.payload import Json, PayloadError
from iii_runtime.plan.names import Deployment
from iii_runtime.ports.blob_store import BlobStore
from iii_runtime.ports.clock import IdSource

_NOT_REACHED = (ConnectTimeoutError, EndpointConnectionError, ProxyConnectionError)
"""Failures before anything was sent."""

_NOT_READY = frozenset(
    {
        "CodeArtifactUserPendingException",
        "ResourceConflictException",
        "SnapStartNotReadyException",
        "SnapStartTimeoutException",
    }
)
"""Answers below 500 that say: not now. All above say that, and 429."""

_TIMED_OUT = "Sandbox.Timedout"


class LambdaFunctions:
    """Calls the Lambda of a function.

    What comes of an Invoke:

    | answer | raised |
    |---|---|
    | throttled, 5xx, not ready, no connection | `FunctionBusyError`: it was not started |
    | `FunctionError`: killed, out of memory or time, not importable | `InvocationError` of `FunctionInterruptedError` |
    | no such Lambda, no permission, refused request | `InvocationError`, a failed attempt: deployments pass |
    | lost connection, no answer in time | `InvocationError`, a failed attempt: it may have run |

    An Invoke that is waited for has a thread of its own. Whoever waits may cease to, because the time of the caller is
    up: then its answer is dropped when it comes. The function itself ends by its own bound.

    What was interrupted, as if its caller had died with it, is no failed attempt.
    """

    def __init__(
        self, clients: Clients, deployment: Deployment, blobs: BlobStore, ids: IdSource, *, via_dispatcher: bool
    ) -> None:
        """Call functions of a deployment.

        Args:
            clients: Service clients; that of Lambda must repeat nothing.
            deployment: The names of everything.
            blobs: Where large payloads and results go.
            ids: Keys of blobs.
            via_dispatcher: Whether a message for another function goes through the dispatcher, so that the role of this
                host names one Lambda more and not all. A handler's own calls never do.
        """
        self._clients = clients
        self._deployment = deployment
        self._blobs = blobs
        self._ids = ids
        self._via_dispatcher = via_dispatcher

    async def invoke(self, call: Call, timeout: timedelta) -> Json:
        """Run the function in its Lambda, bounded by `timeout` there, and return its result.

        Raises:
            FunctionBusyError: It was not started.
            InvocationError: See the class.
            StoreError: A blob could not be stored, then it was not started; or not read, then it has run.
        """
        is_forwarded = self._via_dispatcher and call.receipt is not None
        name = self._deployment.function_name(call.function_id)
        if is_forwarded:
            name = self._deployment.system_name("dispatcher")
        payload = await pack_call(replace(call, timeout=timeout), self._blobs, self._ids, is_forwarded=is_forwarded)
        try:
            answer, has_failed = await asyncio.to_thread(self._invoke, name, payload, timeout)
        except (BotoCoreError, ClientError) as error:
            _raise_failed(error, call.function_id)
        if has_failed:
            raise _crash(answer, call.function_id)
        try:
            return await unpack_answer(answer, self._blobs)
        except PayloadError as error:
            raise InvocationError("invocation_failed", error.message, call.function_id) from error
        except InvocationError as error:
            error.function_id = error.function_id or call.function_id  # an error of its host names none
            raise

    def _invoke(self, name: str, payload: str, timeout: timedelta) -> tuple[object, bool]:
        """Return the answer of a Lambda, and whether it is Lambda that speaks and not the function."""
        response = self._clients.invoking(timeout).invoke(
            FunctionName=name, InvocationType="RequestResponse", Payload=payload
        )
        return _decoded(response["Payload"].read()), bool(response.get("FunctionError"))

    async def start(self, call: Call) -> None:
        """Start the function in its Lambda and do not wait for it. It runs at most once.

        Raises:
            InvocationError: It was not accepted.
        """
        name = self._deployment.function_name(call.function_id)
        try:
            payload = await pack_call(call, self._blobs, self._ids, limit=EVENT_LIMIT)
            self._clients.starting().invoke(FunctionName=name, InvocationType="Event", Payload=payload.encode("ascii"))
        except (BotoCoreError, ClientError) as error:
            failure = classify(error)
            message = f"function '{call.function_id}' was not started: {failure.message}{_hint(failure)}"
            raise InvocationError("invocation_failed", message, call.function_id) from error
        except (PayloadError, StoreError) as error:
            message = f"function '{call.function_id}' was not started: {error.message}"
            raise InvocationError("invocation_failed", message, call.function_id) from error


def _raise_failed(error: BotoCoreError | ClientError, function_id: str) -> NoReturn:
    failure = classify(error)
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if status == 429 or status >= 500 or failure.aws_code in _NOT_READY:
            raise FunctionBusyError(f"function '{function_id}' was not started: {failure.message}") from error
        message = f"function '{function_id}' was not started: {failure.message}{_hint(failure)}"
        raise InvocationError("invocation_failed", message, function_id) from error
    if isinstance(error, _NOT_REACHED):
        raise FunctionBusyError(f"function '{function_id}' was not reached: {failure.message}") from error
    message = f"the answer of function '{function_id}' was lost, and it may have run: {failure.message}"
    raise InvocationError("invocation_failed", message, function_id) from error


def _hint(failure: Failure) -> str:
    """Return what to do about a refusal, where that is known."""
    return ". Is it deployed in this stage?" if failure.aws_code == "ResourceNotFoundException" else ""


def _crash(answer: object, function_id: str) -> InvocationError:
    """Return the error of a Lambda that gave no answer of its own: what its host says of the end."""
    fields = answer if isinstance(answer, Mapping) else {}
    type_name, told = (
        str(fields.get("errorType", "Unknown")),
        str(fields.get("errorMessage", "it ended without a word")),
    )
    stack = fields.get("stackTrace")
    code = "TIMEOUT" if type_name == _TIMED_OUT or "Task timed out" in told else "invocation_failed"
    error = InvocationError(
        code,
        f"the Lambda of function '{function_id}' broke off: {told}",
        function_id,
        "".join(map(str, stack)) if isinstance(stack, list) else None,
    )
    error.__cause__ = FunctionInterruptedError(type_name, told)
    return error


def _decoded(body: bytes) -> object:
    try:
        return json.loads(body)
    except ValueError:
        return None
