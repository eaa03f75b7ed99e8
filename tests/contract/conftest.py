"""Each contract test runs on every adapter of its port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from iii_runtime.adapters.embedded.blob_store import FileBlobStore
from iii_runtime.adapters.embedded.change_feed import SqliteChangeFeed
from iii_runtime.adapters.embedded.database import Database
from iii_runtime.adapters.embedded.dead_letter_store import SqliteDeadLetterStore
from iii_runtime.adapters.embedded.kept_value import ValueKeeper
from iii_runtime.adapters.embedded.queue_store import SqliteMessageQueue
from iii_runtime.adapters.embedded.response_store import SqliteResponseStore
from iii_runtime.adapters.embedded.run_store import SqliteRunStore
from iii_runtime.adapters.embedded.state_store import SqliteStateStore
from iii_runtime.adapters.embedded.stream_store import SqliteStreamStore
from iii_runtime.adapters.embedded.tick_store import SqliteTickStore
from iii_runtime.engine.stores import Stores
from iii_runtime.hosts.aws_lambda.stores import aws_stores
from iii_runtime.testing.clock import SequenceIds, SkipClock
from iii_runtime.testing.stores import memory_stores
from tests.contract.aws_services import NOT_FAITHFUL, follow_clock, running_services
from tests.contract.moto_time import let_sqs_follow
from tests.contract.sqs_services import stage_queues

RESPONSE_LEASE = timedelta(minutes=15)
LARGEST_STATE_VALUE = 4 * 1024 * 1024


class Wakes:
    """What the stores announced. On AWS the services do: each record of the table's stream is an announcement."""

    def __init__(self) -> None:
        self.queues: list[str] = []
        self.runs: list[str] = []
        self.change_records: Callable[[], int] = lambda: 0
        self._announced = 0

    @property
    def changes(self) -> int:
        return self._announced + self.change_records()

    def on_message(self, queue_name: str) -> None:
        self.queues.append(queue_name)

    def on_run(self, workflow_id: str) -> None:
        self.runs.append(workflow_id)

    def on_change(self) -> None:
        self._announced += 1


@pytest.fixture
def clock() -> SkipClock:
    return SkipClock()


@pytest.fixture
def wakes() -> Wakes:
    return Wakes()


@pytest.fixture(params=["memory", "embedded", "aws"])
def backend(request: pytest.FixtureRequest) -> str:
    """Name of the adapters under test. What moto cannot carry is skipped, and says why."""
    name: str = request.param
    reason = NOT_FAITHFUL.get(getattr(request.node, "originalname", ""))
    if name == "aws" and reason is not None:
        pytest.skip(reason)
    return name


@pytest.fixture
def holder_dies(backend: str, clock: SkipClock) -> Callable[[], None]:
    """What makes the holder of a reservation count as dead when the next one asks."""
    if backend == "aws":
        return lambda: clock.advance(RESPONSE_LEASE)  # nothing can tell of a Lambda's death, so time does
    return lambda: None  # on one machine there is one host: another holder's asking is proof


@pytest.fixture
async def stores(
    backend: str, tmp_path: Path, clock: SkipClock, wakes: Wakes, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Stores]:
    ids = SequenceIds()
    if backend == "aws":
        with running_services() as services:
            follow_clock(monkeypatch, clock)
            wakes.change_records = services.change_records
            let_sqs_follow(monkeypatch, clock, services.clients, services.deployment)
            queue, letters, _ = stage_queues(services, clock, ids)
            stores = aws_stores(
                services.clients,
                services.deployment,
                lambda: queue.deployed,
                clock,
                ids,
                max_value_bytes=LARGEST_STATE_VALUE,
                response_lease=RESPONSE_LEASE,
            )
            yield replace(stores, queue=queue, letters=letters)
        return
    if backend == "memory":
        yield memory_stores(
            clock,
            ids,
            on_message=wakes.on_message,
            on_change=wakes.on_change,
            on_run=wakes.on_run,
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
        runs=SqliteRunStore(database, blobs, clock, on_run=wakes.on_run, on_change=wakes.on_change),
    )
    await database.close()
    blobs.close()
