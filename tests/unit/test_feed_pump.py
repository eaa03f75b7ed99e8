"""The change feed: pushes wait for nothing, triggers wait for their own key only, and what is not done stays stored."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from iii_runtime.adapters.memory.change_feed import MemoryChangeFeed
from iii_runtime.core.change import Change, StateChange, StreamChange
from iii_runtime.core.errors import StoreError
from iii_runtime.engine.changes import ChangeTriggers
from iii_runtime.hosts.embedded.feed_pump import FeedPump
from iii_runtime.ports.change_feed import FeedEntry
from iii_runtime.testing.clock import SequenceIds, SkipClock
from iii_runtime.testing.stores import memory_stores

SLOW = "slow"


def written(key: str, number: int = 0, scope: str = "watched") -> StateChange:
    return StateChange(at_ms=number, event_type="state:updated", scope=scope, key=key, old_value=None, new_value=number)


def shown(number: int) -> StreamChange:
    return StreamChange(at_ms=0, kind="event", stream_name="s", group_id="g", item_id=None, data=number, event_type="n")


class Triggers:
    """Triggers on the scope `watched`. Those of keys that begin with `slow` run until the test lets them end."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.begun: list[tuple[str, Any]] = []
        self.fired: list[tuple[str, Any]] = []
        self.most_at_once = 0
        self.running = 0

    def matching(self, change: Change) -> list[str]:
        return ["f::n"] if isinstance(change, StateChange) and change.scope == "watched" else []

    async def fire(self, change: Change) -> None:
        assert isinstance(change, StateChange)
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            self.begun.append((change.key, change.new_value))
            if change.key.startswith(SLOW):
                await self.go.wait()
            if change.key == "broken":
                raise ValueError("a defect")
            self.fired.append((change.key, change.new_value))
        finally:
            self.running -= 1


