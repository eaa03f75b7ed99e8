"""AWS events and what they stand for."""

from __future__ import annotations

import base64
import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest

from iii_runtime import IamCaller, JwtCaller
from iii_runtime.core.message import BlobLink, Envelope, encode_envelope
from iii_runtime.engine.http_entry import HttpCall
from iii_runtime.hosts.events import CronTick, QueuePayloads, parse_event
from iii_runtime.hosts.unknown_event import EventUnknownError


def http_event(**changes: Any) -> dict[str, Any]:
    event = {
        "version": "2.0",
        "routeKey": "POST /orders/{id}",
        "rawPath": "/orders/o-1",
        "rawQueryString": "a=1&a=2&b=x%20y",
        "cookies": ["session=s1", "theme=dark"],
        "headers": {"content-type": "application/json", "x-many": "1,2"},
        "requestContext": {
            "domainName": "id.execute-api.eu-central-1.amazonaws.com",
            "http": {"method": "POST", "path": "/orders/o-1", "protocol": "HTTP/1.1"},
            "stage": "$default",
        },
        "body": '{"n":1}',
        "isBase64Encoded": False,
    }
    return {**event, **changes}


def sqs_event(*bodies: str, **changes: Any) -> dict[str, Any]:
    return {
        "Records": [
            {
                "messageId": f"m-{number}",
                "receiptHandle": "handle",
                "body": body,
                "attributes": {"ApproximateReceiveCount": "1"},
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:order-payment.fifo",
                "awsRegion": "eu-central-1",
                **changes,
            }
            for number, body in enumerate(bodies)
        ]
    }


def cron_event(**changes: Any) -> dict[str, Any]:
    event = {
        "version": "0",
        "id": "e-1",
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": "123456789012",
        "time": "2026-03-01T12:00:00Z",
        "region": "eu-central-1",
        "resources": ["arn:aws:events:eu-central-1:123456789012:rule/nightly"],
        "detail": {},
    }
    return {**event, **changes}


def test_an_http_event_is_a_call() -> None:
    assert parse_event(http_event()) == HttpCall(
        method="POST",
        path="/orders/o-1",
        query="a=1&a=2&b=x%20y",
        headers=(
            ("content-type", "application/json"),
            ("x-many", "1,2"),
            ("cookie", "session=s1; theme=dark"),
        ),
        body=b'{"n":1}',
    )


def test_a_base64_body_is_bytes() -> None:
    event = http_event(body=base64.b64encode(b"\x00\xff").decode(), isBase64Encoded=True)
    call = parse_event(event)
    assert isinstance(call, HttpCall)
    assert call.body == b"\x00\xff"


def test_an_http_event_without_body_query_cookies_or_headers_is_a_call_without_them() -> None:
    event = http_event()
    for name in ("body", "rawQueryString", "cookies", "headers", "isBase64Encoded"):
        del event[name]
    assert parse_event(event) == HttpCall(method="POST", path="/orders/o-1")


@pytest.mark.parametrize(
    ("raw_path", "stage", "domain", "path"),
    [
        ("/prod/orders/1", "prod", "id.execute-api.eu-central-1.amazonaws.com", "/orders/1"),
        ("/prod", "prod", "id.execute-api.eu-central-1.amazonaws.com", "/"),
        ("/production", "prod", "id.execute-api.eu-central-1.amazonaws.com", "/production"),
        ("/orders/1", "orders", "api.example", "/orders/1"),
        ("/orders/a b/ä", "$default", "api.example", "/orders/a%20b/%C3%A4"),
        ("/orders/a%2Fb", "$default", "api.example", "/orders/a%2Fb"),
    ],
)
def test_the_path_is_encoded_and_without_the_stage(raw_path: str, stage: str, domain: str, path: str) -> None:
    context = {"http": {"method": "get"}, "stage": stage, "domainName": domain}
    call = parse_event(http_event(rawPath=raw_path, requestContext=context))
    assert isinstance(call, HttpCall)
    assert (call.method, call.path) == ("GET", path)


