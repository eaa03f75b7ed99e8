"""The WebSocket Lambda: connecting, frames, disconnecting and tickets, over moto's table."""

from __future__ import annotations

import base64
import json
from collections import deque
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from iii_runtime import register_worker
from iii_runtime.adapters.aws.blob_store import S3Blobs
from iii_runtime.adapters.aws.connections import CONNECTION_LIFE, DynamoConnections
from iii_runtime.adapters.aws.stream_store import DynamoStreamStore
from iii_runtime.adapters.aws.table import Table
from iii_runtime.adapters.aws.tickets import DynamoTickets
from iii_runtime.core.change import StreamChange
from iii_runtime.core.config import Config, StreamAuth, StreamConfig
from iii_runtime.core.errors import StoreError
from iii_runtime.core.payload import Json
from iii_runtime.core.stream_protocol import MAX_FRAME_BYTES
from iii_runtime.engine.stream_push import StreamPush
from iii_runtime.engine.stream_session import MOST_SUBSCRIPTIONS, StreamSession
from iii_runtime.hosts.aws_lambda import websocket as websocket_host
from iii_runtime.hosts.aws_lambda.environment import Environment
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.hosts.aws_lambda.websocket import TICKET_LIFE, WebSocketEntry, new_ticket
from iii_runtime.hosts.unknown_event import EventUnknownError
from iii_runtime.plan.manifest import describe_app, read_manifest
from iii_runtime.testing.clock import SequenceIds
from tests.contract.aws_services import DEPLOYMENT, HastyClock, Services, running_services
from tests.host.lambda_kit import Context
from tests.host.lambda_streams import Gateway, InTurn, subscription

EVENTS = Path(__file__).resolve().parents[2] / "events" / "websocket"
CONNECTION = "L0SM9cOFvHcCIhw="


class Api:
    """A WebSocket API and the table behind it."""

    def __init__(self, services: Services) -> None:
        self.services, self.clock, self.ids = services, HastyClock(), SequenceIds()
        clients, names = services.clients, services.deployment
        self.table = Table(clients, names.table_name, self.clock)
        blobs = S3Blobs(clients, names.bucket_name, self.clock)
        self.stream = DynamoStreamStore(self.table, blobs, self.clock, self.ids)
        self.connections = DynamoConnections(clients, self.table, self.clock, self.ids)
        self.tickets = DynamoTickets(self.table, self.clock)
        self.gateway = Gateway()
        self.push = StreamPush(self.connections, self.gateway, InTurn(), self.clock)
        self.entry = self.new_entry("none")

    def new_entry(self, auth: StreamAuth) -> WebSocketEntry:
        session = StreamSession(self.connections, self.gateway, self.stream, self.clock)
        self.entry = WebSocketEntry(session, self.connections, self.tickets, auth=auth, ids=self.ids)
        return self.entry

    async def event(self, name: str) -> dict[str, Any]:
        return await self.entry.handle(sample(name))

    async def connect(self, query: dict[str, str] | None = None) -> int:
        event = sample("connect")
        if query is not None:
            event["queryStringParameters"] = query
        answer = await self.entry.handle(event)
        assert isinstance(answer["statusCode"], int)
        if answer["statusCode"] == 200:
            self.gateway.connect(CONNECTION)
        return answer["statusCode"]

    async def say(self, body: str | bytes | None, **members: Any) -> dict[str, Any]:
        event = sample("join-group")
        event["body"] = base64.b64encode(body).decode() if isinstance(body, bytes) else body
        event["isBase64Encoded"] = isinstance(body, bytes)
        return await self.entry.handle({**event, **members})

    async def send(self, kind: str, name: str = "s1", group: str = "g1", **more: Any) -> None:
        data = {"subscriptionId": name, "streamName": "orders", "groupId": group, **more}
        assert await self.say(json.dumps({"type": kind, "data": data})) == {"statusCode": 200}

    def events(self) -> list[Any]:
        return self.gateway.events(CONNECTION)

    def rows(self) -> list[str]:
        found = self.services.clients.dynamodb.scan(TableName=self.table.name)["Items"]
        return sorted(item["pk"]["S"] for item in found if item["pk"]["S"][:2] in ("W#", "J#", "K#"))


