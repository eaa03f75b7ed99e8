"""The subscription registry without sockets."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iii_runtime.core.change import StreamChange
from iii_runtime.core.payload import MAX_PAYLOAD_BYTES, Json
from iii_runtime.core.stream_protocol import FrameError, Subscription
from iii_runtime.hosts.embedded.outbox import Outbox
from iii_runtime.hosts.embedded.stream_hub import Closing, HubLimits, StreamClient, StreamHub

KINDS = st.sampled_from(["set", "delete", "push", "join", "read", "sync"])


def change(data: Json, *, item: str | None = "i1", kind: Any = "update", group: str = "g1") -> StreamChange:
    return StreamChange(at_ms=1, kind=kind, stream_name="orders", group_id=group, item_id=item, data=data)


def subscription(name: str = "s1", *, item: str | None = None, group: str = "g1") -> Subscription:
    return Subscription(subscription_id=name, stream_name="orders", group_id=group, item_id=item)


def admitted(hub: StreamHub) -> StreamClient:
    client = hub.admit()
    assert client is not None
    return client


def joined(hub: StreamHub, wanted: Subscription | None = None) -> StreamClient:
    client = admitted(hub)
    hub.join(client, wanted or subscription())
    hub.synced(client, (wanted or subscription()).subscription_id, '"sync"')
    client.outbox.drain()
    return client


def data_of(client: StreamClient) -> list[Any]:
    frames = [json.loads(frame) for frame in client.outbox.drain()]
    return [frame["event"]["data"] if isinstance(frame, dict) else frame for frame in frames]


async def test_changes_go_to_matching_subscriptions_in_their_order() -> None:
    hub = StreamHub()
    whole, one, other = joined(hub), joined(hub, subscription(item="i2")), joined(hub, subscription(group="g2"))
    hub.push([change(1), change(2, item="i2"), change(3, item=None, kind="event"), change(4, group="g3")])
    assert (data_of(one), data_of(other)) == ([2], [])
    assert [json.loads(frame)["event"]["type"] for frame in whole.outbox.drain()] == ["update", "update", "event"]


async def test_what_changes_before_the_sync_frame_is_held_and_follows_it() -> None:
    hub = StreamHub()
    client = admitted(hub)
    hub.join(client, subscription())
    hub.push([change(1)])
    assert data_of(client) == []
    hub.synced(client, "s1", '"sync"')
    hub.push([change(2)])
    assert data_of(client) == ["sync", 1, 2]


async def test_joining_again_under_the_same_id_replaces_the_subscription() -> None:
    hub = StreamHub()
    client = joined(hub)
    hub.join(client, subscription(group="g2"))
    hub.synced(client, "s1", '"sync"')
    hub.push([change(1), change(2, group="g2")])
    assert data_of(client) == ["sync", 2]


async def test_a_dismissed_client_gets_nothing_and_makes_room() -> None:
    hub = StreamHub(HubLimits(connections=1))
    client = joined(hub)
    assert hub.admit() is None
    hub.dismiss(client)
    hub.push([change(1)])
    assert (data_of(client), hub.client_count) == ([], 0)
    assert hub.admit() is not None


async def test_more_subscriptions_than_allowed_are_refused_and_the_others_stay() -> None:
    hub = StreamHub(HubLimits(subscriptions=1))
    client = joined(hub)
    with pytest.raises(FrameError) as caught:
        hub.join(client, subscription("s2"))
    assert (caught.value.code, caught.value.subscription_id) == ("too_many_subscriptions", "s2")
    hub.push([change(1)])
    assert data_of(client) == [1]


@pytest.mark.parametrize("limits", [HubLimits(frames=2), HubLimits(frame_bytes=150)])
async def test_a_client_that_does_not_keep_up_is_closed_and_holds_no_memory(limits: HubLimits) -> None:
    hub = StreamHub(limits)
    slow, fast = joined(hub), joined(hub)
    for number in range(3):
        hub.push([change(number)])
        assert data_of(fast) == [number]
    assert slow.closing is not None
    assert (slow.closing.code, slow.outbox.drain()) == (1013, [])
    assert fast.closing is None


async def test_too_many_changes_during_a_join_close_the_client() -> None:
    hub = StreamHub(HubLimits(frames=2))
    client = admitted(hub)
    hub.join(client, subscription())
    hub.push([change(number) for number in range(3)])
    assert client.closing is not None
    assert client.closing.code == 1013


async def test_a_change_too_large_for_a_frame_closes_its_readers_only() -> None:
    hub = StreamHub()
    reader, other = joined(hub), joined(hub, subscription(group="g2"))
    hub.push([change("x" * MAX_PAYLOAD_BYTES), change(1, group="g2")])
    assert reader.closing is not None
    assert reader.closing.code == 1011
    assert data_of(other) == [1]


async def test_a_closed_hub_says_goodbye_and_admits_nobody() -> None:
    hub = StreamHub()
    client = joined(hub)
    hub.close("the host is stopping")
    await asyncio.wait_for(client.wait_closing(), 1)
    hub.close("again")
    assert client.closing == Closing(1001, "the host is stopping")
    assert hub.admit() is None


async def test_an_outbox_gives_room_once_half_of_it_is_free() -> None:
    outbox = Outbox(4, 1000)
    waiting = asyncio.create_task(outbox.wait_for_room())
    await waiting
    assert [outbox.put(frame) for frame in ("a", "b", "c", "d", "e")] == [True, True, True, True, False]
    waiting = asyncio.create_task(outbox.wait_for_room())
    assert [await outbox.take(), await outbox.take()] == ["a", "b"]
    assert not waiting.done()
    assert await outbox.take() == "c"
    await asyncio.wait_for(waiting, 1)


async def test_taking_from_an_empty_outbox_waits_for_a_frame() -> None:
    outbox = Outbox(1, 1)
    taking = asyncio.create_task(outbox.take())
    assert outbox.put("a frame larger than the bound")
    assert await asyncio.wait_for(taking, 1) == "a frame larger than the bound"


class Life:
    """A store, its change feed, and one client that joins again and again."""

    def __init__(self) -> None:
        self.hub = StreamHub(HubLimits(frames=1000))
        self.client = admitted(self.hub)
        self.stored: dict[str, Json] = {}
        self.feed: list[StreamChange] = []
        self.snapshot: dict[str, Json] | None = None
        self.is_joining = False

    def set(self, number: int, value: int) -> None:
        item = f"i{number}"
        self.feed.append(change([item, value], item=item, kind="update" if item in self.stored else "create"))
        self.stored[item] = value

    def delete(self, number: int, _value: int) -> None:
        item = f"i{number}"
        if item in self.stored:
            self.feed.append(change([item, self.stored.pop(item)], item=item, kind="delete"))

    def push(self, number: int, _value: int) -> None:
        self.hub.push(self.feed[: number + 1])
        del self.feed[: number + 1]

    def join(self, _number: int, _value: int) -> None:
        if not self.is_joining:
            self.hub.join(self.client, subscription())
            self.is_joining, self.snapshot = True, None

    def read(self, _number: int, _value: int) -> None:
        if self.is_joining and self.snapshot is None:
            self.snapshot = dict(self.stored)

    def sync(self, _number: int, _value: int) -> None:
        if self.is_joining and self.snapshot is not None:
            self.hub.synced(self.client, "s1", json.dumps({"event": {"type": "sync", "data": self.snapshot}}))
            self.is_joining = False


@given(st.lists(st.tuples(KINDS, st.integers(0, 2), st.integers(0, 9)), max_size=40))
def test_after_any_interleaving_a_client_sees_what_is_stored(steps: list[tuple[str, int, int]]) -> None:
    """Writes, late pushes of the feed and the three parts of a join, in any order."""
    life = Life()
    for kind, number, value in [("join", 0, 0), *steps, ("read", 0, 0), ("sync", 0, 0)]:
        getattr(life, kind)(number, value)
    life.hub.push(life.feed)
    assert folded(life.client) == life.stored


def folded(client: StreamClient) -> dict[str, Json]:
    """What a client knows after all of its frames."""
    known: dict[str, Json] = {}
    for frame in client.outbox.drain():
        event = json.loads(frame)["event"]
        if event["type"] == "sync":
            known = dict(event["data"])
            continue
        item, value = event["data"]
        if event["type"] == "delete":
            known.pop(item, None)
        else:
            known[item] = value
    return known
