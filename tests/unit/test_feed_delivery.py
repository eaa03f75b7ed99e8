"""Batches of the change feed: what is done for each change, in which order, and what comes again."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iii_runtime import InvocationError, OnState, OnStream, Worker, register_worker
from iii_runtime.core.call import Call
from iii_runtime.core.change import Change, StateChange, StreamChange
from iii_runtime.core.errors import FunctionBusyError
from iii_runtime.core.payload import Json
from iii_runtime.engine.feed_delivery import BUSY_PAUSES, FeedDelivery, FeedRecord
from iii_runtime.engine.stream_push import StreamPush
from tests.contract.aws_services import HastyClock
from tests.host.lambda_streams import (
    Connections,
    Crash,
    Functions,
    Gateway,
    InTurn,
    Topic,
    deployed,
    dies_at,
    subscription,
)


def written(number: Json, key: str = "k", scope: str = "watched") -> StateChange:
    return StateChange(at_ms=0, event_type="state:updated", scope=scope, key=key, old_value=None, new_value=number)


def shown(data: Json, group: str = "g1", item: str | None = "i1") -> StreamChange:
    return StreamChange(at_ms=0, kind="update", stream_name="orders", group_id=group, item_id=item, data=data)


def records(*changes: Change | None, start: int = 0) -> list[FeedRecord]:
    return [
        FeedRecord(identity=f"r{place}", changes=None if change is None else (change,))
        for place, change in enumerate(changes, start)
    ]


def triggered() -> Worker:
    worker = register_worker()
    worker.function("f::state", triggers=[OnState("watched")], timeout=timedelta(seconds=30))(print)
    worker.function("f::first", triggers=[OnStream("orders")], timeout=timedelta(seconds=30))(print)
    worker.function("f::second", triggers=[OnStream("orders")], timeout=timedelta(seconds=300))(print)
    return worker


class Delivering:
    """A delivery and everything around it; `again` is the same with a delivery that knows nothing."""

    def __init__(self, worker: Worker | None = None) -> None:
        self.gateway, self.connections, self.clock = Gateway(), Connections(), HastyClock()
        self.topic, self.functions = Topic(), Functions()
        self.runtime = deployed(worker or triggered(), self.functions, self.clock)
        self.gateway.connect("c")
        self.connections.rows["c"] = {}
        self.again()

    def again(self) -> None:
        push = StreamPush(self.connections, self.gateway, InTurn(), self.clock)
        self.delivery = FeedDelivery(self.runtime, push=push, progress=self.topic, parallel=InTurn())

    async def join(self, *groups: str) -> None:
        for group in groups:
            await self.connections.join("c", subscription(group, group=group), most=10)

    async def __call__(self, batch: Sequence[FeedRecord]) -> int | None:
        return await self.delivery.deliver(batch)

    def seen(self, function_id: str) -> list[Any]:
        """Return the data or new value of each change a function was given."""
        return [
            payload["event"]["data"] if payload["type"] == "stream" else payload["new_value"]
            for payload in self.functions.payloads(function_id)
        ]

    def left(self, seconds: float) -> None:
        self.runtime.invoker.remaining = lambda: timedelta(seconds=seconds)


async def test_a_stream_change_is_pushed_published_and_fires_its_triggers() -> None:
    here = Delivering()
    await here.join("g1")
    assert await here(records(shown(1), written(2))) is None
    assert here.gateway.events("c") == [1]
    assert here.topic.published == [1]
    assert [call.function_id for call in here.functions.calls] == ["f::first", "f::second", "f::state"]
    call = here.functions.calls[0]
    assert (call.source, call.payload) == ("stream", shown(1).to_payload())
    assert here.functions.calls[2].source == "state"


async def test_a_batch_without_changes_is_done() -> None:
    here = Delivering()
    assert await here([]) is None
    assert await here([FeedRecord(identity="r", changes=())]) is None


async def test_changes_of_a_key_stay_in_order_over_batches() -> None:
    here = Delivering()
    await here.join("g1", "g2")
    for start in (0, 6):
        batch = [shown(number, f"g{number % 2 + 1}") for number in range(start, start + 6)]
        assert await here(records(*batch, start=start)) is None
    assert here.gateway.events("c") == list(range(12))
    for function_id in ("f::first", "f::second"):
        seen = here.seen(function_id)
        assert [number for number in seen if number % 2] == [1, 3, 5, 7, 9, 11]
        assert [number for number in seen if not number % 2] == [0, 2, 4, 6, 8, 10]


async def test_viewers_have_all_of_a_batch_before_the_first_trigger_runs() -> None:
    here = Delivering()
    await here.join("g1")
    had: list[int] = []

    async def note(_: Call) -> None:
        had.append(len(here.gateway.received["c"]))

    here.functions.on_call = note
    await here(records(shown(1), shown(2), shown(3)))
    assert had == [3] * 6


async def test_a_function_that_fails_is_logged_the_next_still_runs_and_none_is_repeated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    here = Delivering()
    here.functions.outcomes["f::first"] = deque([InvocationError("invocation_failed", "broken", "f::first")])
    assert await here(records(shown(1), shown(2))) is None
    assert (here.seen("f::first"), here.seen("f::second")) == ([2], [1, 2])
    assert "change trigger failed" in caplog.text


async def test_a_busy_function_is_tried_again_and_keeps_its_place() -> None:
    here = Delivering()
    here.functions.outcomes["f::first"] = deque([FunctionBusyError("busy"), FunctionBusyError("busy"), None])
    assert await here(records(shown(1), shown(2))) is None
    assert here.seen("f::first") == [1, 2]
    assert here.clock.pauses == list(BUSY_PAUSES[:2])


async def test_a_change_whose_function_stays_busy_comes_again_and_holds_up_its_own_key_only() -> None:
    here = Delivering()
    await here.join("g1", "g2")
    attempts = len(BUSY_PAUSES) + 1
    here.functions.outcomes["f::second"] = deque([FunctionBusyError("busy") for _ in range(attempts)])
    batch = records(written(0), shown(1), shown(2), shown(3, "g2"))
    assert await here(batch) == 1
    assert (here.seen("f::first"), here.seen("f::second")) == ([1, 3], [3])
    assert await here(batch[1:]) is None
    assert here.seen("f::first") == [1, 3, 2]
    assert here.seen("f::second") == [3, 1, 2]
    assert here.seen("f::state") == [0]
    assert (here.gateway.events("c"), here.topic.published) == ([1, 2, 3], [1, 2, 3])


async def test_what_comes_again_to_another_delivery_is_done_again_as_a_whole() -> None:
    here = Delivering()
    await here.join("g1")
    here.topic.refused = [2]
    batch = records(shown(1), shown(2), shown(3))
    assert await here(batch) == 1
    here.topic.refused = []
    here.again()
    assert await here(batch[1:]) is None
    assert here.gateway.events("c") == [1, 2, 3, 2, 3]
    assert here.seen("f::first") == [1, 2, 3, 2, 3]
    assert here.topic.published == [1, 3, 2, 3]


async def test_what_cannot_be_published_comes_again_and_holds_up_neither_viewers_nor_triggers() -> None:
    here = Delivering()
    await here.join("g1")
    here.topic.refused = [1]
    batch = records(shown(1), shown(2))
    for _ in range(3):
        assert await here(batch) == 0
    here.topic.refused = []
    assert await here(batch) is None
    assert (here.gateway.events("c"), here.seen("f::first"), here.topic.published) == ([1, 2], [1, 2], [2, 1])


async def test_a_group_whose_viewers_are_not_known_comes_again_without_doing_the_rest_twice() -> None:
    here = Delivering()
    await here.join("g1", "g2")
    here.connections.fail("members")
    batch = records(shown(1, "g2"), shown(2), shown(3, "g2"))
    assert await here(batch) == 0
    assert here.gateway.events("c") == [2]
    assert await here(batch) is None
    assert here.gateway.events("c") == [2, 1, 3]
    assert here.topic.published == [1, 2, 3]


async def test_a_record_that_cannot_be_read_comes_again_and_the_others_are_done_once() -> None:
    here = Delivering()
    await here.join("g1")
    batch = records(shown(1), None, shown(2))
    assert await here(batch) == 1
    assert await here(batch[1:]) == 0
    assert await here(batch[1:2]) == 0
    assert (here.gateway.events("c"), here.seen("f::first"), here.topic.published) == ([1, 2], [1, 2], [1, 2])


async def test_what_is_known_of_a_record_is_let_go_once_it_is_done() -> None:
    here = Delivering()
    here.topic.refused = [2]
    batch = records(shown(1), shown(2))
    assert await here(batch) == 1
    here.topic.refused = []
    assert await here(batch[1:]) is None
    assert here.seen("f::first") == [1, 2]
    await here(batch[1:])
    assert here.seen("f::first") == [1, 2, 2]


async def test_a_function_without_its_whole_time_is_not_started_and_its_change_comes_again() -> None:
    here = Delivering()
    here.left(100)  # f::first needs 40 of them, f::second 310
    batch = records(written(0), shown(1), shown(2), written(3, "other"))
    assert await here(batch) == 1
    assert (here.seen("f::first"), here.seen("f::second"), here.seen("f::state")) == ([1], [], [0, 3])
    assert here.functions.calls[-1].function_id == "f::state"


async def test_each_batch_gets_on_however_little_time_there_is() -> None:
    here = Delivering()
    here.left(1)
    batch = records(shown(1), shown(2), shown(3))
    firsts = []
    while batch:
        first = await here(batch)
        firsts.append(first)
        batch = batch[first:] if first else []
    assert firsts == [1, 1, None]
    assert here.seen("f::second") == [1, 2, 3]


async def test_a_defect_costs_the_key_it_happens_to_only(caplog: pytest.LogCaptureFixture) -> None:
    here = Delivering()
    here.functions.outcomes["f::state"] = deque([RuntimeError("a defect")])
    batch = records(written(1), written(2), written(3, "other"))
    assert await here(batch) == 0
    assert here.seen("f::state") == [3]
    assert await here(batch) is None
    assert here.seen("f::state") == [3, 1, 2]
    assert "a defect" in caplog.text


async def test_state_triggers_can_be_turned_off() -> None:
    here = Delivering()
    assert here.runtime.app.config.state.triggers_enabled
    assert await here(records(written(1, scope="another"))) is None
    assert here.functions.calls == []


@given(
    changes=st.lists(st.tuples(st.sampled_from(["g1", "g2"]), st.sampled_from(["i1", "i2"])), min_size=1, max_size=6),
    step=st.integers(min_value=0, max_value=30),
)
async def test_nothing_is_skipped_and_the_newest_state_is_last_wherever_the_host_dies(
    changes: list[tuple[str, str]], step: int
) -> None:
    here = Delivering()
    await here.join("g1", "g2")
    batch = records(*(shown(number, group, item) for number, (group, item) in enumerate(changes)))
    here.gateway.on_post = here.functions.on_call = dies_at(step)
    try:
        await here(batch)
    except Crash:
        here.again()
        assert await here(batch) is None
    data = range(len(changes))
    last = {(frame["groupId"], frame["id"]): frame["event"]["data"] for frame in here.gateway.frames("c")}
    assert last == {address: number for number, address in enumerate(changes)}
    for seen in (here.seen("f::first"), here.seen("f::second"), here.topic.published):
        assert set(data) <= {number for number in seen if isinstance(number, int)}
    for group in ("g1", "g2"):
        of_group = [number for number in data if changes[number][0] == group]
        assert [number for number in here.seen("f::first") if number in of_group][-len(of_group) or None :] == of_group
