"""Stored http responses as a table; a large body is a blob file beside it."""

from __future__ import annotations

import base64
import sqlite3
from datetime import timedelta
from typing import NamedTuple, cast

from iii_runtime.adapters.embedded.blob_store import FileBlobStore
from iii_runtime.adapters.embedded.database import Database
from iii_runtime.core.message import INLINE_LIMIT
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

_FIND = "SELECT fingerprint, holder, status, headers, body, blob FROM response WHERE key = ? AND begun_ms > ?"
_BEGIN = "REPLACE INTO response (key, fingerprint, holder, begun_ms) VALUES (?, ?, ?, ?)"
_FINISH = "UPDATE response SET status = ?, headers = ?, body = ?, blob = ? WHERE key = ?"


class _Row(NamedTuple):
    """The columns of `_FIND`. A body is in `body`, or in the blob named `blob`; the last four are None until then."""

    fingerprint: str
    holder: str
    status: int | None
    headers: str
    body: bytes | None
    blob: str | None


class SqliteResponseStore:
    """Responses by idempotency key."""

    def __init__(self, database: Database, clock: Clock, blobs: FileBlobStore) -> None:
        """Keep bodies above `INLINE_LIMIT` in `blobs`, so that the database stays small."""
        self._database = database
        self._clock = clock
        self._blobs = blobs

    async def begin(self, key: str, fingerprint: str, holder: str) -> Reservation:
        """Reserve `key`, or say what became of the first request with it."""
        now_ms = self._clock.now_ms()
        oldest = now_ms - RESPONSE_RETENTION // timedelta(milliseconds=1)

        def op(connection: sqlite3.Connection) -> Reservation:
            found = connection.execute(_FIND, (key, oldest)).fetchone()
            row = None if found is None else _Row._make(found)
            if row is not None and row.fingerprint != fingerprint:
                return Mismatch()
            if row is not None and row.status is not None:
                return self._response(row.status, row)
            if row is not None and row.holder == holder:
                return InProgress()
            connection.execute(_BEGIN, (key, fingerprint, holder, now_ms))
            return Begun()

        return await self._database.write(op)

    async def finish(self, key: str, response: StoredResponse) -> None:
        """Store the response of a reserved key."""
        headers = encode_json(response.headers, "headers")
        body, blob = await self._keep(key, response.body)
        row = (response.status, headers, body, blob, key)
        await self._database.write(lambda connection: connection.execute(_FINISH, row).rowcount)

    async def _keep(self, key: str, body: bytes) -> tuple[bytes | None, str | None]:
        if len(body) <= INLINE_LIMIT:
            return body, None
        blob = f"response {key} {self._clock.now_ms()}"  # a key that has expired may be used for another response
        await self._blobs.put(blob, base64.b64encode(body).decode("ascii"))
        return None, blob

    def _response(self, status: int, row: _Row) -> StoredResponse:
        """Return the response, in the transaction that found it: until its end nothing can remove the blob."""
        pairs = cast("list[tuple[str, str]]", decode_stored(row.headers))
        body = row.body or b""
        if row.blob is not None:
            body = base64.b64decode(self._blobs.load(row.blob))
        return StoredResponse(status=status, headers=tuple((name, value) for name, value in pairs), body=body)
