"""Streams in DynamoDB. The stream of the table is the change feed: a write and its change are one thing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import groupby

from iii_runtime.adapters.aws.blob_store import S3Blobs
from iii_runtime.adapters.aws.document_keys import EVENT, STREAM, group_partition, stream_key
from iii_runtime.adapters.aws.documents import Documents
from iii_runtime.adapters.aws.kept_value import INLINE_BYTES, ValueKeeper
from iii_runtime.adapters.aws.name_index import list_names
from iii_runtime.adapters.aws.table import Table
from iii_runtime.core.payload import Json
from iii_runtime.ports.clock import Clock, IdSource
from iii_runtime.ports.state_store import Notice, Written

EVENT_LIFE = timedelta(hours=1)
"""How long the item of a sent event stays; the stream of the table has it for a day."""


class DynamoStreamStore:
    """Stream items: one request for each operation, but for a list, a large value and an update that must read.

    If the reply to a write is lost, the write is sent again, and is one change in the feed all the same; only the
    `old_value` it returns may then be the new one.
    """

    def __init__(
        self, table: Table, blobs: S3Blobs, clock: Clock, ids: IdSource, *, max_value_bytes: int | None = None
    ) -> None:
        """Keep data above 350 KB in `blobs`; see `DynamoStateStore` for `max_value_bytes`."""
        self._table = table
        self._clock = clock
        self._ids = ids
        self._values = ValueKeeper(blobs, ids)
        self._documents = Documents(table, blobs, clock, ids, max_value_bytes=max_value_bytes)

    async def get(self, stream_name: str, group_id: str, item_id: str) -> Json:
        """Return the item's data as it is now, None if there is none."""
        return await self._documents.get(stream_key(stream_name, group_id, item_id))

    async def set(self, stream_name: str, group_id: str, item_id: str, data: Json) -> Written:
        """Create or replace the item."""
        return await self._documents.set(stream_key(stream_name, group_id, item_id), data)

    async def delete(self, stream_name: str, group_id: str, item_id: str) -> Written:
        """Remove the item. Nothing is published if it did not exist."""
        return await self._documents.delete(stream_key(stream_name, group_id, item_id))

    async def update(self, stream_name: str, group_id: str, item_id: str, ops: Sequence[Json]) -> Written:
        """Apply update operations in order, atomically; see `DynamoStateStore.update`."""
        return await self._documents.update(stream_key(stream_name, group_id, item_id), ops)

    async def send(self, notice: Notice) -> None:
        """Publish an event that is not kept as an item: one that nobody reads, and that goes after an hour."""
        event = await self._values.keep_notice(notice, INLINE_BYTES)
        now_ms = self._clock.now_ms()
        await self._table.put(
            {
                "pk": group_partition(EVENT, notice.stream_name, notice.group_id),
                "sk": f"{now_ms:014}-{self._ids.new_id()}",
                "at": now_ms,
                "ev": event,
                "ttl": (now_ms + EVENT_LIFE // timedelta(milliseconds=1)) // 1000,
            }
        )

    async def list_items(self, stream_name: str, group_id: str) -> list[Json]:
        """Return the data of a group's items, ordered by item id."""
        return await self._documents.list_under(group_partition(STREAM, stream_name, group_id))

    async def list_groups(self, stream_name: str) -> list[str]:
        """Return the sorted groups of a stream that hold an item. It may be a second behind, see `list_names`."""
        return [group for _, group in await list_names(self._table, STREAM, stream_name, of=3)]

    async def list_streams(self) -> list[tuple[str, list[str]]]:
        """Return each stream with its sorted groups, sorted by name. It may be a second behind, see `list_names`."""
        pairs = await list_names(self._table, STREAM, of=3)
        return [(name, [group for _, group in found]) for name, found in groupby(pairs, key=lambda pair: pair[0])]
