"""What every change feed does."""

from __future__ import annotations

import asyncio

from iii_runtime.core.change import StateChange
from iii_runtime.engine.stores import Stores
from iii_runtime.ports.change_feed import FeedEntry


def keys(entries: list[FeedEntry]) -> list[str]:
    return [entry.change.key for entry in entries if isinstance(entry.change, StateChange)]


async def test_changes_are_read_in_order_from_any_position(stores: Stores) -> None:
    for number in range(5):
        await stores.state.set("s", f"k{number}", number)
    entries = await stores.feed.read(0, 3)
    assert keys(entries) == ["k0", "k1", "k2"]
    assert [entry.position for entry in entries] == sorted({entry.position for entry in entries})
    assert keys(await stores.feed.read(entries[1].position, 10)) == ["k2", "k3", "k4"]
    (*_, last) = await stores.feed.read(0, 10)
    assert await stores.feed.read(last.position, 10) == []


async def test_a_change_is_read_again_until_it_is_forgotten(stores: Stores) -> None:
    for number in range(3):
        await stores.state.set("s", f"k{number}", number)
    entries = await stores.feed.read(0, 10)
    assert await stores.feed.read(0, 10) == entries
    await stores.feed.forget([entries[1].position])
    assert keys(await stores.feed.read(0, 10)) == ["k0", "k2"]
    await stores.feed.forget([entry.position for entry in entries])
    await stores.feed.forget([])
    assert await stores.feed.read(0, 10) == []


async def test_positions_grow_even_after_all_was_forgotten(stores: Stores) -> None:
    await stores.state.set("s", "k", 1)
    (first,) = await stores.feed.read(0, 10)
    await stores.feed.forget([first.position])
    await stores.state.set("s", "k", 2)
    (second,) = await stores.feed.read(first.position, 10)
    assert second.position > first.position


async def test_state_and_stream_changes_share_one_order(stores: Stores) -> None:
    await stores.state.set("s", "k", 1)
    await stores.stream.set("s", "g", "i", 1)
    await stores.state.set("s", "k", 2)
    kinds = [type(entry.change).__name__ for entry in await stores.feed.read(0, 10)]
    assert kinds == ["StateChange", "StreamChange", "StateChange"]


async def test_no_change_of_simultaneous_writes_is_missed(stores: Stores) -> None:
    """A reader that goes on from the last position it saw sees every change, in the order of the writes to a key."""
    writes = asyncio.gather(*[stores.state.set("s", f"k{number % 3}", number) for number in range(60)])
    seen: list[FeedEntry] = []
    while len(seen) < 60:
        seen += await stores.feed.read(seen[-1].position if seen else 0, 7)
        await asyncio.sleep(0)
    await writes
    for key in ("k0", "k1", "k2"):
        of_key = [entry.change for entry in seen if isinstance(entry.change, StateChange) and entry.change.key == key]
        assert len(of_key) == 20
        assert [change.old_value for change in of_key[1:]] == [change.new_value for change in of_key[:-1]]
