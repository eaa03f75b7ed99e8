"""The address under which the streams of a stage can be watched."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from iii_runtime.adapters.aws.stage_access import StageAccess
from iii_runtime.adapters.aws.stage_streams import StageStreams
from iii_runtime.core.errors import HostError
from tests.host.stage import REGION, Asked, lambda_service, own_credentials, refusal

ENDPOINT = "https://abc123.execute-api.eu-west-1.amazonaws.com/live"
WEBSOCKET = "shop-prod-x-websocket"


def streams(monkeypatch: pytest.MonkeyPatch, told: object, *, variables: dict[str, str] | None = None) -> StageStreams:
    given = {"URL": ENDPOINT} if variables is None else variables
    own_credentials(monkeypatch)
    lambda_service(
        monkeypatch, "GetFunctionConfiguration", lambda _name, _body: (200, {}, {"Environment": {"Variables": given}})
    )
    return StageStreams(StageAccess("shop", "prod"), "URL") if told is None else asking(monkeypatch, told)[0]


def asking(monkeypatch: pytest.MonkeyPatch, told: object) -> tuple[StageStreams, Asked]:
    asked = lambda_service(monkeypatch, "Invoke", lambda _name, _body: (200, {}, told))
    return StageStreams(StageAccess("shop", "prod"), "URL"), asked


def response(status: int, body: object, *, is_base64: bool = False) -> dict[str, Any]:
    text = json.dumps(body)
    return {
        "statusCode": status,
        "body": base64.b64encode(text.encode()).decode() if is_base64 else text,
        "isBase64Encoded": is_base64,
    }


@pytest.mark.parametrize("is_base64", [False, True])
def test_a_stage_that_wants_tickets_gives_one_to_who_may_invoke_it(
    is_base64: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams(monkeypatch, None)
    given, asked = asking(monkeypatch, response(201, {"ticket": "a/b+c"}, is_base64=is_base64))
    assert given.address() == "wss://abc123.execute-api.eu-west-1.amazonaws.com/live?ticket=a%2Fb%2Bc"
    ((name, event),) = asked
    assert name == WEBSOCKET
    assert event["requestContext"]["http"] == {"method": "POST", "path": "/_iii/stream-ticket"}


def test_any_other_stage_gets_a_signature_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    address = urlsplit(streams(monkeypatch, response(404, {"error": {}})).address())
    assert f"{address.scheme}://{address.netloc}{address.path}" == ENDPOINT.replace("https", "wss")
    query = {name: values[0] for name, values in parse_qs(address.query).items()}
    assert query["X-Amz-Expires"] == "60"
    assert query["X-Amz-SignedHeaders"] == "host"
    assert query["X-Amz-Credential"].startswith("nobody/")
    assert query["X-Amz-Credential"].endswith(f"/{REGION}/execute-api/aws4_request")
    assert len(query["X-Amz-Signature"]) == 64


def test_an_emulator_without_tls_keeps_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"URL": "http://127.0.0.1:4510/live"}
    address = streams(monkeypatch, response(201, {"ticket": "t"}), variables=variables).address()
    assert address == "ws://127.0.0.1:4510/live?ticket=t"


@pytest.mark.parametrize("variables", [{}, {"URL": ""}, {"URL": "abc"}])
def test_a_stage_that_does_not_say_where_its_streams_are_is_told(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(HostError, match="Deploy the stage anew") as raised:
        streams(monkeypatch, response(404, {}), variables=variables).address()
    assert raised.value.code == "stage_failed"


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (response(503, {"error": {"code": "UNAVAILABLE"}}), "UNAVAILABLE"),
        (response(201, {}), "cannot be read"),
        ({"statusCode": 201, "body": "no json"}, "cannot be read"),
        ([], "cannot be read"),
    ],
)
def test_a_ticket_that_is_not_given_is_told(told: object, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HostError, match=text) as raised:
        streams(monkeypatch, told).address()
    assert raised.value.code == "stage_failed"


def test_a_stage_that_is_not_deployed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    own_credentials(monkeypatch)
    missing = refusal(404, "ResourceNotFoundException", "Function not found")
    lambda_service(monkeypatch, "GetFunctionConfiguration", lambda _name, _body: missing)
    with pytest.raises(HostError) as raised:
        StageStreams(StageAccess("shop", "prod"), "URL").address()
    assert raised.value.code == "stage_not_deployed"


def test_without_credentials_nothing_can_be_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    given = streams(monkeypatch, response(404, {}))
    monkeypatch.setattr(given._access.session, "get_credentials", lambda: None)
    with pytest.raises(HostError) as raised:
        given._signed(ENDPOINT)
    assert raised.value.code == "aws_credentials_missing"
