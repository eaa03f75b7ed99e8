"""Which frames go to whom, and what becomes of viewers that do not take them."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import pytest

from iii_runtime.core.change import StreamChange
from iii_runtime.core.payload import Json
from iii_runtime.engine.stream_push import MAX_POSTED_BYTES, POST_PAUSES, StreamPush, render_change
from iii_runtime.hosts.aws_lambda.parallel import ThreadParallel
from iii_runtime.ports.stream_connections import PostError
from tests.contract.aws_services import HastyClock
from tests.host.lambda_streams import Connections, Gateway, InTurn, subscription


def change(data: Json, *, item: str | None = "i1", kind: Any = "update", group: str = "g1") -> StreamChange:
    event_type = "progress" if kind == "event" else None
    return StreamChange(
        at_ms=7, kind=kind, stream_name="orders", group_id=group, item_id=item, data=data, event_type=event_type
    )


G1, G2 = change(None).order_key, change(None, group="g2").order_key


class Pushing:
    """A push and everything around it."""

    def __init__(self, **options: Any) -> None:
        self.gateway, self.connections, self.clock = Gateway(), Connections(), HastyClock()
        self.push = StreamPush(self.connections, self.gateway, options.get("parallel", InTurn()), self.clock)

    async def join(self, connection_id: str, *subscriptions: Any) -> None:
        if connection_id not in self.connections.rows:
            self.gateway.connect(connection_id)
            await self.connections.register(connection_id)
        for wanted in subscriptions or (subscription(),):
            await self.connections.join(connection_id, wanted, most=1000)

    async def __call__(self, *changes: StreamChange) -> frozenset[str]:
        return await self.push.push(changes)


async def test_changes_go_to_those_who_joined_their_group_or_item_in_order() -> None:
    here = Pushing()
    await here.join("group")
    await here.join("item", subscription(item="i2"))
    await here.join("other", subscription(group="g2"))
    failed = await here(change(1), change(2, item="i2"), change(3, kind="event", item=None), change(4, group="g3"))
    assert failed == frozenset()
    assert here.gateway.frames("group")[0] == {
        "type": "stream",
        "timestamp": 7,
        "streamName": "orders",
        "groupId": "g1",
        "id": "i1",
        "event": {"type": "update", "data": 1},
    }
    assert here.gateway.events("group") == [1, 2, {"type": "progress", "data": 3}]
    assert here.gateway.events("item") == [2]
    assert here.gateway.events("other") == []


async def test_a_connection_with_two_matching_subscriptions_gets_one_frame() -> None:
    here = Pushing()
    await here.join("c", subscription("s1"), subscription("s2", item="i1"))
    await here(change(1), change(2, item="i2"))
    assert here.gateway.events("c") == [1, 2]


async def test_the_members_of_a_group_are_asked_for_once_in_a_batch() -> None:
    here = Pushing()
    await here.join("c")
    await here(*(change(number, group=f"g{number % 2}") for number in range(10)))
    assert sorted(here.connections.asked) == [("orders", "g0"), ("orders", "g1")]


async def test_nobody_is_asked_for_members_while_nobody_is_connected() -> None:
    here = Pushing()
    assert await here(change(1)) == frozenset()
    assert await here() == frozenset()
    assert here.connections.asked == []


async def test_a_viewer_that_is_gone_is_forgotten_and_the_others_are_served() -> None:
    here = Pushing()
    for name in ("a", "b", "c"):
        await here.join(name)
    here.gateway.hang_up("b")
    assert await here(change(1), change(2)) == frozenset()
    assert (here.gateway.events("a"), here.gateway.events("c")) == ([1, 2], [1, 2])
    assert sorted(here.connections.rows) == ["a", "c"]
    assert here.gateway.posts == 5


async def test_a_gone_viewer_that_cannot_be_forgotten_now_fails_nothing() -> None:
    here = Pushing()
    await here.join("c")
    here.gateway.hang_up("c")
    here.connections.fail("forget")
    assert await here(change(1)) == frozenset()
    assert "c" in here.connections.rows
    await here(change(2))
    assert here.connections.rows == {}


async def test_a_viewer_that_does_not_take_a_frame_for_now_gets_all_of_them_after_the_others() -> None:
    here = Pushing()
    order: list[str] = []

    async def note(connection_id: str) -> None:
        order.append(connection_id)

    for name in ("slow", "b", "c"):
        await here.join(name)
    here.gateway.on_post = note
    here.gateway.refuse("slow", 2)
    await here(change(1), change(2))
    assert here.gateway.events("slow") == [1, 2]
    assert order == ["slow", "b", "b", "c", "c", "slow", "slow", "slow"]
    assert here.clock.pauses == list(POST_PAUSES[:2])


async def test_a_viewer_that_never_takes_its_frames_is_closed_and_delays_others_by_seconds_only() -> None:
    here = Pushing()
    for name in ("slow", "b"):
        await here.join(name)
    here.gateway.refuse("slow", 1000)
    assert await here(change(1)) == frozenset()
    assert sum(pause.total_seconds() for pause in here.clock.pauses) < 4
    assert here.gateway.connected == {"b"}
    assert list(here.connections.rows) == ["b"]


async def test_a_viewer_that_refuses_for_good_is_closed_at_once() -> None:
    here = Pushing()
    await here.join("c")
    here.gateway.refuse("c", 1, is_transient=False)
    assert await here(change(1)) == frozenset()
    assert here.clock.pauses == []
    assert (here.gateway.connected, here.connections.rows) == (set(), {})


async def test_a_viewer_that_missed_a_frame_and_cannot_be_closed_gets_nothing_more_until_it_is() -> None:
    here = Pushing()
    await here.join("c", subscription("s1"), subscription("s2", group="g2"))
    here.gateway.refuse("c", 1, is_transient=False)
    here.gateway.close_refusals["c"] = deque([PostError("no", is_transient=True)])
    assert await here(change(1)) == frozenset()
    assert here.connections.rows["c"]["s1"].is_lost
    assert not here.connections.rows["c"]["s2"].is_lost
    await here(change(2))
    assert here.gateway.events("c") == []
    assert (here.gateway.connected, here.connections.rows) == (set(), {})


async def test_a_group_comes_again_if_nothing_would_remember_that_a_frame_was_lost() -> None:
    here = Pushing()
    await here.join("c")
    here.gateway.refuse("c", 1, is_transient=False)
    here.gateway.close_refusals["c"] = deque([PostError("no", is_transient=True)])
    here.connections.fail("mark_lost")
    assert await here(change(1), change(2, group="g2")) == {G1}
    assert await here(change(1)) == frozenset()
    assert here.gateway.events("c") == [1]


async def test_groups_whose_members_cannot_be_read_come_again_and_the_others_are_served() -> None:
    here = Pushing()
    await here.join("c", subscription("s1"), subscription("s2", group="g2"))
    here.connections.fail("members")
    assert await here(change(1), change(2, group="g2")) == {G1}
    assert here.gateway.events("c") == [2]


async def test_everything_comes_again_if_nobody_knows_whether_there_are_connections() -> None:
    here = Pushing()
    await here.join("c")
    here.connections.fail("may_have_any")
    assert await here(change(1), change(2, group="g2")) == {G1, G2}
    assert here.gateway.events("c") == []


async def test_a_defect_while_posting_costs_that_viewer_only(caplog: pytest.LogCaptureFixture) -> None:
    here = Pushing()
    for name in ("a", "b"):
        await here.join(name)
    here.gateway.refusals["a"] = deque([RuntimeError("a defect")])
    assert await here(change(1)) == frozenset()
    assert here.gateway.events("b") == [1]
    assert list(here.connections.rows) == ["b"]
    assert "a defect" in caplog.text


def test_the_largest_frame_is_posted_and_a_larger_one_becomes_an_error_that_names_the_item() -> None:
    around = len(render_change(change("")))
    fits = render_change(change("x" * (MAX_POSTED_BYTES - around)))
    assert (len(fits), json.loads(fits)["type"]) == (MAX_POSTED_BYTES, "stream")
    error = json.loads(render_change(change("x" * (MAX_POSTED_BYTES - around + 1))))
    assert (error["type"], error["code"]) == ("error", "frame_too_large")
    for part in ("'i1'", "'g1'", "'orders'", "stream::get"):
        assert part in error["message"]
    event = json.loads(render_change(change("x" * MAX_POSTED_BYTES, kind="event")))
    assert "'progress'" in event["message"]


def test_a_change_larger_than_any_payload_becomes_an_error_as_well() -> None:
    assert json.loads(render_change(change("x" * (32 * 1024 * 1024))))["code"] == "frame_too_large"


async def test_a_frame_too_large_keeps_its_place_among_the_others() -> None:
    here = Pushing()
    await here.join("c")
    await here(change(1), change("x" * MAX_POSTED_BYTES), change(2))
    assert here.gateway.events("c") == [1, "frame_too_large", 2]


async def test_a_hundred_viewers_are_served_side_by_side_each_in_order() -> None:
    parallel = ThreadParallel(8)
    here = Pushing(parallel=parallel)
    names = [f"c{number}" for number in range(100)]
    for name in names:
        await here.join(name, subscription("s1"), subscription("s2", group="g2"))
    here.gateway.hang_up("c50")
    here.gateway.refuse("c60", 1)
    try:
        assert await here(*(change(number, group=f"g{number % 2 + 1}") for number in range(20))) == frozenset()
    finally:
        parallel.close()
    served = {name: here.gateway.events(name) for name in names if name != "c50"}
    assert served == {name: list(range(20)) for name in names if name != "c50"}
    assert len(here.connections.rows) == 99
