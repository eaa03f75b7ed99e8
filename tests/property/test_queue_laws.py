"""The laws of a queue, under any interleaving of everything that can happen to it.

No message is lost, each ends exactly once, order holds within a group, attempts are exact. The model below knows when
each message may be received; the adapters must hand out exactly those.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from iii_runtime.adapters.embedded.database import Database
from iii_runtime.adapters.embedded.dead_letter_store import SqliteDeadLetterStore
from iii_runtime.adapters.embedded.queue_store import SqliteMessageQueue
from iii_runtime.adapters.memory.dead_letter_store import MemoryDeadLetterStore
from iii_runtime.adapters.memory.queue_shelf import QueueShelf
from iii_runtime.adapters.memory.queue_store import MemoryMessageQueue
from iii_runtime.core.message import ErrorRecord
from iii_runtime.core.queue import QueueSpec, release_delay
from iii_runtime.ports.dead_letter import DeadLetterStore
from iii_runtime.ports.message_queue import Delivery, MessageQueue, QueueDepth
from iii_runtime.testing.clock import SequenceIds, SkipClock
from iii_runtime.testing.stores import outgoing_message

QUEUES = [
    QueueSpec(name="q"),
    QueueSpec(name="q", kind="fifo", group_field="g"),
    QueueSpec(name="q", concurrency=1),
]
LEASE = timedelta(seconds=30)
ERROR = ErrorRecord(type="E", message="no")
PAUSES = [timedelta(milliseconds=1), timedelta(seconds=1), timedelta(seconds=10), LEASE]

T = TypeVar("T")


@dataclass(eq=False, kw_only=True)
class Expected:
    """What the model knows of a message: it waits, is held by `holder`, is dead, or has ended for good."""

    receipt: str
    body: str
    group: str | None
    due_ms: int
    ready_ms: int
    holder: str | None = None
    generation: int = 0
    failed: int = 0
    receives: int = 0


class QueueLaws(RuleBasedStateMachine):
    """Runs one adapter beside the model."""

    deliveries = Bundle("deliveries")
    queue: MessageQueue
    letters: DeadLetterStore

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._clock = SkipClock()
        self._ids = SequenceIds()
        self._waiting: list[Expected] = []
        self._dead: list[Expected] = []
        self._ended: list[str] = []
        self._sent = 0

    @initialize(spec=st.sampled_from(QUEUES))
    def start(self, spec: QueueSpec) -> None:
        self._spec = spec
        self._open()
        self._run(self.queue.prepare(spec))

    @rule(count=st.integers(1, 3), group=st.sampled_from("ab"), delay_s=st.sampled_from([0, 0, 0, 5]))
    def send(self, count: int, group: str, delay_s: int) -> None:
        delay_ms = 0 if self._spec.is_ordered else delay_s * 1000
        messages = []
        for _ in range(count):
            self._sent += 1
            message = outgoing_message(self._spec, f"m{self._sent}", {"g": group, "n": "é\0"}, delay_ms=delay_ms)
            messages.append(message)
            due_ms = self._clock.now_ms() + delay_ms
            self._waiting.append(
                Expected(
                    receipt=message.receipt, body=message.body, group=message.group, due_ms=due_ms, ready_ms=due_ms
                )
            )
        assert self._run(self.queue.send(self._spec, messages)) == [message.receipt for message in messages]

    @rule(target=deliveries, limit=st.integers(1, 4))
    def receive(self, limit: int) -> Any:
        due = sorted(
            (message for message in self._heads() if message.due_ms <= self._clock.now_ms()),
            key=lambda message: message.due_ms,
        )[:limit]
        received = self._run(self.queue.receive(self._spec, limit, LEASE))
        assert [delivery.receipt for delivery in received] == [message.receipt for message in due]
        for delivery, message in zip(received, due, strict=True):
            message.receives += 1
            message.holder, message.due_ms = delivery.handle, self._later(LEASE)
            assert (delivery.generation, delivery.attempt) == (message.generation, message.failed + 1)
            assert delivery.receives == message.receives
            assert delivery.body.startswith(message.body[:-1])
        return multiple(*received)

    @rule(delivery=deliveries)
    def acknowledge(self, delivery: Delivery) -> None:
        message = self._holder(delivery)
        assert self._run(self.queue.acknowledge(delivery)) == (message is not None)
        if message is not None:
            self._waiting.remove(message)
            self._end(message)

    @rule(delivery=deliveries, after=st.sampled_from([timedelta(0), *PAUSES]))
    def fail(self, delivery: Delivery, after: timedelta) -> None:
        message = self._holder(delivery)
        assert self._run(self.queue.fail(delivery, ERROR, after)) == (message is not None)
        if message is not None:
            message.failed = delivery.attempt
            message.holder, message.due_ms = None, self._later(after)

    @rule(delivery=deliveries, after=st.sampled_from([timedelta(0), *PAUSES]))
    def hide(self, delivery: Delivery, after: timedelta) -> None:
        message = self._holder(delivery)
        assert self._run(self.queue.hide(delivery, after)) == (message is not None)
        if message is not None:
            message.receives -= 1
            message.holder, message.due_ms = None, self._later(after)

    @rule(delivery=deliveries)
    def extend(self, delivery: Delivery) -> None:
        self._run(self.queue.extend([delivery], LEASE))
        message = self._holder(delivery)
        if message is not None:
            message.due_ms = self._later(LEASE)

    @rule(delivery=deliveries)
    def bury(self, delivery: Delivery) -> None:
        message = self._holder(delivery)
        buried = self._run(self.queue.bury(delivery, "failed", ERROR, delivery.attempt))
        assert buried == (message is not None)
        if message is not None:
            self._waiting.remove(message)
            message.failed = delivery.attempt
            self._dead.append(message)

    @rule(position=st.integers(0, 5))
    def redrive(self, position: int) -> None:
        if position < len(self._dead):
            message = self._dead.pop(position)
            assert self._run(self.letters.redrive(self._spec, message.receipt))
            self._revive(message)
        else:
            assert not self._run(self.letters.redrive(self._spec, "m1" if not self._is_dead("m1") else "none"))

    @rule()
    def redrive_all(self) -> None:
        assert self._run(self.letters.redrive_all(self._spec)) == len(self._dead)
        while self._dead:
            self._revive(self._dead.pop(0))

    @rule(position=st.integers(0, 5))
    def discard(self, position: int) -> None:
        if position < len(self._dead):
            message = self._dead.pop(position)
            assert self._run(self.letters.discard("q", message.receipt))
            self._end(message)
        assert not self._run(self.letters.discard("q", "none"))

    @rule(pause=st.sampled_from(PAUSES))
    def wait(self, pause: timedelta) -> None:
        self._clock.advance(pause)

    @rule()
    def crash(self) -> None:
        """The process dies; the next one finds what was committed."""
        self._reopen()
        held = [message for message in self._waiting if message.holder is not None]
        assert self._run(self.queue.release_all()) == len(held)
        for message in held:
            message.holder = None
            message.due_ms = self._clock.now_ms() + release_delay(message.receives - message.failed) // timedelta(
                milliseconds=1
            )
        self._run(self.queue.prepare(self._spec))

    @invariant()
    def counts_are_exact(self) -> None:
        if not hasattr(self, "_spec"):
            return
        now_ms = self._clock.now_ms()
        heads = self._heads()
        later = [message for message in heads if message.due_ms > now_ms]
        in_flight = sum(message.holder is not None for message in later)
        assert self._run(self.queue.depth("q")) == QueueDepth(
            visible=len(self._waiting) - len(later),
            delayed=len(later) - in_flight,
            in_flight=in_flight,
            dead=len(self._dead),
        )
        listed = self._run(self.letters.list_letters("q", 0, 1000))
        assert [(letter.receipt, letter.generation, letter.attempts, letter.receives) for letter in listed] == [
            (message.receipt, message.generation, message.failed, message.receives) for message in self._dead
        ]
        assert self._run(self.letters.count("q")) == len(listed)
        expected_due = min((message.due_ms for message in heads), default=None)
        assert self._run(self.queue.next_due_ms(self._spec)) == expected_due

    def teardown(self) -> None:
        """Whatever happened, all messages can be brought to an end, and each has exactly one."""
        try:
            if hasattr(self, "_spec"):
                self._finish()
        finally:
            self._close()
            self._runner.close()

    def _finish(self) -> None:
        self.redrive_all()
        while self._waiting:
            self._clock.advance(timedelta(seconds=60))
            for delivery in self._run(self.queue.receive(self._spec, 100, LEASE)):
                message = next(item for item in self._heads() if item.receipt == delivery.receipt)
                assert self._run(self.queue.acknowledge(delivery))
                self._waiting.remove(message)
                self._end(message)
        assert sorted(self._ended) == sorted(f"m{number + 1}" for number in range(self._sent))
        assert self._run(self.queue.queue_names()) == []

    def _heads(self) -> list[Expected]:
        groups = [message.group for message in self._waiting]
        return [
            message
            for index, message in enumerate(self._waiting)
            if message.group is None or message.group not in groups[:index]
        ]

    def _holder(self, delivery: Delivery) -> Expected | None:
        return next((message for message in self._waiting if message.holder == delivery.handle), None)

    def _revive(self, message: Expected) -> None:
        message.holder = None
        message.generation += 1
        message.failed = message.receives = 0
        message.due_ms = message.ready_ms = self._clock.now_ms()
        self._waiting.append(message)

    def _end(self, message: Expected) -> None:
        assert message.receipt not in self._ended
        self._ended.append(message.receipt)

    def _is_dead(self, receipt: str) -> bool:
        return any(message.receipt == receipt for message in self._dead)

    def _later(self, pause: timedelta) -> int:
        return self._clock.now_ms() + pause // timedelta(milliseconds=1)

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    def _open(self) -> None:
        raise NotImplementedError

    def _reopen(self) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError


class MemoryQueueLaws(QueueLaws):
    """The memory adapter; its storage outlives the adapter object."""

    def _open(self) -> None:
        self._shelf = QueueShelf()
        self._reopen()

    def _reopen(self) -> None:
        self.queue = MemoryMessageQueue(self._shelf, self._clock, self._ids)
        self.letters = MemoryDeadLetterStore(self._shelf, self._clock)

    def _close(self) -> None:
        pass


class EmbeddedQueueLaws(QueueLaws):
    """The embedded adapter. A crash leaves the files as they are on the disk, with nothing closed or folded in."""

    def _open(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="queue-laws-"))
        self._life = 0
        self._use(self._home / "0")

    def _reopen(self) -> None:
        dead = self._home / str(self._life)
        self._life += 1
        alive = self._home / str(self._life)
        shutil.copytree(dead, alive)
        self._run(self._database.close())
        self._use(alive)

    def _close(self) -> None:
        if hasattr(self, "_database"):
            self._run(self._database.close())
            shutil.rmtree(self._home)

    def _use(self, directory: Path) -> None:
        self._database = Database.open(directory / "iii.db", synchronous="OFF")
        self.queue = SqliteMessageQueue(self._database, self._clock, self._ids)
        self.letters = SqliteDeadLetterStore(self._database, self._clock)


TestMemoryQueueLaws = MemoryQueueLaws.TestCase
TestMemoryQueueLaws.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestEmbeddedQueueLaws = EmbeddedQueueLaws.TestCase
TestEmbeddedQueueLaws.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
