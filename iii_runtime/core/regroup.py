"""The group of a stored message under the present configuration of its queue."""

from __future__ import annotations

from iii_runtime.core.message import Envelope, decode_envelope
from iii_runtime.core.payload import Json, PayloadError, decode_stored
from iii_runtime.core.queue import SINGLE_GROUP, QueueSpec, group_key


def regroup(body: str, receipt: str, queue: QueueSpec) -> str | None:
    """Return the FIFO group of a message that was stored before, perhaps while its queue was of another kind.

    Args:
        body: The message body or letter.
        receipt: Its receipt; the group of a message without the group field, which no other message waits for.
        queue: The queue as it is configured now.

    Returns:
        None on a queue that keeps no order.
    """
    if not queue.is_ordered:
        return None
    if queue.concurrency == 1:
        return SINGLE_GROUP
    try:
        envelope = decode_envelope(body)
    except PayloadError:
        return receipt
    value = _group_value(envelope, queue.group_field)
    return receipt if value is None and queue.group_field is not None else group_key(value, queue)


def grouping_of(queue: QueueSpec) -> str:
    """Return a text that changes exactly when messages of the queue have to be grouped anew."""
    if queue.concurrency == 1:
        return "single"
    return f"fifo:{queue.group_field or ''}" if queue.is_ordered else "standard"


def _group_value(envelope: Envelope, field: str | None) -> Json:
    if field is None:
        return None
    payload = decode_stored(envelope.payload) if isinstance(envelope.payload, str) else None
    if isinstance(payload, dict) and payload.get(field) is not None:
        return payload[field]
    return envelope.group
