"""State in DynamoDB. The stream of the table is the change feed: a write and its change are one thing."""

from __future__ import annotations

from collections.abc import Sequence

from iii_runtime.adapters.aws.blob_store import S3Blobs
from iii_runtime.adapters.aws.document_keys import STATE, state_key, state_partition
from iii_runtime.adapters.aws.documents import Documents
from iii_runtime.adapters.aws.name_index import list_names
from iii_runtime.adapters.aws.table import Table
from iii_runtime.core.payload import Json
from iii_runtime.ports.clock import Clock, IdSource
from iii_runtime.ports.state_store import Notice, Written


class DynamoStateStore:
    """State documents: one request for each operation, but for a list, a large value and an update that must read.

    If the reply to a write is lost, the write is sent again, and is one change in the feed all the same; only the
    `old_value` it returns may then be the new one.
    """

    def __init__(
        self, table: Table, blobs: S3Blobs, clock: Clock, ids: IdSource, *, max_value_bytes: int | None = None
    ) -> None:
        """Keep values above 350 KB in `blobs`.

        Refuse values of more than `max_value_bytes` as JSON text; None leaves only the limit of every payload. With a
        limit below 2.4 MB every update must read the value first.
        """
        self._table = table
        self._documents = Documents(table, blobs, clock, ids, max_value_bytes=max_value_bytes)

    async def get(self, scope: str, key: str) -> Json:
        """Return the value as it is now, None if there is none."""
        return await self._documents.get(state_key(scope, key))

    async def set(self, scope: str, key: str, value: Json) -> Written:
        """Replace the value; it is a change even if it is the same."""
        return await self._documents.set(state_key(scope, key), value)

    async def delete(self, scope: str, key: str) -> Written:
        """Remove the value. If there was none there is no change: the stream of a table tells of items only."""
        return await self._documents.delete(state_key(scope, key))

    async def update(self, scope: str, key: str, ops: Sequence[Json], notice: Notice | None = None) -> Written:
        """Apply update operations; the change of the document comes before `notice` in the feed.

        An update of `set` operations only is one request without a read, if the document and the objects on the paths
        exist. Every other one reads, and writes under the condition that nobody else wrote in between. (If the reply to
        that write is lost, and somebody else writes before it is sent again, the operations are applied once more.)

        Raises:
            StoreError: `store_conflict`: others wrote the document again and again.
        """
        return await self._documents.update(state_key(scope, key), ops, notice)

    async def list_values(self, scope: str) -> list[Json]:
        """Return the values of a scope, ordered by key."""
        return await self._documents.list_under(state_partition(scope))

    async def list_scopes(self) -> list[str]:
        """Return the sorted names of the scopes that hold a value. It may be a second behind, see `list_names`."""
        return [scope for (scope,) in await list_names(self._table, STATE, of=2)]
