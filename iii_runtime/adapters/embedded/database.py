"""One SQLite file: a writer thread that commits many operations at once, and a reader thread beside it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, cast

from iii_runtime.adapters.embedded.lane import Job, Lane
from iii_runtime.adapters.embedded.schema import SCHEMA_VERSION, check_version, upgrade_tables
from iii_runtime.adapters.embedded.store_errors import from_os, from_sqlite
from iii_runtime.core.errors import StoreError

T = TypeVar("T")
Synchronous: TypeAlias = Literal["FULL", "NORMAL", "OFF"]

_BUSY_TIMEOUT = timedelta(seconds=5)
_WAL_LIMIT_BYTES = 64 * 1024 * 1024
_WRITE_BATCH = 500
_READ_BATCH = 1


class _RolledBackError(Exception):
    """SQLite has ended the whole transaction, not just the operation that failed."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Database:
    """The store of one host.

    Guarantee: an operation is reported done only after the transaction that holds it is committed; with
    `synchronous="FULL"` it then survives a power cut. Operations of one batch succeed and fail independently of each
    other. A failure of the disk fails operations, never the database: when space is back, writing goes on.

    Attributes:
        path: The file.
        synchronous: How a commit waits for the disk: `FULL` survives a power cut, `NORMAL` and `OFF` may lose the last
            commits in one; all survive the death of the process.
        commits: Transactions committed so far.
    """

    def __init__(
        self, path: Path, synchronous: Synchronous, writer: sqlite3.Connection, reader: sqlite3.Connection
    ) -> None:
        self.path = path
        self.synchronous: Synchronous = synchronous
        self.commits = 0
        self._writer = writer
        self._reader = reader
        self._write_lane = Lane(f"{path} (writer)", self._commit, batch=_WRITE_BATCH)
        self._read_lane = Lane(f"{path} (reader)", self._read, batch=_READ_BATCH)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        synchronous: Synchronous = "FULL",
        max_page_count: int | None = None,
        busy_timeout: timedelta = _BUSY_TIMEOUT,
    ) -> Database:
        """Open or create the file and its directory. Blocks; call it at start.

        Args:
            path: The file.
            synchronous: See the class.
            max_page_count: Largest size in pages of 4 KiB; None is without limit.
            busy_timeout: How long to wait for another program that holds the file locked.

        Raises:
            StoreError: `store_newer_schema`, `store_corrupt`, `store_locked`, `store_full` or `store_unavailable`.
        """
        connections: list[sqlite3.Connection] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            writer = _connect(path, busy_timeout, connections)
            _prepare_writer(writer, path, synchronous, max_page_count)
            reader = _connect(path, busy_timeout, connections)
            reader.execute("PRAGMA query_only = ON")
        except OSError as error:
            raise from_os(error, path) from error
        except (sqlite3.Error, StoreError) as error:
            for connection in connections:
                connection.close()
            raise _mapped(error, path) from error
        return cls(path, synchronous, writer, reader)

    async def write(self, op: Callable[[sqlite3.Connection], T], after: Callable[[T], None] | None = None) -> T:
        """Run `op` in a transaction and return its value once that is committed.

        Args:
            op: Runs on the writer thread, alone, seeing all earlier writes. What it raises undoes it. It may run again
                if the transaction could not be committed, so it has no effects besides the database.
            after: Called on the event loop once the operation is committed, even if the caller was cancelled.

        Raises:
            StoreError: Nothing of the operation was stored.
        """
        return cast(T, await self._write_lane.submit(lambda: op(self._writer), after))

    async def read(self, op: Callable[[sqlite3.Connection], T]) -> T:
        """Run `op` on one snapshot of everything that was committed before, beside the writer.

        Raises:
            StoreError: The store cannot be read.
        """
        return cast(T, await self._read_lane.submit(lambda: op(self._reader)))

    async def close(self) -> None:
        """Finish what was submitted, fold the log into the file and close it. Later operations fail."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._read_lane.close()
        self._write_lane.close()
        self._reader.close()
        self._writer.close()  # the last connection: checkpoints, and removes the write-ahead log

    def _commit(self, batch: list[Job]) -> None:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            _fail(batch, _mapped(error, self.path))
            return
        if self._finish_transaction(batch) or len(batch) == 1:
            return
        for job in batch:
            job.value = job.error = None
            self._commit([job])

    def _finish_transaction(self, batch: list[Job]) -> bool:
        """Run the jobs and commit. If that is not possible all of them have failed, and nothing of them is stored."""
        try:
            for job in batch:
                self._run_in_savepoint(job)
            self._writer.execute("COMMIT")
        except (sqlite3.Error, _RolledBackError) as error:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            _fail(batch, _mapped(error.cause if isinstance(error, _RolledBackError) else error, self.path))
            return False
        self.commits += 1
        return True

    def _run_in_savepoint(self, job: Job) -> None:
        self._writer.execute("SAVEPOINT op")
        try:
            job.value = job.work()
        except BaseException as error:
            if not self._writer.in_transaction:
                raise _RolledBackError(error) from error
            job.error = _mapped(error, self.path)
            self._writer.execute("ROLLBACK TO op")
        self._writer.execute("RELEASE op")

    def _read(self, batch: list[Job]) -> None:
        for job in batch:
            try:
                self._reader.execute("BEGIN")
                job.value = job.work()
            except BaseException as error:  # noqa: BLE001 - it is the caller's, who awaits it on another thread
                job.error = _mapped(error, self.path)
            if self._reader.in_transaction:
                self._reader.execute("ROLLBACK")


def distinct(connection: sqlite3.Connection, query: str, *arguments: str) -> list[str]:
    """Return sorted distinct values, one index search for each instead of a scan over all rows.

    `query` ends in `column > ? ORDER BY column LIMIT 1`.
    """
    values: list[str] = []
    while row := connection.execute(query, (*arguments, values[-1] if values else "")).fetchone():
        values.append(row[0])
    return values


def _connect(path: Path, busy_timeout: timedelta, connections: list[sqlite3.Connection]) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=busy_timeout.total_seconds()
    )
    connections.append(connection)
    return connection


def _prepare_writer(
    writer: sqlite3.Connection, path: Path, synchronous: Synchronous, max_page_count: int | None
) -> None:
    version = check_version(writer, path)
    if version == 0:
        writer.execute("PRAGMA auto_vacuum = INCREMENTAL")
    writer.execute("PRAGMA journal_mode = WAL").fetchone()
    writer.execute(f"PRAGMA synchronous = {synchronous}")
    writer.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT_BYTES}").fetchone()
    if max_page_count is not None:
        writer.execute(f"PRAGMA max_page_count = {max_page_count}").fetchone()
    writer.execute("BEGIN IMMEDIATE")  # also finds out now, not later, that the file cannot be written
    if version < SCHEMA_VERSION:
        upgrade_tables(writer, version)
    writer.execute("COMMIT")


def _fail(batch: list[Job], error: BaseException) -> None:
    for job in batch:
        job.value, job.error = None, error


def _mapped(error: Any, path: Path) -> BaseException:
    if isinstance(error, sqlite3.Error):
        mapped = from_sqlite(error, path)
        if mapped is not None:
            mapped.__cause__ = error
            return mapped
    return cast(BaseException, error)
