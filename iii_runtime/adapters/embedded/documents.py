"""Keyed JSON documents in one table, each write with its change; what state and streams have in common."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeAlias

from iii_runtime.adapters.embedded.database import Database
from iii_runtime.adapters.embedded.kept_value import NOTHING, KeptValue, ValueKeeper
from iii_runtime.core.payload import Json
from iii_runtime.core.update_ops import apply_ops
from iii_runtime.ports.clock import Clock
from iii_runtime.ports.state_store import Written

Key: TypeAlias = tuple[str, ...]
Publish: TypeAlias = Callable[[sqlite3.Connection, KeptValue | None, KeptValue | None], None]
"""Adds the change from the old to the new value to the feed, in the transaction of the write; None is no value."""


class Documents:
    """The documents of one table."""

    def __init__(
        self,
        database: Database,
        values: ValueKeeper,
        clock: Clock,
        on_change: Callable[[], None],
        *,
        table: str,
        columns: Key,
    ) -> None:
        """Use `table`, whose key is `columns`; `on_change` is called after each commit of a change."""
        self._database = database
        self._values = values
        self._clock = clock
        self._on_change = on_change
        match = " AND ".join(f"{column} = ?" for column in columns)
        names = ", ".join(columns)
        marks = ", ".join("?" for _ in range(len(columns) + 3))
        prefix = " AND ".join(f"{column} = ?" for column in columns[:-1])
        self._select = f"SELECT value, blob FROM {table} WHERE {match}"  # noqa: S608 - names are the caller's own
        self._replace = f"REPLACE INTO {table} ({names}, written_ms, value, blob) VALUES ({marks})"  # noqa: S608
        self._remove = f"DELETE FROM {table} WHERE {match}"  # noqa: S608
        self._list = f"SELECT value, blob FROM {table} WHERE {prefix} ORDER BY {columns[-1]}"  # noqa: S608

    async def get(self, key: Key) -> Json:
        """Return the value, None if there is none."""
        return await self._database.read(lambda connection: self._values.load(self._find(connection, key) or NOTHING))

    async def list_under(self, prefix: Key) -> list[Json]:
        """Return the values of all keys that begin with `prefix`, which lacks the last column; ordered by that."""
        return await self._database.read(
            lambda connection: [
                self._values.load(KeptValue(*row)) for row in connection.execute(self._list, prefix).fetchall()
            ]
        )

    async def set(self, key: Key, value: Json, publish: Publish) -> Written:
        """Replace the value."""
        kept = await self._values.keep(value)

        def op(connection: sqlite3.Connection) -> Written:
            old = self._replaced(connection, key, kept)
            publish(connection, old, kept)
            return Written(old_value=self._values.load(old or NOTHING), new_value=value, existed=old is not None)

        return await self._write(op)

    async def delete(self, key: Key, publish: Publish) -> Written:
        """Remove the value."""

        def op(connection: sqlite3.Connection) -> Written:
            old = self._find(connection, key)
            connection.execute(self._remove, key)
            publish(connection, old, None)
            return Written(old_value=self._values.load(old or NOTHING), new_value=None, existed=old is not None)

        return await self._write(op)

    async def update(self, key: Key, ops: Sequence[Json], publish: Publish) -> Written:
        """Apply update operations. If none of them applies, nothing is written and nothing published."""

        def op(connection: sqlite3.Connection) -> Written:
            found = self._find(connection, key)
            old_value = self._values.load(found or NOTHING)
            outcome = apply_ops(old_value, ops)
            if len(outcome.errors) == len(ops):
                return Written(
                    old_value=old_value, new_value=old_value, existed=found is not None, errors=outcome.errors
                )
            kept = self._values.keep_now(outcome.value)
            old = self._replaced(connection, key, kept)
            publish(connection, old, kept)
            return Written(old_value=old_value, new_value=outcome.value, existed=old is not None, errors=outcome.errors)

        return await self._write(op)

    async def _write(self, op: Callable[[sqlite3.Connection], Written]) -> Written:
        return await self._database.write(op, lambda _: self._on_change())

    def _replaced(self, connection: sqlite3.Connection, key: Key, kept: KeptValue) -> KeptValue | None:
        old = self._find(connection, key)
        connection.execute(self._replace, (*key, self._clock.now_ms(), *kept))
        return old

    def _find(self, connection: sqlite3.Connection, key: Key) -> KeptValue | None:
        row = connection.execute(self._select, key).fetchone()
        return None if row is None else KeptValue(*row)
