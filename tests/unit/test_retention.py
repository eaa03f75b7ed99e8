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
from iii_runtime.adapters.embedded.run_store import SqliteRunStore
from iii_runtime.adapters.embedded.state_store import SqliteStateStore
from iii_runtime.adapters.embedded.stream_store import SqliteStreamStore
from iii_runtime.core.message import ErrorRecord
from iii_runtime.core.queue import QueueSpec
from iii_runtime.core.runs.fact_codec import encode_fact
from iii_runtime.core.runs.facts import Suspended
from iii_runtime.core.runs.record import RunRecord
from iii_runtime.ports.message_queue import Delivery
from iii_runtime.ports.run_store import Closing, Done, Held, RunQuery
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
    runs: SqliteRunStore

    async def sweep(self) -> Swept:
        return await self.retention.sweep(self.clock.now_ms())

    async def receive(self) -> Delivery:
        (delivery,) = await self.queue.receive(QUEUE, 1, LEASE)
        return delivery

    async def deliver_feed(self) -> None:
        await self.feed.forget([entry.position for entry in await self.feed.read(0, 1000)])

    async def run(self, number: int, *, facts: int = 1, duties: tuple[str, ...] = ()) -> RunRecord:
        """Start run `number` of workflow id `w` and close it."""
        now_ms = self.clock.now_ms()
        old = await self.runs.read("w")
        record = RunRecord(
            workflow_id="w",
            run_id=f"r{number}",
            first_run_id=f"r{number}",
            workflow="f",
            created_ms=now_ms,
            epoch=1 if old is None else old.epoch + 1,
            lease_until_ms=now_ms,
            wake_at_ms=now_ms,
        )
        await (self.runs.create(record) if old is None else self.runs.replace(old, record))
        held = Held(workflow_id="w", run_id=f"r{number}", epoch=record.epoch, sequence=0)
        closing = Closing(status="completed", outcome="1", at_ms=now_ms, duties=duties)
        texts = [encode_fact(Suspended(at_ms=at_ms)) for at_ms in range(facts)]
        written = await self.runs.close(held, texts, closing)
        assert isinstance(written, Done)
        return written.record

    async def known_runs(self) -> list[str]:
        return [record.run_id for record in await self.runs.list_runs(RunQuery())]

    async def stored_facts(self) -> int:
        query = "SELECT count(*) FROM run_fact"
        return await self.database.read(lambda connection: int(connection.execute(query).fetchone()[0]))

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
        runs=SqliteRunStore(database, blobs, clock),
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
    assert await store.sweep() == Swept(
        dead_letters=0, stream_items=0, responses=0, dedupe_ids=0, runs=0, run_payloads=0, blobs=0, pages=0
    )
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


async def test_closed_runs_live_60_days_after_their_end(store: Store) -> None:
    await store.run(1)
    store.clock.advance(timedelta(days=1))
    await store.run(2)
    store.clock.advance(timedelta(days=59) - INSTANT)
    assert (await store.sweep()).runs == 0
    store.clock.advance(INSTANT)
    assert (await store.sweep()).runs == 1
    assert await store.known_runs() == ["r2"]
    assert await store.stored_facts() == 1
    store.clock.advance(timedelta(days=1))
    assert (await store.sweep()).runs == 1
    assert await store.known_runs() == []
    assert await store.stored_facts() == 0


async def test_a_run_lives_while_it_is_open_or_something_is_left_to_do(store: Store) -> None:
    closed = await store.run(1, duties=("tell",))
    await store.runs.create(replace(closed, workflow_id="open", status="running", closed_ms=None, duties=()))
    store.clock.advance(timedelta(days=4000))
    assert (await store.sweep()).runs == 0
    await store.runs.finish_duties(closed)
    assert (await store.sweep()).runs == 1
    assert await store.runs.read("open") is not None


async def test_a_long_journal_goes_in_steps(store: Store) -> None:
    await store.run(1, facts=1700)
    await store.run(2)
    store.clock.advance(timedelta(days=60))
    before = store.database.commits
    assert (await store.sweep()).runs == 2
    assert store.database.commits - before > 4
    assert await store.stored_facts() == 0


async def test_a_payload_lives_while_a_run_may_refer_to_it(store: Store) -> None:
    """It is written before the run that refers to it, which may be as much later as a start message lives."""
    await store.runs.put_payload("w", "r1.input", LARGE)
    await store.runs.put_payload("never started", "r1.input", "1")
    store.clock.advance(timedelta(days=58))
    await store.run(1)
    store.clock.advance(timedelta(days=60) - INSTANT)
    swept = await store.sweep()
    assert (swept.runs, swept.run_payloads, swept.blobs) == (0, 1, 0)
    assert await store.runs.get_payload("w", "r1.input") == LARGE
    store.clock.advance(INSTANT)
    swept = await store.sweep()
    assert (swept.runs, swept.run_payloads, swept.blobs) == (1, 1, 1)


async def test_payloads_of_a_workflow_id_that_is_used_for_years_do_not_pile_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention_module, "_ROWS_PER_STEP", 2)
    for number in range(12):
        for part in range(5):
            await store.runs.put_payload("w", f"r{number}.{part}", "1")
        await store.run(number)
        store.clock.advance(timedelta(days=30))
        await store.sweep()
    assert await store.known_runs() == ["r11"]
    query = "SELECT DISTINCT substr(name, 1, instr(name, '.') - 1) FROM run_payload"
    kept = await store.database.read(lambda connection: connection.execute(query).fetchall())
    assert sorted(kept) == [("r10",), ("r11",), ("r9",)]


async def test_a_run_that_goes_on_for_another_one_keeps_all_payloads(store: Store) -> None:
    await store.runs.put_payload("w", "signal", "1")
    store.clock.advance(timedelta(days=200))
    record = RunRecord(
        workflow_id="w", run_id="r2", first_run_id="r1", workflow="f", created_ms=store.clock.now_ms(), wake_at_ms=0
    )
    await store.runs.create(record)
    assert (await store.sweep()).run_payloads == 0
    await store.runs.terminate("w", Closing(status="terminated", outcome="1", at_ms=store.clock.now_ms()))
    store.clock.advance(timedelta(days=60))
    assert (await store.sweep()).run_payloads == 1
