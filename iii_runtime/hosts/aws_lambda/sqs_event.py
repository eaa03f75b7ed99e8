"""Reads SQS events as Lambda hands them to a consumer of one of the runtime's own queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TypeGuard, cast

from iii_runtime.adapters.aws.message_queue import ReceivedRecord
from iii_runtime.core.errors import HostError
from iii_runtime.core.frozen import frozen
from iii_runtime.core.members import digits, fault, optional, text
from iii_runtime.core.queue import QueueSpec
from iii_runtime.hosts.unknown_event import EventUnknownError
from iii_runtime.plan.names import Deployment


@frozen(kw_only=True)
class SqsEvent:
    """Messages of one queue.

    Attributes:
        queue_name: Name of the queue on AWS.
        records: The messages, in order.
    """

    queue_name: str
    records: tuple[ReceivedRecord, ...]


def is_sqs_event(event: object) -> TypeGuard[Mapping[str, object]]:
    """Return whether an event holds messages of SQS."""
    records = event.get("Records") if isinstance(event, Mapping) else None
    return isinstance(records, list) and bool(records) and all(_is_sqs(record) for record in records)


def read_sqs_event(event: Mapping[str, object], now_ms: int) -> SqsEvent:
    """Read an event for which `is_sqs_event` holds.

    Args:
        event: The event.
        now_ms: When it arrived; what SQS says of the first receive counts for that one only.

    Raises:
        EventUnknownError: A record lacks something, or the records come from several queues. None of them is done.
    """
    records = cast("list[Mapping[str, object]]", event["Records"])
    try:
        read = tuple(_record(record, now_ms) for record in records)
        names = {text(record, "eventSourceARN").rpartition(":")[2] for record in records}
    except (LookupError, TypeError, ValueError) as error:
        raise EventUnknownError(f"a record of the SQS event cannot be read: {fault(error)}.") from error
    if len(names) != 1:
        raise EventUnknownError(f"the records come from {len(names)} queues; an event has those of one queue.")
    return SqsEvent(queue_name=names.pop(), records=read)


def queue_called(name: str, deployment: Deployment, queues: Iterable[QueueSpec]) -> QueueSpec:
    """Return the queue with this name on AWS.

    Raises:
        HostError: `queue_unknown`: the app has none. Its messages are left alone.
    """
    for queue in queues:
        if deployment.queue_name(queue) == name:
            return queue
    raise HostError(
        f"SQS queue '{name}' belongs to no queue of this app, so its messages are left in it. It may have been removed "
        "from iii-config.yaml: deploy the stage again, which removes the event source mapping too.",
        code="queue_unknown",
    )


def _is_sqs(record: object) -> bool:
    return isinstance(record, Mapping) and record.get("eventSource") == "aws:sqs"


def _record(record: Mapping[str, object], now_ms: int) -> ReceivedRecord:
    attributes = record["attributes"]
    if not isinstance(attributes, Mapping):
        raise TypeError("member 'attributes' is not an object")
    receives = digits(attributes, "ApproximateReceiveCount")
    name = "ApproximateFirstReceiveTimestamp"
    first = digits(attributes, name) if receives <= 1 and name in attributes else None
    received_ms = now_ms if first is None else min(first, now_ms)
    return ReceivedRecord(
        message_id=text(record, "messageId"),
        handle=text(record, "receiptHandle"),
        body=text(record, "body"),
        receives=receives,
        group=optional(attributes, "MessageGroupId", str),
        sent_ms=digits(attributes, "SentTimestamp"),
        received_ms=received_ms,
        waited=None if first is None else timedelta(milliseconds=now_ms - received_ms),
    )
