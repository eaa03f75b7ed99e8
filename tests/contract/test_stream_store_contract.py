"""What every stream store does, its changes included."""

from __future__ import annotations

import asyncio
from typing import Protocol

from iii_runtime.core.change import StreamChange
from iii_runtime.core.payload import Json
from iii_runtime.engine.stores import Stores
from iii_runtime.ports.state_store import Notice, Written
from iii_runtime.testing.clock import SkipClock

LARGE = "x" * (2 * 1024 * 1024)


class CountedChanges(Protocol):
    changes: int


async def changes(stores: Stores) -> list[StreamChange]:
    entries = await stores.feed.read(0, 1000)
    return [entry.change for entry in entries if isinstance(entry.change, StreamChange)]


async def test_an_item_is_created_updated_and_deleted(stores: Stores, clock: SkipClock) -> None:
    data: dict[str, Json] = {"text": "nul \0, 漢字"}
    assert await stores.stream.set("s", "g", "i", data) == Written(old_value=None, new_value=data, existed=False)
    assert await stores.stream.get("s", "g", "i") == data
    updated = await stores.stream.update("s", "g", "i", [{"type": "set", "path": "n", "value": 1}])
    assert updated == Written(old_value=data, new_value={**data, "n": 1}, existed=True)
    assert await stores.stream.set("s", "g", "i", 1) == Written(old_value={**data, "n": 1}, new_value=1, existed=True)
    assert await stores.stream.delete("s", "g", "i") == Written(old_value=1, new_value=None, existed=True)
    assert await stores.stream.get("s", "g", "i") is None
    assert await changes(stores) == [
        _change(clock, "create", data),
        _change(clock, "update", {**data, "n": 1}),
        _change(clock, "update", 1),
        _change(clock, "delete", 1),
    ]


async def test_deleting_a_missing_item_publishes_nothing(stores: Stores) -> None:
    assert await stores.stream.delete("s", "g", "i") == Written(old_value=None, new_value=None, existed=False)
    assert await changes(stores) == []


async def test_an_update_creates_a_missing_item_and_reports_skipped_operations(
    stores: Stores, clock: SkipClock
) -> None:
    ops: list[Json] = [{"type": "nonsense"}, {"type": "set", "path": "n", "value": 1}]
    written = await stores.stream.update("s", "g", "i", ops)
    assert (written.new_value, written.existed) == ({"n": 1}, False)
    assert [(error.op_index, error.code) for error in written.errors] == [(0, "op.unknown")]
    assert await changes(stores) == [_change(clock, "create", {"n": 1})]


async def test_a_sent_event_is_published_and_not_kept(stores: Stores, clock: SkipClock, wakes: CountedChanges) -> None:
    for item_id, data in ((None, LARGE), ("i", None)):
        await stores.stream.send(Notice(stream_name="s", group_id="g", item_id=item_id, type="tick", data=data))
    assert await stores.stream.list_streams() == []
    first, second = await changes(stores)
    assert (first.kind, first.event_type, first.item_id, first.data) == ("event", "tick", None, LARGE)
    assert (second.kind, second.event_type, second.item_id, second.data) == ("event", "tick", "i", None)
    assert first.event() == {"type": "event", "event": {"type": "tick", "data": LARGE}}
    await asyncio.sleep(0)
    assert wakes.changes == 2


async def test_large_items_come_back_as_they_were(stores: Stores) -> None:
    await stores.stream.set("s", "g", "i", LARGE)
    assert await stores.stream.list_items("s", "g") == [LARGE]
    assert (await stores.stream.delete("s", "g", "i")).old_value == LARGE
    assert [change.data for change in await changes(stores)] == [LARGE, LARGE]


async def test_a_group_lists_its_items_by_id(stores: Stores) -> None:
    for group, item in [("g", "b"), ("g", "a10"), ("g", "a2"), ("h", "z")]:
        await stores.stream.set("s", group, item, f"{group}/{item}")
    assert await stores.stream.list_items("s", "g") == ["g/a10", "g/a2", "g/b"]
    assert await stores.stream.list_items("s", "none") == []


async def test_streams_and_groups_are_known_while_they_hold_an_item(stores: Stores) -> None:
    for stream, group in [("t", "2"), ("t", "1"), ("s", "漢"), ("s", "g"), ("s", "g2")]:
        await stores.stream.set(stream, group, "i", 1)
        await stores.stream.set(stream, group, "j", 2)
    assert await stores.stream.list_streams() == [("s", ["g", "g2", "漢"]), ("t", ["1", "2"])]
    assert await stores.stream.list_groups("s") == ["g", "g2", "漢"]
    assert await stores.stream.list_groups("none") == []
    for group in ("1", "2"):
        for item in ("i", "j"):
            await stores.stream.delete("t", group, item)
    assert await stores.stream.list_streams() == [("s", ["g", "g2", "漢"])]


def _change(clock: SkipClock, kind: str, data: Json) -> StreamChange:
    return StreamChange(
        at_ms=clock.now_ms(),
        kind=kind,  # type: ignore[arg-type]
        stream_name="s",
        group_id="g",
        item_id="i",
        data=data,
    )
