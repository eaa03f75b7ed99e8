"""What every state store does, its changes included."""

from __future__ import annotations

import asyncio
from typing import Protocol, TypeGuard

import pytest

from iii_runtime.core.change import Change, StateChange, StreamChange
from iii_runtime.core.payload import Json, PayloadError, PayloadTooLargeError
from iii_runtime.engine.stores import Stores
from iii_runtime.ports.state_store import Notice, Written
from iii_runtime.testing.clock import SkipClock

VALUES: list[Json] = [
    None,
    False,
    0,
    2**64 - 1,
    -(2**63),
    1.5,
    "",
    "nul \0, é, 漢字, \U0001f600",
    [],
    {},
    {"": [None, {"a.b": '\\"'}]},
    "x" * (2 * 1024 * 1024),
    {"items": ["y" * 1000] * 1000},
]
NOTICE = Notice(stream_name="progress", group_id="g", item_id=None, type="step", data={"n": 1})


class CountedChanges(Protocol):
    changes: int


async def changes(stores: Stores) -> list[Change]:
    return [entry.change for entry in await stores.feed.read(0, 1000)]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
async def test_a_value_comes_back_as_it_was(stores: Stores, value: Json) -> None:
    assert await stores.state.set("s", "k", value) == Written(old_value=None, new_value=value, existed=False)
    assert await stores.state.get("s", "k") == value
    assert await stores.state.list_values("s") == [value]
    assert await stores.state.set("s", "k", 1) == Written(old_value=value, new_value=1, existed=True)
    assert await stores.state.set("s", "k", value) == Written(old_value=1, new_value=value, existed=True)
    assert await stores.state.delete("s", "k") == Written(old_value=value, new_value=None, existed=True)
    assert [(change.old_value, change.new_value) for change in await changes(stores) if _is_state(change)] == [
        (None, value),
        (value, 1),
        (1, value),
        (value, None),
    ]


async def test_every_write_is_one_change_even_if_nothing_changed(
    stores: Stores, clock: SkipClock, backend: str
) -> None:
    await stores.state.set("s", "k", {"a": 1})
    await stores.state.set("s", "k", {"a": 1})
    await stores.state.update("s", "k", [{"type": "increment", "path": "a", "by": 2}])
    await stores.state.delete("s", "k")
    await stores.state.delete("s", "k")
    await stores.state.update("s", "k", [{"type": "set", "path": "b", "value": 1}])
    expected: list[tuple[str, Json, Json]] = [
        ("state:created", None, {"a": 1}),
        ("state:updated", {"a": 1}, {"a": 1}),
        ("state:updated", {"a": 1}, {"a": 3}),
        ("state:deleted", {"a": 3}, None),
        ("state:deleted", None, None),
        ("state:created", None, {"b": 1}),
    ]
    if backend == "aws":
        expected.remove(("state:deleted", None, None))  # a table's stream tells of items, and there was none
    assert await changes(stores) == [
        StateChange(at_ms=clock.now_ms(), event_type=kind, scope="s", key="k", old_value=old, new_value=new)  # type: ignore[arg-type]
        for kind, old, new in expected
    ]


async def test_a_missing_value_is_null_and_deleting_it_says_so(stores: Stores) -> None:
    assert await stores.state.get("s", "k") is None
    assert await stores.state.delete("s", "k") == Written(old_value=None, new_value=None, existed=False)
    assert await stores.state.list_values("s") == []


async def test_a_stored_null_exists(stores: Stores) -> None:
    await stores.state.set("s", "k", None)
    assert await stores.state.list_values("s") == [None]
    assert (await stores.state.set("s", "k", 1)).existed


async def test_an_update_reports_skipped_operations_and_applies_the_others(stores: Stores) -> None:
    ops: list[Json] = [
        {"type": "set", "path": "name", "value": "é"},
        {"type": "increment", "path": "name", "by": 1},
        {"type": "append", "path": "log", "value": 1},
    ]
    written = await stores.state.update("s", "k", ops)
    assert written.new_value == {"name": "é", "log": [1]} == await stores.state.get("s", "k")
    assert [(error.op_index, error.code) for error in written.errors] == [(1, "increment.not_number")]


async def test_simultaneous_updates_all_count(stores: Stores) -> None:
    increment: list[Json] = [{"type": "increment", "path": "n", "by": 1}]
    await asyncio.gather(*[stores.state.update("s", "k", increment) for _ in range(50)])
    assert await stores.state.get("s", "k") == {"n": 50}
    values = [change.new_value for change in await changes(stores) if _is_state(change)]
    assert values == [{"n": number} for number in range(1, 51)]


async def test_an_update_can_outgrow_a_row(stores: Stores) -> None:
    for _ in range(3):
        await stores.state.update("s", "k", [{"type": "append", "path": "log", "value": "z" * 300_000}])
    text = await stores.state.get("s", "k")
    assert text == {"log": "z" * 900_000}


async def test_a_notice_follows_the_change_it_rides_on(stores: Stores, clock: SkipClock, wakes: CountedChanges) -> None:
    await stores.state.update("s", "k", [{"type": "set", "path": "a", "value": 1}], NOTICE)
    state, event = await changes(stores)
    assert isinstance(state, StateChange)
    assert event == StreamChange(
        at_ms=clock.now_ms(),
        kind="event",
        stream_name="progress",
        group_id="g",
        item_id=None,
        data={"n": 1},
        event_type="step",
    )
    await asyncio.sleep(0)
    assert wakes.changes == 1


async def test_a_refused_write_leaves_nothing_behind(stores: Stores, wakes: CountedChanges) -> None:
    await stores.state.set("s", "k", 1)
    too_large = "x" * (4 * 1024 * 1024)
    with pytest.raises(PayloadTooLargeError) as caught:
        await stores.state.set("s", "k", too_large)
    assert caught.value.code == "VALUE_TOO_LARGE"
    with pytest.raises(PayloadTooLargeError):
        await stores.state.update("s", "k", [{"type": "set", "path": "", "value": too_large}], NOTICE)
    with pytest.raises(PayloadError):
        await stores.state.set("s", "k", float("nan"))
    assert await stores.state.get("s", "k") == 1
    assert len(await changes(stores)) == 1
    await asyncio.sleep(0)
    assert wakes.changes == 1


async def test_a_caller_shares_no_value_with_the_store(stores: Stores) -> None:
    value: dict[str, Json] = {"items": [1]}
    await stores.state.set("s", "k", value)
    value["items"] = "changed"
    read = await stores.state.get("s", "k")
    assert read == {"items": [1]}
    assert isinstance(read, dict)
    read["items"] = "changed"
    assert await stores.state.get("s", "k") == {"items": [1]}
    (change,) = await changes(stores)
    assert _is_state(change)
    assert change.new_value == {"items": [1]}


async def test_a_scope_lists_its_values_by_key_and_scopes_are_apart(stores: Stores) -> None:
    for scope, key in [("b", "k2"), ("b", "k10"), ("b", "漢"), ("a", "k"), ("b ", "k"), ("\U0001f600", "k")]:
        await stores.state.set(scope, key, f"{scope}/{key}")
    assert await stores.state.list_values("b") == ["b/k10", "b/k2", "b/漢"]
    assert await stores.state.list_scopes() == ["a", "b", "b ", "\U0001f600"]
    await stores.state.delete("a", "k")
    assert await stores.state.list_scopes() == ["b", "b ", "\U0001f600"]


def _is_state(change: Change) -> TypeGuard[StateChange]:
    return isinstance(change, StateChange)
