"""Brings dead-letter queues in line with the items: what SQS has moved by itself gets an item, spent letters go.

Each step can be repeated, and needs no lock. Nothing is deleted that no item knows: it is adopted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from iii_runtime.adapters.aws.failures import with_retries
from iii_runtime.adapters.aws.linked_text import linked_text
from iii_runtime.adapters.aws.look_schedule import LookSchedule
from iii_runtime.adapters.aws.queue_counts import count_messages
from iii_runtime.adapters.aws.queue_parts import QueueParts
from iii_runtime.adapters.aws.receipts import Receipts
from iii_runtime.core.delivery import Incoming, MessageItem, decide_letter, linked_incoming, read_incoming
from iii_runtime.core.errors import IiiError, StoreError
from iii_runtime.core.letter import DAMAGES, Death, compose_letter, damage_of
from iii_runtime.core.letter_transport import REDRIVE_MARK, read_member, with_token
from iii_runtime.core.message import bounded_error
from iii_runtime.core.queue import QueueSpec

if TYPE_CHECKING:
    from mypy_boto3_sqs.type_defs import MessageTypeDef

_log = logging.getLogger("iii_runtime.queue")

HOLD = timedelta(seconds=60)
"""How long letters are held while a queue is looked through."""

LIMIT = timedelta(seconds=20)
"""How long one queue is looked through at most."""


@dataclass(slots=True, kw_only=True)
class Reconciled:
    """What was done with the letters of one queue.

    Attributes:
        kept: Letters that stay.
        adopted: Messages that have become listed letters.
        deleted: Letters that were spent, or had another copy.
        receipts: Of those adopted: the index may not list them yet.
    """

    kept: int = 0
    adopted: int = 0
    deleted: int = 0
    receipts: list[str] = field(default_factory=list, compare=False)


@dataclass(slots=True)
class _Look:
    """One look through a dead-letter queue.

    Attributes:
        queue: Whose.
        url: Of the dead-letter queue.
        seen: Message id of the letter that stays, by receipt and generation.
        held: Messages to give back at the end: given back at once they would come again.
    """

    queue: QueueSpec
    url: str
    result: Reconciled = field(default_factory=Reconciled)
    seen: dict[tuple[str, int], str] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A message on a dead-letter queue.

    Attributes:
        incoming: What its body says.
        letter: The body, or the letter it links to.
        is_native: Whether SQS moved it there by itself.
    """

    incoming: Incoming
    letter: str
    is_native: bool