def sample(name: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return event


def updated(data: Json, kind: Any = "update") -> StreamChange:
    return StreamChange(at_ms=7, kind=kind, stream_name="orders", group_id="g1", item_id="i1", data=data)


@pytest.fixture
def here() -> Iterator[Api]:
    with running_services() as services:
        yield Api(services)


async def test_whoever_connects_and_joins_sees_what_is_stored_and_then_what_changes(here: Api) -> None:
    await here.stream.set("orders", "ord-ok", "status", {"status": "received"})
    assert (await here.event("connect"))["statusCode"] == 200
    here.gateway.connect(CONNECTION)
    assert await here.event("join-group") == {"statusCode": 200}
    await here.push.push(
        [StreamChange(at_ms=9, kind="update", stream_name="orders", group_id="ord-ok", item_id="status", data="paid")]
    )
    assert here.gateway.frames(CONNECTION) == [
        {
            "type": "stream",
            "timestamp": here.clock.now_ms(),
            "streamName": "orders",
            "groupId": "ord-ok",
            "id": None,
            "event": {"type": "sync", "data": [{"status": "received"}]},
        },
        {
            "type": "stream",
            "timestamp": 9,
            "streamName": "orders",
            "groupId": "ord-ok",
            "id": "status",
            "event": {"type": "update", "data": "paid"},
        },
    ]


async def test_nothing_is_posted_to_a_connection_before_it_is_established(here: Api) -> None:
    await here.event("connect")
    assert here.gateway.posts == 0


async def test_the_sample_events_are_answered_in_the_protocol(here: Api) -> None:
    await here.connect()
    await here.stream.set("orders", "ord-ok", "status", "received")
    names = ["join-group", "join-item", "leave", "binary-frame", "unknown-frame"]
    for name in names:
        assert await here.event(name) == {"statusCode": 200}
    assert here.events() == [["received"], "received", ["received"], "frame_invalid"]
    assert await here.event("disconnect") == {"statusCode": 200}
    assert here.rows() == []


async def test_a_connection_that_disconnects_is_removed_with_all_it_joined(here: Api) -> None:
    await here.connect()
    for number in range(3):
        await here.send("join", f"s{number}", f"g{number}")
    await here.event("disconnect")
    assert here.rows() == []
    here.gateway.hang_up(CONNECTION)
    await here.send("join")
    assert here.rows() == []


async def test_a_store_that_fails_while_disconnecting_is_no_error_and_what_is_left_expires(
    here: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await here.connect()
    await here.send("join")

    async def fail(*_: object, **__: object) -> None:
        raise StoreError("down")

    monkeypatch.setattr(here.table, "delete", fail)
    assert await here.event("disconnect") == {"statusCode": 200}
    here.clock.advance(CONNECTION_LIFE)
    assert await here.connections.members("orders", "g1") == []


async def test_after_leaving_nothing_more_comes(here: Api) -> None:
    await here.connect()
    await here.send("join")
    await here.send("leave")
    await here.push.push([updated(1)])
    assert here.events() == [[]]


@pytest.mark.parametrize(
    "body",
    [
        None,
        "",
        "nonsense",
        "\ud800",
        "[" * 100_000,
        b"\xff\xfe",
        '{"type":"ping"}',
        '{"type":"join","data":{}}',
        "x" * (MAX_FRAME_BYTES + 1),
        b"x" * (MAX_FRAME_BYTES + 1),
    ],
)
async def test_no_frame_is_ever_an_error_of_the_lambda(here: Api, body: str | bytes | None) -> None:
    await here.connect()
    assert await here.say(body) == {"statusCode": 200}
    (answer,) = here.gateway.frames(CONNECTION)
    assert (answer["type"], answer["code"]) == ("error", "frame_invalid")


@pytest.mark.parametrize("body", ["no base64!", "\u00e4", "YQ"])
async def test_a_binary_frame_whose_base64_is_damaged_is_answered_too(here: Api, body: str) -> None:
    await here.connect()
    assert await here.say(body, isBase64Encoded=True) == {"statusCode": 200}
    assert here.events() == ["frame_invalid"]


async def test_a_connection_has_at_most_a_thousand_subscriptions(here: Api) -> None:
    await here.connect()
    await here.table.put({"pk": f"W#{CONNECTION}", "sk": "@", "n": MOST_SUBSCRIPTIONS - 1, "ttl": 2**40})
    await here.send("join", "s1")
    await here.send("join", "s2")
    assert here.events() == [[], "too_many_subscriptions"]


async def test_a_change_that_is_stored_and_pushed_between_reading_and_posting_is_the_last_frame(here: Api) -> None:
    await here.stream.set("orders", "g1", "i1", "old")
    await here.connect()
    meanwhile = deque(["new"])

    async def overtake(_: str) -> None:
        while meanwhile:
            data = meanwhile.popleft()
            await here.stream.set("orders", "g1", "i1", data)
            await here.push.push([updated(data)])

    here.gateway.on_post = overtake
    await here.send("join")
    assert here.events() == ["new", ["old"], ["new"]]


async def test_a_change_that_is_stored_before_and_pushed_after_the_join_comes_in_both(here: Api) -> None:
    await here.connect()
    await here.stream.set("orders", "g1", "i1", "new")
    await here.send("join")
    await here.push.push([updated("new", "create")])
    assert here.events() == [["new"], "new"]


async def test_a_defect_closes_the_connection_and_is_an_error_of_the_lambda(
    here: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await here.connect()

    async def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(here.stream, "list_items", fail)
    with pytest.raises(RuntimeError, match="a defect"):
        await here.send("join")
    assert (here.gateway.connected, here.rows()) == (set(), [])


async def test_a_ticket_admits_one_connection(here: Api) -> None:
    here.new_entry("ticket")
    given = await here.event("stream-ticket")
    assert given["statusCode"] == 201
    assert given["headers"]["cache-control"] == "no-store"
    body = json.loads(given["body"])
    assert body == {"ticket": body["ticket"], "expires_in_s": 60}
    assert await here.connect({"ticket": body["ticket"]}) == 200
    assert await here.connect({"ticket": body["ticket"]}) == 403


async def test_a_ticket_is_too_old_after_a_minute(here: Api) -> None:
    here.new_entry("ticket")
    body = json.loads((await here.event("stream-ticket"))["body"])
    here.clock.advance(TICKET_LIFE)
    assert await here.connect({"ticket": body["ticket"]}) == 403
    assert [row for row in here.rows() if row.startswith("W#")] == []


@pytest.mark.parametrize(
    ("query", "status"), [(None, 401), ({}, 401), ({"ticket": ""}, 401), ({"token": "x"}, 401), ({"ticket": "x"}, 403)]
)
async def test_without_a_valid_ticket_nobody_connects(here: Api, query: dict[str, str] | None, status: int) -> None:
    here.new_entry("ticket")
    assert await here.connect(query) == status
    assert here.rows() == []


async def test_a_sample_connection_with_an_unknown_ticket_is_refused_with_the_error_envelope(here: Api) -> None:
    here.new_entry("ticket")
    answer = await here.event("connect-with-ticket")
    assert answer["statusCode"] == 403
    assert json.loads(answer["body"])["error"]["code"] == "TICKET_INVALID"


@pytest.mark.parametrize("auth", ["iam", "none"])
async def test_where_no_tickets_are_needed_none_is_given_and_none_is_looked_at(here: Api, auth: StreamAuth) -> None:
    here.new_entry(auth)
    assert (await here.event("stream-ticket"))["statusCode"] == 404
    assert await here.connect({"ticket": "anything"}) == 200


def test_a_ticket_has_256_bits_and_is_another_each_time() -> None:
    tickets = {new_ticket() for _ in range(100)}
    assert len(tickets) == 100
    assert {len(base64.urlsafe_b64decode(ticket + "=")) for ticket in tickets} == {32}


async def test_without_the_store_nobody_connects_and_no_ticket_is_given(
    here: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.new_entry("ticket")
    ticket = json.loads((await here.event("stream-ticket"))["body"])["ticket"]

    async def fail(*_: object, **__: object) -> None:
        raise StoreError("down")

    monkeypatch.setattr(here.table, "put", fail)
    assert (await here.event("stream-ticket"))["statusCode"] == 503
    assert await here.connect({"ticket": ticket}) == 503
    monkeypatch.setattr(here.table, "delete", fail)
    assert await here.connect({"ticket": ticket}) == 503


@pytest.mark.parametrize(
    "event",
    [
        None,
        {},
        {"Records": []},
        {"requestContext": {"connectionId": "", "eventType": "MESSAGE"}},
        {"requestContext": {"connectionId": "c", "eventType": "OTHER"}},
        {"requestContext": {"connectionId": "c"}},
    ],
)
async def test_an_event_of_another_kind_is_refused(here: Api, event: Any) -> None:
    with pytest.raises(EventUnknownError):
        await here.entry.handle(event)


async def test_a_lost_subscription_is_served_again_once_it_is_joined_anew(here: Api) -> None:
    await here.connect()
    await here.send("join")
    await here.connections.mark_lost(await here.connections.members("orders", "g1"))
    await here.send("join")
    await here.push.push([updated(1)])
    assert here.events() == [[], [], 1]


async def test_the_lambda_serves_the_whole_life_of_a_connection(here: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through moto's WebSocket API, which keeps what was posted last."""
    monkeypatch.setenv("III_WEBSOCKET_URL", "https://a1b2c3d4e5.execute-api.us-east-1.amazonaws.com/live")
    config = Config(stream=StreamConfig(auth="ticket"))
    stored = json.loads(json.dumps(describe_app(config, [register_worker()], ["app"])))
    sandbox = Sandbox(
        Environment(deployment=DEPLOYMENT),
        read_manifest(stored),
        clients=here.services.clients,
        clock=here.clock,
        ids=SequenceIds(),
    )

    def handle(event: dict[str, Any]) -> Any:
        return websocket_host._handle(sandbox, event, Context(here.clock, timedelta(seconds=29)))

    try:
        ticket = json.loads(handle(sample("stream-ticket"))["body"])["ticket"]
        connecting = sample("connect-with-ticket")
        assert handle(connecting)["statusCode"] == 403
        connecting["queryStringParameters"] = {"ticket": ticket}
        assert handle(connecting)["statusCode"] == 200
        assert handle(sample("join-group")) == {"statusCode": 200}
        assert [member.connection_id for member in await here.connections.members("orders", "ord-ok")] == [CONNECTION]
        assert handle(sample("disconnect")) == {"statusCode": 200}
        assert here.rows() == []
    finally:
        sandbox.close()
        websocket_host.open_websocket.cache_clear()


async def test_a_subscription_shows_what_it_was_joined_for(here: Api) -> None:
    await here.connect()
    await here.send("join", id="i1")
    (member,) = await here.connections.members("orders", "g1")
    assert member.subscription == subscription("s1", item="i1")
