"""One call of a function, and its stored form for a call that crosses hosts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import get_args

from iii_runtime.core.invocation import Source
from iii_runtime.core.members import fault, integer, one_of, optional, text
from iii_runtime.core.payload import Json, PayloadError

_SOURCES: Mapping[str, Source] = {name: name for name in get_args(Source)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a function.

    Attributes:
        function_id: The function.
        payload: Its raw input.
        source: What started it.
        identity: Id of the invocation; a fresh one by default.
        metadata: Sidecar for handlers that declare `metadata`.
        timeout: Overrides the function's own timeout.
        condition: Function that decides, where the call arrives, whether it is carried out.
        queue: Queue of the message it serves.
        receipt: Receipt of that message.
        attempt: Number of the attempt.
        max_attempts: Attempts the queue grants in total.
        hops: Enqueues behind it.
        depth: Direct calls behind it.
        traceparent: Trace context to continue.
        baggage: Baggage to carry on.
    """

    function_id: str
    payload: Json = None
    source: Source = "direct"
    identity: str | None = None
    metadata: Json = None
    timeout: timedelta | None = None
    condition: str | None = None
    queue: str | None = None
    receipt: str | None = None
    attempt: int = 1
    max_attempts: int | None = None
    hops: int = 0
    depth: int = 0
    traceparent: str | None = None
    baggage: str | None = None


def call_to_json(call: Call) -> dict[str, Json]:
    """Return the stored form of a call, its payload last."""
    timeout_ms = None if call.timeout is None else round(call.timeout / timedelta(milliseconds=1))
    members: dict[str, Json] = {
        "fn": call.function_id,
        "src": call.source,
        "id": call.identity,
        "md": call.metadata,
        "ms": timeout_ms,
        "if": call.condition,
        "q": call.queue,
        "rcpt": call.receipt,
        "att": call.attempt,
        "max": call.max_attempts,
        "hops": call.hops,
        "depth": call.depth,
        "tp": call.traceparent,
        "bg": call.baggage,
    }
    return {name: value for name, value in members.items() if value is not None} | {"p": call.payload}


def call_from_json(fields: Mapping[str, Json]) -> Call:
    """Parse the stored form of a call.

    Raises:
        PayloadError: `call_unreadable`.
    """
    try:
        timeout_ms = optional(fields, "ms", int)
        return Call(
            function_id=text(fields, "fn"),
            payload=fields["p"],
            source=one_of(fields, "src", _SOURCES),
            identity=optional(fields, "id", str),
            metadata=fields.get("md"),
            timeout=None if timeout_ms is None else timedelta(milliseconds=timeout_ms),
            condition=optional(fields, "if", str),
            queue=optional(fields, "q", str),
            receipt=optional(fields, "rcpt", str),
            attempt=integer(fields, "att"),
            max_attempts=optional(fields, "max", int),
            hops=integer(fields, "hops"),
            depth=integer(fields, "depth"),
            traceparent=optional(fields, "tp", str),
            baggage=optional(fields, "bg", str),
        )
    except (LookupError, TypeError, OverflowError) as error:
        raise PayloadError(f"the call cannot be read: {fault(error)}", code="call_unreadable") from error