class Reconciler:
    """Looks through the dead-letter queues of a deployment."""

    def __init__(self, parts: QueueParts, *, wait_s: int = 1) -> None:
        """Use the letters of a deployment; wait for `wait_s` whole seconds before a queue counts as empty."""
        self._parts = parts
        self._clock, self._items, self._deaths = parts.clock, parts.items, parts.deaths
        self._wait_s = wait_s
        self._receipts = Receipts(parts.clients, parts.clock, deletes=True)
        self._schedule = LookSchedule()

    async def sweep(self, queues: Iterable[QueueSpec]) -> dict[str, Reconciled]:
        """Reconcile the queues whose list and dead-letter queue differ now and at the last sweep; return what was done.

        A difference that is there once is most often a letter on its way. One queue in each sweep is looked through
        because the last time was long ago, see `look_schedule`: counts that agree may hide a message that SQS has moved
        by itself. Called each minute by one host.

        Raises:
            StoreError: See `failures`.
        """
        done: dict[str, Reconciled] = {}
        may_be_old = True
        for queue in queues:
            counts = await count_messages(self._parts.clients, self._parts.letter_url(queue), self._clock)
            sent, listed = (
                counts.visible + counts.delayed + counts.in_flight,
                await self._parts.letters.count(queue.name),
            )
            reason = self._schedule.reason(queue.name, sent, listed, self._clock.now())
            if reason == "news" or (reason == "age" and may_be_old):
                may_be_old = may_be_old and reason == "news"
                self._schedule.looked(queue.name, self._clock.now())
                done[queue.name] = await self.reconcile(queue)
        return done

    async def reconcile(self, queue: QueueSpec) -> Reconciled:
        """Look through the dead-letter queue of `queue`, until it is empty or `LIMIT` has passed.

        Raises:
            StoreError: See `failures`. What was held comes back after `HOLD`.
        """
        look = _Look(queue, self._parts.letter_url(queue))
        ends = self._clock.now() + LIMIT
        while messages := await self._receive(look.url):
            for message in messages:
                await self._settle_or_hold(look, message)
            if self._clock.now() >= ends:
                break
        received_ms = self._clock.now_ms()
        for handle in look.held:
            await self._receipts.hide(look.url, handle, timedelta(0), received_ms)
        return look.result

    async def _settle_or_hold(self, look: _Look, message: MessageTypeDef) -> None:
        """Settle a message; one whose item or text is damaged stays, and holds up no other."""
        try:
            await self._settle(look, message)
        except (IiiError, ValueError) as error:
            if isinstance(error, StoreError) and error.code not in DAMAGES:
                raise
            damage = damage_of(error)
            fields = {"queue": look.queue.name, "message_id": message["MessageId"], "error": damage.message}
            _log.error("a dead letter cannot be reconciled", extra={"iii": {**fields, "code": damage.code}})
            self._hold(look, message)

    async def _settle(self, look: _Look, message: MessageTypeDef) -> None:
        found = await self._read(look.queue, message)
        if found.incoming.is_newer:
            self._hold(look, message)
            return
        try:
            item = await self._items.read(found.incoming.receipt)
        except StoreError as error:
            if error.code in DAMAGES and found.is_native:
                died = self._clock.now_ms() * 1000
                await self._items.list_damaged(found.incoming.receipt, look.queue.name, died)
            raise
        fate = decide_letter(item, found.incoming, is_native=found.is_native)
        if fate == "keep":
            await self._keep(look, message, found.incoming)
        elif fate == "adopt":
            await self._adopt(look, message, found, item)
        elif fate == "replace" and item is not None:
            await self._replace(look, message, found.incoming.receipt, item)
        else:
            await self._delete(look, message)

    async def _read(self, queue: QueueSpec, message: MessageTypeDef) -> _Found:
        incoming, letter = read_incoming(message["Body"], message["MessageId"], queue), message["Body"]
        if incoming.linked is not None:
            letter = with_token(await linked_text(self._parts.blobs, incoming.linked), incoming.token or "")
            incoming = linked_incoming(incoming, letter, queue)
        is_native = (
            incoming.generation == 0
            or "DeadLetterQueueSourceArn" in message["Attributes"]
            or (incoming.token or "").startswith(REDRIVE_MARK)
        )
        return _Found(incoming=incoming, letter=letter, is_native=is_native)

    async def _keep(self, look: _Look, message: MessageTypeDef, incoming: Incoming) -> None:
        """Let one letter of each generation stay; where there are more, one of them was put twice."""
        key = (incoming.receipt, incoming.generation - 1)
        if look.seen.setdefault(key, message["MessageId"]) == message["MessageId"]:
            self._hold(look, message)
        else:
            await self._delete(look, message)

    async def _adopt(self, look: _Look, message: MessageTypeDef, found: _Found, item: MessageItem | None) -> None:
        """Write the item of a message that has none, or an older one; of a native move then put the letter too."""
        incoming = found.incoming
        told = None if found.is_native else _told_death(found, look.queue)
        death = told or self._native_death(look.queue, message, incoming, item)
        letter = found.letter if told is not None else compose_letter(incoming.body, death).text
        adopted = await self._deaths.adopt(death, letter, item, None if told is not None else incoming.token)
        if adopted is None:  # the item has changed meanwhile: next time
            self._hold(look, message)
            return
        look.result.adopted += 1
        look.result.receipts.append(death.receipt)
        _log.error(
            "dead letter",
            extra={
                "iii": {
                    "queue": look.queue.name,
                    "message_receipt_id": death.receipt,
                    "cause": death.cause,
                    "error": f"{death.error.type}: {death.error.message}",
                }
            },
        )
        if told is None:
            await self._replace(look, message, death.receipt, adopted)
        else:
            await self._keep(look, message, incoming)

    async def _replace(self, look: _Look, message: MessageTypeDef, receipt: str, item: MessageItem) -> None:
        """Put the letter of the item in place of what SQS has moved."""
        if (receipt, item.generation) not in look.seen:
            await self._deaths.put(look.queue, receipt, item)
        await self._receipts.settle(look.url, message["ReceiptHandle"])

    async def _delete(self, look: _Look, message: MessageTypeDef) -> None:
        look.result.deleted += 1
        await self._receipts.settle(look.url, message["ReceiptHandle"])

    def _hold(self, look: _Look, message: MessageTypeDef) -> None:
        look.result.kept += 1
        look.held.append(message["ReceiptHandle"])

    def _native_death(
        self, queue: QueueSpec, message: MessageTypeDef, incoming: Incoming, item: MessageItem | None
    ) -> Death:
        attributes = message["Attributes"]
        receives = max(int(attributes["ApproximateReceiveCount"]) - 1, 0)
        told = (
            f"SQS moved the message to the dead-letter queue after {receives} receives: each time its consumer was "
            "busy, or died before it could say how it went."
        )
        is_same = item is not None and item.generation == incoming.generation
        return Death(
            receipt=incoming.receipt,
            queue=queue.name,
            generation=incoming.generation,
            token=self._parts.ids.new_id(),
            cause="native",
            error=bounded_error("Interrupted", told),
            attempts=item.failed if item is not None and is_same else 0,
            receives=receives,
            first_ms=int(attributes["SentTimestamp"]) if incoming.first_ms is None else incoming.first_ms,
            failed_ms=self._clock.now_ms(),
        )

    async def _receive(self, url: str) -> list[MessageTypeDef]:
        answer = await with_retries(
            lambda: self._parts.clients.sqs.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=10,
                VisibilityTimeout=HOLD // timedelta(seconds=1),
                WaitTimeSeconds=self._wait_s,
                MessageSystemAttributeNames=["ApproximateReceiveCount", "SentTimestamp", "DeadLetterQueueSourceArn"],
            ),
            clock=self._clock,
            where=f"queue {url.rsplit('/', 1)[-1]}",
        )
        return answer.get("Messages", [])


def _told_death(found: _Found, queue: QueueSpec) -> Death | None:
    """Return the death that a letter tells of."""
    member = read_member(found.letter)
    if member is None:
        return None
    return Death(
        receipt=found.incoming.receipt,
        queue=queue.name,
        generation=member.generation,
        token=member.token,
        cause=member.cause,
        error=member.error,
        attempts=member.attempts,
        receives=member.receives,
        first_ms=member.first_ms,
        failed_ms=member.failed_ms,
    )
