"""Streams in a dict."""

from __future__ import annotations

from collections.abc import Sequence

from iii_runtime.adapters.memory.change_feed import MemoryChangeFeed
from iii_runtime.adapters.memory.documents import Documents, Key
from iii_runtime.adapters.memory.state_store import notice_change
from iii_runtime.core.change import StreamChange
from iii_runtime.core.payload import Json
from iii_runtime.ports.clock import Clock
from iii_runtime.ports.state_store import Notice, Written


class MemoryStreamStore:
    """Stream items."""

    def __init__(self, feed: MemoryChangeFeed, clock: Clock, *, max_value_bytes: int | None = None) -> None:
        self._feed = feed
        self._clock = clock
        self._documents = Documents(max_value_bytes)

    async def get(self, stream_name: str, group_id: str, item_id: str) -> Json:
        """Return the item's data, None if there is none."""
        return self._documents.get((stream_name, group_id, item_id))

    async def set(self, stream_name: str, group_id: str, item_id: str, data: Json) -> Written:
        """Create or replace the item."""
        key = (stream_name, group_id, item_id)
        return self._documents.set(key, data, lambda written: self._publish(key, written))

    async def delete(self, stream_name: str, group_id: str, item_id: str) -> Written:
        """Remove the item. Nothing is published if it did not exist."""
        key = (stream_name, group_id, item_id)
        return self._documents.delete(key, lambda written: self._publish(key, written, is_deleted=True))

    async def update(self, stream_name: str, group_id: str, item_id: str, ops: Sequence[Json]) -> Written:
        """Apply update operations in order, atomically."""
        key = (stream_name, group_id, item_id)
        return self._documents.update(key, ops, lambda written: self._publish(key, written))

    async def send(self, notice: Notice) -> None:
        """Publish an event that is not kept as an item."""
        self._feed.append(notice_change(notice, self._clock.now_ms()))

    async def list_items(self, stream_name: str, group_id: str) -> list[Json]:
        """Return the data of a group's items, ordered by item id."""
        return self._documents.values_under((stream_name, group_id))

    async def list_groups(self, stream_name: str) -> list[str]:
        """Return the sorted groups of a stream that hold an item."""
        return sorted({group for name, group, _ in self._documents.all_keys() if name == stream_name})

    async def list_streams(self) -> list[tuple[str, list[str]]]:
        """Return each stream with its sorted groups, sorted by name."""
        names = sorted({name for name, _, _ in self._documents.all_keys()})
        return [(name, await self.list_groups(name)) for name in names]

    def _publish(self, key: Key, written: Written, *, is_deleted: bool = False) -> None:
        if is_deleted and not written.existed:
            return
        change = StreamChange(
            at_ms=self._clock.now_ms(),
            kind="delete" if is_deleted else "update" if written.existed else "create",
            stream_name=key[0],
            group_id=key[1],
            item_id=key[2],
            data=written.old_value if is_deleted else written.new_value,
        )
        self._feed.append(change)
