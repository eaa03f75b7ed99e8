"""What the embedded store forgets, and what it keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from iii_runtime.adapters.embedded import retention as retention_module
from iii_runtime.adapters.embedded.blob_store import FileBlobStore
from iii_runtime.adapters.embedded.change_feed import SqliteChangeFeed
from iii_runtime.adapters.embedded.database import Database
from iii_runtime.adapters.embedded.dead_letter_store import SqliteDeadLetterStore
from iii_runtime.adapters.embedded.kept_value import ValueKeeper
from iii_runtime.adapters.embedded.queue_store import SqliteMessageQueue
from iii_runtime.adapters.embedded.response_store import SqliteResponseStore
from iii_runtime.adapters.embedded.retention import Retention, Swept
from iii_runtime.adapters.embedded.state_store import SqliteStateStore
from iii_runtime.adapters.embedded.stream_store import SqliteStreamStore
from iii_runtime.core.message import ErrorRecord
from iii_runtime.core.queue import QueueSpec
from iii_runtime.ports.message_queue import Delivery
from iii_runtime.testing.clock import SequenceIds, SkipClock
from iii_runtime.testing.stores import outgoing_message

QUEUE = QueueSpec(name="orders")
LEASE = timedelta(seconds=30)
LARGE = "x" * 300_000
INSTANT = timedelta(milliseconds=1)


@dataclass(frozen=True, kw_only=True)
class Store:
    clock: SkipClock
    database: Database
    directory: Path
    blobs: FileBlobStore
    retention: Retention
    queue: SqliteMessageQueue
    letters: SqliteDeadLetterStore
    state: SqliteStateStore
    stream: SqliteStreamStore
    feed: SqliteChangeFeed
    responses: SqliteResponseStore

    async def sweep(self) -> Swept:
        return await self.retention.sweep(self.clock.now_ms())

    async def receive(self) -> Delivery:
        (delivery,) = await self.queue.receive(QUEUE, 1, LEASE)
        return delivery

    async def deliver_feed(self) -> None:
        await self.feed.forget([entry.position for entry in await self.feed.read(0, 1000)])

    def files(self) -> int:
        return len(list(self.directory.iterdir())) if self.directory.exists() else 0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    clock, ids = SkipClock(), SequenceIds()
    database = Database.open(tmp_path / "iii.db", synchronous="OFF")
    blobs = FileBlobStore(tmp_path / "blobs", clock)
    values = ValueKeeper(blobs, ids)
    yield Store(
        clock=clock,
        database=database,
        directory=tmp_path / "blobs",
        blobs=blobs,
        retention=Retention(database, blobs),
        queue=SqliteMessageQueue(database, clock, ids),
        letters=SqliteDeadLetterStore(database, clock),
        state=SqliteStateStore(database, values, clock),
        stream=SqliteStreamStore(database, values, clock),
        feed=SqliteChangeFeed(database, values),
        responses=SqliteResponseStore(database, clock, blobs),
    )
    await database.close()
    blobs.close()


async def test_dead_letters_live_30_days_after_their_death(store: Store) -> None:
    await store.queue.send(QUEUE, [outgoing_message(QUEUE, "m1")])
    store.clock.advance(timedelta(days=40))
    await store.queue.bury(await store.receive(), "failed", ErrorRecord(type="E", message=""), 1)
    store.clock.advance(timedelta(days=30) - INSTANT)
    assert (await store.sweep()).dead_letters == 0
    store.clock.advance(INSTANT)
    assert (await store.sweep()).dead_letters == 1
    assert await store.letters.count("orders") == 0


async def test_stream_items_live_30_days_after_their_last_write(store: Store) -> None:
    await store.stream.set("s", "g", "old", 1)
    await store.stream.set("s", "g", "new", 1)
    store.clock.advance(timedelta(days=20))
    await store.stream.update("s", "g", "new", [{"type": "set", "path": "", "value": 2}])
    await store.deliver_feed()
    store.clock.advance(timedelta(days=10))
    assert (await store.sweep()).stream_items == 1
    assert await store.stream.list_items("s", "g") == [2]
    assert await store.feed.read(0, 10) == []


async def test_many_rows_go_in_steps(store: Store) -> None:
    def fill(connection: object) -> None:
        rows = [("s", "g", f"{number}", 0, "1", None) for number in range(1200)]
        connection.executemany("INSERT INTO stream VALUES (?, ?, ?, ?, ?, ?)", rows)  # type: ignore[attr-defined]

    await store.database.write(fill)
    before = store.database.commits
    assert (await store.sweep()).stream_items == 1200
    assert store.database.commits - before > 3


async def test_responses_live_a_day_and_dedupe_ids_five_minutes(store: Store) -> None:
    await store.responses.begin("key", "print", "host")
    await store.queue.send(QUEUE, [outgoing_message(QUEUE, "m1", dedupe_id="once")])
    store.clock.advance(timedelta(minutes=5) - INSTANT)
    assert (await store.sweep()).dedupe_ids == 0
    store.clock.advance(INSTANT)
    assert (await store.sweep()).dedupe_ids == 1
    store.clock.advance(timedelta(hours=24) - timedelta(minutes=5, milliseconds=1))
    assert (await store.sweep()).responses == 0
    store.clock.advance(INSTANT)
    assert (await store.sweep()).responses == 1


async def test_state_and_messages_and_undelivered_changes_are_kept_for_good(store: Store) -> None:
    await store.state.set("s", "k", 1)
    await store.queue.send(QUEUE, [outgoing_message(QUEUE, "m1")])
    store.clock.advance(timedelta(days=4000))
    assert await store.sweep() == Swept(dead_letters=0, stream_items=0, responses=0, dedupe_ids=0, blobs=0, pages=0)
    assert await store.state.get("s", "k") == 1
    assert len(await store.feed.read(0, 10)) == 1
    assert (await store.receive()).receipt == "m1"


async def test_a_sweep_removes_every_file_nothing_refers_to_however_many_there_are(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention_module, "_FILES_PER_STEP", 2)
    for number in range(5):
        await store.blobs.put(f"unused-{number}", "text")
    store.clock.advance(timedelta(hours=2))
    assert (await store.sweep()).blobs == 5


async def test_a_blob_lives_while_anything_refers_to_it(store: Store) -> None:
    """State, stream items and changes; the value before a change included."""
    await store.state.set("s", "k", LARGE)
    await store.state.set("s", "k", LARGE + "2")
    await store.stream.set("s", "g", "i", LARGE)
    assert store.files() == 3
    store.clock.advance(timedelta(hours=2))
    assert (await store.sweep()).blobs == 0
    assert [getattr(entry.change, "old_value", None) for entry in await store.feed.read(0, 10)] == [None, LARGE, None]
    await store.deliver_feed()
    assert (await store.sweep()).blobs == 1
    assert await store.state.get("s", "k") == LARGE + "2"
    assert await store.stream.get("s", "g", "i") == LARGE
    await store.state.delete("s", "k")
    await store.stream.set("s", "g", "i", 1)
    await store.deliver_feed()
    assert (await store.sweep()).blobs == 2
    assert store.files() == 0


async def test_the_blob_of_a_message_lives_as_long_as_it_and_its_letter(store: Store) -> None:
    await store.blobs.put("m1", LARGE)
    await store.queue.send(QUEUE, [replace(outgoing_message(QUEUE, "m1"), blob_key="m1")])
    store.clock.advance(timedelta(days=1))
    for _ in range(2):
        assert (await store.sweep()).blobs == 0
        await store.queue.bury(await store.receive(), "failed", ErrorRecord(type="E", message=""), 1)
        assert (await store.sweep()).blobs == 0
        await store.letters.redrive(QUEUE, "m1")
    assert await store.blobs.get("m1") == LARGE
    await store.queue.acknowledge(await store.receive())
    assert (await store.sweep()).blobs == 1


async def test_a_young_blob_is_kept_for_the_message_that_will_link_to_it(store: Store) -> None:
    await store.blobs.put("m1", LARGE)
    store.clock.advance(timedelta(hours=1))
    assert (await store.sweep()).blobs == 0
    store.clock.advance(INSTANT)
    assert (await store.sweep()).blobs == 1


async def test_room_is_given_back_to_the_file_system(store: Store) -> None:
    for number in range(50):
        await store.state.set("s", f"{number}", "x" * 50_000)
    for number in range(50):
        await store.state.delete("s", f"{number}")
    await store.deliver_feed()
    assert (await store.sweep()).pages > 500
