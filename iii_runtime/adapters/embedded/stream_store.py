"""Streams as a table."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from iii_runtime.adapters.embedded.change_feed import append_change
from iii_runtime.adapters.embedded.database import Database, distinct
from iii_runtime.adapters.embedded.documents import Documents, Publish
from iii_runtime.adapters.embedded.kept_value import KeptValue, ValueKeeper
from iii_runtime.adapters.embedded.state_store import notice_change
from iii_runtime.core.change import StreamChange
from iii_runtime.core.payload import Json
from iii_runtime.ports.clock import Clock
from iii_runtime.ports.state_store import Notice, Written

_GROUPS = "SELECT grp FROM stream WHERE stream = ? AND grp > ? ORDER BY grp LIMIT 1"
_STREAMS = "SELECT stream FROM stream WHERE stream > ? ORDER BY stream LIMIT 1"


class SqliteStreamStore:
    """Stream items. A write and its change are one transaction."""

    def __init__(
        self, database: Database, values: ValueKeeper, clock: Clock, on_change: Callable[[], None] = lambda: None
    ) -> None:
        """Call `on_change` on the event loop after each commit."""
        self._database = database
        self._values = values
        self._clock = clock
        self._on_change = on_change
        self._documents = Documents(
            database, values, clock, on_change, table="stream", columns=("stream", "grp", "item")
        )

    async def get(self, stream_name: str, group_id: str, item_id: str) -> Json:
        """Return the item's data, None if there is none."""
        return await self._documents.get((stream_name, group_id, item_id))

    async def set(self, stream_name: str, group_id: str, item_id: str, data: Json) -> Written:
        """Create or replace the item."""
        key = (stream_name, group_id, item_id)
        return await self._documents.set(key, data, self._publish(*key))

    async def delete(self, stream_name: str, group_id: str, item_id: str) -> Written:
        """Remove the item. Nothing is published if it did not exist."""
        key = (stream_name, group_id, item_id)
        return await self._documents.delete(key, self._publish(*key))

    async def update(self, stream_name: str, group_id: str, item_id: str, ops: Sequence[Json]) -> Written:
        """Apply update operations in order, atomically."""
        key = (stream_name, group_id, item_id)
        return await self._documents.update(key, ops, self._publish(*key))

    async def send(self, notice: Notice) -> None:
        """Publish an event that is not kept as an item."""
        data = await self._values.keep(notice.data)
        event = notice_change(notice, self._clock.now_ms())
        await self._database.write(
            lambda connection: append_change(connection, event, data), lambda _: self._on_change()
        )

    async def list_items(self, stream_name: str, group_id: str) -> list[Json]:
        """Return the data of a group's items, ordered by item id."""
        return await self._documents.list_under((stream_name, group_id))

    async def list_groups(self, stream_name: str) -> list[str]:
        """Return the sorted groups of a stream that hold an item."""
        return await self._database.read(lambda connection: distinct(connection, _GROUPS, stream_name))

    async def list_streams(self) -> list[tuple[str, list[str]]]:
        """Return each stream with its sorted groups, sorted by name."""
        return await self._database.read(
            lambda connection: [(name, distinct(connection, _GROUPS, name)) for name in distinct(connection, _STREAMS)]
        )

    def _publish(self, stream_name: str, group_id: str, item_id: str) -> Publish:
        at_ms = self._clock.now_ms()

        def publish(connection: sqlite3.Connection, old: KeptValue | None, new: KeptValue | None) -> None:
            data = old if new is None else new
            if data is None:
                return
            change = StreamChange(
                at_ms=at_ms,
                kind="delete" if new is None else "create" if old is None else "update",
                stream_name=stream_name,
                group_id=group_id,
                item_id=item_id,
                data=None,
            )
            append_change(connection, change, data)

        return publish
