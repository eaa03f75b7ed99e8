"""Calls of functions with a Lambda of their own: what is sent, and what each answer of Invoke comes to."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ReadTimeoutError,
)

from iii_runtime.adapters.aws.remote_calls import EVENT_LIMIT, SYNC_LIMIT, pack_result, unpack_answer, unpack_call
from iii_runtime.adapters.aws.remote_functions import LambdaFunctions
from iii_runtime.adapters.memory.blob_store import MemoryBlobStore
from iii_runtime.core.call import Call
from iii_runtime.core.errors import (
    EnqueueError,
    FunctionBusyError,
    FunctionInterruptedError,
    InputInvalidError,
    InvocationError,
    NonRetryableError,
    RemoteHandlerError,
    StoreError,
)
from iii_runtime.core.payload import Json, PayloadError
from iii_runtime.core.remote import RemoteCall, decode_request
from iii_runtime.core.remote_error import describe_error
from iii_runtime.testing.clock import SequenceIds
from tests.contract.aws_services import DEPLOYMENT, fake_clients

CALL = Call(function_id="orders::ship", payload={"order": 7})
MESSAGE = replace(CALL, source="queue", queue="mail", receipt="m1", attempt=2)
TIMEOUT = timedelta(seconds=30)


class Lambdas:
    """Stands for Lambda: notes every Invoke, and answers as it is told to."""

    def __init__(
        self, answer: Any = None, *, error: Exception | None = None, function_error: str | None = None
    ) -> None:
        self.requests: list[dict[str, Any]] = []
        self._answer = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self._error = error
        self._function_error = function_error
        self.clients = fake_clients()
        events = self.clients.invoking(TIMEOUT).meta.events  # a start is waited for as long: one client does both
        events.register("before-parameter-build.lambda.Invoke", self._note)
        events.register("before-call.lambda.Invoke", self._reply)

    @property
    def only(self) -> tuple[str, str, Any]:
        """Function name, invocation type and payload of the one request."""
        (request,) = self.requests
        return request["FunctionName"], request["InvocationType"], json.loads(request["Payload"])

    def _note(self, params: dict[str, Any], **_: object) -> None:
        self.requests.append(dict(params))

    def _reply(self, **_: object) -> Any:
        if self._error is not None:
            raise self._error
        told = {} if self._function_error is None else {"FunctionError": self._function_error}
        return SimpleNamespace(status_code=200), {"StatusCode": 200, "Payload": io.BytesIO(self._answer), **told}


def functions(
    lambdas: Lambdas, blobs: MemoryBlobStore | None = None, *, via_dispatcher: bool = False
) -> LambdaFunctions:
    return LambdaFunctions(
        lambdas.clients, DEPLOYMENT, blobs or MemoryBlobStore(), SequenceIds(), via_dispatcher=via_dispatcher
    )


def refused(code: str, status: int) -> ClientError:
    response: Any = {"Error": {"Code": code, "Message": "told"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "Invoke")


class TestInvoke:
    async def test_the_function_is_called_in_its_own_lambda_and_bounded_there(self) -> None:
        lambdas = Lambdas({"ok": [1]})
        assert await functions(lambdas).invoke(CALL, TIMEOUT) == [1]
        name, kind, event = lambdas.only
        assert (name, kind) == (DEPLOYMENT.function_name("orders::ship"), "RequestResponse")
        assert decode_request(event) == RemoteCall(call=replace(CALL, timeout=TIMEOUT))

    async def test_a_message_goes_through_the_dispatcher_where_it_has_to(self) -> None:
        lambdas = Lambdas({"ok": None})
        assert await functions(lambdas, via_dispatcher=True).invoke(MESSAGE, TIMEOUT) is None
        name, _, event = lambdas.only
        assert name == DEPLOYMENT.system_name("dispatcher")
        assert decode_request(event) == RemoteCall(call=replace(MESSAGE, timeout=TIMEOUT), is_forwarded=True)

    async def test_a_handlers_own_call_never_does(self) -> None:
        lambdas = Lambdas({"ok": None})
        await functions(lambdas, via_dispatcher=True).invoke(CALL, TIMEOUT)
        assert lambdas.only[0] == DEPLOYMENT.function_name("orders::ship")

    async def test_a_large_payload_travels_as_a_link(self) -> None:
        lambdas, blobs = Lambdas({"ok": None}), MemoryBlobStore()
        text = "x" * SYNC_LIMIT
        await functions(lambdas, blobs).invoke(replace(CALL, payload=text), TIMEOUT)
        _, _, event = lambdas.only
        assert "p" not in event["iii"]["call"]
        request = decode_request(event)
        assert isinstance(request, RemoteCall)
        assert (await unpack_call(request, blobs)).payload == text

    async def test_a_large_result_travels_as_a_link(self) -> None:
        blobs = MemoryBlobStore()
        result: Json = ["y" * SYNC_LIMIT]
        answer = await pack_result(result, blobs, SequenceIds())
        assert list(answer) == ["ok_blob"]
        assert await functions(Lambdas(answer), blobs).invoke(CALL, TIMEOUT) == result

    async def test_a_result_whose_blob_is_gone_is_told(self) -> None:
        answer = await pack_result("y" * SYNC_LIMIT, MemoryBlobStore(), SequenceIds())
        with pytest.raises(StoreError):
            await functions(Lambdas(answer)).invoke(CALL, TIMEOUT)


class TestErrors:
    @pytest.mark.parametrize(
        ("raised", "final"),
        [(ValueError("no"), False), (NonRetryableError("never"), True), (StoreError("full"), False)],
    )
    async def test_an_exception_of_the_handler_comes_back_with_its_name(
        self, raised: Exception, *, final: bool
    ) -> None:
        error = InvocationError("invocation_failed", str(raised), "orders::ship", "line 1", "id-1")
        error.__cause__ = raised
        caught = await self._caught(describe_error(error))
        assert (caught.code, caught.function_id, caught.stacktrace, caught.invocation_id) == (
            "invocation_failed",
            "orders::ship",
            "line 1",
            "id-1",
        )
        cause = caught.__cause__
        assert isinstance(cause, RemoteHandlerError)
        assert (cause.type_name, cause.message, cause.is_final) == (type(raised).__name__, str(raised), final)

    async def test_it_does_so_over_two_hosts(self) -> None:
        """The dispatcher hands on what it was told."""
        error = InvocationError("invocation_failed", "told", "orders::ship")
        error.__cause__ = RemoteHandlerError("ValueError", "no", is_final=True)
        cause = (await self._caught(describe_error(error))).__cause__
        assert isinstance(cause, RemoteHandlerError)
        assert (cause.type_name, cause.message, cause.is_final) == ("ValueError", "no", True)

    async def test_an_input_that_does_not_fit_keeps_its_details(self) -> None:
        details: list[dict[str, object]] = [{"loc": ("a", 0), "msg": "missing", "type": "missing"}]
        error = InvocationError("VALIDATION_FAILED", "wrong", "orders::ship")
        error.__cause__ = InputInvalidError("wrong", details)
        cause = (await self._caught(describe_error(error))).__cause__
        assert isinstance(cause, InputInvalidError)
        assert cause.details == [{"loc": ["a", 0], "msg": "missing", "type": "missing"}]

    async def test_a_refused_enqueue_keeps_its_reason(self) -> None:
        caught = await self._caught(describe_error(EnqueueError("queue_not_found", "Queue 'x' not found", "f")))
        assert isinstance(caught, EnqueueError)
        assert caught.reason == "queue_not_found"

    async def test_an_error_of_the_functions_host_keeps_its_code_and_names_the_function(self) -> None:
        caught = await self._caught(describe_error(StoreError("slow down", code="store_throttled")))
        assert (caught.code, caught.message, caught.function_id) == ("store_throttled", "slow down", "orders::ship")

    async def test_a_function_that_somebody_found_busy_was_not_started(self) -> None:
        error = InvocationError("function_busy", "busy", "orders::ship")
        error.__cause__ = FunctionBusyError("busy")
        with pytest.raises(FunctionBusyError):
            await functions(Lambdas({"error": describe_error(error)})).invoke(CALL, TIMEOUT)

    async def test_an_error_is_cut_to_what_an_answer_holds(self) -> None:
        error = InvocationError("invocation_failed", "x" * 1_000_000, "f", "y" * 1_000_000)
        error.__cause__ = ValueError("\ud800" + "x" * 1_000_000)
        assert len(json.dumps(describe_error(error))) < 64 * 1024

    async def test_details_that_are_no_json_are_left_out(self) -> None:
        error = InvocationError("VALIDATION_FAILED", "wrong")
        error.__cause__ = InputInvalidError("wrong", [{"ctx": object()}])
        assert describe_error(error)["details"] == []

    async def _caught(self, described: dict[str, Json]) -> InvocationError:
        with pytest.raises(InvocationError) as caught:
            await functions(Lambdas({"error": described})).invoke(CALL, TIMEOUT)
        return caught.value


class TestFailures:
    @pytest.mark.parametrize(
        "error",
        [
            refused("TooManyRequestsException", 429),
            refused("ServiceException", 500),
            refused("ENILimitReachedException", 502),
            refused("ResourceNotReadyException", 502),
            refused("EC2ThrottledException", 502),
            refused("ResourceConflictException", 409),
            refused("SnapStartNotReadyException", 409),
            ConnectTimeoutError(endpoint_url="https://lambda"),
            EndpointConnectionError(endpoint_url="https://lambda"),
        ],
        ids=str,
    )
    async def test_what_was_not_started_is_no_attempt(self, error: Exception) -> None:
        lambdas = Lambdas(error=error)
        with pytest.raises(FunctionBusyError, match="orders::ship"):
            await functions(lambdas).invoke(CALL, TIMEOUT)
        assert len(lambdas.requests) == 1

    @pytest.mark.parametrize(
        "error",
        [
            refused("ResourceNotFoundException", 404),
            refused("AccessDeniedException", 403),
            refused("RequestTooLargeException", 413),
            refused("RecursiveInvocationException", 400),
            ReadTimeoutError(endpoint_url="https://lambda"),
            ConnectionClosedError(endpoint_url="https://lambda"),
        ],
        ids=str,
    )
    async def test_what_may_have_run_or_cannot_is_a_failed_attempt_and_never_repeated(self, error: Exception) -> None:
        lambdas = Lambdas(error=error)
        with pytest.raises(InvocationError, match="orders::ship") as caught:
            await functions(lambdas).invoke(CALL, TIMEOUT)
        assert caught.value.code == "invocation_failed"
        assert len(lambdas.requests) == 1

    @pytest.mark.parametrize(
        ("error", "is_hinted"),
        [(refused("ResourceNotFoundException", 404), True), (refused("AccessDeniedException", 403), False)],
        ids=str,
    )
    async def test_whether_it_is_deployed_is_asked_where_that_may_be_the_cause(
        self, error: Exception, *, is_hinted: bool
    ) -> None:
        for call in (
            functions(Lambdas(error=error)).invoke(CALL, TIMEOUT),
            functions(Lambdas(error=error)).start(CALL),
        ):
            with pytest.raises(InvocationError) as caught:
                await call
            assert ("Is it deployed" in caught.value.message) == is_hinted

    @pytest.mark.parametrize(
        ("crash", "code", "name"),
        [
            (
                {"errorType": "Runtime.ExitError", "errorMessage": "exited: status 137"},
                "invocation_failed",
                "Runtime.ExitError",
            ),
            (
                {"errorType": "Sandbox.Timedout", "errorMessage": "Task timed out after 3.00 seconds"},
                "TIMEOUT",
                "Sandbox.Timedout",
            ),
            ({"errorMessage": "2026-01-01 Task timed out after 3.00 seconds"}, "TIMEOUT", "Unknown"),
            (
                {"errorType": "ImportError", "errorMessage": "no", "stackTrace": ["a\n", "b\n"]},
                "invocation_failed",
                "ImportError",
            ),
            (b"", "invocation_failed", "Unknown"),
            (b"[1]", "invocation_failed", "Unknown"),
        ],
    )
    async def test_a_lambda_that_broke_off_was_interrupted(self, crash: Any, code: str, name: str) -> None:
        with pytest.raises(InvocationError) as caught:
            await functions(Lambdas(crash, function_error="Unhandled")).invoke(CALL, TIMEOUT)
        assert caught.value.code == code
        assert isinstance(caught.value.__cause__, FunctionInterruptedError)
        assert caught.value.__cause__.type_name == name
        if name == "ImportError":
            assert caught.value.stacktrace == "a\nb\n"

    async def test_the_dispatcher_hands_on_that_it_was(self) -> None:
        crash = {"errorType": "Runtime.ExitError", "errorMessage": "exited: status 137"}
        with pytest.raises(InvocationError) as first:
            await functions(Lambdas(crash, function_error="Unhandled")).invoke(MESSAGE, TIMEOUT)
        with pytest.raises(InvocationError) as second:
            await functions(Lambdas({"error": describe_error(first.value)})).invoke(MESSAGE, TIMEOUT)
        cause = second.value.__cause__
        assert isinstance(cause, FunctionInterruptedError)
        assert (cause.type_name, cause.message) == ("Runtime.ExitError", "exited: status 137")

    async def test_a_handler_that_saw_another_ones_death_has_failed(self) -> None:
        death = InvocationError("invocation_failed", "broke off", "orders::pack")
        death.__cause__ = FunctionInterruptedError("Runtime.ExitError", "exited: status 137")
        error = InvocationError("invocation_failed", "broke off", "orders::ship")
        error.__cause__ = death
        with pytest.raises(InvocationError) as caught:
            await functions(Lambdas({"error": describe_error(error)})).invoke(MESSAGE, TIMEOUT)
        cause = caught.value.__cause__
        assert isinstance(cause, RemoteHandlerError)
        assert not isinstance(cause, FunctionInterruptedError)

    @pytest.mark.parametrize("answer", [b"", b"no json", [1], {}, {"error": 7}, {"ok_blob": {"k": 1}}])
    async def test_an_answer_of_another_form_is_a_failed_attempt(self, answer: Any) -> None:
        with pytest.raises(InvocationError, match="cannot be read"):
            await functions(Lambdas(answer)).invoke(CALL, TIMEOUT)

    async def test_an_answer_read_outside_of_a_call_says_so_itself(self) -> None:
        with pytest.raises(PayloadError) as caught:
            await unpack_answer({}, MemoryBlobStore())
        assert caught.value.code == "answer_unreadable"


class TestStart:
    async def test_a_void_call_is_one_event_to_the_functions_own_lambda(self) -> None:
        lambdas = Lambdas()
        await functions(lambdas, via_dispatcher=True).start(replace(CALL, condition="orders::if"))
        name, kind, event = lambdas.only
        assert (name, kind) == (DEPLOYMENT.function_name("orders::ship"), "Event")
        assert decode_request(event) == RemoteCall(call=replace(CALL, condition="orders::if"))

    async def test_its_payload_travels_as_a_link_where_an_event_is_too_small(self) -> None:
        lambdas, blobs = Lambdas(), MemoryBlobStore()
        await functions(lambdas, blobs).start(replace(CALL, payload="x" * EVENT_LIMIT))
        request = decode_request(lambdas.only[2])
        assert isinstance(request, RemoteCall)
        assert request.payload is not None

    @pytest.mark.parametrize(
        "error", [refused("TooManyRequestsException", 429), ReadTimeoutError(endpoint_url="x")], ids=str
    )
    async def test_what_was_not_accepted_is_told_and_not_repeated(self, error: Exception) -> None:
        lambdas = Lambdas(error=error)
        with pytest.raises(InvocationError, match="not started"):
            await functions(lambdas).start(CALL)
        assert len(lambdas.requests) == 1
