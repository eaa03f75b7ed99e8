"""Stored http responses as a table."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from typing import cast

from iii_runtime.adapters.embedded.database import Database
from iii_runtime.core.payload import decode_stored, encode_json
from iii_runtime.ports.clock import Clock
from iii_runtime.ports.response_store import (
    RESPONSE_RETENTION,
    Begun,
    InProgress,
    Mismatch,
    Reservation,
    StoredResponse,
)

_FIND = "SELECT fingerprint, holder, status, headers, body FROM response WHERE key = ? AND begun_ms > ?"
_BEGIN = "REPLACE INTO response (key, fingerprint, holder, begun_ms) VALUES (?, ?, ?, ?)"
_FINISH = "UPDATE response SET status = ?, headers = ?, body = ? WHERE key = ?"


class SqliteResponseStore:
    """Responses by idempotency key."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def begin(self, key: str, fingerprint: str, holder: str) -> Reservation:
        """Reserve `key`, or say what became of the first request with it."""
        now_ms = self._clock.now_ms()
        oldest = now_ms - RESPONSE_RETENTION // timedelta(milliseconds=1)

        def op(connection: sqlite3.Connection) -> Reservation:
            row = connection.execute(_FIND, (key, oldest)).fetchone()
            if row is not None and row[0] != fingerprint:
                return Mismatch()
            if row is not None and row[2] is not None:
                return _response(*row[2:])
            if row is not None and row[1] == holder:
                return InProgress()
            connection.execute(_BEGIN, (key, fingerprint, holder, now_ms))
            return Begun()

        return await self._database.write(op)

    async def finish(self, key: str, response: StoredResponse) -> None:
        """Store the response of a reserved key."""
        row = (response.status, encode_json(response.headers, "headers"), response.body, key)
        await self._database.write(lambda connection: connection.execute(_FINISH, row).rowcount)


def _response(status: int, headers: str, body: bytes) -> StoredResponse:
    pairs = cast("list[tuple[str, str]]", decode_stored(headers))
    return StoredResponse(status=status, headers=tuple((name, value) for name, value in pairs), body=body)
