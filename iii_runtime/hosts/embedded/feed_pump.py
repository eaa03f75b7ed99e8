"""Delivers the change feed: pushes to stream clients at once, fires triggers in order per key, then forgets."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta

from iii_runtime.core.change import StreamChange
from iii_runtime.core.errors import StoreError
from iii_runtime.engine.changes import ChangeTriggers
from iii_runtime.engine.stores import Stores
from iii_runtime.ports.change_feed import FeedEntry

_log = logging.getLogger("iii_runtime.change")
_BATCH = 200
_MOST_AT_ONCE = 256
_MOST_PENDING = 100_000
_MOST_KEPT = 1000
_STORE_PAUSE = timedelta(seconds=1)

Push = Callable[[Sequence[StreamChange]], None]


class FeedPump:
    """One per host. Pushes never wait for triggers, and a slow trigger delays later changes of its own key only.

    Bounds of the latter: triggers of at most 256 keys run at once, each key in turn, so up to 255 slow keys hold up no
    other; and of the changes that wait for their triggers only about `most_pending` are known here. Those beyond wait
    unread in the store, whatever their key, until half of the known ones are done. A long backlog costs little memory:
    beyond 1000 waiting changes only positions are kept, and each change is read again when its turn comes.

    Args:
        stores: The feed and the clock.
        triggers: What changes start.
        push: Where stream changes go.
        most_pending: See above.
    """

    def __init__(
        self, stores: Stores, triggers: ChangeTriggers, push: Push, *, most_pending: int = _MOST_PENDING
    ) -> None:
        self._stores = stores
        self._triggers = triggers
        self._push = push
        self._most_pending = most_pending
        self._wake = asyncio.Event()
        self._wake.set()
        self._rested = asyncio.Event()
        self._reading = True
        self._start_over()

    def _start_over(self) -> None:
        self._pushed = 0
        self._chained = 0
        self._unmatched: list[int] = []
        self._pending = 0
        self._chains: dict[str, deque[FeedEntry | int]] = {}
        self._ready: deque[str] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_idle(self) -> bool:
        """Whether every change so far was delivered."""
        return not self._pending and not self._reading and not self._wake.is_set()

    def wake(self) -> None:
        """Look for new changes now."""
        self._wake.set()

    async def settle(self) -> None:
        """Return when it is idle."""
        while not self.is_idle:
            self._rested.clear()
            await self._rested.wait()

    async def run(self) -> None:
        """Deliver until cancelled. Changes that were not delivered stay in the store for the next start."""
        self._start_over()
        try:
            while True:
                self._reading = True
                self._wake.clear()
                try:
                    await self._read_on()
                except StoreError as error:
                    _log.error("cannot read the change feed", extra={"iii": {"error": error.message}})
                    await self._pause()
                    self._wake.set()
                self._reading = False
                self._rested.set()
                await self._wake.wait()
        finally:
            self._ready.clear()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read_on(self) -> None:
        """Push what is new, and chain what was pushed as far as there is room, until there is nothing left to do."""
        while True:
            is_behind = self._chained < self._pushed
            new = await self._stores.feed.read(self._pushed, _BATCH)
            self._push([entry.change for entry in new if isinstance(entry.change, StreamChange)])
            if new:
                self._pushed = new[-1].position
            if self._pending < self._most_pending:
                # Not what came during the second reading: it was not pushed yet.
                pushed = await self._stores.feed.read(self._chained, _BATCH) if is_behind else new
                await self._chain([entry for entry in pushed if entry.position <= self._pushed])
                if self._chained < self._pushed:
                    continue
            if not new:
                return

    async def _chain(self, entries: Sequence[FeedEntry]) -> None:
        for entry in entries:
            if self._triggers.matching(entry.change):
                self._add(entry)
            else:
                self._unmatched.append(entry.position)
        self._chained = entries[-1].position if entries else self._pushed
        if self._unmatched:
            await self._stores.feed.forget(self._unmatched)
            self._unmatched.clear()

    def _add(self, entry: FeedEntry) -> None:
        key = entry.change.order_key
        self._pending += 1
        waiting = entry if self._pending <= _MOST_KEPT else entry.position
        if key in self._chains:
            self._chains[key].append(waiting)
            return
        self._chains[key] = deque([waiting])
        self._ready.append(key)
        self._start_ready()

    def _start_ready(self) -> None:
        while self._ready and len(self._tasks) < _MOST_AT_ONCE:
            task = asyncio.create_task(self._deliver_next(self._ready.popleft()))
            self._tasks.add(task)
            task.add_done_callback(self._delivered)

    def _delivered(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            self._start_ready()

    async def _deliver_next(self, key: str) -> None:
        """Fire the triggers of a key's next change, and give the place to the key that has waited longest."""
        chain = self._chains[key]
        try:
            await self._fire(chain[0])
        except Exception:  # noqa: BLE001 - whatever the defect is, the next change is not to wait for it
            _log.exception("a change was not delivered; it is again after the next start")
        chain.popleft()
        if chain:
            self._ready.append(key)
        else:
            del self._chains[key]
        self._pending -= 1
        if self._chained < self._pushed and self._pending <= self._most_pending // 2:
            self._wake.set()
        self._rested.set()

    async def _fire(self, waiting: FeedEntry | int) -> None:
        entry = await self._entry(waiting) if isinstance(waiting, int) else waiting
        if entry is None:
            return
        await self._triggers.fire(entry.change)
        try:
            await self._stores.feed.forget([entry.position])
        except StoreError as error:
            # It stays stored and is delivered again after the next start: at least once.
            _log.error("cannot forget a delivered change", extra={"iii": {"error": error.message}})

    async def _entry(self, position: int) -> FeedEntry | None:
        while True:
            try:
                entries = await self._stores.feed.read(position - 1, 1)
            except StoreError as error:
                _log.error("cannot read a change", extra={"iii": {"position": position, "error": error.message}})
                await self._pause()
            else:
                return entries[0] if entries and entries[0].position == position else None

    async def _pause(self) -> None:
        await self._stores.clock.sleep_until(self._stores.clock.now() + _STORE_PAUSE)
