"""A walk: the same operations on a real adapter and on the model, every visible result compared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from iii_runtime.adapters.embedded.database import Database
from iii_runtime.adapters.embedded.dead_letter_store import SqliteDeadLetterStore
from iii_runtime.adapters.embedded.queue_store import SqliteMessageQueue
from iii_runtime.core.message import ErrorRecord, enqueued_length, letter_member
from iii_runtime.core.queue import LEASE, QueueSpec
from iii_runtime.ports.dead_letter import DeadLetter, DeadLetterStore
from iii_runtime.ports.message_queue import Delivery, MessageQueue, QueueDepth
from iii_runtime.testing.clock import SequenceIds, SkipClock
from iii_runtime.testing.stores import memory_stores, outgoing_message
from tests.protocol.model import Letter, Received, State, Storage

T = TypeVar("T")
Outcome: TypeAlias = Literal["acknowledge", "hide", "fail", "bury as failed", "bury as received too often"]
_LEASE_MS = LEASE // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Send:
    """Enqueue one message for each customer, in one call."""

    customers: str
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Receive:
    """Receive at most so many."""

    limit: int


@dataclass(frozen=True, slots=True)
class End:
    """End receives, all at the same time."""

    outcomes: tuple[tuple[int, Outcome], ...]
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Extend:
    """Renew the leases of receives."""

    receives: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Let time pass."""

    ms: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Open the store again, as after a kill."""


@dataclass(frozen=True, slots=True)
class Operate:
    """Redrive or discard one letter, or all; or purge."""

    what: Literal["redrive", "discard", "redrive all", "discard all", "purge"]
    letter: int = 0


Step: TypeAlias = Send | Receive | End | Extend | Wait | Restart | Operate


class Adapter:
    """The two ports of queues, over one storage."""

    queue: MessageQueue
    letters: DeadLetterStore

    async def open(self) -> None:
        """Open the storage, again or for the first time."""

    async def close(self) -> None:
        """Close it."""


class MemoryAdapter(Adapter):
    """In memory; opening it again changes nothing."""

    def __init__(self, clock: SkipClock) -> None:
        stores = memory_stores(clock, SequenceIds())
        self.queue, self.letters = stores.queue, stores.letters


class SqliteAdapter(Adapter):
    """In a file, which is opened again from what the disk has."""

    def __init__(self, clock: SkipClock, directory: Path) -> None:
        self._clock = clock
        self._path = directory / "iii.db"
        self._database: Database | None = None

    async def open(self) -> None:
        await self.close()
        self._database = Database.open(self._path, synchronous="OFF")
        self.queue = SqliteMessageQueue(self._database, self._clock, SequenceIds())
        self.letters = SqliteDeadLetterStore(self._database, self._clock)

    async def close(self) -> None:
        if self._database is not None:
            await self._database.close()


class Walk:
    """Takes each step on both sides. A difference is an `AssertionError`.

    Steps name receives and letters by numbers. From 0 on they count receives that have not ended, and letters; below 0
    receives of messages that were received again since, and messages of any kind. Where there are none they count all.
    So each number means something, and any step can be left out of a walk.
    """

    def __init__(self, adapter: Adapter, clock: SkipClock, queue: QueueSpec) -> None:
        self._adapter = adapter
        self._clock = clock
        self._queue = queue
        self._storage = Storage()
        self._state = State()
        self._bodies: list[str] = []
        self._sent_ms: list[int] = []
        self._deaths: dict[int, tuple[int, str]] = {}
        self._received: list[tuple[Delivery, Received]] = []

    async def begin(self) -> None:
        """Open the adapter as the host does at its start."""
        await self._restart()

    async def take(self, step: Step) -> None:
        """Take one step and compare all there is to see."""
        match step:
            case Send():
                await self._send(step)
            case Receive():
                await self._receive(step.limit)
            case End():
                await self._end(step)
            case Extend():
                await self._extend(step.receives)
            case Wait():
                self._clock.advance(timedelta(milliseconds=step.ms))
                self._state = self._storage.pass_time(self._state, step.ms)
            case Restart():
                await self._restart()
            case Operate():
                await self._operate(step)
        await self._compare()

    async def _send(self, step: Send) -> None:
        messages = []
        for customer in step.customers:
            number = len(self._bodies)
            message = outgoing_message(
                self._queue, _receipt(number), {"customer": customer, "n": number}, delay_ms=step.delay_ms
            )
            messages.append(message)
            self._bodies.append(message.body)
            self._sent_ms.append(self._clock.now_ms())
            self._state = self._storage.send(self._state, number, message.group, step.delay_ms)
        receipts = await self._adapter.queue.send(self._queue, messages)
        assert receipts == [message.receipt for message in messages]

    async def _receive(self, limit: int) -> None:
        deliveries = await self._adapter.queue.receive(self._queue, limit, LEASE)
        expected = []
        for row in self._storage.due(self._state)[:limit]:
            self._state, received = self._storage.receive(self._state, row, _LEASE_MS)
            expected.append((row.group, received))
        seen = [(item.receipt, item.group, item.generation, item.attempt, item.receives) for item in deliveries]
        assert seen == [
            (_receipt(one.message), group, one.generation, one.attempt, one.receives) for group, one in expected
        ]
        for delivery, (_, received) in zip(deliveries, expected, strict=True):
            assert _origin(delivery.body) == (self._bodies[received.message], received.generation)
            self._received.append((delivery, received))

    async def _end(self, step: End) -> None:
        chosen = [(*self._numbered(number), outcome) for number, outcome in step.outcomes if self._received]
        expected = [self._expect_end(received, outcome, step.delay_ms) for _, received, outcome in chosen]
        delay = timedelta(milliseconds=step.delay_ms)
        seen = await asyncio.gather(*[self._end_one(*one, delay) for one in chosen])
        assert seen == expected

    async def _end_one(self, delivery: Delivery, received: Received, outcome: Outcome, delay: timedelta) -> bool:
        queue, error = self._adapter.queue, _error(received)
        match outcome:
            case "acknowledge":
                return await queue.acknowledge(delivery)
            case "hide":
                return await queue.hide(delivery, delay)
            case "fail":
                return await queue.fail(delivery, error, delay)
            case "bury as failed":
                return await queue.bury(delivery, "failed", error, delivery.attempt)
            case "bury as received too often":
                return await queue.bury(delivery, "receives", error, delivery.attempt - 1)

    def _expect_end(self, received: Received, outcome: Outcome, delay_ms: int) -> bool:
        storage, state = self._storage, self._state
        match outcome:
            case "acknowledge":
                self._state, kept = storage.acknowledge(state, received)
            case "hide":
                self._state, kept = storage.hide(state, received, delay_ms)
            case "fail":
                self._state, kept = storage.fail(state, received, delay_ms)
            case "bury as failed":
                self._state, kept = storage.bury(state, received, "failed", received.attempt)
            case _:
                self._state, kept = storage.bury(state, received, "receives", received.attempt - 1)
        if kept and outcome.startswith("bury"):
            self._deaths[received.message] = (self._clock.now_ms(), _error(received).message)
        return kept

    async def _extend(self, numbers: tuple[int, ...]) -> None:
        chosen = [self._numbered(number) for number in numbers if self._received]
        await self._adapter.queue.extend([delivery for delivery, _ in chosen], LEASE)
        self._state = self._storage.extend(self._state, [received for _, received in chosen], _LEASE_MS)

    async def _restart(self) -> None:
        await self._adapter.open()
        self._state, released = self._storage.release_all(self._state)
        assert await self._adapter.queue.release_all() == released
        await self._adapter.queue.prepare(self._queue)

    async def _operate(self, step: Operate) -> None:
        storage, letters = self._storage, self._adapter.letters
        dead = [letter.message for letter in self._state.letters]
        message = _pick(dead if step.letter >= 0 and dead else range(len(self._bodies) + 1), step.letter)
        receipt = _receipt(message)
        match step.what:
            case "redrive":
                self._state, found = storage.redrive(self._state, message)
                assert not await letters.redrive(QueueSpec(name="another"), receipt)
                assert await letters.redrive(self._queue, receipt) == found
            case "discard":
                self._state, found = storage.discard(self._state, message)
                assert not await letters.discard("another", receipt)
                assert await letters.discard(self._queue.name, receipt) == found
            case "redrive all":
                self._each(dead, storage.redrive)
                assert await letters.redrive_all(self._queue) == len(dead)
            case "discard all":
                self._each(dead, storage.discard)
                assert await letters.discard_all(self._queue.name) == len(dead)
            case "purge":
                self._state, gone = storage.purge(self._state)
                assert await self._adapter.queue.purge(self._queue.name) == gone

    def _each(self, messages: list[int], operation: Callable[[State, int], tuple[State, bool]]) -> None:
        for message in messages:
            self._state, _ = operation(self._state, message)

    async def _compare(self) -> None:
        queue, name = self._adapter.queue, self._queue.name
        assert await queue.depth(name) == QueueDepth(**self._storage.depth(self._state)._asdict())
        wait = self._storage.next_due(self._state)
        assert await queue.next_due_ms(self._queue) == (None if wait is None else self._clock.now_ms() + wait)
        assert await queue.queue_names() == ([name] if self._state.rows or self._state.letters else [])
        expected = [self._expect_letter(letter) for letter in self._state.letters]
        assert [_seen(letter) for letter in await self._adapter.letters.list_letters(name, 0, 100)] == expected
        assert [_seen(letter) for letter in await self._adapter.letters.list_letters(name, 1, 2)] == expected[1:3]
        assert await self._adapter.letters.count(name) == len(expected)

    def _expect_letter(self, letter: Letter) -> tuple[object, ...]:
        failed_ms, error = self._deaths[letter.message]
        attempts = list(range(max(1, letter.attempts - 2), letter.attempts + 1))
        times = (self._sent_ms[letter.message], failed_ms)
        counts = (letter.generation, letter.cause, letter.attempts, letter.receives)
        body = self._bodies[letter.message]
        return (_receipt(letter.message), *counts, attempts, *times, error, body, letter.generation + 1)

    def _numbered(self, number: int) -> tuple[Delivery, Received]:
        held = {(row.message, row.generation): row.handle for row in self._state.rows if row.held}
        newest = [(pair, held.get((pair[1].message, pair[1].generation))) for pair in self._received]
        current = [pair for pair, handle in newest if handle == pair[1].handle]
        stale = [pair for pair, handle in newest if handle not in {None, pair[1].handle}]
        return _pick((current if number >= 0 else stale) or self._received, number)


def _pick(choices: Sequence[T], number: int) -> T:
    return choices[-1 - abs(number) % len(choices)]


def _seen(letter: DeadLetter) -> tuple[object, ...]:
    attempts = [attempt for attempt, _ in letter.errors]
    counts = (letter.generation, letter.cause, letter.attempts, letter.receives)
    times = (letter.first_ms, letter.failed_ms)
    return (letter.receipt, *counts, attempts, *times, letter.error.message, *_origin(letter.letter))


def _origin(body: str) -> tuple[str, int]:
    """Return the body as it was enqueued, and how often it has died, from a message or a letter."""
    member = letter_member(body)
    deaths = member["g"] if member is not None else -1
    assert isinstance(deaths, int)
    return body[: enqueued_length(body)] + "}", deaths + 1


def _error(received: Received) -> ErrorRecord:
    return ErrorRecord(type="ValueError", message=f"receive {received.handle} of {received.message}")


def _receipt(message: int) -> str:
    return f"m{message}"
