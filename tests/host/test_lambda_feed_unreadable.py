"""What the change feed does with records that it cannot read, for now or for good."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from iii_runtime.core.errors import FunctionBusyError, IiiError, StoreError
from iii_runtime.core.message import BlobLink
from iii_runtime.core.payload import PayloadError
from tests.host.feed_stage import Stage, from_place, running_feed


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with running_feed(monkeypatch) as stage:
        yield stage


async def spoilt(here: Stage, value: object = None) -> dict[str, Any]:
    """Return a batch of three records of which the second cannot be read."""
    for number in range(3):
        await here.set(number)
    event = here.batch()
    event["Records"][1]["dynamodb"]["NewImage"]["v"] = value or {"N": "7"}
    return event


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({"N": "7"}, "store_corrupt"),
        ({"N": "7.5"}, "store_corrupt"),
        ({"NS": ["7"]}, "store_corrupt"),
        ({"S": "[" * 5000}, "store_corrupt"),
        ({"S": "secret"}, "store_corrupt"),
        ({"S": "NaN"}, "payload_not_json"),
        ({"S": "[" * 70 + "]" * 70}, "payload_not_json"),
    ],
)
async def test_a_record_that_cannot_be_read_is_reported_and_holds_nothing_up(
    here: Stage, caplog: pytest.LogCaptureFixture, value: object, code: str
) -> None:
    await here.join("c", "g1")
    event = await spoilt(here, value)
    assert await here.deliver(event) == []
    assert here.unreadable.reported == [(event["Records"][1]["dynamodb"]["SequenceNumber"], code)]
    assert "secret" not in caplog.text
    assert (here.gateway.events("c"), here.seen(), here.topic.published) == ([0, 2], [0, 2], [0, 2])


async def test_a_record_that_cannot_be_reported_comes_again_alone_and_the_others_are_done_once(here: Stage) -> None:
    await here.join("c", "g1")
    event = await spoilt(here)
    here.unreadable.refuses = True
    assert await here.deliver(event) == [1]
    here.unreadable.refuses = False
    assert await here.deliver(from_place(event, 1)) == []
    assert len(here.unreadable.reported) == 1
    assert (here.gateway.events("c"), here.seen(), here.topic.published) == ([0, 2], [0, 2], [0, 2])


async def test_a_record_is_reported_once_however_often_its_batch_comes(here: Stage) -> None:
    event = await spoilt(here)
    busy: deque[Exception | None] = deque([FunctionBusyError("busy")] * 12)
    here.functions.outcomes["f::stream"] = busy
    assert await here.deliver(event) == [0]
    assert await here.deliver(event) == [0]
    assert await here.deliver(event) == []
    assert len(here.unreadable.reported) == 1


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (StoreError("gone", code="blob_missing"), True),
        (StoreError("another object", code="store_corrupt"), True),
        (PayloadError("of a later version", code="change_unreadable"), True),
        (StoreError("slow down", code="store_throttled"), False),
        (StoreError("no way", code="store_unavailable"), False),
        (StoreError("not allowed yet", code="store_denied"), False),
    ],
)
async def test_what_no_repetition_mends_is_given_up_and_what_passes_is_not(
    here: Stage, monkeypatch: pytest.MonkeyPatch, error: IiiError, reported: bool
) -> None:
    for data in ("x" * (400 * 1024), 2):
        await here.set(data)

    async def fail(_: BlobLink) -> bytes:
        raise error

    monkeypatch.setattr(here, "follow", fail)
    here.feed = here.new_feed()
    assert await here.deliver() == ([] if reported else [0])
    assert [code for _, code in here.unreadable.reported] == ([error.code] if reported else [])
    assert here.seen() == ([2] if reported else [])


async def test_where_a_value_cannot_be_read_for_now_nothing_behind_it_is_delivered(
    here: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await here.join("c", "g1")
    for data in (1, "x" * (400 * 1024), 3):
        await here.set(data)
    event = here.batch()

    async def fail(_: BlobLink) -> bytes:
        raise StoreError("slow down", code="store_throttled")

    monkeypatch.setattr(here, "follow", fail)
    here.feed = here.new_feed()
    assert await here.deliver(event) == [1]
    assert (here.gateway.events("c"), here.seen()) == ([1], [1])
    monkeypatch.undo()
    here.feed = here.new_feed()
    assert await here.deliver(from_place(event, 1)) == []
    assert here.gateway.events("c") == [1, "frame_too_large", 3]
    assert [str(data)[:1] for data in here.seen()] == ["1", "x", "3"]
