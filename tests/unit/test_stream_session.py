"""What a client's frames do where no process holds its connection, and what it has seen in the end."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iii_runtime.core.change import StreamChange
from iii_runtime.core.errors import StoreError
from iii_runtime.core.payload import Json
from iii_runtime.core.stream_protocol import MAX_FRAME_BYTES
from iii_runtime.engine.stream_push import MAX_POSTED_BYTES, POST_PAUSES, StreamPush
from iii_runtime.engine.stream_session import MOST_SYNCS, StreamSession
from iii_runtime.ports.stream_connections import ConnectionGoneError, PostError
from iii_runtime.testing.clock import SequenceIds
from iii_runtime.testing.stores import memory_stores
from tests.contract.aws_services import HastyClock
from tests.host.lambda_streams import Connections, Gateway, InTurn


class Steps:
    """A session, itself its stream store, that lets something happen around each of its calls.

    Attributes:
        schedule: What happens, see `act`: before and after each reading of the session, and before each of its posts.
    """

    def __init__(self, *, most: int = 1000) -> None:
        self.clock = HastyClock()
        self.stores = memory_stores(self.clock, SequenceIds())
        self.gateway, self.connections = Gateway(), Connections()
        self.push = StreamPush(self.connections, self.gateway, InTurn(), self.clock)
        self.gateway.connect("c")
        self.connections.rows["c"] = {}
        self.gateway.on_post = self._step
        self.session = StreamSession(self.connections, self.gateway, self, self.clock, most=most)  # type: ignore[arg-type]
        self.schedule: deque[Sequence[str]] = deque()
        self._written = 0
        self._pushed = 0
        self._is_acting = False

    async def get(self, stream_name: str, group_id: str, item_id: str) -> Json:
        await self._step(None)
        data = await self.stores.stream.get(stream_name, group_id, item_id)
        await self._step(None)
        return data

    async def list_items(self, stream_name: str, group_id: str) -> list[Json]:
        await self._step(None)
        items = await self.stores.stream.list_items(stream_name, group_id)
        await self._step(None)
        return items

    async def say(self, kind: str, name: str = "s1", group: str = "g1", **more: Any) -> None:
        data = {"subscriptionId": name, "streamName": "orders", "groupId": group, **more}
        await self.session.receive("c", json.dumps({"type": kind, "data": data}))

    async def act(self, action: str) -> None:
        """Write or delete an item, or push what was written since."""
        what, _, item = action.partition(" ")
        if what == "set":
            self._written += 1
            await self.stores.stream.set("orders", "g1", item, {"id": item, "n": self._written})
        elif what == "delete":
            await self.stores.stream.delete("orders", "g1", item)
        else:
            entries = await self.stores.feed.read(self._pushed, int(item))
            await self.push.push([entry.change for entry in entries if isinstance(entry.change, StreamChange)])
            self._pushed = entries[-1].position if entries else self._pushed

    def view(self, item: str | None = None) -> dict[str, Any]:
        """Return what a client that believes its frames holds in the end, by item."""
        shown: dict[str, Any] = {}
        for frame in self.gateway.frames("c"):
            if frame["type"] == "error":
                continue
            event = frame["event"]
            if event["type"] == "sync":
                found = event["data"] if item is None else [event["data"]]
                shown = {each["id"]: each for each in found if each is not None}
            elif event["type"] == "delete":
                shown.pop(frame["id"], None)
            else:
                shown[frame["id"]] = event["data"]
        return shown

    async def _step(self, _: object) -> None:
        if self._is_acting or not self.schedule:
            return
        self._is_acting = True
        for action in self.schedule.popleft():
            await self.act(action)
        self._is_acting = False


ACTIONS = st.sampled_from(["set a", "set b", "delete a", "push 1", "push 9"])


@given(
    before=st.lists(ACTIONS, max_size=4),
    schedule=st.lists(st.lists(ACTIONS, max_size=3), max_size=12),
    item=st.booleans(),
)
async def test_the_last_frame_of_an_item_is_its_newest_state_whatever_happens_during_the_join(
    before: list[str], schedule: list[list[str]], item: bool
) -> None:
    here = Steps()
    for action in before:
        await here.act(action)
    here.schedule = deque(schedule)
    await here.say("join", **({"id": "a"} if item else {}))
    here.schedule.clear()
    await here.act("push 99")
    stored = {
        each["id"]: each for each in await here.stores.stream.list_items("orders", "g1") if isinstance(each, dict)
    }
    seen = {name: data for name, data in stored.items() if not item or name == "a"}
    assert "error" not in [frame["type"] for frame in here.gateway.frames("c")]
    assert here.view("a" if item else None) == seen


async def test_a_push_that_overtakes_the_sync_frame_is_followed_by_a_newer_one() -> None:
    here = Steps()
    await here.act("set a")
    here.schedule = deque([(), (), ("set a", "push 9")])  # before reading, after reading, before the post is taken
    await here.say("join")
    types = [frame["event"]["type"] for frame in here.gateway.frames("c")]
    assert types == ["create", "update", "sync", "sync"]
    assert [each["n"] for each in here.gateway.events("c")[2]] == [1]
    assert [each["n"] for each in here.gateway.events("c")[3]] == [2]


async def test_joining_a_group_that_nobody_changes_gives_one_sync_frame() -> None:
    here = Steps()
    await here.act("set a")
    await here.say("join")
    await here.act("push 9")
    assert here.gateway.frames("c")[0] == {
        "type": "stream",
        "timestamp": here.clock.now_ms(),
        "streamName": "orders",
        "groupId": "g1",
        "id": None,
        "event": {"type": "sync", "data": [{"id": "a", "n": 1}]},
    }
    assert [frame["event"]["type"] for frame in here.gateway.frames("c")] == ["sync", "create"]


async def test_joining_an_item_gives_the_item_and_its_changes_only() -> None:
    here = Steps()
    await here.say("join", id="a")
    for action in ("set a", "set b", "push 9"):
        await here.act(action)
    assert here.gateway.events("c") == [None, {"id": "a", "n": 1}]


async def test_true_and_one_are_different_states(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Steps()
    values: deque[Json] = deque([1, True, True])

    async def get(*_: str) -> Json:
        return values.popleft()

    monkeypatch.setattr(here, "get", get)
    await here.say("join", id="a")
    assert [type(value) for value in here.gateway.events("c")] == [int, bool]


async def test_a_group_that_changes_faster_than_it_can_be_read_is_left_with_an_error() -> None:
    here = Steps()
    here.schedule = deque([("set a",)] * 100)
    await here.say("join")
    last = here.gateway.frames("c")[-1]
    assert (last["type"], last["code"], last["subscriptionId"]) == ("error", "group_too_busy", "s1")
    assert len(here.gateway.frames("c")) == MOST_SYNCS + 1
    assert here.connections.rows["c"] == {}


async def test_after_leaving_nothing_more_comes() -> None:
    here = Steps()
    await here.say("join")
    await here.say("leave")
    await here.say("leave", "never joined")
    for action in ("set a", "push 9"):
        await here.act(action)
    assert here.gateway.events("c") == [[]]


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "nonsense",
        b"\xff\xfe",
        "[]",
        '{"type":"ping"}',
        '{"type":"join"}',
        "x" * (MAX_FRAME_BYTES + 1),
        '{"type":"join","data":{"subscriptionId":"s1","streamName":"orders","groupId":""}}',
    ],
)
async def test_a_frame_that_cannot_be_read_is_answered_and_the_connection_stays(raw: str | bytes) -> None:
    here = Steps()
    await here.session.receive("c", raw)
    (answer,) = here.gateway.frames("c")
    assert (answer["type"], answer["code"]) == ("error", "frame_invalid")
    assert (here.gateway.connected, list(here.connections.rows)) == ({"c"}, ["c"])


async def test_a_frame_may_be_binary() -> None:
    here = Steps()
    await here.session.receive("c", b'{"type":"join","data":{"subscriptionId":"s","streamName":"o","groupId":"g"}}')
    assert here.gateway.events("c") == [[]]


async def test_one_subscription_too_many_is_refused_and_the_others_stay() -> None:
    here = Steps(most=1)
    await here.say("join", "s1")
    await here.say("join", "s2")
    await here.say("join", "s1", "g2")
    refused = here.gateway.frames("c")[1]
    assert (refused["code"], refused["subscriptionId"]) == ("too_many_subscriptions", "s2")
    assert [member.subscription.group_id for member in here.connections.rows["c"].values()] == ["g2"]


@pytest.mark.parametrize(("method", "kind"), [("join", "join"), ("leave", "leave")])
async def test_a_store_that_cannot_be_used_is_answered_with_its_error(method: str, kind: str) -> None:
    here = Steps()
    here.connections.fail(method)
    await here.say(kind)
    (answer,) = here.gateway.frames("c")
    assert (answer["code"], answer["subscriptionId"]) == ("store_unavailable", "s1")


async def test_a_group_that_cannot_be_read_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Steps()

    async def list_items(*_: str) -> list[Json]:
        raise StoreError("cannot read")

    monkeypatch.setattr(here, "list_items", list_items)
    await here.say("join")
    assert here.gateway.events("c") == ["store_unavailable"]
    assert here.connections.rows["c"] == {}


@pytest.mark.parametrize("more", [{}, {"id": "a"}])
async def test_what_is_too_large_for_a_sync_frame_is_joined_all_the_same(more: dict[str, str]) -> None:
    here = Steps()
    await here.stores.stream.set("orders", "g1", "a", "x" * MAX_POSTED_BYTES)
    await here.act("push 9")
    await here.say("join", **more)
    (answer,) = here.gateway.frames("c")
    assert (answer["code"], answer["subscriptionId"]) == ("frame_too_large", "s1")
    for action in ("set a", "push 9"):
        await here.act(action)
    assert here.gateway.events("c")[1:] == [{"id": "a", "n": 1}]


async def test_a_connection_that_ends_during_the_join_is_forgotten() -> None:
    here = Steps()

    async def hang_up(_: str) -> None:
        here.gateway.hang_up("c")

    here.gateway.on_post = hang_up
    await here.say("join")
    assert here.connections.rows == {}


async def test_a_frame_of_a_connection_that_was_forgotten_joins_nothing() -> None:
    here = Steps()
    await here.connections.forget("c")
    await here.say("join")
    assert (here.connections.rows, here.gateway.events("c")) == ({}, [])


async def test_an_answer_that_is_not_taken_for_now_is_posted_again() -> None:
    here = Steps()
    here.gateway.refuse("c", len(POST_PAUSES))
    await here.say("join")
    assert here.gateway.events("c") == [[]]
    assert here.clock.pauses == list(POST_PAUSES)


@pytest.mark.parametrize("is_transient", [True, False])
async def test_a_connection_that_does_not_take_its_answer_is_closed(is_transient: bool) -> None:
    here = Steps()
    here.gateway.refuse("c", 100, is_transient=is_transient)
    await here.say("join")
    assert (here.gateway.connected, here.connections.rows) == (set(), {})


async def test_a_connection_that_can_be_neither_served_nor_closed_is_forgotten() -> None:
    here = Steps()
    here.gateway.refuse("c", 1, is_transient=False)
    here.gateway.close_refusals["c"] = deque([PostError("no", is_transient=True)])
    await here.say("join")
    assert here.connections.rows == {}


async def test_ending_a_connection_is_no_error_if_the_store_cannot_be_used() -> None:
    here = Steps()
    here.connections.fail("forget")
    await here.session.end("c")
    assert "c" in here.connections.rows


async def test_a_gone_connection_is_no_error_of_its_frame() -> None:
    here = Steps()
    here.gateway.refusals["c"] = deque([ConnectionGoneError("gone")])
    await here.session.receive("c", "nonsense")
    assert here.connections.rows == {}
