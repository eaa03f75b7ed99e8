"""What the change feed delivers of a batch, in which order, and what of it comes again."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from iii_runtime.core.call import Call
from iii_runtime.core.errors import FunctionBusyError
from iii_runtime.hosts.aws_lambda.feed import parse_records
from iii_runtime.hosts.unknown_event import EventUnknownError
from iii_runtime.ports.state_store import Notice
from tests.host.feed_stage import Stage, running_feed
from tests.host.lambda_streams import Crash, dies_at

EVENTS = Path(__file__).resolve().parents[2] / "events" / "dynamodb-stream"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with running_feed(monkeypatch) as stage:
        yield stage


async def test_what_is_written_reaches_viewers_subscribers_of_progress_and_triggers(here: Stage) -> None:
    await here.join("c", "g1")
    await here.set({"n": 1})
    await here.stream.update("orders", "g1", "i1", [{"type": "set", "path": "n", "value": 2}])
    notice = Notice(stream_name="orders", group_id="g1", item_id=None, type="step", data="packed")
    await here.state.update("orders", "o1", [{"type": "set", "path": "", "value": {"step": "packed"}}], notice)
    await here.stream.send(Notice(stream_name="orders", group_id="g1", item_id="i1", type="note", data=[1]))
    await here.stream.delete("orders", "g1", "i1")
    assert await here.deliver() == []
    assert [frame["event"] for frame in here.gateway.frames("c")] == [
        {"type": "create", "data": {"n": 1}},
        {"type": "update", "data": {"n": 2}},
        {"type": "event", "event": {"type": "step", "data": "packed"}},
        {"type": "event", "event": {"type": "note", "data": [1]}},
        {"type": "delete", "data": {"n": 2}},
    ]
    assert here.topic.published == [{"n": 1}, {"n": 2}, "packed", [1], {"n": 2}]
    assert here.seen("f::state") == [{"step": "packed"}]
    assert len(here.seen("f::stream")) == 5


async def test_nothing_is_pushed_that_was_not_stored(here: Stage) -> None:
    await here.join("c", "g1")
    await here.stream.delete("orders", "g1", "never there")
    assert await here.deliver() == []
    assert (here.gateway.events("c"), here.topic.published, here.functions.calls) == ([], [], [])


async def test_a_group_stays_in_order_over_batches_and_beside_other_groups(here: Stage) -> None:
    await here.join("c", "g1", "g2")
    for start in (0, 6):
        for number in range(start, start + 6):
            await here.set(number, group=f"g{number % 2 + 1}")
        assert await here.deliver() == []
    assert here.gateway.events("c") == list(range(12))
    for remainder in (0, 1):
        of_group = [number for number in here.seen() if number % 2 == remainder]
        assert of_group == list(range(remainder, 12, 2))


async def test_a_batch_that_comes_again_ends_with_the_newest_state(here: Stage) -> None:
    await here.join("c", "g1")
    for number in range(3):
        await here.set(number)
    event = here.batch()
    assert await here.deliver(event) == []
    here.feed = here.new_feed()
    assert await here.deliver(event) == []
    assert here.gateway.events("c") == [0, 1, 2, 0, 1, 2]


async def test_what_fails_comes_again_from_its_record_on_and_what_was_done_is_not_done_twice(here: Stage) -> None:
    await here.join("c", "g1", "g2")
    for number in range(4):
        await here.set(number, group=f"g{number % 2 + 1}")
    busy: deque[Exception | None] = deque([FunctionBusyError("busy")] * 6)
    here.functions.outcomes["f::stream"] = busy
    event = here.batch()
    assert await here.deliver(event) == [0]
    assert here.seen() == [1, 3]
    assert await here.deliver(event) == []
    assert (here.seen(), here.gateway.events("c"), here.topic.published) == ([1, 3, 0, 2], [0, 1, 2, 3], [0, 1, 2, 3])


@pytest.mark.parametrize("step", range(1, 10))
async def test_nothing_is_skipped_wherever_the_sandbox_dies(here: Stage, step: int) -> None:
    await here.join("c", "g1", "g2")
    for number in range(3):
        await here.set(number, group=f"g{number % 2 + 1}")
    event = here.batch()
    here.gateway.on_post = here.functions.on_call = dies_at(step)
    try:
        await here.deliver(event)
    except Crash:
        here.feed = here.new_feed()
        assert await here.deliver(event) == []
    last = {frame["groupId"]: frame["event"]["data"] for frame in here.gateway.frames("c")}
    assert last == {"g1": 2, "g2": 1}
    for seen in (here.seen(), here.topic.published):
        assert set(seen) == {0, 1, 2}
    assert [number for number in here.seen() if number != 1][-2:] == [0, 2]


async def test_the_removal_of_what_has_expired_is_no_event(here: Stage) -> None:
    await here.join("c", "ord-ok")
    event = json.loads((EVENTS / "expired-event.json").read_text())
    assert await here.deliver(event) == []
    assert here.gateway.events("c") == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("stream-item", [{"status": "received"}, {"status": "paid"}, {"status": "paid"}]),
        ("stream-event", [{"type": "shipped", "data": {"parcel": "p-1"}}]),
        ("state-with-step", [{"type": "order.step", "data": {"step": "pay", "status": "done"}}]),
    ],
)
async def test_the_sample_events_are_delivered(here: Stage, name: str, shown: list[Any]) -> None:
    await here.join("c", "ord-ok")
    event = json.loads((EVENTS / f"{name}.json").read_text())
    assert await here.deliver(event) == []
    assert here.gateway.events("c") == shown


async def test_the_oldest_change_of_a_batch_tells_how_far_the_feed_is_behind(here: Stage) -> None:
    await here.set(1)
    here.clock.advance(timedelta(seconds=90))
    await here.set(2)
    here.clock.advance(timedelta(seconds=10))
    assert await here.deliver() == []
    assert here.meter.counts == {("FeedLag", None): 100_000}


@pytest.mark.parametrize(
    "event",
    [
        None,
        [],
        {},
        {"Records": "none"},
        {"Records": [None]},
        {"Records": [{"eventID": "e", "dynamodb": {}}]},
        {"Records": [{"eventID": "e", "dynamodb": {"SequenceNumber": ""}}]},
    ],
)
async def test_what_is_no_batch_of_a_stream_is_refused(event: Any) -> None:
    with pytest.raises(EventUnknownError):
        parse_records(event)


async def test_records_of_other_items_of_the_table_are_passed_over(here: Stage) -> None:
    await here.join("c", "g1")
    await here.set(1)
    event = here.batch("")
    assert len(event["Records"]) > 1
    assert await here.deliver(event) == []
    assert (here.gateway.events("c"), here.topic.published) == ([1], [1])


async def test_an_empty_batch_is_done(here: Stage) -> None:
    assert await here.feed.handle({"Records": []}) == {"batchItemFailures": []}


async def test_a_call_of_the_feed_is_that_of_a_trigger(here: Stage) -> None:
    calls: list[Call] = []

    async def note(call: Call) -> None:
        calls.append(call)

    here.functions.on_call = note
    await here.state.set("orders", "o1", 1)
    await here.deliver()
    (call,) = calls
    assert (call.function_id, call.source, call.hops, call.depth) == ("f::state", "state", 0, 0)
