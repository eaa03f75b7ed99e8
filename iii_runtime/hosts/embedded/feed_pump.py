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
_MOST_PENDING = 1000
_MOST_AT_ONCE = 64
_STORE_PAUSE = timedelta(seconds=1)

Push = Callable[[Sequence[StreamChange]], None]


class FeedPump:
    """One per host. A slow trigger delays later changes of its own key only; pushes never wait for triggers."""

    def __init__(self, stores: Stores, triggers: ChangeTriggers, push: Push) -> None:
        self._stores = stores
        self._triggers = triggers
        self._push = push
        self._wake = asyncio.Event()
        self._wake.set()
        self._rested = asyncio.Event()
        self._room = asyncio.Event()
        self._places = asyncio.Semaphore(_MOST_AT_ONCE)
        self._chains: dict[str, deque[FeedEntry]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pending = 0
        self._reading = True

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
        position = 0
        try:
            while True:
                self._reading = True
                self._wake.clear()
                try:
                    position = await self._read_on(position)
                except StoreError as error:
                    _log.error("cannot read the change feed", extra={"iii": {"error": error.message}})
                    await self._stores.clock.sleep_until(self._stores.clock.now() + _STORE_PAUSE)
                    self._wake.set()
                self._reading = False
                self._rested.set()
                await self._wake.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read_on(self, position: int) -> int:
        while entries := await self._stores.feed.read(position, _BATCH):
            self._push([entry.change for entry in entries if isinstance(entry.change, StreamChange)])
            done: list[int] = []
            for entry in entries:
                if self._triggers.matching(entry.change) or entry.change.order_key in self._chains:
                    self._chain(entry)
                else:
                    done.append(entry.position)
            position = entries[-1].position
            if done:
                await self._stores.feed.forget(done)
            while self._pending >= _MOST_PENDING:
                self._room.clear()
                await self._room.wait()
        return position

    def _chain(self, entry: FeedEntry) -> None:
        key = entry.change.order_key
        self._pending += 1
        if key in self._chains:
            self._chains[key].append(entry)
            return
        self._chains[key] = deque([entry])
        task = asyncio.create_task(self._drain(key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drain(self, key: str) -> None:
        chain = self._chains[key]
        while chain:
            entry = chain[0]
            async with self._places:
                await self._triggers.fire(entry.change)
            try:
                await self._stores.feed.forget([entry.position])
            except StoreError as error:
                # It stays stored and is delivered again after the next start: at least once.
                _log.error("cannot forget a delivered change", extra={"iii": {"error": error.message}})
            chain.popleft()
            self._pending -= 1
            self._room.set()
        del self._chains[key]
        self._rested.set()
