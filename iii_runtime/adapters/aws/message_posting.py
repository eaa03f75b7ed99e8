"""Enqueued messages on their way to SQS: each under its receipt, and a repeated `dedupe_id` only once."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from iii_runtime.adapters.aws.dedupe_ids import DedupeIds, Reservation, body_under
from iii_runtime.adapters.aws.message_sender import MessageSender, Post, deduplication_id, sqs_word
from iii_runtime.core.errors import StoreError
from iii_runtime.core.queue import QueueSpec
from iii_runtime.plan.names import Deployment
from iii_runtime.ports.message_queue import OutgoingMessage

_log = logging.getLogger("iii_runtime.queue")


class MessagePosting:
    """Sends messages to the queues of a deployment."""

    def __init__(self, deployment: Deployment, sender: MessageSender, dedupe: DedupeIds) -> None:
        self._deployment = deployment
        self._sender = sender
        self._dedupe = dedupe

    async def send_all(self, messages: Sequence[tuple[QueueSpec, OutgoingMessage]]) -> list[str]:
        """Send messages and return their receipts; see `SqsMessageQueue.send_all`."""
        posts: dict[str, list[Post]] = {}
        reserved: dict[tuple[str, str, str], Reservation] = {}
        unsent: list[Reservation] = []
        receipts: list[str] = []
        for queue, message in messages:
            receipt, is_sent = message.receipt, False
            if message.dedupe_id is not None:
                name = (queue.name, message.function_id, message.dedupe_id)
                is_sent = name in reserved
                if not is_sent:
                    reserved[name] = await self._dedupe.reserve(queue.name, message)
                    is_sent = reserved[name].is_sent
                    unsent += [] if is_sent else [reserved[name]]
                receipt = reserved[name].receipt
            receipts.append(receipt)
            if not is_sent:
                posts.setdefault(self._url(queue), []).append(_post(queue, message, receipt))
        for url, waiting in posts.items():
            await self._sender.send(url, waiting)
        for reservation in unsent:
            await self._confirm(reservation)
        return receipts

    async def _confirm(self, reservation: Reservation) -> None:
        try:
            await self._dedupe.confirm(reservation)
        except StoreError as error:
            # The message is accepted. A repetition with the same id is sent too, under the same receipt.
            fields = {"message_receipt_id": reservation.receipt, "error": error.message}
            _log.warning("sent, could not confirm the dedupe_id", extra={"iii": fields})

    def _url(self, queue: QueueSpec) -> str:
        return self._deployment.queue_url(self._deployment.queue_name(queue))


def _post(queue: QueueSpec, message: OutgoingMessage, receipt: str) -> Post:
    return Post(
        body=body_under(message, receipt),
        delay_s=-(-message.delay_ms // 1000),
        group=sqs_word(message.group or receipt) if queue.is_ordered else None,
        deduplication_id=deduplication_id(receipt, 0) if queue.is_ordered else None,
    )
