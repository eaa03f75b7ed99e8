"""The loop over one queue: it stops without leaving anything behind, and says when it is idle."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime.core.errors import StoreError
from iii_runtime.core.queue import QueueSpec
from iii_runtime.engine.stores import Stores
from iii_runtime.hosts.embedded.queue_runner import QueueRunner
from iii_runtime.ports.message_queue import Delivery
from iii_runtime.testing.clock import SequenceIds, SkipClock
from iii_runtime.testing.stores import memory_stores, outgoing_message

MAIL = QueueSpec(name="mail", concurrency=2)
GRACE = timedelta(seconds=5)


class Deliveries:
    """Stands where the engine delivers: holds each message until the test lets it go."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.ended: list[str] = []
        self.go = asyncio.Event()

    async def deliver(self, queue: QueueSpec, delivery: Delivery) -> None:
        self.started.append(delivery.receipt)
        await self.go.wait()
        self.ended.append(delivery.receipt)


class SlowQueue:
    """Receives when the test says so; fails as often as the test says."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.receiving = asyncio.Event()
        self.go = asyncio.Event()
        self.failures = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def receive(self, queue: QueueSpec, limit: int, lease: timedelta) -> list[Delivery]:
        self.receiving.set()
        await self.go.wait()
        if self.failures:
            self.failures -= 1
            raise StoreError("the disk is away")
        return list(await self._inner.receive(queue, limit, lease))


@pytest.fixture
def clock() -> SkipClock:
    return SkipClock()


@pytest.fixture
def stores(clock: SkipClock) -> Stores:
    return memory_stores(clock, SequenceIds())


def runner_of(stores: Stores, deliveries: Deliveries) -> QueueRunner:
    deliverer: Any = deliveries
    return QueueRunner(MAIL, stores, deliverer)


def is_idle(runner: QueueRunner) -> bool:
    return runner.is_idle


async def turns(condition: Callable[[], bool]) -> None:
    """Let the loop turn until `condition` holds."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to hold")


async def test_it_is_idle_between_messages_and_busy_while_one_runs(stores: Stores) -> None:
    deliveries = Deliveries()
    runner = runner_of(stores, deliveries)
    assert not is_idle(runner)
    running = asyncio.create_task(runner.run())
    await runner.settle()
    assert is_idle(runner)
    await stores.queue.send(MAIL, [outgoing_message(MAIL, f"r{number}") for number in range(3)])
    runner.wake()
    assert not is_idle(runner)
    await turns(lambda: len(deliveries.started) == 2)
    assert not is_idle(runner)
    deliveries.go.set()
    await runner.settle()
    assert len(deliveries.started) == 3
    assert await runner.stop(GRACE) == 0
    await running
    assert is_idle(runner)


async def test_a_message_that_is_received_while_it_stops_is_waited_for(stores: Stores) -> None:
    queue = SlowQueue(stores.queue)
    port: Any = queue
    deliveries = Deliveries()
    runner = runner_of(dataclasses.replace(stores, queue=port), deliveries)
    await stores.queue.send(MAIL, [outgoing_message(MAIL, "r1")])
    running = asyncio.create_task(runner.run())
    await queue.receiving.wait()
    stopping = asyncio.create_task(runner.stop(GRACE))
    await turns(lambda: runner._stopping)
    queue.go.set()
    await turns(lambda: deliveries.started == ["r1"])
    assert not stopping.done()
    deliveries.go.set()
    assert await stopping == 0
    assert deliveries.ended == ["r1"]
    await running


async def test_what_does_not_end_within_the_grace_is_given_up(stores: Stores) -> None:
    deliveries = Deliveries()
    runner = runner_of(stores, deliveries)
    await stores.queue.send(MAIL, [outgoing_message(MAIL, f"r{number}") for number in range(2)])
    running = asyncio.create_task(runner.run())
    await turns(lambda: len(deliveries.started) == 2)
    assert await runner.stop(timedelta(0)) == 2
    assert deliveries.ended == []
    assert (await stores.queue.depth("mail")).in_flight == 2
    await running
    assert is_idle(runner)


async def test_a_runner_that_was_stopped_before_it_began_consumes_nothing(stores: Stores) -> None:
    deliveries = Deliveries()
    runner = runner_of(stores, deliveries)
    await stores.queue.send(MAIL, [outgoing_message(MAIL, "r1")])
    assert await runner.stop(GRACE) == 0
    await runner.run()
    assert deliveries.started == []


