"""What makes AWS invoke a Lambda. Each source is polled; nothing happens by itself. Here the queues.

The rules of the event source mapping of SQS that matter here: a message is deleted only if the handler has returned and
did not report it; an answer that makes no sense fails the whole batch; of a failed one nothing is touched, so each
message comes back when its visibility ends. A throttled receive raises the receive count and invokes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, cast

from iii_runtime.core.payload import Json
from tests.aws.cloud import REGION, Cloud
from tests.aws.sqs_queue import FaithfulMessage, FaithfulQueue


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """An invocation that is due.

    Attributes:
        function: Name of the Lambda.
        event: What it is given.
        done: Called with what the handler returned.
        failed: Called if the invocation failed.
        returns_after: When AWS begins it again if its sandbox dies without a word; None if it does not.
    """

    function: str
    event: Json
    done: Callable[[Json], None]
    failed: Callable[[], None]
    returns_after: timedelta | None = None


class Source(Protocol):
    """Makes Lambda invoke a function."""

    def poll(self) -> Work | None:
        """Return an invocation that is due, None if there is none. It counts as begun."""
        ...

    def next_due_ms(self) -> int | None:
        """Return when the next one is due, Unix milliseconds; in the past if one is. None if none is known."""
        ...


class QueueSource:
    """The mapping of a queue to its Lambda.

    Args:
        cloud: The services.
        queue: Name of the queue on AWS.
        function: Name of the Lambda.
        batch_size: Messages of one invocation at most.
        concurrency: Invocations at the same time at most.

    Attributes:
        name: Name of the queue on AWS.
        function: Name of the Lambda.
        is_enabled: Whether it polls.
        throttles: How many of the next receives are throttled.
        forgets: How many of the next deletions SQS forgets: their messages come back though they were done.
    """

    def __init__(self, cloud: Cloud, queue: str, function: str, *, batch_size: int, concurrency: int) -> None:
        self.name = queue
        self.is_enabled = True
        self.throttles = 0
        self.forgets = 0
        self._cloud = cloud
        self.function = function
        self._batch_size = batch_size
        self._concurrency = concurrency
        self._running = 0

    @property
    def queue(self) -> FaithfulQueue:
        """The queue."""
        return self._cloud.queue(self.name)

    def poll(self) -> Work | None:
        """Receive a batch."""
        if not self.is_enabled or self._running >= self._concurrency:
            return None
        with self._cloud.lock:
            taken = self.queue.receive(self._batch_size, self.queue.visibility_timeout)
        if not taken:
            return None
        if self.throttles:
            self.throttles -= 1
            return self.poll()
        self._running += 1
        records = [_sqs_record(message, self.queue) for message in taken]
        handles = {message.id: str(message.receipt_handle) for message in taken}
        return Work(
            function=self.function,
            event=cast(Json, {"Records": records}),
            done=lambda answer: self._done(handles, answer),
            failed=self._failed,
            returns_after=timedelta(seconds=self.queue.visibility_timeout),
        )

    def next_due_ms(self) -> int | None:
        """Return when a message becomes receivable."""
        if not self.is_enabled or self._running >= self._concurrency:
            return None
        with self._cloud.lock:
            return self.queue.next_due_ms()

    def _done(self, handles: Mapping[str, str], answer: Json) -> None:
        self._running -= 1
        reported = reported_failures(answer, handles)
        if reported is None:
            return
        with self._cloud.lock:
            for message_id, handle in handles.items():
                if message_id in reported:
                    continue
                if self.forgets:
                    self.forgets -= 1
                else:
                    self.queue.remove(handle)

    def _failed(self) -> None:
        self._running -= 1


def reported_failures(answer: Json, identifiers: Mapping[str, object]) -> set[str] | None:
    """Return which records of a batch failed, by a partial batch response; None for all, if it makes no sense."""
    if answer is None or answer == {}:
        return set()
    failures = answer.get("batchItemFailures") if isinstance(answer, dict) else None
    if failures is None:
        failures = []
    if not isinstance(failures, list):
        return None
    named = [entry.get("itemIdentifier") if isinstance(entry, dict) else None for entry in failures]
    if any(name not in identifiers for name in named):
        return None
    return {str(name) for name in named}


def _sqs_record(message: FaithfulMessage, queue: FaithfulQueue) -> dict[str, Any]:
    attributes: dict[str, str] = {
        "ApproximateReceiveCount": str(message.approximate_receive_count),
        "SentTimestamp": str(message.sent_ms),
        "SenderId": message.sender_id,
        "ApproximateFirstReceiveTimestamp": str(message.approximate_first_receive_timestamp),
    }
    if message.group_id is not None:
        attributes["MessageGroupId"] = message.group_id
    if message.deduplication_id is not None:
        attributes["MessageDeduplicationId"] = message.deduplication_id
    if message.sequence_number is not None:
        attributes["SequenceNumber"] = message.sequence_number
    return {
        "messageId": message.id,
        "receiptHandle": str(message.receipt_handle),
        "body": message.body,
        "attributes": attributes,
        "messageAttributes": {},
        "md5OfBody": message.body_md5,
        "eventSource": "aws:sqs",
        "eventSourceARN": queue.queue_arn,
        "awsRegion": REGION,
    }
