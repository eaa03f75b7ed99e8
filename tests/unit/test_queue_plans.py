"""The hot statements of the queue look at due messages only, however many wait."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from iii_runtime.adapters.embedded import dead_letter_store, queue_rows
from iii_runtime.adapters.embedded.database import Database
from iii_runtime.adapters.embedded.queue_store import SqliteMessageQueue
from iii_runtime.core.queue import QueueSpec
from iii_runtime.testing.clock import SequenceIds, SkipClock
from iii_runtime.testing.stores import outgoing_message

FIFO = QueueSpec(name="orders", kind="fifo", group_field="customer")
STANDARD = QueueSpec(name="orders")
HOT = {
    "due": (queue_rows.DUE, ("orders", 0, 1)),
    "next due": (queue_rows.NEXT_DUE, ("orders",)),
    "take": (queue_rows.TAKE, (0, 1)),
    "extend": (queue_rows.EXTEND, (0, 1, 1)),
    "held": (queue_rows.HELD, (1, 1)),
    "acknowledge": (queue_rows.ACKNOWLEDGE, (1, 1)),
    "unblock": (queue_rows.UNBLOCK, ("orders", "g")),
    "letters": (dead_letter_store.LIST, ("orders", 1, 0)),
}


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = Database.open(tmp_path / "iii.db", synchronous="OFF")
    yield opened
    await opened.close()


@pytest.mark.parametrize("name", HOT)
async def test_a_hot_statement_searches_an_index_and_sorts_nothing(database: Database, name: str) -> None:
    statement, arguments = HOT[name]
    plan = await database.read(
        lambda connection: connection.execute(f"EXPLAIN QUERY PLAN {statement}", arguments).fetchall()
    )
    steps = [row[3] for row in plan]
    assert steps
    assert not [step for step in steps if step.startswith("SCAN") and step != "SCAN q_msg"]
    assert not [step for step in steps if step == "SCAN q_msg" or "TEMP B-TREE" in step]


async def test_counting_reads_indexes_only(database: Database) -> None:
    plan = await database.read(
        lambda connection: connection.execute(
            f"EXPLAIN QUERY PLAN {queue_rows.DEPTH}", {"queue": "orders", "now": 0}
        ).fetchall()
    )
    searches = [row[3] for row in plan if row[3].startswith("SEARCH")]
    assert len(searches) == 4
    assert all("USING COVERING INDEX" in step for step in searches)


@pytest.mark.parametrize("queue", [STANDARD, FIFO], ids=["standard", "fifo"])
async def test_a_receive_costs_the_same_behind_any_backlog(database: Database, queue: QueueSpec) -> None:
    """Counted in steps of SQLite's virtual machine, for one group with 10 and with 3,000 waiting messages."""
    clock = SkipClock()
    store = SqliteMessageQueue(database, clock, SequenceIds())
    counts = []
    for backlog in (10, 3_000):
        await store.send(queue, [outgoing_message(queue, f"{backlog}.{n}", {"customer": "a"}) for n in range(backlog)])
        counter = await database.write(_count_steps)
        for _ in range(5):
            (delivery,) = await store.receive(queue, 1, timedelta(seconds=30))
            await store.acknowledge(delivery)
        counts.append(counter[0])
        await database.write(lambda connection: connection.set_progress_handler(None, 0))
    assert counts[0] > 50
    assert counts[1] <= counts[0] * 1.5


def _count_steps(connection: sqlite3.Connection) -> list[int]:
    counter = [0]

    def step() -> int:
        counter[0] += 1
        return 0

    connection.set_progress_handler(step, 1)
    return counter
