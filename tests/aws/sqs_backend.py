"""SQS inside moto, made faithful: moto keeps the wire format and SNS, the messages follow the rules of AWS.

What moto 5.2.5 does otherwise, and a delivery protocol would not notice or would stumble over:

- A message becomes visible one tick after its time: on a clock that stands still at that very instant, never.
- The 12 hours of visibility are counted from the send. AWS counts them from the receive.
- FIFO deduplication looks only at messages that are still in the queue, and across groups when the scope is the group.
  AWS remembers ids for five minutes, also of deleted messages.
- A used handle ends any later receive of its message. On AWS only the newest one does.
- ChangeMessageVisibility works on messages that nobody holds. AWS answers `MessageNotInflight`.
- Sizes are counted in characters; characters that XML cannot hold are accepted.
- A received message is looked for from the front, so receives are in the order of sends, not of becoming visible.
- A message that SQS moved to a dead-letter queue does not say from where (`DeadLetterQueueSourceArn`).
- StartMessageMoveTask does not exist; `FaithfulSqs.move_back` stands for it.
- A long poll on an empty queue waits in real time.

Delivery to a Lambda, which moto does inside `SendMessage`, is not used: see `event_sources`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
from moto.core.responses import ActionResult
from moto.moto_api._internal import mock_random
from moto.sqs import urls
from moto.sqs.exceptions import InvalidParameterValue, SQSException
from moto.sqs.models import DEFAULT_SENDER_ID, Message, Queue, SQSBackend, sqs_backends
from moto.sqs.responses import SQSResponse

from tests.aws.sqs_queue import FaithfulMessage, FaithfulQueue

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class SourceUnknownError(Exception):
    """A task to move messages has failed, with this reason: somebody else than SQS has put one there."""

    def __init__(self, letters_name: str, body: str) -> None:
        super().__init__(f"CouldNotDetermineMessageSource: {letters_name}: {body:.200}")


class FaithfulSqs(SQSBackend):
    """moto's backend of SQS over `FaithfulQueue`."""

    @property
    def _url_module(self) -> ModuleType:
        return urls

    def create_queue(self, name: str, tags: dict[str, str] | None = None, **attributes: Any) -> Queue:
        """Create a queue; one that exists is returned if its attributes are the same."""
        if name in self.queues:
            return super().create_queue(name, tags, **attributes)
        attributes.pop("region", None)
        queue = FaithfulQueue(name, self.region_name, self.account_id, **attributes)
        queue.tags = tags or {}
        self.queues[name] = queue
        return queue

    def queue(self, name: str) -> FaithfulQueue:
        """Return a queue."""
        queue = self.get_queue(name)
        if not isinstance(queue, FaithfulQueue):
            raise TypeError(f"queue {name} was created before SQS was made faithful")
        return queue

    def send_message(  # moto's own signature
        self,
        queue_name: str,
        message_body: str,
        message_attributes: dict[str, Any] | None = None,
        delay_seconds: int | None = None,
        deduplication_id: str | None = None,
        group_id: str | None = None,
        system_attributes: dict[str, Any] | None = None,
        validate_group_id: bool = True,
    ) -> Message:
        """Accept a message."""
        queue = self.queue(queue_name)
        delay_s = int(queue.delay_seconds if delay_seconds is None else delay_seconds)
        self._validate_message(queue, message_body, int(delay_seconds or 0), deduplication_id, group_id)
        if _NOT_XML.search(message_body):
            raise SQSException("InvalidMessageContents", "Invalid characters found in the message body.")
        if len(message_body.encode()) > queue.maximum_message_size:
            raise InvalidParameterValue(f"Message must be shorter than {queue.maximum_message_size} bytes.")
        if not 0 <= delay_s <= 900:
            raise InvalidParameterValue(f"Value {delay_s} for parameter DelaySeconds is invalid.")
        message = FaithfulMessage(str(mock_random.uuid4()), message_body, system_attributes)
        message.sender_id = DEFAULT_SENDER_ID
        message.group_id = group_id
        message.deduplication_id = deduplication_id
        message.message_attributes = message_attributes or {}
        message.sequence_number = f"{next(queue.numbers):020d}" if queue.fifo_queue else None
        message.mark_sent(delay_seconds=delay_s)
        return queue.add(message)

    def receive_message(
        self,
        queue_name: str,
        count: int,
        wait_seconds_timeout: int,
        visibility_timeout: int,
        message_attribute_names: list[str] | None = None,
    ) -> list[Message]:
        """Receive at once; there is no waiting."""
        return [*self.queue(queue_name).receive(count, visibility_timeout)]

    def delete_message(self, queue_name: str, receipt_handle: str) -> None:
        """Delete a message."""
        self.queue(queue_name).remove(receipt_handle)

    def change_message_visibility(self, queue_name: str, receipt_handle: str, visibility_timeout: int) -> None:
        """Hide a message that is in flight."""
        self.queue(queue_name).hide(receipt_handle, int(visibility_timeout))

    def purge_queue(self, queue_name: str) -> None:
        """Delete all messages."""
        self.queue(queue_name).purge()

    def move_back(
        self, letters_name: str, destination: str | None, *, limit: int | None = None, leave_copies: bool = False
    ) -> int:
        """Do what StartMessageMoveTask does with the messages of a dead-letter queue; return how many were moved.

        Each is a new message: its identity is new, and its receives count from 0.

        Args:
            letters_name: The dead-letter queue.
            destination: The queue they are sent to; by default that which SQS has moved each of them from.
            limit: How many at most; all by default.
            leave_copies: Whether they stay.

        Raises:
            SourceUnknownError: There is no destination, and SQS has not moved this message itself. Those before it are
                moved.
        """
        letters = self.queue(letters_name)
        moved = letters.held[:limit]
        for message in moved:
            if destination is None and message.moved_from is None:
                raise SourceUnknownError(letters_name, message.body)
            self.send_message(
                destination or str(message.moved_from).rpartition(":")[2],
                message.body,
                group_id=message.group_id,
                deduplication_id=message.deduplication_id and f"move-{mock_random.uuid4()}",
            )
            if not leave_copies:
                letters.held.remove(message)
        return len(moved)


@contextmanager
def faithful_sqs() -> Iterator[None]:
    """Let moto's SQS follow the rules of AWS. Inside `mock_aws`, before any queue is created."""
    receive = SQSResponse.receive_message
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqs_backends, "backend", FaithfulSqs)
        patch.setattr(SQSResponse, "receive_message", lambda response: _with_origins(response, receive(response)))
        sqs_backends.clear()
        yield
    sqs_backends.clear()


def sqs_of(account: str, region: str) -> FaithfulSqs:
    """Return the faithful backend of one account and region."""
    backend = sqs_backends[account][region]
    if not isinstance(backend, FaithfulSqs):
        raise TypeError("SQS is not faithful; use `faithful_sqs`")
    return backend


def _with_origins(response: SQSResponse, answer: ActionResult) -> ActionResult:
    wanted = response._get_param("MessageSystemAttributeNames", []) + response._get_param("AttributeNames", [])
    if not {"All", "DeadLetterQueueSourceArn"} & set(wanted):
        return answer
    queue = response.sqs_backend.get_queue(response._get_queue_name())
    told: Any = answer.result
    for shown in told.get("Messages", []):
        message = queue.by_handle(shown["ReceiptHandle"]) if isinstance(queue, FaithfulQueue) else None
        if message is not None and message.moved_from is not None:
            shown.setdefault("Attributes", {})["DeadLetterQueueSourceArn"] = message.moved_from
    return answer
