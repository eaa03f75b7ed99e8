"""Streams: items by stream, group and item id. Every write stores its change for the change feed in the same step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from iii_runtime.core.payload import Json
from iii_runtime.ports.state_store import Notice, Written


class StreamStore(Protocol):
    """Stream items."""

    async def get(self, stream_name: str, group_id: str, item_id: str) -> Json:
        """Return the item's data, None if there is none."""
        ...

    async def set(self, stream_name: str, group_id: str, item_id: str, data: Json) -> Written:
        """Create or replace the item."""
        ...

    async def delete(self, stream_name: str, group_id: str, item_id: str) -> Written:
        """Remove the item. Nothing is published if it did not exist."""
        ...

    async def update(self, stream_name: str, group_id: str, item_id: str, ops: Sequence[Json]) -> Written:
        """Apply update operations in order, atomically."""
        ...

    async def send(self, notice: Notice) -> None:
        """Publish an event that is not kept as an item. Stored until the change feed has delivered it."""
        ...

    async def list_items(self, stream_name: str, group_id: str) -> list[Json]:
        """Return the data of a group's items, ordered by item id."""
        ...

    async def list_groups(self, stream_name: str) -> list[str]:
        """Return the sorted groups of a stream that hold an item."""
        ...

    async def list_streams(self) -> list[tuple[str, list[str]]]:
        """Return each stream with its sorted groups, sorted by name."""
        ...