@pytest.mark.parametrize(
    ("route", "raw_path", "parameters", "path"),
    [
        ("GET /files/{name}", "/files/a/b", {"name": "a/b"}, "/files/a%2Fb"),
        ("GET /files/{name}", "/files/%41", {"name": "%41"}, "/files/%2541"),
        ("GET /files/{name}", "/files/ä b", {"name": "ä b"}, "/files/%C3%A4%20b"),
        ("GET /gr%C3%B6%C3%9Fe/{a}/{b}", "/größe/1/2", {"a": "1", "b": "2"}, "/gr%C3%B6%C3%9Fe/1/2"),
        ("GET /files/{name}", "/prod/files/x", {"name": "x"}, "/files/x"),
        ("GET /files/{name}", "/files/x", {"other": "y"}, "/files/x"),
        ("GET /files/{name}", "/files/x", None, "/files/x"),
        ("GET /{proxy+}", "/files/x", {"proxy": "files/x"}, "/files/x"),
        ("$default", "/files/x", None, "/files/x"),
        (None, "/files/x", {"name": "y"}, "/files/x"),
    ],
)
def test_the_path_has_the_parameters_as_the_route_has_found_them(
    route: str | None, raw_path: str, parameters: Any, path: str
) -> None:
    call = parse_event(http_event(routeKey=route, rawPath=raw_path, pathParameters=parameters))
    assert isinstance(call, HttpCall)
    assert call.path == path


CLAIMS = {"iss": "https://issuer.example", "sub": "u-1", "cognito:groups": "[admins users]"}
IAM = {
    "accessKey": "AKIA1",
    "accountId": "123456789012",
    "callerId": "AROA1:session",
    "cognitoIdentity": None,
    "principalOrgId": "o-1",
    "userArn": "arn:aws:sts::123456789012:assumed-role/clients/session",
    "userId": "AROA1:session",
}
PRINCIPAL = IamCaller(arn=IAM["userArn"] or "", account="123456789012", user_id="AROA1:session")


@pytest.mark.parametrize(
    ("authorizer", "caller"),
    [
        (None, None),
        ({}, None),
        ({"lambda": {"user": "u-1"}}, None),
        ({"jwt": {"claims": CLAIMS, "scopes": None}}, JwtCaller(claims=CLAIMS)),
        ({"jwt": {"claims": CLAIMS, "scopes": ["read", "write"]}}, JwtCaller(claims=CLAIMS, scopes=("read", "write"))),
        (
            {"jwt": {"claims": {"scope": "read write"}}},
            JwtCaller(claims={"scope": "read write"}, scopes=("read", "write")),
        ),
        (
            {"jwt": {"claims": {"scp": "[read write]"}}},
            JwtCaller(claims={"scp": "[read write]"}, scopes=("read", "write")),
        ),
        ({"iam": IAM}, PRINCIPAL),
        (
            {
                "iam": {
                    **IAM,
                    "cognitoIdentity": {"amr": ["authenticated"], "identityId": "eu:1", "identityPoolId": "eu:p"},
                }
            },
            dataclasses.replace(PRINCIPAL, cognito_identity="eu:1"),
        ),
    ],
)
def test_the_caller_is_who_the_authorizer_says(authorizer: Any, caller: object) -> None:
    event = http_event()
    event["requestContext"]["authorizer"] = authorizer
    call = parse_event(event)
    assert isinstance(call, HttpCall)
    assert call.caller == caller


@pytest.mark.parametrize(
    ("authorizer", "named"),
    [
        ({"jwt": "u-1"}, "jwt"),
        ({"jwt": {"claims": ["sub"]}}, "claims"),
        ({"jwt": {"claims": {}, "scopes": "read"}}, "scopes"),
        ({"iam": {**IAM, "userArn": None}}, "userArn"),
        ({"iam": {**IAM, "cognitoIdentity": {"amr": []}}}, "identityId"),
    ],
)
def test_a_caller_that_cannot_be_read_is_no_request_of_nobody(authorizer: Any, named: str) -> None:
    event = http_event()
    event["requestContext"]["authorizer"] = authorizer
    with pytest.raises(EventUnknownError, match=named):
        parse_event(event)


