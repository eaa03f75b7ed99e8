"""The stream protocol over real WebSockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import aiohttp
import pytest

from iii_runtime.core.change import StreamChange
from iii_runtime.core.config import CorsConfig
from iii_runtime.core.errors import HostError, StoreError
from iii_runtime.core.payload import Json
from iii_runtime.core.stream_protocol import MAX_FRAME_BYTES
from iii_runtime.hosts.embedded.origins import origin_rule
from iii_runtime.hosts.embedded.stream_hub import HubLimits, StreamClient, StreamHub
from iii_runtime.hosts.embedded.stream_server import StreamPatience, StreamServer
from iii_runtime.ports.stream_store import StreamStore
from iii_runtime.testing.clock import SequenceIds, SkipClock
from iii_runtime.testing.stores import memory_stores

GRACE = timedelta(seconds=5)
LAST = Literal["create", "update", "delete", "event"]


class WatchedHub(StreamHub):
    """A hub that tells when a client came and when one went."""

    def __init__(self, limits: HubLimits | None) -> None:
        super().__init__(limits)
        self.came = asyncio.Event()
        self.went = asyncio.Event()

    def admit(self) -> StreamClient | None:
        self.came.set()
        return super().admit()

    def dismiss(self, client: StreamClient) -> None:
        super().dismiss(client)
        self.went.set()


@dataclass(frozen=True)
class Serving:
    hub: WatchedHub
    server: StreamServer
    store: StreamStore
    clock: SkipClock

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[Client]:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"ws://{self.server.address}/", **options) as socket,
        ):
            yield Client(socket)


class Client:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def say(self, kind: str, name: str = "s1", group: str = "g1", **more: Any) -> None:
        data = {"subscriptionId": name, "streamName": "orders", "groupId": group, **more}
        await self.socket.send_str(json.dumps({"type": kind, "data": data}))

    async def join(self, name: str = "s1", group: str = "g1", **more: Any) -> dict[str, Any]:
        await self.say("join", name, group, **more)
        return await self.frame()

    async def frame(self) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(await self.socket.receive_str(timeout=10))
        return frame

    async def events(self, count: int) -> list[dict[str, Any]]:
        return [(await self.frame())["event"] for _ in range(count)]

    async def closed(self) -> tuple[int | None, str]:
        message = await self.socket.receive(timeout=10)
        while message.type is aiohttp.WSMsgType.TEXT:
            message = await self.socket.receive(timeout=10)
        assert message.type is aiohttp.WSMsgType.CLOSE
        return self.socket.close_code, message.extra or ""


@asynccontextmanager
async def serving(
    *,
    limits: HubLimits | None = None,
    store: StreamStore | None = None,
    allowed_origins: Callable[[str], bool] | None = None,
    patience: StreamPatience | None = None,
) -> AsyncIterator[Serving]:
    clock = SkipClock()
    store = store or memory_stores(clock, SequenceIds()).stream
    hub = WatchedHub(limits)
    server = StreamServer(
        hub,
        store,
        clock,
        "127.0.0.1",
        0,
        allowed_origins=allowed_origins or origin_rule(None),
        ids=SequenceIds(),
        patience=patience,
    )
    await server.start()
    try:
        yield Serving(hub, server, store, clock)
    finally:
        await server.stop(GRACE)


def change(data: Json, *, item: str | None = "i1", group: str = "g1", kind: LAST = "update") -> StreamChange:
    event_type = "progress" if kind == "event" else None
    return StreamChange(
        at_ms=7, kind=kind, stream_name="orders", group_id=group, item_id=item, data=data, event_type=event_type
    )


async def test_joining_a_group_gives_its_items_and_then_its_changes() -> None:
    async with serving() as here, here.client() as client:
        await here.store.set("orders", "g1", "i1", {"n": 1})
        await here.store.set("orders", "g2", "i1", {"n": 2})
        assert await client.join() == {
            "type": "stream",
            "timestamp": here.clock.now_ms(),
            "streamName": "orders",
            "groupId": "g1",
            "id": None,
            "event": {"type": "sync", "data": [{"n": 1}]},
        }
        here.hub.push([change(3, kind="create"), change(4, group="g2"), change(5, kind="event", item=None)])
        assert await client.frame() == {
            "type": "stream",
            "timestamp": 7,
            "streamName": "orders",
            "groupId": "g1",
            "id": "i1",
            "event": {"type": "create", "data": 3},
        }
        assert await client.frame() == {
            "type": "stream",
            "timestamp": 7,
            "streamName": "orders",
            "groupId": "g1",
            "id": None,
            "event": {"type": "event", "event": {"type": "progress", "data": 5}},
        }


async def test_joining_an_item_gives_the_item_and_its_changes_only() -> None:
    async with serving() as here, here.client() as client:
        await here.store.set("orders", "g1", "i1", {"n": 1})
        synced = await client.join(id="i1")
        assert (synced["id"], synced["event"]) == ("i1", {"type": "sync", "data": {"n": 1}})
        here.hub.push([change(1, item="i2"), change(2, kind="event", item=None), change(3, kind="delete")])
        assert await client.events(1) == [{"type": "delete", "data": 3}]


async def test_an_item_that_does_not_exist_syncs_as_null_and_an_empty_group_as_an_empty_list() -> None:
    async with serving() as here, here.client() as client:
        assert (await client.join("s1", id="i1"))["event"] == {"type": "sync", "data": None}
        assert (await client.join("s2"))["event"] == {"type": "sync", "data": []}


async def test_after_leaving_nothing_more_comes() -> None:
    async with serving() as here, here.client() as client:
        await client.join("s1")
        await client.say("leave", "s1")
        await client.say("leave", "never joined")
        await client.join("s2", "g2")
        here.hub.push([change(1), change(2, group="g2")])
        assert await client.events(1) == [{"type": "update", "data": 2}]


async def test_a_client_with_two_matching_subscriptions_gets_one_frame() -> None:
    async with serving() as here, here.client() as client:
        await client.join("s1")
        await client.join("s2", id="i1")
        here.hub.push([change(1), change(2)])
        assert await client.events(2) == [{"type": "update", "data": 1}, {"type": "update", "data": 2}]


async def test_frames_may_be_binary() -> None:
    async with serving() as here, here.client() as client:
        data = {"subscriptionId": "s1", "streamName": "orders", "groupId": "g1"}
        await client.socket.send_bytes(json.dumps({"type": "join", "data": data}).encode())
        assert (await client.frame())["event"] == {"type": "sync", "data": []}


async def test_a_frame_that_cannot_be_read_is_answered_and_the_connection_stays() -> None:
    async with serving() as here, here.client() as client:
        await client.socket.send_str("{")
        assert (await client.frame())["code"] == "frame_invalid"
        await client.say("join", group="")
        refused = await client.frame()
        assert (refused["type"], refused["subscriptionId"]) == ("error", "s1")
        assert (await client.join())["event"]["type"] == "sync"


async def test_a_frame_of_the_largest_size_is_read_and_a_larger_one_ends_the_connection() -> None:
    async with serving() as here, here.client() as client:
        await client.socket.send_str("x" * MAX_FRAME_BYTES)
        assert (await client.frame())["code"] == "frame_invalid"
        await client.socket.send_str("x" * (MAX_FRAME_BYTES + 1))
        assert (await client.closed())[0] == 1009


class GatedStore:
    """A stream store whose reads begin and end when the test says so."""

    def __init__(self, store: StreamStore) -> None:
        self._store = store
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def list_items(self, stream_name: str, group_id: str) -> list[Json]:
        items = await self._store.list_items(stream_name, group_id)
        self.entered.set()
        await self.opened.wait()
        return items


async def test_a_change_during_the_join_follows_the_sync_frame() -> None:
    """The snapshot is older than the change, so the change must not be lost, nor come first."""
    store = GatedStore(memory_stores(SkipClock(), SequenceIds()).stream)
    async with serving(store=store) as here, here.client() as client:
        await client.say("join")
        await store.entered.wait()
        here.hub.push([change(1, kind="create"), change(2)])
        store.opened.set()
        assert await client.events(3) == [
            {"type": "sync", "data": []},
            {"type": "create", "data": 1},
            {"type": "update", "data": 2},
        ]


class BrokenStore:
    """A stream store that cannot be read."""

    async def list_items(self, stream_name: str, group_id: str) -> list[Json]:
        raise StoreError(f"cannot read {stream_name}/{group_id}")

    async def get(self, stream_name: str, group_id: str, item_id: str) -> Json:
        raise RuntimeError(f"a defect at {stream_name}/{group_id}/{item_id}")


async def test_a_store_that_cannot_be_read_refuses_the_join() -> None:
    async with serving(store=BrokenStore()) as here, here.client() as client:  # type: ignore[arg-type]
        refused = await client.join()
        here.hub.push([change(1)])
        assert (refused["type"], refused["code"], refused["subscriptionId"]) == ("error", "store_unavailable", "s1")
        assert (await client.join())["type"] == "error"


async def test_a_defect_of_the_host_closes_the_connection_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(store=BrokenStore()) as here, here.client() as client:  # type: ignore[arg-type]
        await client.say("join", id="i1")
        assert (await client.closed())[0] == 1011
    assert "a defect at orders/g1/i1" in caplog.text


async def test_a_client_that_cannot_keep_up_is_closed_with_a_reason_and_others_are_served() -> None:
    async with serving(limits=HubLimits(frames=10)) as here, here.client() as slow, here.client() as other:
        await slow.join()
        await other.join(group="g2")
        here.hub.push([*(change(number) for number in range(11)), change(1, group="g2")])
        assert await other.events(1) == [{"type": "update", "data": 1}]
        code, reason = await slow.closed()
        assert code == 1013
        assert "too slowly" in reason


async def test_a_client_that_does_not_read_is_cut_and_others_are_served(caplog: pytest.LogCaptureFixture) -> None:
    patience = StreamPatience(goodbye=timedelta(milliseconds=50))
    limits = HubLimits(frames=2, frame_bytes=1)
    async with serving(limits=limits, patience=patience) as here, handshaken(here) as (reader, writer):
        writer.write(masked({"type": "join", "data": {"subscriptionId": "s", "streamName": "orders", "groupId": "g1"}}))
        await reader.readuntil(b"]}}")
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        large = change("x" * 8_000_000)
        async with asyncio.timeout(30):
            while here.hub.client_count:
                here.hub.push([large])
                assert await refused_with(here, origin="null") == (403, "ORIGIN_NOT_ALLOWED")
    assert "does not read" in caplog.text


async def test_a_client_that_answers_no_ping_is_closed() -> None:
    patience = StreamPatience(heartbeat=timedelta(milliseconds=50), goodbye=timedelta(milliseconds=50))
    async with serving(patience=patience) as here, handshaken(here) as (reader, _):
        await asyncio.wait_for(here.hub.came.wait(), 10)
        async with asyncio.timeout(10):
            while await reader.read(1000):
                pass
        await asyncio.wait_for(here.hub.went.wait(), 10)
        assert here.hub.client_count == 0


async def test_a_client_that_disconnects_is_forgotten() -> None:
    async with serving() as here:
        async with here.client() as client:
            await client.join()
            assert here.hub.client_count == 1
        await asyncio.wait_for(here.hub.went.wait(), 10)
        assert here.hub.client_count == 0
        here.hub.push([change(1)])


async def test_there_is_a_limit_of_subscriptions() -> None:
    async with serving(limits=HubLimits(subscriptions=1)) as here, here.client() as client:
        await client.join("s1")
        assert (await client.join("s2"))["code"] == "too_many_subscriptions"
        assert (await client.join("s1", "g2"))["event"]["type"] == "sync"


async def test_there_is_a_limit_of_connections() -> None:
    async with serving(limits=HubLimits(connections=1)) as here, here.client() as client:
        await client.join()
        assert await refused_with(here) == (503, "UNAVAILABLE")


@pytest.mark.parametrize(
    ("origin", "cors", "is_allowed"),
    [
        ("http://localhost:3113", None, True),
        ("http://127.0.0.1:3113", None, True),
        ("https://evil.example", None, False),
        ("null", None, False),
        ("https://shop.example", CorsConfig(allowed_origins=("https://shop.example",)), True),
        ("https://evil.example", CorsConfig(allowed_origins=("https://shop.example",)), False),
        ("https://evil.example", CorsConfig(), True),
    ],
)
async def test_only_pages_of_allowed_origins_may_connect(
    origin: str, cors: CorsConfig | None, is_allowed: bool
) -> None:
    async with serving(allowed_origins=origin_rule(cors)) as here:
        if is_allowed:
            async with here.client(origin=origin) as client:
                assert (await client.join())["event"]["type"] == "sync"
        else:
            assert await refused_with(here, origin=origin) == (403, "ORIGIN_NOT_ALLOWED")


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/", (426, "UPGRADE_REQUIRED")),
        ("GET", "/stream/orders/g1/", (404, "NOT_FOUND")),
        ("POST", "/", (405, "METHOD_NOT_ALLOWED")),
    ],
)
async def test_a_request_that_is_no_websocket_is_told_so(method: str, path: str, expected: tuple[int, str]) -> None:
    async with (
        serving() as here,
        aiohttp.ClientSession() as session,
        session.request(method, f"http://{here.server.address}{path}") as response,
    ):
        assert (response.status, (await response.json())["error"]["code"]) == expected
        assert response.headers["Server"] == "iii-runtime"


async def test_a_handshake_that_is_broken_is_refused() -> None:
    async with serving() as here, aiohttp.ClientSession() as session:
        headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "1"}
        async with session.get(f"http://{here.server.address}/", headers=headers) as response:
            assert response.status == 400


async def test_a_stop_says_goodbye_to_every_client() -> None:
    async with serving() as here, here.client() as client:
        await client.join()
        stopping = asyncio.create_task(here.server.stop(GRACE))
        assert await client.closed() == (1001, "the host is stopping")
        await stopping
        with pytest.raises(aiohttp.ClientConnectorError):
            await refused_with(here)


async def test_a_port_in_use_names_the_stream_section() -> None:
    async with serving() as here:
        second = StreamServer(
            here.hub, here.store, here.clock, "127.0.0.1", here.server.port, allowed_origins=origin_rule(None)
        )
        with pytest.raises(HostError, match=r"Stop that process.*iii-stream") as caught:
            await second.start()
    assert caught.value.code == "port_in_use"


async def refused_with(here: Serving, origin: str | None = None) -> tuple[int, str]:
    """Return status and code of a refused handshake."""
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    headers["Sec-WebSocket-Key"] = "MDEyMzQ1Njc4OWFiY2RlZg=="
    if origin:
        headers["Origin"] = origin
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{here.server.address}/", headers=headers) as response,
    ):
        return response.status, (await response.json())["error"]["code"]


@asynccontextmanager
async def handshaken(here: Serving) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A WebSocket that nothing answers on but the test."""
    reader, writer = await asyncio.open_connection("127.0.0.1", here.server.port, limit=2**16)
    writer.write(
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
    )
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def masked(frame: Any) -> bytes:
    """A client's text frame of 126 bytes to 64 KiB, or fewer, with a mask of zeros."""
    text = json.dumps(frame).encode()
    length = bytes([0x80 | len(text)]) if len(text) < 126 else b"\xfe" + len(text).to_bytes(2, "big")
    return b"\x81" + length + bytes(4) + text
