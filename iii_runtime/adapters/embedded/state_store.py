"""State as a table."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from iii_runtime.adapters.embedded.change_feed import append_change
from iii_runtime.adapters.embedded.database import Database, distinct
from iii_runtime.adapters.embedded.documents import Documents, Publish
from iii_runtime.adapters.embedded.kept_value import NOTHING, KeptValue, ValueKeeper
from iii_runtime.core.change import StateChange, StreamChange
from iii_runtime.core.payload import Json
from iii_runtime.ports.clock import Clock
from iii_runtime.ports.state_store import Notice, Written


class SqliteStateStore:
    """State documents. A write, its change and its notice are one transaction."""

    def __init__(
        self, database: Database, values: ValueKeeper, clock: Clock, on_change: Callable[[], None] = lambda: None
    ) -> None:
        """Call `on_change` on the event loop after each commit."""
        self._database = database
        self._values = values
        self._clock = clock
        self._documents = Documents(database, values, clock, on_change, table="state", columns=("scope", "key"))

    async def get(self, scope: str, key: str) -> Json:
        """Return the value, None if there is none."""
        return await self._documents.get((scope, key))

    async def set(self, scope: str, key: str, value: Json) -> Written:
        """Replace the value; a change is stored even if it is the same."""
        return await self._documents.set((scope, key), value, self._publish(scope, key))

    async def delete(self, scope: str, key: str) -> Written:
        """Remove the value; a change is stored even if there was none."""
        return await self._documents.delete((scope, key), self._publish(scope, key))

    async def update(self, scope: str, key: str, ops: Sequence[Json], notice: Notice | None = None) -> Written:
        """Apply update operations; the change of the document comes before `notice` in the feed."""
        publish = self._publish(scope, key)
        if notice is None:
            return await self._documents.update((scope, key), ops, publish)
        data = await self._values.keep(notice.data)
        event = notice_change(notice, self._clock.now_ms())

        def publish_both(connection: sqlite3.Connection, old: KeptValue | None, new: KeptValue | None) -> None:
            publish(connection, old, new)
            append_change(connection, event, data)

        return await self._documents.update((scope, key), ops, publish_both)

    async def list_values(self, scope: str) -> list[Json]:
        """Return the values of a scope, ordered by key."""
        return await self._documents.list_under((scope,))

    async def list_scopes(self) -> list[str]:
        """Return the sorted names of the scopes that hold a value."""
        query = "SELECT scope FROM state WHERE scope > ? ORDER BY scope LIMIT 1"
        return await self._database.read(lambda connection: distinct(connection, query))

    def _publish(self, scope: str, key: str) -> Publish:
        at_ms = self._clock.now_ms()

        def publish(connection: sqlite3.Connection, old: KeptValue | None, new: KeptValue | None) -> None:
            change = StateChange(
                at_ms=at_ms,
                event_type="state:deleted" if new is None else "state:created" if old is None else "state:updated",
                scope=scope,
                key=key,
                old_value=None,
                new_value=None,
            )
            append_change(connection, change, new or NOTHING, old or NOTHING)

        return publish


def notice_change(notice: Notice, at_ms: int) -> StreamChange:
    """Return the change of an event that is not kept as an item, without its data."""
    return StreamChange(
        at_ms=at_ms,
        kind="event",
        stream_name=notice.stream_name,
        group_id=notice.group_id,
        item_id=notice.item_id,
        data=None,
        event_type=notice.type,
    )
