"""What a received message comes to: a delivery, or nothing because its item says that it is over or too early."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from iii_runtime.adapters.aws.failures import with_retries
from iii_runtime.adapters.aws.linked_text import linked_text
from iii_runtime.adapters.aws.message_sender import Post, deduplication_id, sqs_word
from iii_runtime.adapters.aws.queue_parts import QueueParts
from iii_runtime.adapters.aws.receipts import Receipts, Receive
from iii_runtime.core.delivery import (
    Attempt,
    Claim,
    FinishDeath,
    Incoming,
    MessageItem,
    NextStep,
    Wait,
    decide_step,
    linked_incoming,
    read_incoming,
)
from iii_runtime.core.queue import QueueSpec
from iii_runtime.core.regroup import regroup
from iii_runtime.ports.message_queue import Delivery

if TYPE_CHECKING:
    from mypy_boto3_sqs.type_defs import MessageTypeDef


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRecord:
    """A message as SQS hands it out, by a receive or in a Lambda event.

    Attributes:
        message_id: SQS's id of the message.
        handle: SQS's receipt handle.
        body: The body.
        receives: `ApproximateReceiveCount`, this receive included.
        group: `MessageGroupId`, None on a standard queue.
        sent_ms: `SentTimestamp`.
        received_ms: When it was received, or earlier: SQS counts the 12 hours of a visibility from there.
        waited: How long before it was handed over here it had been received; None if nobody knows.
    """

    message_id: str
    handle: str
    body: str
    receives: int
    group: str | None
    sent_ms: int
    received_ms: int
    waited: timedelta | None = None


class MessageIntake:
    """Looks at received messages, and settles those that are not to be handled."""

    def __init__(self, parts: QueueParts, receipts: Receipts) -> None:
        self._parts = parts
        self._clock, self._items = parts.clock, parts.items
        self._receipts = receipts

    async def receive(self, queue: QueueSpec, limit: int, lease: timedelta) -> list[ReceivedRecord]:
        """Ask SQS for up to `limit` messages, 1 to 10, without waiting for any.

        Raises:
            StoreError: See `failures`.
        """
        url = self._parts.url(queue)
        answer = await with_retries(
            lambda: self._parts.clients.sqs.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=limit,
                VisibilityTimeout=-(-lease // timedelta(seconds=1)),
                WaitTimeSeconds=0,
                MessageSystemAttributeNames=["ApproximateReceiveCount", "SentTimestamp", "MessageGroupId"],
            ),
            clock=self._clock,
            where=f"queue {queue.name}",
        )
        now_ms = self._clock.now_ms()
        return [received_record(message, now_ms) for message in answer.get("Messages", [])]

    async def take(self, queue: QueueSpec, record: ReceivedRecord) -> Delivery | None:
        """Return what to handle; see `SqsMessageQueue.take`."""
        incoming = read_incoming(record.body, record.message_id, queue)
        if incoming.linked is not None:
            incoming = linked_incoming(incoming, await linked_text(self._parts.blobs, incoming.linked), queue)
        if incoming.is_newer or (incoming.generation == 0 and record.receives <= 1):
            return _delivery(queue, record, incoming, 1)
        if await self._is_regrouped(queue, record, incoming):
            return None
        item = await self._items.read(incoming.receipt)
        while True:  # an item only goes forward, so that a refused claim is decided by what is there now
            step = decide_step(item, incoming, self._clock.now_ms())
            if isinstance(step, Attempt):
                return _delivery(queue, record, incoming, step.number)
            if not isinstance(step, Claim):
                await self._leave(queue, record, incoming, step, item)
                return None
            refused = await self._items.claim(incoming.receipt, incoming.generation, incoming.token or "")
            if refused is None:
                return _delivery(queue, record, incoming, 1)
            item = refused.item

    async def _leave(
        self, queue: QueueSpec, record: ReceivedRecord, incoming: Incoming, step: NextStep, item: MessageItem | None
    ) -> None:
        """Hide a message that is early, complete a death, remove a copy."""
        if isinstance(step, Wait):
            delay = timedelta(milliseconds=step.until_ms - self._clock.now_ms())
            await self._receipts.hide(self._parts.url(queue), record.handle, delay, record.received_ms)
            return
        if isinstance(step, FinishDeath) and item is not None:
            await self._parts.deaths.put(queue, incoming.receipt, item)
        await self._receipts.settle(self._parts.url(queue), record.handle)

    async def _is_regrouped(self, queue: QueueSpec, record: ReceivedRecord, incoming: Incoming) -> bool:
        """Send a redriven message again if it came under another group than its own; a redrive by hand does that.

        Run in another group it would break the order of its own.
        """
        group = own_group(queue, incoming)
        if incoming.generation == 0 or group is None or record.group in {None, group}:
            return False
        name = deduplication_id(incoming.receipt, incoming.generation, sqs_word(incoming.token or ""))
        await self._parts.sender.send(
            self._parts.url(queue), [Post(body=record.body, group=group, deduplication_id=name)]
        )
        await self._receipts.settle(self._parts.url(queue), record.handle)
        return True


def received_record(message: MessageTypeDef, received_ms: int) -> ReceivedRecord:
    """Return a message of a `ReceiveMessage` answer, which was asked for these attributes."""
    attributes = message["Attributes"]
    return ReceivedRecord(
        message_id=message["MessageId"],
        handle=message["ReceiptHandle"],
        body=message["Body"],
        receives=int(attributes["ApproximateReceiveCount"]),
        group=attributes.get("MessageGroupId"),
        sent_ms=int(attributes["SentTimestamp"]),
        received_ms=received_ms,
    )


def own_group(queue: QueueSpec, incoming: Incoming) -> str | None:
    """Return the message group a message belongs to; None on a queue that keeps no order."""
    group = regroup(incoming.body, incoming.receipt, queue)
    return None if group is None else sqs_word(group)


def _delivery(queue: QueueSpec, record: ReceivedRecord, incoming: Incoming, attempt: int) -> Delivery:
    first_ms = record.sent_ms if incoming.first_ms is None else incoming.first_ms
    receive = Receive(raw=record.handle, received_ms=record.received_ms, first_ms=first_ms)
    return Delivery(
        receipt=incoming.receipt,
        queue=queue.name,
        body=incoming.body,
        generation=incoming.generation,
        attempt=attempt,
        receives=record.receives,
        handle=receive.encode(),
        group=record.group if queue.is_ordered else None,
    )
