"""Requests of the HTTP API at the Lambda of a function."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime.core.errors import StoreError
from iii_runtime.core.http import HttpReply
from iii_runtime.hosts.aws_lambda import function
from iii_runtime.hosts.aws_lambda.http_event import LARGEST_RESPONSE, http_response
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.hosts.unknown_event import EventUnknownError
from tests.contract.aws_services import DEPLOYMENT
from tests.host import lambda_app
from tests.host.lambda_kit import Context, Stage, running_stage

RAW: Mapping[str, Any] = {
    "version": "2.0",
    "routeKey": "POST /raw",
    "rawPath": "/raw",
    "rawQueryString": "",
    "cookies": ["session=s-1", "theme=dark"],
    "headers": {"content-type": "application/octet-stream"},
    "requestContext": {
        "domainName": "a1b2c3d4e5.execute-api.eu-central-1.amazonaws.com",
        "http": {"method": "POST", "path": "/raw", "protocol": "HTTP/1.1"},
        "stage": "$default",
    },
    "body": base64.b64encode(b"\x00\xff\x10\x80").decode(),
    "isBase64Encoded": True,
}


@pytest.fixture
def stage() -> Iterator[Stage]:
    with running_stage() as stage:
        yield stage


def event(method: str, path: str, body: Any = None, **changes: Any) -> dict[str, Any]:
    """Return the event of a request."""
    made: dict[str, Any] = copy.deepcopy(dict(RAW))
    made["rawPath"], _, made["rawQueryString"] = path.partition("?")
    made["requestContext"]["http"] = {"method": method, "path": made["rawPath"]}
    headers = {"content-type": "application/json", **changes.pop("headers", {})}
    return {
        **made,
        "headers": headers,
        "body": None if body is None else json.dumps(body),
        "isBase64Encoded": False,
    } | (changes)


def answer(stage: Stage, sandbox: Sandbox, request: dict[str, Any], **limits: Any) -> Any:
    return function.handle(sandbox, request, Context(stage.clock, **limits))


def error_of(response: Any) -> Any:
    return json.loads(response["body"])["error"]


def fields_of(record: Any) -> Any:
    return record.iii


def test_a_request_is_answered_by_the_function(stage: Stage) -> None:
    sandbox = stage.sandbox("app::orders")
    response = answer(stage, sandbox, event("POST", "/orders/berlin?n=1", {"order_id": "o-1"}))
    assert response["statusCode"] == 201
    assert response["headers"] == {"content-type": "application/json", "location": "/orders/o-1"}
    assert response["isBase64Encoded"] is False
    assert json.loads(response["body"]) == {"order_id": "o-1", "shop": "berlin", "query": {"n": "1"}}
    assert "cookies" not in response


def test_bytes_come_in_and_go_out_as_base64_and_each_cookie_is_one_of_its_own(stage: Stage) -> None:
    response = answer(stage, stage.sandbox("app::raw"), copy.deepcopy(dict(RAW)))
    assert lambda_app.seen == [b"\x00\xff\x10\x80"]
    assert base64.b64decode(response["body"]) == b"\x00\xff\x10"
    assert response["isBase64Encoded"] is True
    assert response["cookies"] == ["a=1", "b=2; Path=/"]
    assert response["headers"] == {"content-type": "application/octet-stream", "x-many": "1, 2"}


def test_the_answer_to_head_has_headers_and_no_body(stage: Stage) -> None:
    response = answer(stage, stage.sandbox("app::raw"), event("HEAD", "/raw"))
    assert (response["statusCode"], response["body"]) == (200, "")
    assert response["headers"]["content-type"] == "application/octet-stream"


def test_input_that_does_not_fit_is_a_422_and_no_error_of_the_function(stage: Stage) -> None:
    response = answer(stage, stage.sandbox("app::orders"), event("POST", "/orders/berlin", {"order": 1}))
    assert response["statusCode"] == 422
    assert error_of(response)["code"] == "VALIDATION_FAILED"
    assert stage.meter.counts == {}


def test_what_is_too_large_for_lambda_is_a_500_that_says_what_to_do(stage: Stage) -> None:
    sandbox = stage.sandbox("app::raw")
    fits = answer(stage, sandbox, event("GET", f"/raw?size={6 * 1024 * 1024 - 1000}"))
    assert (fits["statusCode"], len(fits["body"])) == (200, 6 * 1024 * 1024 - 1000)
    response = answer(stage, sandbox, event("GET", f"/raw?size={6 * 1024 * 1024}"))
    assert response["statusCode"] == 500
    error = error_of(response)
    assert error["code"] == "RESPONSE_TOO_LARGE"
    assert "6,291,456" in error["message"]
    assert error["error_id"] == "request-1"


def test_a_large_body_goes_out_the_shorter_way() -> None:
    text = "ö" * 1_500_000
    headers = (("Content-Type", "text/plain; charset=utf-8"), ("Access-Control-Allow-Origin", "*"))
    response = http_response(HttpReply(status=200, headers=headers, body=text.encode()), "GET", "e")
    assert response["isBase64Encoded"] is True
    assert base64.b64decode(str(response["body"])).decode() == text
    assert len(json.dumps(response)) <= LARGEST_RESPONSE
    refused = http_response(HttpReply(status=200, headers=headers, body=b"\xff" * 5_000_000), "GET", "e")
    assert (refused["statusCode"], refused["headers"]) == (
        500,
        {"content-type": "application/json", "access-control-allow-origin": "*"},
    )


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "headers",
    [
        (("X-Long", "a" * LARGEST_RESPONSE),),
        (("X-Escaped", "\xe9" * (LARGEST_RESPONSE // 5)),),
        tuple(("Set-Cookie", f"{number}=") for number in range(700_000)),
        (("Access-Control-Expose-Headers", "a" * LARGEST_RESPONSE),),
    ],
    ids=["long", "escaped", "cookies", "cors"],
)
def test_headers_count_as_the_body_does(
    headers: tuple[tuple[str, str], ...], method: str, caplog: pytest.LogCaptureFixture
) -> None:
    response = http_response(HttpReply(status=200, headers=headers, body=b"{}"), method, "request-1")
    assert response["statusCode"] == 500
    assert len(json.dumps(response)) < 1000
    assert [record.getMessage() for record in caplog.records] == ["response too large"]
    assert fields_of(caplog.records[0])["error_id"] == "request-1"
    if method == "GET":
        assert error_of(response)["code"] == "RESPONSE_TOO_LARGE"


def test_body_and_headers_together_are_what_lambda_returns() -> None:
    def answered(size: int) -> Any:
        reply = HttpReply(status=200, headers=(("X-Half", "a" * (LARGEST_RESPONSE // 2)),), body=b"b" * size)
        return http_response(reply, "GET", "e")

    empty = len(json.dumps(answered(1))) - 1
    fits = answered(LARGEST_RESPONSE - empty)
    assert (fits["statusCode"], len(json.dumps(fits))) == (200, LARGEST_RESPONSE)
    assert answered(LARGEST_RESPONSE - empty + 1)["statusCode"] == 500


def test_a_function_that_takes_too_long_is_answered_before_lambda_and_the_api_give_up(stage: Stage) -> None:
    sandbox = stage.sandbox("app::raw")
    response = answer(stage, sandbox, event("GET", "/raw?slow=1"), timeout=timedelta(seconds=2.1))
    assert response["statusCode"] == 504
    assert error_of(response)["code"] == "TIMEOUT"
    assert stage.meter.counts == {("FunctionErrors", "app::raw"): 1}


def test_no_function_gets_more_time_than_the_api_waits(stage: Stage) -> None:
    sandbox = stage.sandbox("app::orders")
    seen: list[timedelta | None] = []
    lambda_app.meanwhile.append(lambda: seen.append(sandbox.runtime.invoker.remaining()))
    request = event("POST", "/orders/berlin", {"order_id": "o-1"})
    for timeout in (timedelta(minutes=10), timedelta(seconds=20)):
        assert answer(stage, sandbox, request, timeout=timeout)["statusCode"] == 201
    assert seen == [timedelta(seconds=29), timedelta(seconds=18)]


@pytest.mark.parametrize(
    ("age", "left"),
    [
        (timedelta(0), 29),
        (timedelta(seconds=9), 20),
        (timedelta(seconds=29), 0),
        (timedelta(minutes=5), 0),
        (timedelta(days=300), 29),  # a stored event that is sent by hand
        (timedelta(seconds=-5), 29),
    ],
)
def test_the_api_waits_from_when_it_took_the_request(stage: Stage, age: timedelta, left: int) -> None:
    sandbox = stage.sandbox("app::orders")
    request = event("POST", "/orders/berlin", {"order_id": "o-1"})
    request["requestContext"]["timeEpoch"] = stage.clock.now_ms() - age // timedelta(milliseconds=1)
    answer(stage, sandbox, request, timeout=timedelta(minutes=10))
    assert sandbox.runtime.invoker.remaining() == timedelta(seconds=left)


def test_a_response_that_the_store_refuses_is_stored_before_the_sandbox_sleeps(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = stage.sandbox("app::orders")
    refuse_finishes(sandbox, monkeypatch, 3)
    request = event("POST", "/orders/berlin", {"order_id": "o-1"}, headers={"Idempotency-Key": "k-1"})
    assert answer(stage, sandbox, request)["statusCode"] == 201
    again = answer(stage, stage.sandbox("app::orders"), request)
    assert (again["statusCode"], again["headers"]["idempotency-replayed"]) == (201, "true")
    assert lambda_app.seen == ["o-1"]


def test_a_response_that_the_store_keeps_refusing_leaves_time_to_answer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = stage.sandbox("app::orders")
    tries = refuse_finishes(sandbox, monkeypatch, 10_000)
    started = stage.clock.now()
    request = event("POST", "/orders/berlin", {"order_id": "o-1"}, headers={"Idempotency-Key": "k-1"})
    assert answer(stage, sandbox, request, timeout=timedelta(minutes=10))["statusCode"] == 201
    assert len(tries) > 10
    assert timedelta(seconds=20) < stage.clock.now() - started <= timedelta(seconds=29)


def refuse_finishes(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, count: int) -> list[str]:
    """Let the store refuse the next responses; returns a list that fills with the keys of all."""
    responses: Any = sandbox.runtime.stores.responses
    finish, tries = responses.finish, []

    async def refusing(key: str, response: Any) -> None:
        tries.append(key)
        if len(tries) <= count:
            raise StoreError("slow down", code="store_throttled")
        await finish(key, response)

    monkeypatch.setattr(responses, "finish", refusing, raising=False)
    return tries


def test_a_repeated_idempotency_key_gets_the_first_answer(stage: Stage) -> None:
    request = event("POST", "/orders/berlin", {"order_id": "o-1"}, headers={"Idempotency-Key": "k-1"})
    first = answer(stage, stage.sandbox("app::orders"), request)
    second = answer(stage, stage.sandbox("app::orders"), request)
    assert second["headers"].pop("idempotency-replayed") == "true"
    assert first == second
    assert lambda_app.seen == ["o-1"]
    other = event("POST", "/orders/berlin", {"order_id": "o-2"}, headers={"Idempotency-Key": "k-1"})
    assert error_of(answer(stage, stage.sandbox("app::orders"), other))["code"] == "IDEMPOTENCY_KEY_REUSED"


def test_a_missing_table_is_a_500_with_the_code_of_the_store_and_the_function_does_not_run(stage: Stage) -> None:
    stage.services.clients.dynamodb.delete_table(TableName=DEPLOYMENT.table_name)
    request = event("POST", "/orders/berlin", {"order_id": "o-1"}, headers={"Idempotency-Key": "k-1"})
    response = answer(stage, stage.sandbox("app::orders"), request)
    assert (response["statusCode"], error_of(response)["code"]) == (500, "store_missing")
    assert lambda_app.seen == []


def test_a_path_no_route_has_is_a_404(stage: Stage) -> None:
    response = answer(stage, stage.sandbox("app::orders"), event("POST", "/nowhere", {}))
    assert (response["statusCode"], error_of(response)["code"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    "request_",
    [
        None,
        {},
        {"version": "1.0", "httpMethod": "GET"},
        {"source": "aws.events", "detail-type": "Scheduled Event", "id": "1", "time": "2026-05-04T12:00:00Z"},
        {**RAW, "body": "no base64!"},
    ],
)
def test_other_events_are_an_error_of_the_invocation(stage: Stage, request_: Any) -> None:
    with pytest.raises(EventUnknownError):
        answer(stage, stage.sandbox("app::orders"), request_)
    assert lambda_app.seen == []