@pytest.mark.parametrize("time", ["a secret", "2026-03-01T12:00:00 secret", "secret" * 20])
def test_the_error_of_a_time_that_cannot_be_read_does_not_quote_it(time: str) -> None:
    with pytest.raises(EventUnknownError, match="time") as caught:
        parse_event(cron_event(time=time))
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rawPath": "/\ud800", "routeKey": "$default"}, "rawPath"),
        ({"pathParameters": {"id": "\ud800"}}, "pathParameters.id"),
    ],
)
def test_a_path_that_is_no_text_is_no_known_event(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(EventUnknownError, match=f"{named} holds a lone surrogate"):
        parse_event(http_event(**changes))


def test_an_sqs_event_is_the_payloads_of_one_queue() -> None:
    assert parse_event(sqs_event('{"n":1}', '"text"', "null")) == QueuePayloads(
        queue="order-payment", message_ids=("m-0", "m-1", "m-2"), payloads=({"n": 1}, "text", None)
    )


def test_a_message_as_the_runtime_sends_it_is_the_payload_in_it() -> None:
    sent = Envelope(receipt="m-1", function_id="a::b", queue="order-payment", accepted_ms=1, payload='{"n":1}')
    parsed = parse_event(sqs_event(encode_envelope(sent), '{"v":1}'))
    assert isinstance(parsed, QueuePayloads)
    assert parsed.payloads == ({"n": 1}, {"v": 1})


def test_a_payload_that_lies_in_a_bucket_cannot_be_read_from_the_event() -> None:
    link = BlobLink(key="b-1", size=300_000, sha256="0" * 64)
    sent = Envelope(receipt="m-1", function_id="a::b", queue="order-payment", accepted_ms=1, payload=link)
    with pytest.raises(EventUnknownError, match=r"Records\[0\]\.body lies in the bucket of its stage, under b-1"):
        parse_event(sqs_event(encode_envelope(sent)))


@pytest.mark.parametrize("source", ["aws.events", "aws.scheduler"])
def test_a_scheduled_event_is_a_tick(source: str) -> None:
    assert parse_event(cron_event(source=source)) == CronTick(
        event_id="e-1",
        scheduled_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
        resources=("arn:aws:events:eu-central-1:123456789012:rule/nightly",),
    )


@pytest.mark.parametrize(
    "event",
    [
        None,
        "text",
        [],
        {},
        {"Records": []},
        {"Records": [{"eventSource": "aws:s3"}]},
        {"version": "2.0"},
        {"version": "1.0", "httpMethod": "GET", "path": "/"},
        {"version": "2.0", "requestContext": {"routeKey": "$connect"}},
        cron_event(source="my.app"),
        {"source": "aws.events", "detail-type": "EC2 Instance State-change Notification"},
    ],
)
def test_another_shape_is_an_error_that_lists_the_known_ones(event: object) -> None:
    with pytest.raises(EventUnknownError, match=r"API Gateway HTTP API.*SQS.*EventBridge") as caught:
        parse_event(event)
    assert caught.value.code == "event_unknown"


@pytest.mark.parametrize(
    ("event", "named"),
    [
        (http_event(rawPath=None), "rawPath"),
        (http_event(headers=["a: b"]), "headers"),
        (http_event(cookies="a=b"), "cookies"),
        (http_event(body={"n": 1}), "body"),
        (http_event(body="%%%", isBase64Encoded=True), "base64"),
        (http_event(requestContext={"http": {}}), r"requestContext\.http\.method"),
        (sqs_event("{"), r"Records\[0\]\.body"),
        (sqs_event("{}", "NaN"), "NaN"),
        (sqs_event("{}", messageId=7), r"Records\[0\]\.messageId"),
        (sqs_event("{}", eventSourceARN=None), r"Records\[0\]\.eventSourceARN"),
        ({"Records": sqs_event("1")["Records"] + sqs_event("2", eventSourceARN="a:b")["Records"]}, "2 queues"),
        (cron_event(time="yesterday"), "time"),
        (cron_event(time="2026-03-01T12:00:00"), "time zone"),
        (cron_event(time="0001-01-01T00:00:00+14:00"), "time"),
        (cron_event(time="9999-12-31T23:59:59-14:00"), "time"),
        (cron_event(time="9999-12-31T23:59:00Z"), "time is after the year 9998"),
        (cron_event(resources=[1]), "resources"),
    ],
)
def test_a_member_that_cannot_be_read_is_named(event: object, named: str) -> None:
    with pytest.raises(EventUnknownError, match=named):
        parse_event(event)
