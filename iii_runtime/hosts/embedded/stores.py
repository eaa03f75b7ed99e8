"""Opens a data directory: the lock, the database and one adapter per port over it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from iii_runtime.adapters.embedded.blob_store import FileBlobStore
from iii_runtime.adapters.embedded.change_feed import SqliteChangeFeed
from iii_runtime.adapters.embedded.database import Database
from iii_runtime.adapters.embedded.dead_letter_store import SqliteDeadLetterStore
from iii_runtime.adapters.embedded.kept_value import ValueKeeper
from iii_runtime.adapters.embedded.lock import DataLock, Holder
from iii_runtime.adapters.embedded.queue_store import SqliteMessageQueue
from iii_runtime.adapters.embedded.response_store import SqliteResponseStore
from iii_runtime.adapters.embedded.retention import Retention
from iii_runtime.adapters.embedded.run_store import SqliteRunStore
from iii_runtime.adapters.embedded.state_store import SqliteStateStore
from iii_runtime.adapters.embedded.stream_store import SqliteStreamStore
from iii_runtime.adapters.embedded.tick_store import SqliteTickStore
from iii_runtime.core.config import Config
from iii_runtime.engine.stores import Stores
from iii_runtime.ports.clock import Clock, IdSource

DATABASE_NAME = "iii.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Who is told, on the engine's loop, after a commit.

    Attributes:
        on_message: A message of this queue may have become due.
        on_change: The change feed has grown.
        on_run: The run of this workflow id has changed, and may have become due.
    """

    on_message: Callable[[str], None] = lambda _queue_name: None
    on_change: Callable[[], None] = lambda: None
    on_run: Callable[[str], None] = lambda _workflow_id: None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenData:
    """An open data directory.

    Attributes:
        stores: The adapters.
        database: The SQLite file; its `synchronous` setting is what the host prints.
        retention: Removes what has expired.
        lock: Held until `close`.
    """

    stores: Stores
    database: Database
    retention: Retention
    blobs: FileBlobStore
    lock: DataLock

    async def close(self) -> None:
        """Finish what is queued, close the file and free the directory."""
        await self.database.close()
        self.blobs.close()
        self.lock.release()


def holds_store(data: Path) -> bool:
    """Whether there is a store to open in `data`; one that cannot be looked at counts, for `open_data` says why."""
    try:
        (data / DATABASE_NAME).stat()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


async def open_data(
    data: Path,
    config: Config,
    *,
    clock: Clock,
    ids: IdSource,
    holder: Holder,
    wait: timedelta,
    listeners: Listeners | None = None,
    synchronous: Literal["FULL", "NORMAL"] = "FULL",
) -> OpenData:
    """Open `data`, creating it if it is missing.

    Args:
        data: The directory.
        config: For the limits of what is stored.
        clock: Time of what is stored.
        ids: Names of what is stored.
        holder: What opens it; see `DataLock.acquire`.
        wait: How long to wait while something else has it open.
        listeners: Who is told of commits.
        synchronous: See `Database`.

    Raises:
        StoreError: `store_locked`, `store_unavailable`, `store_newer_schema`, `store_corrupt`, `store_full`.
    """
    told = listeners or Listeners()
    lock = await DataLock.acquire(data, holder=holder, wait=wait)
    try:
        database = Database.open(data / DATABASE_NAME, synchronous=synchronous)
    except BaseException:
        lock.release()
        raise
    blobs = FileBlobStore(data / "blobs", clock, is_durable=synchronous == "FULL")
    values = ValueKeeper(blobs, ids, max_value_bytes=config.state.max_value_bytes)
    plain = ValueKeeper(blobs, ids)
    stores = Stores(
        clock=clock,
        ids=ids,
        queue=SqliteMessageQueue(database, clock, ids, told.on_message),
        letters=SqliteDeadLetterStore(database, clock, told.on_message),
        state=SqliteStateStore(database, values, clock, told.on_change),
        stream=SqliteStreamStore(database, plain, clock, told.on_change),
        feed=SqliteChangeFeed(database, plain),
        blobs=blobs,
        responses=SqliteResponseStore(database, clock, blobs),
        ticks=SqliteTickStore(database),
        runs=SqliteRunStore(database, blobs, clock, on_run=told.on_run, on_change=told.on_change),
    )
    return OpenData(stores=stores, database=database, retention=Retention(database, blobs), blobs=blobs, lock=lock)
