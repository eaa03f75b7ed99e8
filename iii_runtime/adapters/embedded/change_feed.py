"""The change feed as a table: a change is a row, written in the transaction of what it tells of."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import cast

from iii_runtime.adapters.embedded.database import Database
from iii_runtime.adapters.embedded.kept_value import NOTHING, KeptValue, ValueKeeper
from iii_runtime.core.change import Change, StateChange, change_from_json, change_to_json
from iii_runtime.core.payload import Json, decode_stored, render_json
from iii_runtime.ports.change_feed import FeedEntry

_APPEND = "INSERT INTO feed (change, old_value, old_blob, value, blob) VALUES (?, ?, ?, ?, ?)"
_READ = (
    "SELECT position, change, old_value, old_blob, value, blob FROM feed WHERE position > ? ORDER BY position LIMIT ?"
)


class SqliteChangeFeed:
    """Changes that were not delivered yet."""

    def __init__(self, database: Database, values: ValueKeeper) -> None:
        self._database = database
        self._values = values

    async def read(self, after: int, limit: int) -> list[FeedEntry]:
        """Return up to `limit` changes behind position `after`, in order."""
        return await self._database.read(
            lambda connection: [self._entry(row) for row in connection.execute(_READ, (after, limit))]
        )

    async def forget(self, positions: Sequence[int]) -> None:
        """Remove delivered changes."""
        rows = [(position,) for position in positions]
        await self._database.write(
            lambda connection: connection.executemany("DELETE FROM feed WHERE position = ?", rows).rowcount
        )

    def _entry(self, row: tuple[int, str, str | None, str | None, str | None, str | None]) -> FeedEntry:
        position, text, old_value, old_blob, value, blob = row
        fields = cast("dict[str, Json]", decode_stored(text))
        new = self._values.load(KeptValue(value, blob))
        if "state" in fields:
            fields |= {"old": self._values.load(KeptValue(old_value, old_blob)), "new": new}
        else:
            fields |= {"data": new}
        return FeedEntry(position=position, change=change_from_json(fields))


def append_change(connection: sqlite3.Connection, change: Change, value: KeptValue, old: KeptValue = NOTHING) -> None:
    """Add a change inside the caller's transaction. Its values are those given, by reference if they are large."""
    fields = change_to_json(change)
    for name in ("old", "new") if isinstance(change, StateChange) else ("data",):
        del fields[name]
    connection.execute(_APPEND, (render_json(fields), old.text, old.blob, value.text, value.blob))
