"""What the embedded store forgets, and when.

| what | is kept for |
|---|---|
| dead letters | 30 days after the death |
| stream items | 30 days after their last write; the deletion publishes nothing |
| stored http responses | 24 hours after the first request |
| `dedupe_id` | 5 minutes |
| closed runs, with their journals | 60 days after their end, unless something is left to do |
| payloads of runs | 60 days after they were written, and until no run can refer to them |
| blob files that nothing refers to | 1 hour after they were written |

State, messages and undelivered changes are kept for good. A redriven or discarded letter is gone at once.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import timedelta

from iii_runtime.adapters.embedded.blob_store import FileBlobStore
from iii_runtime.adapters.embedded.database import Database
from iii_runtime.adapters.embedded.queue_rows import milliseconds
from iii_runtime.adapters.embedded.run_retention import START, PayloadStep, RunStep, remove_closed_runs, remove_payloads
from iii_runtime.core.queue import DEDUPE_WINDOW
from iii_runtime.ports.response_store import RESPONSE_RETENTION
from iii_runtime.ports.run_store import CLOSED_RUN_RETENTION

DEAD_LETTER_RETENTION = timedelta(days=30)
STREAM_ITEM_RETENTION = timedelta(days=30)
UNREFERENCED_BLOB_RETENTION = timedelta(hours=1)
"""Longer than any message can take from its blob being stored until itself is."""

_ROWS_PER_STEP = 500
_FILES_PER_STEP = 1_000
_PAGES_PER_SWEEP = 2_000

_REFERENCED = (
    "SELECT blob FROM q_msg WHERE blob IS NOT NULL UNION ALL SELECT blob FROM q_letter WHERE blob IS NOT NULL "
    "UNION ALL SELECT blob FROM state WHERE blob IS NOT NULL UNION ALL SELECT blob FROM stream WHERE blob IS NOT NULL "
    "UNION ALL SELECT blob FROM feed WHERE blob IS NOT NULL UNION ALL SELECT old_blob FROM feed "
    "WHERE old_blob IS NOT NULL UNION ALL SELECT blob FROM response WHERE blob IS NOT NULL "
    "UNION ALL SELECT blob FROM run_payload WHERE blob IS NOT NULL"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What one sweep removed: numbers of rows, of files, and of pages of 4 KiB given back to the file system."""

    dead_letters: int
    stream_items: int
    responses: int
    dedupe_ids: int
    runs: int
    run_payloads: int
    blobs: int
    pages: int


class Retention:
    """Removes what has outlived its time, in steps that do not hold up other writes."""

    def __init__(self, database: Database, blobs: FileBlobStore) -> None:
        self._database = database
        self._blobs = blobs

    async def sweep(self, now_ms: int) -> Swept:
        """Remove what is too old at `now_ms`, Unix milliseconds. Call it about hourly; repeating it does nothing."""
        return Swept(
            dead_letters=await self._remove(
                "q_letter", "died", "failed_ms", now_ms - milliseconds(DEAD_LETTER_RETENTION)
            ),
            stream_items=await self._remove(
                "stream", "stream, grp, item", "written_ms", now_ms - milliseconds(STREAM_ITEM_RETENTION)
            ),
            responses=await self._remove("response", "key", "begun_ms", now_ms - milliseconds(RESPONSE_RETENTION)),
            dedupe_ids=await self._remove("dedupe", "queue, fn, id", "at_ms", now_ms - milliseconds(DEDUPE_WINDOW)),
            runs=await self._remove_runs(now_ms - milliseconds(CLOSED_RUN_RETENTION)),
            run_payloads=await self._remove_run_payloads(now_ms - milliseconds(CLOSED_RUN_RETENTION)),
            blobs=await self._remove_blobs(now_ms - milliseconds(UNREFERENCED_BLOB_RETENTION)),
            pages=await self._database.write(_give_pages_back),
        )

    async def _remove(self, table: str, key: str, age: str, until_ms: int) -> int:
        statement = f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE {age} <= ? LIMIT ?)"  # noqa: S608
        arguments = (until_ms, _ROWS_PER_STEP)
        removed = 0
        while True:
            count = await self._database.write(lambda connection: connection.execute(statement, arguments).rowcount)
            removed += count
            if count < _ROWS_PER_STEP:
                return removed

    async def _remove_runs(self, until_ms: int) -> int:
        def op(connection: sqlite3.Connection) -> RunStep:
            return remove_closed_runs(connection, until_ms, _ROWS_PER_STEP)

        removed, is_done = 0, False
        while not is_done:
            step = await self._database.write(op)
            removed, is_done = removed + step.runs, step.is_done
        return removed

    async def _remove_run_payloads(self, until_ms: int) -> int:
        removed, place = 0, START

        def op(connection: sqlite3.Connection) -> PayloadStep:
            return remove_payloads(connection, place, until_ms, _ROWS_PER_STEP)

        while True:
            step = await self._database.write(op)
            removed += step.removed
            if step.after is None:
                return removed
            place = step.after

    async def _remove_blobs(self, until_ms: int) -> int:
        """Remove files on the reader's thread: no other reader can then hold a snapshot that still refers to them."""

        def op(connection: sqlite3.Connection) -> int:
            keys = {key for (key,) in connection.execute(_REFERENCED)}
            return self._blobs.remove_unreferenced(keys, until_ms, _FILES_PER_STEP)

        removed = 0
        while True:
            count = await self._database.read(op)
            removed += count
            if count < _FILES_PER_STEP:
                return removed


def _give_pages_back(connection: sqlite3.Connection) -> int:
    (before,) = connection.execute("PRAGMA freelist_count").fetchone()
    for _ in range(min(before, _PAGES_PER_SWEEP)):
        connection.execute("PRAGMA incremental_vacuum(1)").fetchall()  # sqlite3 runs one step of this pragma only
    (after,) = connection.execute("PRAGMA freelist_count").fetchone()
    return int(before) - int(after)
