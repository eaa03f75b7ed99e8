"""Queues in a list."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from iii_runtime.adapters.memory.queue_shelf import QueueShelf, ShelfMessage
from iii_runtime.core.letter import Death, compose_letter, with_error
from iii_runtime.core.message import Cause, ErrorRecord
from iii_runtime.core.queue import DEDUPE_WINDOW, QueueSpec, release_delay
from iii_runtime.core.regroup import regroup
from iii_runtime.ports.clock import Clock, IdSource
from iii_runtime.ports.dead_letter import DeadLetter
from iii_runtime.ports.message_queue import Delivery, OutgoingMessage, QueueDepth


class MemoryMessageQueue:
    """The messages of all queues."""

    def __init__(self, shelf: QueueShelf, clock: Clock, ids: IdSource) -> None:
        self._shelf = shelf
        self._clock = clock
        self._ids = ids
        self._dedupe: dict[tuple[str, str, str], tuple[int, str]] = {}

    async def prepare(self, queue: QueueSpec) -> None:
        """Group the stored messages as the queue is configured now."""
        for message in self._shelf.of(queue.name):
            message.group = regroup(message.body, message.receipt, queue)
        self._shelf.on_message(queue.name)

    async def send(self, queue: QueueSpec, messages: Sequence[OutgoingMessage]) -> list[str]:
        """Store messages of one queue in order and return their receipts."""
        return await self.send_all([(queue, message) for message in messages])

    async def send_all(self, messages: Sequence[tuple[QueueSpec, OutgoingMessage]]) -> list[str]:
        """Store messages, each on its queue, in order and return their receipts."""
        receipts = [self._store(queue.name, message) for queue, message in messages]
        for name in dict.fromkeys(queue.name for queue, _ in messages):
            self._shelf.on_message(name)
        return receipts

    async def receive(self, queue: QueueSpec, limit: int, lease: timedelta) -> list[Delivery]:
        """Take up to `limit` messages that are due, oldest first."""
        now_ms = self._clock.now_ms()
        due = [message for message in self._shelf.heads(queue.name) if message.visible_at <= now_ms]
        taken = sorted(due, key=lambda message: (message.visible_at, message.seq))[:limit]
        for message in taken:
            message.is_held = True
            message.taken += 1
            message.visible_at = self._later(lease)
        return [_delivery(message) for message in taken]

    async def next_due_ms(self, queue: QueueSpec) -> int | None:
        """Return when the next message becomes receivable."""
        return min((message.visible_at for message in self._shelf.heads(queue.name)), default=None)

    async def extend(self, deliveries: Sequence[Delivery], lease: timedelta) -> None:
        """Renew the leases that are still held."""
        for delivery in deliveries:
            message = self._held(delivery)
            if message is not None:
                message.visible_at = self._later(lease)

    async def acknowledge(self, delivery: Delivery) -> bool:
        """Remove the message for good. False if the lease was lost."""
        message = self._held(delivery)
        if message is None:
            return False
        self._shelf.messages.remove(message)
        self._shelf.on_message(delivery.queue)
        return True

    async def hide(self, delivery: Delivery, delay: timedelta) -> bool:
        """Give the message back as if it had not been received. False if the lease was lost."""
        message = self._held(delivery)
        if message is None:
            return False
        message.uncounted += 1
        self._give_back(message, delay)
        return True

    async def fail(self, delivery: Delivery, error: ErrorRecord, retry_after: timedelta) -> bool:
        """Record the failed attempt once and give the message back. False if the lease was lost."""
        message = self._held(delivery)
        if message is None:
            return False
        if delivery.attempt > message.failed:
            message.failed = delivery.attempt
            message.errors = with_error(message.errors, delivery.attempt, error)
        self._give_back(message, retry_after)
        return True

    async def bury(self, delivery: Delivery, cause: Cause, error: ErrorRecord, attempts: int) -> bool:
        """Make the message a dead letter. False if the lease was lost."""
        message = self._held(delivery)
        if message is None:
            return False
        death = Death(
            receipt=message.receipt,
            queue=message.queue,
            generation=message.generation,
            token=self._ids.new_id(),
            cause=cause,
            error=error,
            attempts=attempts,
            receives=message.receives,
            first_ms=message.first_ms,
            failed_ms=self._clock.now_ms(),
        )
        log = with_error(message.errors, attempts, error) if attempts > message.failed else message.errors
        letters = self._shelf.letters
        letters[:] = [letter for letter in letters if letter.receipt != message.receipt]
        letters.append(_dead_letter(message.body, death, log))
        return await self.acknowledge(delivery)

    async def release_all(self) -> int:
        """Void the leases of an earlier process; return how many."""
        held = [message for message in self._shelf.messages if message.is_held]
        for message in held:
            message.is_held = False
            message.visible_at = self._later(release_delay(message.receives - message.failed))
        return len(held)

    async def depth(self, queue_name: str) -> QueueDepth:
        """Return exact counts of one queue."""
        now_ms = self._clock.now_ms()
        later = [message for message in self._shelf.heads(queue_name) if message.visible_at > now_ms]
        in_flight = sum(message.is_held for message in later)
        return QueueDepth(
            visible=len(self._shelf.of(queue_name)) - len(later),
            delayed=len(later) - in_flight,
            in_flight=in_flight,
            dead=sum(letter.queue == queue_name for letter in self._shelf.letters),
        )

    async def purge(self, queue_name: str) -> int:
        """Delete the messages of a queue that are not in flight; return how many."""
        now_ms = self._clock.now_ms()
        gone = [item for item in self._shelf.of(queue_name) if not (item.is_held and item.visible_at > now_ms)]
        for message in gone:
            self._shelf.messages.remove(message)
        return len(gone)

    async def queue_names(self) -> list[str]:
        """Return the sorted names of all queues that hold a message or a dead letter."""
        shelf = self._shelf
        return sorted({message.queue for message in shelf.messages} | {letter.queue for letter in shelf.letters})

    def _store(self, queue_name: str, message: OutgoingMessage) -> str:
        now_ms = self._clock.now_ms()
        if message.dedupe_id is not None:
            key = (queue_name, message.function_id, message.dedupe_id)
            first = self._dedupe.get(key)
            if first is not None and now_ms - first[0] < DEDUPE_WINDOW // timedelta(milliseconds=1):
                return first[1]
            self._dedupe[key] = (now_ms, message.receipt)
        self._shelf.add(
            queue=queue_name,
            group=message.group,
            receipt=message.receipt,
            generation=0,
            ready_at=now_ms + message.delay_ms,
            first_ms=now_ms,
            body=message.body,
        )
        return message.receipt

    def _give_back(self, message: ShelfMessage, delay: timedelta) -> None:
        message.is_held = False
        message.visible_at = self._later(delay)
        self._shelf.on_message(message.queue)

    def _held(self, delivery: Delivery) -> ShelfMessage | None:
        for message in self._shelf.messages:
            if message.is_held and _handle(message) == delivery.handle:
                return message
        return None

    def _later(self, duration: timedelta) -> int:
        return self._clock.now_ms() - (-duration // timedelta(milliseconds=1))


def _handle(message: ShelfMessage) -> str:
    return f"{message.seq}.{message.taken}"


def _delivery(message: ShelfMessage) -> Delivery:
    return Delivery(
        receipt=message.receipt,
        queue=message.queue,
        body=message.body,
        generation=message.generation,
        attempt=message.failed + 1,
        receives=message.receives,
        handle=_handle(message),
        group=message.group,
    )


def _dead_letter(body: str, death: Death, log: tuple[tuple[int, ErrorRecord], ...]) -> DeadLetter:
    letter = compose_letter(body, death)
    return DeadLetter(
        receipt=death.receipt,
        queue=death.queue,
        function_id=letter.function_id,
        generation=death.generation,
        cause=death.cause,
        error=death.error,
        errors=log,
        attempts=death.attempts,
        receives=death.receives,
        first_ms=death.first_ms,
        failed_ms=death.failed_ms,
        size_bytes=letter.size_bytes,
        letter=letter.text,
    )
