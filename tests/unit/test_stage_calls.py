"""A trigger request to a stage: what is sent, once, and what comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError
from moto import mock_aws

from iii_runtime.adapters.aws.blob_store import S3BlobStore
from iii_runtime.adapters.aws.stage_access import StageAccess
from iii_runtime.adapters.aws.stage_calls import LARGEST_REQUEST, StageCalls
from iii_runtime.core.errors import EnqueueError, FunctionBusyError, HostError, InvocationError, RemoteHandlerError
from iii_runtime.core.message import BlobLink
from iii_runtime.core.remote import Answer, encode_answer
from iii_runtime.core.remote_error import describe_error
from iii_runtime.core.trigger_request import TriggerActionEnqueue, TriggerActionVoid, TriggerRequest
from iii_runtime.testing.clock import SkipClock
from tests.host.stage import REGION, Asked, Reply, lambda_service, own_credentials, refusal


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    own_credentials(monkeypatch)


def stage() -> StageCalls:
    return StageCalls(StageAccess("shop", "prod"), SkipClock())


def answering(monkeypatch: pytest.MonkeyPatch, answer: Any, headers: dict[str, str] | None = None) -> Asked:
    return lambda_service(monkeypatch, "Invoke", lambda _name, _body: (200, headers or {}, answer))


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> InvocationError:
    answering(monkeypatch, encode_answer(Answer(error=describe_error(error))))
    with pytest.raises(InvocationError) as raised:
        stage().call(TriggerRequest("shop::echo"))
    return raised.value


def test_a_request_is_an_event_of_the_control_lambda_and_its_result_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(monkeypatch, {"ok": {"ü": [1, None]}})
    request = TriggerRequest("shop::echo", {"x": "ü"}, timeout_ms=500, metadata={"who": "me"})
    assert stage().call(request) == {"ü": [1, None]}
    sent = {"function_id": "shop::echo", "payload": {"x": "ü"}, "timeout_ms": 500, "metadata": {"who": "me"}}
    assert asked == [("shop-prod-x-control", {"iii": {"v": 1, "kind": "trigger", "request": sent}})]


@pytest.mark.parametrize(
    ("action", "sent"),
    [
        (TriggerActionVoid(), {"type": "void"}),
        (
            TriggerActionEnqueue("orders", 1.5, "once"),
            {"type": "enqueue", "queue": "orders", "delay": 1.5, "dedupe_id": "once"},
        ),
    ],
)
def test_an_action_goes_with_the_request(
    action: TriggerActionVoid | TriggerActionEnqueue, sent: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answering(monkeypatch, {"ok": None})
    assert stage().call(TriggerRequest("shop::echo", 1, action)) is None
    assert asked[0][1]["iii"]["request"]["action"] == sent


def test_the_error_of_a_function_is_raised_as_it_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    cause = KeyError("missing")
    given = InvocationError("invocation_failed", "'missing'", "shop::crash", "Traceback ...", "id-1")
    given.__cause__ = cause
    error = failing(monkeypatch, given)
    assert (error.code, error.message, error.function_id) == ("invocation_failed", "'missing'", "shop::crash")
    assert (error.stacktrace, error.invocation_id) == ("Traceback ...", "id-1")
    assert isinstance(error.__cause__, RemoteHandlerError)


def test_a_refused_message_is_an_enqueue_error(monkeypatch: pytest.MonkeyPatch) -> None:
    error = failing(monkeypatch, EnqueueError("queue_not_found", "Queue 'none' not found"))
    assert isinstance(error, EnqueueError)
    assert (error.reason, error.function_id) == ("queue_not_found", "shop::echo")


def test_a_busy_function_is_an_error_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    error = failing(monkeypatch, FunctionBusyError("all 5 are at work"))
    assert (error.code, error.function_id) == ("function_busy", "shop::echo")


def test_a_large_result_is_read_from_the_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    with mock_aws():
        access = StageAccess("shop", "prod")
        bucket = access.deployment.bucket_name
        access.clients.s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        asyncio.run(S3BlobStore(access.clients, bucket, SkipClock()).put("r1", '{"large":"ü"}'))
        answering(monkeypatch, encode_answer(Answer(blob=BlobLink(key="r1", size=14, sha256=""))))
        assert stage().call(TriggerRequest("shop::echo")) == {"large": "ü"}


def test_a_request_that_no_invoke_takes_is_refused_and_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(monkeypatch, {"ok": None})
    with pytest.raises(InvocationError, match="6,291,456") as raised:
        stage().call(TriggerRequest("shop::echo", "x" * LARGEST_REQUEST))
    assert (raised.value.code, raised.value.function_id) == ("payload_too_large", "shop::echo")
    assert asked == []


def test_a_payload_that_is_not_json_is_refused_as_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(monkeypatch, {"ok": None})
    with pytest.raises(InvocationError) as raised:
        stage().call(TriggerRequest("shop::echo", {1, 2}))
    assert raised.value.code == "payload_not_json"
    assert asked == []


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (refusal(404, "ResourceNotFoundException", "Function not found: arn:..."), "stage_not_deployed"),
        (refusal(403, "AccessDeniedException", "User is not authorized"), "aws_access_denied"),
        (refusal(429, "TooManyRequestsException", "Rate Exceeded."), "aws_throttled"),
        (refusal(500, "ServiceException", "An error"), "stage_failed"),
    ],
)
def test_what_lambda_refuses_is_told_and_never_repeated(
    reply: Reply, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = lambda_service(monkeypatch, "Invoke", lambda _name, _body: reply)
    with pytest.raises(HostError) as raised:
        stage().call(TriggerRequest("shop::echo"))
    assert raised.value.code == code
    assert len(asked) == 1


def test_a_lost_answer_is_told_and_the_call_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def silence(_name: str, _body: object) -> Reply:
        raise ReadTimeoutError(endpoint_url="https://lambda")

    asked = lambda_service(monkeypatch, "Invoke", silence)
    with pytest.raises(HostError, match="may have been carried out") as raised:
        stage().call(TriggerRequest("shop::echo"))
    assert raised.value.code == "stage_unreachable"
    assert len(asked) == 1


def test_a_call_without_credentials_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(HostError) as raised:
        stage().call(TriggerRequest("shop::echo"))
    assert raised.value.code == "aws_credentials_missing"


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (
            {"errorType": "Runtime.ImportModuleError", "errorMessage": "No module"},
            "Runtime.ImportModuleError: No module",
        ),
        ({"errorMessage": "Task timed out after 900.00 seconds"}, "Task timed out after 900.00 seconds"),
    ],
)
def test_a_lambda_that_broke_down_is_told_with_where_its_logs_are(
    told: dict[str, str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, told, {"X-Amz-Function-Error": "Unhandled"})
    with pytest.raises(HostError, match="CloudWatch logs of Lambda shop-prod-x-control") as raised:
        stage().call(TriggerRequest("shop::echo"))
    assert raised.value.code == "stage_failed"
    assert text in raised.value.message


@pytest.mark.parametrize("answer", [b"", b"no json", None, [], {}, {"error": 1}, {"ok_blob": {}}])
def test_an_answer_of_something_else_is_told(answer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, answer)
    with pytest.raises(HostError, match="cannot be read") as raised:
        stage().call(TriggerRequest("shop::echo"))
    assert raised.value.code == "stage_failed"
