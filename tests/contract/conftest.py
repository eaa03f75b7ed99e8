"""Each contract test runs on every adapter of its port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from iii_runtime.adapters.embedded.blob_store import FileBlobStore
from iii_runtime.adapters.embedded.change_feed import SqliteChangeFeed
from iii_runtime.adapters.embedded.database import Database
from iii_runtime.adapters.embedded.dead_letter_store import SqliteDeadLetterStore
from iii_runtime.adapters.embedded.kept_value import ValueKeeper
from iii_runtime.adapters.embedded.queue_store import SqliteMessageQueue
from iii_runtime.adapters.embedded.response_store import SqliteResponseStore
from iii_runtime.adapters.embedded.state_store import SqliteStateStore
from iii_runtime.adapters.embedded.stream_store import SqliteStreamStore
from iii_runtime.adapters.embedded.tick_store import SqliteTickStore
from iii_runtime.engine.stores import Stores
from iii_runtime.testing.clock import SequenceIds, SkipClock
from iii_runtime.testing.stores import memory_stores

LARGEST_STATE_VALUE = 4 * 1024 * 1024


class Wakes:
    """What the stores announced."""

    def __init__(self) -> None:
        self.queues: list[str] = []
        self.changes = 0

    def on_message(self, queue_name: str) -> None:
        self.queues.append(queue_name)

    def on_change(self) -> None:
        self.changes += 1


@pytest.fixture
def clock() -> SkipClock:
    return SkipClock()


@pytest.fixture
def wakes() -> Wakes:
    return Wakes()


@pytest.fixture(params=["memory", "embedded"])
async def stores(
    request: pytest.FixtureRequest, tmp_path: Path, clock: SkipClock, wakes: Wakes
) -> AsyncIterator[Stores]:
    ids = SequenceIds()
    if request.param == "memory":
        yield memory_stores(
            clock,
            ids,
            on_message=wakes.on_message,
            on_change=wakes.on_change,
            max_value_bytes=LARGEST_STATE_VALUE,
        )
        return
    database = Database.open(tmp_path / "data" / "iii.db", synchronous="OFF")
    blobs = FileBlobStore(tmp_path / "data" / "blobs", clock, is_durable=False)
    values = ValueKeeper(blobs, ids, max_value_bytes=LARGEST_STATE_VALUE)
    yield Stores(
        clock=clock,
        ids=ids,
        queue=SqliteMessageQueue(database, clock, ids, wakes.on_message),
        letters=SqliteDeadLetterStore(database, clock, wakes.on_message),
        state=SqliteStateStore(database, values, clock, wakes.on_change),
        stream=SqliteStreamStore(database, ValueKeeper(blobs, ids), clock, wakes.on_change),
        feed=SqliteChangeFeed(database, values),
        blobs=blobs,
        responses=SqliteResponseStore(database, clock, blobs),
        ticks=SqliteTickStore(database),
    )
    await database.close()
    blobs.close()
