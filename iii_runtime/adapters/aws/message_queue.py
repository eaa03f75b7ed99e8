"""Queues as SQS queues. What SQS does not keep (failed attempts, deaths, redrives) is one item per message.

A message that succeeds at once costs nothing but its send: no item is read or written. See `core.delivery` for the
decisions, `message_item` for the item, `deaths` for the end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from iii_runtime.adapters.aws.dedupe_ids import DedupeIds
from iii_runtime.adapters.aws.failures import ServiceError, with_retries
from iii_runtime.adapters.aws.message_intake import MessageIntake, ReceivedRecord
from iii_runtime.adapters.aws.message_posting import MessagePosting
from iii_runtime.adapters.aws.queue_counts import count_messages
from iii_runtime.adapters.aws.queue_parts import QueueParts
from iii_runtime.adapters.aws.receipts import Receipts, Receive
from iii_runtime.core.delivery import MessageItem, decide_standing
from iii_runtime.core.errors import StoreError
from iii_runtime.core.letter import Death
from iii_runtime.core.message import Cause, ErrorRecord
from iii_runtime.core.queue import QueueSpec
from iii_runtime.ports.message_queue import Delivery, OutgoingMessage, QueueDepth

__all__ = ["ReceivedRecord", "SqsMessageQueue"]

_log = logging.getLogger("iii_runtime.queue")
_MAX_RECEIVE = 10


class SqsMessageQueue:
    """The messages of all queues, each received at least once.

    It differs from other queues in what SQS cannot do:

    - `send_all` is not all or none. What returns was stored; after an error any of the messages may have been.
    - A lease is SQS's visibility: an older receive of a standard queue may still end the message, and `False` is only
      returned where SQS notices. `hide` gives a message back without an attempt, but SQS counts the receive.
    - A failure is recorded before the message is hidden; if the handle is lost by then, the attempt counts anyway.
    - `depth` is SQS's estimate, but for the dead letters; a message in its back-off counts as in flight.

    Attributes:
        settled: Receipt handles (`ReceivedRecord.handle`) of the messages that are to be removed, if this queue does
            not remove them itself: whoever does, reports all others as failed, and clears the set.
    """

    def __init__(
        self, parts: QueueParts, *, queues: Callable[[], Mapping[str, QueueSpec]], deletes: bool = True
    ) -> None:
        """Use the queues of a deployment.

        Args:
            parts: What the queues share.
            queues: The app's queues by name; asked when needed.
            deletes: Whether an acknowledgement deletes the message; else it enters `settled`.
        """
        self._parts = parts
        self._clients, self._clock = parts.clients, parts.clock
        self._items, self._deaths = parts.items, parts.deaths
        self._queues = queues
        self._receipts = Receipts(parts.clients, parts.clock, deletes=deletes)
        self.settled = self._receipts.settled
        self._posting = MessagePosting(parts.deployment, parts.sender, DedupeIds(parts.table, parts.clock))
        self._intake = MessageIntake(parts, self._receipts)

    async def prepare(self, queue: QueueSpec) -> None:
        """Do nothing: a deployment never changes the kind of an SQS queue."""

    async def send(self, queue: QueueSpec, messages: Sequence[OutgoingMessage]) -> list[str]:
        """Do what `send_all` does, for messages of one queue."""
        return await self.send_all([(queue, message) for message in messages])

    async def send_all(self, messages: Sequence[tuple[QueueSpec, OutgoingMessage]]) -> list[str]:
        """Send messages, each to its queue, in order within each queue and group, and return their receipts.

        A repeated `dedupe_id` costs no message; its first sender may have died before the send, then this one sends
        under the receipt that was reserved.

        Raises:
            StoreError: See `failures`. Any of the messages may have been accepted.
        """
        return await self._posting.send_all(messages)

    async def receive(self, queue: QueueSpec, limit: int, lease: timedelta) -> list[Delivery]:
        """Receive up to `limit` messages, each under a visibility time-out of `lease`. Does not wait for any.

        A Lambda is handed its messages and calls `take` instead.
        """
        deliveries: list[Delivery] = []
        while len(deliveries) < limit:
            # SQS may hand out several of a group at once; one by one, the next waits for the end of the first.
            wanted = 1 if queue.is_ordered else min(limit - len(deliveries), _MAX_RECEIVE)
            records = await self._intake.receive(queue, wanted, lease)
            if not records:
                break
            for record in records:
                delivery = await self.take(queue, record)
                deliveries += [] if delivery is None else [delivery]
        return deliveries

    async def take(self, queue: QueueSpec, record: ReceivedRecord) -> Delivery | None:
        """Return what is to be done for a received message, None if nothing is.

        The first receive of a message that was never redriven reads nothing; its attempt is the first. A later one
        reads the item: a copy whose generation is over is acknowledged, a death is completed, a redriven message claims
        its generation, and one that comes before its back-off has passed is hidden again. A body that is no envelope is
        returned as it is, with SQS's message id as its receipt.

        Raises:
            StoreError: See `failures`. The message comes back when its visibility ends.
        """
        return await self._intake.take(queue, record)

    async def next_due_ms(self, queue: QueueSpec) -> int | None:
        """Return None: SQS does not tell when a message becomes visible."""
        return None

    async def extend(self, deliveries: Sequence[Delivery], lease: timedelta) -> None:
        """Renew the visibility time-outs, to at most 12 hours after the receive."""
        for delivery in deliveries:
            await self.hide(delivery, lease)

    async def acknowledge(self, delivery: Delivery) -> bool:
        """Remove the message for good, or note that it is to be removed. False if SQS says that the lease is lost."""
        return await self._receipts.settle(self._url(delivery.queue), Receive.decode(delivery.handle).raw)

    async def hide(self, delivery: Delivery, delay: timedelta) -> bool:
        """Make the message visible again after `delay`, without an attempt; the receive counts. False: lease lost."""
        receive = Receive.decode(delivery.handle)
        return await self._receipts.hide(self._url(delivery.queue), receive.raw, delay, receive.received_ms)

    async def fail(self, delivery: Delivery, error: ErrorRecord, retry_after: timedelta) -> bool:
        """Record the failed attempt once, then hide the message for its back-off.

        False if the message was over already (then it is acknowledged), or its lease is lost. A refusal of the second
        step is logged: the message then comes back when the visibility of its queue ends, not before its back-off.
        """
        not_before_ms = self._clock.now_ms() + retry_after // timedelta(milliseconds=1)
        refused = await self._items.record_failure(
            delivery.receipt, delivery.generation, delivery.attempt, error, not_before_ms
        )
        standing = "recorded" if refused is None else decide_standing(refused.item, delivery.generation)
        if standing == "unknown":
            return False
        if refused is not None and standing != "recorded":
            await self._end(delivery, refused.item if standing == "dead" else None)
            return False
        try:
            return await self.hide(delivery, retry_after)
        except StoreError as problem:
            fields = {"queue": delivery.queue, "message_receipt_id": delivery.receipt, "error": problem.message}
            _log.warning("recorded a failed attempt, could not set its back-off", extra={"iii": fields})
            return True

    async def bury(self, delivery: Delivery, cause: Cause, error: ErrorRecord, attempts: int) -> bool:
        """Make the message a dead letter: its item, then the dead-letter queue, then the acknowledgement.

        Repeated, it goes on where it was interrupted. False if the message was over already; then it is acknowledged.
        """
        death = Death(
            receipt=delivery.receipt,
            queue=delivery.queue,
            generation=delivery.generation,
            token=self._parts.ids.new_id(),
            cause=cause,
            error=error,
            attempts=attempts,
            receives=delivery.receives,
            first_ms=Receive.decode(delivery.handle).first_ms,
            failed_ms=self._clock.now_ms(),
        )
        item, letter = await self._deaths.record(death, delivery.body, error if attempts >= delivery.attempt else None)
        standing = decide_standing(item, delivery.generation)
        if standing in {"unknown", "recorded"}:
            return False
        await self._end(delivery, item if standing == "dead" else None, letter)
        return standing == "dead"

    async def release_all(self) -> int:
        """Return 0: SQS ends the leases of a host that died by itself."""
        return 0

    async def depth(self, queue_name: str) -> QueueDepth:
        """Return SQS's estimates, and the exact number of dead letters; zeros for a queue that is not the app's."""
        queue = self._queues().get(queue_name)
        if queue is None:
            return QueueDepth(visible=0, delayed=0, in_flight=0, dead=0)
        source = await count_messages(self._clients, self._parts.url(queue), self._clock)
        letters = await count_messages(self._clients, self._parts.letter_url(queue), self._clock)
        return QueueDepth(
            visible=source.visible,
            delayed=source.delayed,
            in_flight=source.in_flight,
            dead=await self._parts.letters.count(queue_name),
            is_exact=False,
            letters_visible=letters.visible,
        )

    async def purge(self, queue_name: str) -> int:
        """Delete all messages of a queue, those in flight too; return SQS's estimate of how many were waiting.

        SQS does it within a minute, and refuses a second purge in that time. A message that is sent in that minute may
        go too. Dead letters stay.

        Raises:
            StoreError: `store_throttled`: the last purge was less than a minute ago; else see `failures`.
        """
        queue = self._queues().get(queue_name)
        if queue is None:
            return 0
        url = self._parts.url(queue)
        counts = await count_messages(self._clients, url, self._clock)
        try:
            await with_retries(
                lambda: self._clients.sqs.purge_queue(QueueUrl=url), clock=self._clock, where=f"queue {queue_name}"
            )
        except ServiceError as error:
            # The purge in progress is this one, if the reply to it was lost.
            if not (error.may_be_done and error.failure.aws_code == "PurgeQueueInProgress"):
                raise
        return counts.visible + counts.delayed

    async def queue_names(self) -> list[str]:
        """Return the sorted names of the app's queues, also of the empty ones. Asks nobody."""
        return sorted(self._queues())

    async def _end(self, delivery: Delivery, dead: MessageItem | None, letter: str | None = None) -> None:
        """Put the letter of a message that is dead, and acknowledge it."""
        queue = self._spec(delivery.queue)
        if dead is not None:
            await self._deaths.put(queue, delivery.receipt, dead, letter)
        await self.acknowledge(delivery)

    def _spec(self, queue_name: str) -> QueueSpec:
        queue = self._queues().get(queue_name)
        if queue is None:
            raise StoreError(f"queue '{queue_name}' is none of the app's. Deploy it again.", code="store_missing")
        return queue

    def _url(self, queue_name: str) -> str:
        return self._parts.url(self._spec(queue_name))