class FailingFeed(MemoryChangeFeed):
    """Fails as often as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: Counter[str] = Counter()

    async def read(self, after: int, limit: int) -> list[FeedEntry]:
        self._maybe_fail("read one" if limit == 1 else "read")
        return await super().read(after, limit)

    async def forget(self, positions: Sequence[int]) -> None:
        self._maybe_fail("forget")
        await super().forget(positions)

    def _maybe_fail(self, operation: str) -> None:
        if self.failing[operation]:
            self.failing[operation] -= 1
            raise StoreError("the disk is away")


class Life:
    """A pump over a feed that outlives it."""

    def __init__(self, feed: MemoryChangeFeed, **bounds: int) -> None:
        self.clock = SkipClock()
        self.feed = feed
        self.triggers = Triggers()
        self.pushed: list[Any] = []
        stores = replace(memory_stores(self.clock, SequenceIds()), feed=feed)
        self.pump = FeedPump(stores, cast(ChangeTriggers, self.triggers), self.push, **bounds)

    def push(self, changes: Sequence[StreamChange]) -> None:
        self.pushed += [change.data for change in changes]

    def write(self, *changes: Change) -> None:
        self.feed.append(*changes)
        self.pump.wake()

    async def stored(self) -> list[Any]:
        entries = await MemoryChangeFeed.read(self.feed, 0, 1_000_000)
        return [(change.key, change.new_value) for entry in entries if isinstance(change := entry.change, StateChange)]


@asynccontextmanager
async def living(feed: MemoryChangeFeed | None = None, **bounds: int) -> AsyncIterator[Life]:
    life = Life(MemoryChangeFeed() if feed is None else feed, **bounds)
    running = asyncio.create_task(life.pump.run())
    try:
        yield life
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(reached: Any) -> None:
    """Let the loop turn until it is so; a fault is a failure of the test, not a hang."""
    for _ in range(20_000):
        if reached():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come to that")


async def test_pushes_and_other_keys_do_not_wait_for_a_slow_key_however_much_it_has_waiting() -> None:
    async with living() as life:
        backlog = [written(SLOW, number) for number in range(3000)]
        life.write(*backlog)
        await until(lambda: life.triggers.begun == [(SLOW, 0)])
        life.write(shown(1), written("quick"))
        await until(lambda: life.pushed == [1] and life.triggers.fired == [("quick", 0)])
        assert not life.pump.is_idle
        assert len(await life.stored()) == 3000
        life.triggers.go.set()
        await life.pump.settle()
        assert life.triggers.fired[1:] == [(SLOW, number) for number in range(3000)]
        assert await life.stored() == []


async def test_pushes_do_not_wait_when_no_more_changes_can_be_taken_in_either() -> None:
    """Those beyond the bound stay stored, are fired once there is room, in order, and once each."""
    async with living(most_pending=200) as life:
        life.write(*(written(SLOW, number) for number in range(1000)))
        await until(lambda: life.triggers.begun)
        for number in range(500):
            life.write(shown(number), written("quick", number), written("other", scope="unwatched"))
        await until(lambda: len(life.pushed) == 500)
        assert life.pushed == list(range(500))
        assert life.triggers.fired == []
        life.triggers.go.set()
        await life.pump.settle()
        assert len(life.pushed) == 500
        assert [number for key, number in life.triggers.fired if key == SLOW] == list(range(1000))
        assert [number for key, number in life.triggers.fired if key == "quick"] == list(range(500))
        assert await life.feed.read(0, 10_000) == []


async def test_a_key_with_much_waiting_gives_way_to_the_others_after_each_change() -> None:
    async with living() as life:
        life.write(*(written("busy", number) for number in range(500)))
        life.write(*(written(f"key {number}") for number in range(300)))
        await life.pump.settle()
        assert max(index for index, (key, _) in enumerate(life.triggers.fired) if key != "busy") < 400
        assert [number for key, number in life.triggers.fired if key == "busy"] == list(range(500))


async def test_triggers_of_256_keys_run_at_once() -> None:
    async with living() as life:
        life.write(*(written(f"{SLOW} {number}") for number in range(255)))
        life.write(*(written("quick", number) for number in range(10)))
        await until(lambda: len(life.triggers.fired) == 10)
        life.write(*(written(f"{SLOW} {number}") for number in range(255, 300)))
        await until(lambda: life.triggers.running == 256)
        life.triggers.go.set()
        await life.pump.settle()
        assert life.triggers.most_at_once == 256
        assert len(life.triggers.fired) == 310


async def test_what_was_not_fired_is_pushed_and_fired_again_after_the_next_start() -> None:
    feed = MemoryChangeFeed()
    async with living(feed) as life:
        life.write(written("quick"), *(written(SLOW, number) for number in range(3)))
        await until(lambda: life.triggers.fired == [("quick", 0)] and life.triggers.begun[-1] == (SLOW, 0))
    assert life.triggers.running == 0
    async with living(feed) as life:
        life.triggers.go.set()
        await life.pump.settle()
        assert life.triggers.fired == [(SLOW, 0), (SLOW, 1), (SLOW, 2)]
        assert await life.stored() == []


@pytest.mark.parametrize("operation", ["read", "read one", "forget"])
async def test_a_store_that_fails_for_a_while_loses_nothing_and_repeats_no_push(operation: str) -> None:
    feed = FailingFeed()
    async with living(feed) as life:
        await life.pump.settle()
        feed.failing[operation] = 1
        life.write(shown(1), written("unwatched", scope="unwatched"), *(written("key", n) for n in range(1200)))
        await until(lambda: life.clock.next_wake() is not None)
        life.clock.advance_to(life.clock.now() + timedelta(seconds=1))
        await life.pump.settle()
        assert life.pushed == [1]
        assert life.triggers.fired == [("key", n) for n in range(1200)]
        assert await feed.read(0, 10) == []


async def test_a_delivered_change_that_cannot_be_forgotten_is_delivered_again_after_the_next_start_only() -> None:
    feed = FailingFeed()
    async with living(feed) as life:
        feed.failing["forget"] = 1
        life.write(written("key", 1), written("key", 2))
        await life.pump.settle()
        assert life.triggers.fired == [("key", 1), ("key", 2)]
    async with living(feed) as life:
        await life.pump.settle()
        assert life.triggers.fired == [("key", 1)]
        assert await life.stored() == []


async def test_a_defect_in_one_change_is_told_and_holds_up_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with living() as life:
        life.write(written("broken", 1), written("broken", 2), written("key"))
        await life.pump.settle()
        assert life.triggers.begun.count(("broken", 2)) == 1
        assert ("key", 0) in life.triggers.fired
        assert await life.stored() == [("broken", 1), ("broken", 2)]
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
