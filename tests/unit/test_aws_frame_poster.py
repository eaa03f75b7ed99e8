"""Posting frames: what the stand-in and the real poster have in common, and what the service's refusals mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError
from botocore.stub import Stubber
from moto import mock_aws
from moto.apigatewaymanagementapi.models import apigatewaymanagementapi_backends

from iii_runtime.adapters.aws.frame_poster import ApiGatewayPoster
from iii_runtime.ports.stream_connections import ConnectionGoneError, FramePoster, PostError
from tests.contract.aws_services import DEPLOYMENT, fake_clients
from tests.host.lambda_streams import Gateway

ENDPOINT = "https://a1b2c3d4e5.execute-api.us-east-1.amazonaws.com/live"
CONNECTION = "L0SM9cOFvHcCIhw="


class Posting:
    """A poster, with what a connection has received and whether it is open."""

    def __init__(self, poster: FramePoster, received: Callable[[], str], is_open: Callable[[], bool]) -> None:
        self.poster, self.received, self.is_open = poster, received, is_open


def on_moto() -> Posting:
    backend = apigatewaymanagementapi_backends[DEPLOYMENT.account][DEPLOYMENT.region]
    known: dict[str, Any] = backend.connections
    name = quote(CONNECTION, safe="")

    def received() -> str:
        return bytes(known[name].data).decode()

    return Posting(ApiGatewayPoster(fake_clients().websocket(ENDPOINT)), received, lambda: name in known)


def on_stand_in() -> Posting:
    gateway = Gateway()
    gateway.connect(CONNECTION)
    return Posting(gateway, lambda: "".join(gateway.received[CONNECTION]), lambda: CONNECTION in gateway.connected)


@pytest.fixture(params=["moto", "stand-in"])
def here(request: pytest.FixtureRequest) -> Iterator[Posting]:
    if request.param == "stand-in":
        yield on_stand_in()
        return
    with mock_aws():
        yield on_moto()


async def test_frames_arrive_as_they_are_and_in_order(here: Posting) -> None:
    for frame in ('{"n":1}', '{"n":"\u00e4"}'):
        await here.poster.post(CONNECTION, frame)
    assert here.received() == '{"n":1}{"n":"\u00e4"}'


async def test_a_closed_connection_is_no_more_and_may_be_closed_again(here: Posting) -> None:
    await here.poster.post(CONNECTION, "{}")
    assert here.is_open()
    for _ in range(2):
        await here.poster.close(CONNECTION)
    assert not here.is_open()


async def test_closing_a_connection_that_never_was_is_no_error(here: Posting) -> None:
    await here.poster.close("nobody")


class Refusing:
    """A poster whose next request is refused."""

    def __init__(self) -> None:
        self.client = fake_clients().websocket(ENDPOINT)
        self.poster = ApiGatewayPoster(self.client)

    def refuse(self, stub: Stubber, operation: str, code: str, status: int) -> None:
        stub.add_client_error(operation, code, "no", http_status_code=status)


REFUSALS = [
    ("LimitExceededException", 429, True),
    ("ThrottlingException", 429, True),
    ("InternalServerError", 500, True),
    ("ServiceUnavailable", 503, True),
    ("", 502, True),
    ("ForbiddenException", 403, False),
    ("PayloadTooLargeException", 413, False),
    ("ExpiredTokenException", 403, False),
    ("BadRequestException", 400, False),
]


@pytest.mark.parametrize(("code", "status", "is_transient"), REFUSALS)
async def test_a_refusal_says_whether_it_passes(code: str, status: int, is_transient: bool) -> None:
    here = Refusing()
    with Stubber(here.client) as stub:
        here.refuse(stub, "post_to_connection", code, status)
        here.refuse(stub, "delete_connection", code, status)
        for request in (here.poster.post(CONNECTION, "{}"), here.poster.close(CONNECTION)):
            with pytest.raises(PostError) as raised:
                await request
            assert raised.value.is_transient is is_transient


@pytest.mark.parametrize(("code", "status"), [("GoneException", 410), ("410", 410)])
async def test_a_connection_that_is_gone_is_told_apart(code: str, status: int) -> None:
    here = Refusing()
    with Stubber(here.client) as stub:
        here.refuse(stub, "post_to_connection", code, status)
        here.refuse(stub, "delete_connection", code, status)
        with pytest.raises(ConnectionGoneError):
            await here.poster.post(CONNECTION, "{}")
        await here.poster.close(CONNECTION)


@pytest.mark.parametrize(
    "error",
    [
        ReadTimeoutError(endpoint_url=ENDPOINT),
        ConnectTimeoutError(endpoint_url=ENDPOINT),
        EndpointConnectionError(endpoint_url=ENDPOINT),
    ],
)
async def test_a_request_without_an_answer_passes(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Refusing()

    def post(**_: object) -> None:
        raise error

    monkeypatch.setattr(here.client, "post_to_connection", post)
    with pytest.raises(PostError) as raised:
        await here.poster.post(CONNECTION, "{}")
    assert raised.value.is_transient
