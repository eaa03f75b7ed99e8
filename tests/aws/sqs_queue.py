"""One SQS queue by the rules of AWS: visibility, groups, deduplication, the move to the dead-letter queue.

See `sqs_backend` for what moto does otherwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from moto.core.utils import unix_time_millis
from moto.sqs.exceptions import InvalidParameterValue, SQSException
from moto.sqs.models import Message, Queue
from moto.sqs.utils import generate_receipt_handle

MAX_VISIBILITY_MS = 43_200_000
DEDUPLICATION_MS = 300_000


class NotInFlightError(SQSException):
    """Nobody holds the message: its visibility has ended, or it was given back."""

    def __init__(self) -> None:
        super().__init__("MessageNotInflight", "The specified message is not in flight.")


class HandleExpiredError(SQSException):
    """The same on a FIFO queue."""

    def __init__(self) -> None:
        super().__init__("InvalidParameterValue", "Reason: The receipt handle has expired.")


class FaithfulMessage(Message):
    """A message with the times of its send and of its newest receive, Unix milliseconds.

    Attributes:
        received_ms: When it was last received.
        moved_from: ARN of the queue that SQS moved it from, on a dead-letter queue.
        user_id: Its name in a batch.
    """

    received_ms = 0
    moved_from: str | None = None
    user_id = ""

    @property
    def sent_ms(self) -> int:
        """When it was sent."""
        stamp: int | None = self.__dict__["sent_timestamp"]
        return stamp or 0

    def is_in_flight(self, now_ms: int) -> bool:
        """Return whether somebody holds it."""
        return self.receipt_handle is not None and self.visible_at > now_ms

    def is_due(self, now_ms: int) -> bool:
        """Return whether it can be received, apart from its group."""
        return self.visible_at <= now_ms and self.delayed_until <= now_ms

    def due_ms(self) -> int:
        """Return when it became, or becomes, receivable."""
        return int(max(self.visible_at, self.delayed_until, self.sent_ms))


class FaithfulQueue(Queue):
    """The messages of one queue, oldest send first.

    Attributes:
        held: The messages.
        numbers: Sequence numbers of a FIFO queue.
        on_change: Called after each receive, each removal, and each move to the dead-letter queue.
    """

    # Set by moto, by name, from the attributes of the queue.
    deduplication_scope: str
    delay_seconds: int
    maximum_message_size: int
    message_retention_period: int
    visibility_timeout: int

    def __init__(self, name: str, region: str, account_id: str, **attributes: Any) -> None:
        super().__init__(name, region, account_id, **attributes)
        self.held: list[FaithfulMessage] = []
        self.numbers = itertools.count(1)
        self.on_change: Callable[[], None] = lambda: None
        self._seen: dict[tuple[str | None, str], tuple[int, FaithfulMessage]] = {}

    @classmethod
    def is_created(cls, *_arguments: Any) -> bool:
        """Say that CloudFormation, which is not used, has created it."""
        return True

    @property
    def max_receives(self) -> int | None:
        """`maxReceiveCount` of the redrive policy."""
        policy = self.redrive_policy
        return None if policy is None else int(policy["maxReceiveCount"])

    @property
    def messages(self) -> list[Message]:
        """Every visible message; what `ApproximateNumberOfMessages` counts."""
        now_ms = _now_ms()
        return [message for message in self.held if message.is_due(now_ms)]

    @property
    def approximate_number_of_messages_delayed(self) -> int:
        """Messages whose delay has not ended."""
        return sum(message.delayed_until > _now_ms() for message in self.held)

    @property
    def approximate_number_of_messages_not_visible(self) -> int:
        """Messages that somebody holds, or that were hidden."""
        now_ms = _now_ms()
        return sum(message.visible_at > now_ms for message in self.held)

    def add(self, message: FaithfulMessage) -> FaithfulMessage:
        """Accept a message; a duplicate on a FIFO queue is answered with the first one and not kept."""
        now_ms = _now_ms()
        if self.fifo_queue and message.deduplication_id is not None:
            scope = message.group_id if self.deduplication_scope == "messageGroup" else None
            first = self._seen.get((scope, message.deduplication_id))
            if first is not None and now_ms - first[0] < DEDUPLICATION_MS:
                return first[1]
            self._seen[scope, message.deduplication_id] = (now_ms, message)
        self.held.append(message)
        return message

    def receive(self, count: int, visibility_s: int) -> list[FaithfulMessage]:
        """Take up to `count` due messages; those whose receives are used up move to the dead-letter queue first."""
        now_ms = _now_ms()
        self.held = [message for message in self.held if not self._has_expired(message, now_ms)]
        taken: list[FaithfulMessage] = []
        closed = {message.group_id for message in self.held if message.is_in_flight(now_ms)}
        for message in self._in_order():
            if len(taken) == count:
                break
            if self.fifo_queue and message.group_id in closed:
                continue
            if not message.is_due(now_ms):
                closed.add(message.group_id)
            elif self.max_receives is not None and message.approximate_receive_count >= self.max_receives:
                self._move_to_letters(message)
            else:
                _take(message, now_ms, visibility_s)
                taken.append(message)
        if taken:
            self.on_change()
        return taken

    def by_handle(self, handle: str) -> FaithfulMessage | None:
        """Return the message whose newest receive has this handle."""
        return next((message for message in self.held if message.receipt_handle == handle), None)

    def remove(self, handle: str) -> None:
        """Delete a message by the handle of its newest receive; an older one deletes nothing, and nobody is told."""
        message = self.by_handle(handle)
        if message is None:
            return
        if self.fifo_queue and not message.is_in_flight(_now_ms()):
            raise HandleExpiredError
        self.held.remove(message)
        self.on_change()

    def hide(self, handle: str, visibility_s: int) -> None:
        """Let the present receive end in `visibility_s`."""
        now_ms = _now_ms()
        message = self.by_handle(handle)
        if message is None or not message.is_in_flight(now_ms):
            raise HandleExpiredError if self.fifo_queue else NotInFlightError
        if now_ms + visibility_s * 1000 - message.received_ms > MAX_VISIBILITY_MS:
            text = f"Value {visibility_s} for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout "
            raise InvalidParameterValue(text + "for the message is beyond the limit [43200 seconds].")
        message.visible_at = now_ms + visibility_s * 1000

    def purge(self) -> None:
        """Delete everything, also what is in flight."""
        self.held.clear()

    def next_due_ms(self) -> int | None:
        """Return when the next message becomes receivable, Unix milliseconds; None if there is none."""
        if not self.fifo_queue:
            return min((message.due_ms() for message in self.held), default=None)
        times: dict[str | None, int] = {}
        now_ms = _now_ms()
        for message in self.held:  # a group opens when its head is due and nothing of it is in flight
            known = times.get(message.group_id)
            if known is None:
                times[message.group_id] = message.due_ms()
            elif message.is_in_flight(now_ms):
                times[message.group_id] = max(known, message.due_ms())
        return min(times.values(), default=None)

    def _in_order(self) -> list[FaithfulMessage]:
        return list(self.held) if self.fifo_queue else sorted(self.held, key=FaithfulMessage.due_ms)

    def _has_expired(self, message: FaithfulMessage, now_ms: int) -> bool:
        return now_ms - message.sent_ms > self.message_retention_period * 1000

    def _move_to_letters(self, message: FaithfulMessage) -> None:
        letters = self.dead_letter_queue
        if not isinstance(letters, FaithfulQueue):
            raise TypeError(f"queue {self.name} has no dead-letter queue")
        self.held.remove(message)
        message.receipt_handle = None
        message.visible_at = 0
        message.moved_from = self.queue_arn
        if letters.fifo_queue:
            message.mark_sent()
        letters.held.append(message)
        self.on_change()


def _take(message: FaithfulMessage, now_ms: int, visibility_s: int) -> None:
    message.approximate_receive_count += 1
    message.approximate_first_receive_timestamp = message.approximate_first_receive_timestamp or now_ms
    message.receipt_handle = generate_receipt_handle()
    message.received_ms = now_ms
    message.visible_at = now_ms + visibility_s * 1000


def _now_ms() -> int:
    return round(unix_time_millis())
