"""What makes AWS invoke a Lambda: queues and the stream of the table. Each is polled; nothing happens by itself.

The rules of the event source mapping of SQS that matter here: a message is deleted only if the handler has returned and
did not report it; an answer that makes no sense fails the whole batch; of a failed one nothing is touched, so each
message comes back when its visibility ends. A throttled receive raises the receive count and invokes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Any, Protocol, cast

from iii_runtime.core.payload import Json
from iii_runtime.plan.names import FEED_FAILURES, Deployment
from tests.aws.cloud import REGION, Cloud
from tests.aws.sqs_queue import FaithfulMessage, FaithfulQueue

FEED_BATCH = 100
FEED_AGE_MS = 3600 * 1000
FEED_STORED = ("S#", "T#")
FEED_SENT = "E#"


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


def reported_failures(answer: Json, identifiers: Mapping[str, object]) -> set[str]:
    """Return which records of a batch failed, by a partial batch response. One that makes no sense fails all."""
    if answer is None or answer == {}:
        return set()
    failures = answer.get("batchItemFailures") if isinstance(answer, dict) else None
    if failures is None:
        failures = []
    if not isinstance(failures, list):
        return set(identifiers)
    named = [entry.get("itemIdentifier") if isinstance(entry, dict) else None for entry in failures]
    if any(name not in identifiers for name in named):
        return set(identifiers)
    return {str(name) for name in named}


class StreamSource:
    """The mapping of the table's stream to the change feed: in order, a failed batch again, in halves.

    Args:
        cloud: The services.
        names: The names of the app.
    """

    def __init__(self, cloud: Cloud, names: Deployment) -> None:
        self._cloud = cloud
        self._function = names.system_name("feed")
        self._failures = names.own_queue_name(FEED_FAILURES)
        self._arn = f"{names.table_arn}/stream/2026-01-01T00:00:00.000"
        self._position = 0
        self._batches: deque[list[dict[str, Any]]] = deque()
        self._is_running = False
        self._failed_in_a_row = 0
        self._not_before_ms = 0

    def poll(self) -> Work | None:
        """Read a batch."""
        if self._is_running or self._cloud.clock.now_ms() < self._not_before_ms:
            return None
        self._read()
        if not self._batches:
            return None
        self._is_running = True
        batch = self._batches[0]
        return Work(
            function=self._function,
            event=cast(Json, {"Records": batch}),
            done=lambda answer: self._done(batch, answer),
            failed=lambda: self._failed(batch),
        )

    def next_due_ms(self) -> int | None:
        """Return when the next batch is read."""
        if self._is_running:
            return None
        self._read()
        return max(self._cloud.clock.now_ms(), self._not_before_ms) if self._batches else None

    def _read(self) -> None:
        with self._cloud.lock:
            records = self._cloud.stream_records(self._position)
            self._position += len(records)
            wanted = [_stream_record(record, self._arn) for record in records if is_wanted(record)]
        for batch in _batched(wanted):
            if self._batches and not self._is_running and len(self._batches[-1]) + len(batch) <= FEED_BATCH:
                self._batches[-1].extend(batch)
            else:
                self._batches.append(list(batch))

    def _done(self, batch: list[dict[str, Any]], answer: Json) -> None:
        numbers = [record["dynamodb"]["SequenceNumber"] for record in batch]
        failed = reported_failures(answer, dict.fromkeys(numbers))
        first = min((numbers.index(number) for number in failed), default=None)
        if first is None:
            self._batches.popleft()
            self._end(is_failure=False)
            return
        self._batches[0] = batch[first:]
        self._give_up_the_old()
        self._end(is_failure=True)

    def _failed(self, batch: list[dict[str, Any]]) -> None:
        if len(batch) > 1:
            middle = len(batch) // 2
            self._batches.popleft()
            self._batches.extendleft([batch[middle:], batch[:middle]])
        self._give_up_the_old()
        self._end(is_failure=True)

    def _give_up_the_old(self) -> None:
        head = self._batches[0]
        age_ms = self._cloud.clock.now_ms() - int(head[0]["dynamodb"]["ApproximateCreationDateTime"] * 1000)
        if age_ms > FEED_AGE_MS:
            self._batches.popleft()
            queue_url = self._cloud.clients.sqs.get_queue_url(QueueName=self._failures)["QueueUrl"]
            self._cloud.clients.sqs.send_message(QueueUrl=queue_url, MessageBody=f"{len(head)} records")

    def _end(self, *, is_failure: bool) -> None:
        self._is_running = False
        self._failed_in_a_row = self._failed_in_a_row + 1 if is_failure else 0
        pause_ms = min(1000 * 2 ** (self._failed_in_a_row - 1), 60_000) if is_failure else 0
        self._not_before_ms = self._cloud.clock.now_ms() + pause_ms


def _batched(records: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [list(records[start : start + FEED_BATCH]) for start in range(0, len(records), FEED_BATCH)]


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


def is_wanted(record: Mapping[str, Any]) -> bool:
    """Return whether a record of the table's stream passes the filter of the feed's mapping."""
    told = record["dynamodb"]
    # DynamoDB writes no record for a write that changes nothing; moto does.
    if "OldImage" in told and told.get("OldImage") == told.get("NewImage"):
        return False
    partition = str(told["Keys"]["pk"]["S"])
    return partition.startswith(FEED_STORED) or (partition.startswith(FEED_SENT) and record["eventName"] == "INSERT")


def _stream_record(record: Mapping[str, Any], arn: str) -> dict[str, Any]:
    told = dict(record["dynamodb"])
    told["ApproximateCreationDateTime"] = told["ApproximateCreationDateTime"].replace(tzinfo=UTC).timestamp()
    return {**record, "awsRegion": REGION, "dynamodb": told, "eventSourceARN": arn}
