"""Stores without a disk, and messages to put in them."""

from __future__ import annotations

from iii_runtime.core.message import Envelope, encode_envelope
from iii_runtime.core.payload import Json, encode_json
from iii_runtime.core.queue import QueueSpec, group_key, group_value
from iii_runtime.hosts.memory import memory_stores
from iii_runtime.ports.message_queue import OutgoingMessage

__all__ = ["memory_stores", "outgoing_message"]


def outgoing_message(
    queue: QueueSpec,
    receipt: str,
    payload: Json = None,
    *,
    function_id: str = "test::handle",
    delay_ms: int = 0,
    dedupe_id: str | None = None,
    accepted_ms: int = 0,
) -> OutgoingMessage:
    """Return a message as an enqueue makes it, its group taken from the payload."""
    group = group_value(payload, queue, function_id)
    envelope = Envelope(
        receipt=receipt,
        function_id=function_id,
        queue=queue.name,
        accepted_ms=accepted_ms,
        group=group,
        dedupe_id=dedupe_id,
        payload=encode_json(payload),
    )
    return OutgoingMessage(
        receipt=receipt,
        function_id=function_id,
        body=encode_envelope(envelope),
        group=group_key(group, queue),
        delay_ms=delay_ms,
        dedupe_id=dedupe_id,
    )