async def test_a_store_that_fails_is_asked_again_after_a_second(stores: Stores, clock: SkipClock) -> None:
    queue = SlowQueue(stores.queue)
    queue.failures = 1
    queue.go.set()
    port: Any = queue
    deliveries = Deliveries()
    deliveries.go.set()
    runner = runner_of(dataclasses.replace(stores, queue=port), deliveries)
    await stores.queue.send(MAIL, [outgoing_message(MAIL, "r1")])
    running = asyncio.create_task(runner.run())
    await runner.settle()
    assert deliveries.started == []
    await turns(lambda: clock.next_wake() is not None)
    clock.advance(timedelta(seconds=1))
    await turns(lambda: deliveries.ended == ["r1"])
    await runner.stop(GRACE)
    await running


async def test_nothing_sleeps_while_a_queue_is_empty(stores: Stores, clock: SkipClock) -> None:
    """No timer runs for leases that nobody holds."""
    runner = runner_of(stores, Deliveries())
    running = asyncio.create_task(runner.run())
    await runner.settle()
    for _ in range(10):
        await asyncio.sleep(0)
    assert clock.next_wake() is None
    await runner.stop(GRACE)
    await running


async def test_what_runs_while_the_machine_sleeps_is_not_received_a_second_time(
    stores: Stores, clock: SkipClock
) -> None:
    """Its lease is over when the machine wakes, and this runner is the one that holds it."""
    deliveries = Deliveries()
    runner = runner_of(stores, deliveries)
    await stores.queue.send(MAIL, [outgoing_message(MAIL, "r1")])
    running = asyncio.create_task(runner.run())
    await turns(lambda: deliveries.started == ["r1"])
    clock.advance(timedelta(hours=1))
    runner.wake()
    for _ in range(100):
        await asyncio.sleep(0)
    assert deliveries.started == ["r1"]
    assert (await stores.queue.depth("mail")).in_flight == 1
    deliveries.go.set()
    await runner.stop(GRACE)
    await running


async def interrupted(stores: Stores, clock: SkipClock, *receipts: str) -> None:
    """Store messages that two hosts have died over."""
    await stores.queue.send(MAIL, [outgoing_message(MAIL, receipt) for receipt in receipts])
    for _ in range(2):
        await stores.queue.receive(MAIL, len(receipts), GRACE)
        await stores.queue.release_all()
    clock.advance(timedelta(minutes=1))


async def test_a_message_that_was_interrupted_twice_runs_while_no_other_does(stores: Stores, clock: SkipClock) -> None:
    await interrupted(stores, clock, "suspect-1", "suspect-2")
    await stores.queue.send(MAIL, [outgoing_message(MAIL, "fresh")])
    deliveries = Deliveries()
    runner = runner_of(stores, deliveries)
    running = asyncio.create_task(runner.run())
    await turns(lambda: deliveries.started == ["suspect-1"])
    for _ in range(100):
        await asyncio.sleep(0)
    assert deliveries.started == ["suspect-1"]
    assert (await stores.queue.depth("mail")).in_flight == 1
    deliveries.go.set()
    await turns(lambda: deliveries.ended == ["suspect-1", "fresh"])
    clock.advance(timedelta(seconds=1))
    await turns(lambda: deliveries.ended == ["suspect-1", "fresh", "suspect-2"])
    await runner.stop(GRACE)
    await running


async def test_a_suspect_waits_until_what_already_runs_has_ended(stores: Stores, clock: SkipClock) -> None:
    deliveries = Deliveries()
    runner = runner_of(stores, deliveries)
    await stores.queue.send(MAIL, [outgoing_message(MAIL, "fresh")])
    running = asyncio.create_task(runner.run())
    await turns(lambda: deliveries.started == ["fresh"])
    suspect = Delivery(
        receipt="suspect", queue="mail", body="", generation=0, attempt=1, receives=3, handle="9.3", group=None
    )
    runner._begin(suspect)
    for _ in range(100):
        await asyncio.sleep(0)
    assert deliveries.started == ["fresh"]
    deliveries.go.set()
    await turns(lambda: deliveries.ended == ["fresh", "suspect"])
    await runner.stop(GRACE)
    await running
