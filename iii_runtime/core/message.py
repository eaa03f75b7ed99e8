"""The envelope of a queued message and the dead letter it may become.

The body is one ASCII JSON object. Its bytes never change after the enqueue: a dead letter is the same text with one
more member at its end, so the payload stays as it was through any number of redrives.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal, cast

from iii_runtime.core.frozen import frozen
from iii_runtime.core.members import fault, integer, optional, shown_version, text
from iii_runtime.core.payload import Json, PayloadError, decode_stored, encode_json, to_json

ENVELOPE_VERSION = 1
MAX_RECEIPT = 256
"""Characters of the longest receipt; a longer one has no place in the key of an item."""
INLINE_LIMIT = 240 * 1024
"""Largest body kept in the message itself; a larger payload travels as a blob link."""

MAX_STACK_BYTES = 8 * 1024
MAX_ERROR_BYTES = 4 * 1024
"""Bounds of what a letter says of an error, as JSON text."""

Cause = Literal["failed", "receives", "unreadable", "native"]
"""Why a message died: its attempts failed; it was received too often without an outcome (it killed its host); its body
is no envelope; the broker moved it, for no host was there to say why."""

TOPIC_FUNCTION = "iii::durable::publish"
"""The function of an envelope that all subscriptions of a topic share: each runs the function of its own queue."""


@frozen(kw_only=True)
class BlobLink:
    """Where a payload too large for the message lives."""

    key: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A message as it was enqueued.

    Attributes:
        receipt: The message receipt id.
        function_id: The function to run.
        queue: Name of the queue.
        accepted_ms: When it was accepted, Unix milliseconds.
        hops: Length of the chain of enqueues behind it; 0 outside a handler.
        group: Value of the group field, FIFO only.
        dedupe_id: As given on enqueue.
        traceparent: W3C trace context of the sender.
        baggage: W3C baggage of the sender.
        metadata: Sidecar of the trigger request, if any.
        payload: The payload's JSON text, or where it lives.
    """

    receipt: str
    function_id: str
    queue: str
    accepted_ms: int
    hops: int = 0
    group: Json = None
    dedupe_id: str | None = None
    traceparent: str | None = None
    baggage: str | None = None
    metadata: dict[str, Json] | None = None
    payload: str | BlobLink = "null"


@frozen(kw_only=True)
class ErrorRecord:
    """A failure as it is stored with the message: cut to bounds, JSON-safe."""

    type: str
    message: str
    stack: str = ""

    def to_json(self) -> dict[str, Json]:
        """Return the record as JSON."""
        return {"type": self.type, "message": self.message, "stack": self.stack}


@frozen(kw_only=True)
class DeadLetterMember:
    """The `dead_letter` member of a letter: what died, when and why."""

    generation: int
    token: str
    cause: Cause
    error: ErrorRecord
    attempts: int
    receives: int
    first_ms: int
    failed_ms: int
    queue: str
    group: Json
    function_id: str | None
    trace: str | None

    def to_json(self, cut: int) -> dict[str, Json]:
        """Return the member; `cut` is where the enqueued body ended."""
        return {
            "g": self.generation,
            "tok": self.token,
            "cut": cut,
            "cause": self.cause,
            "error": self.error.to_json(),
            "attempts": self.attempts,
            "receives": self.receives,
            "first_at": self.first_ms,
            "failed_at": self.failed_ms,
            "queue": self.queue,
            "group": self.group,
            "fn": self.function_id,
            "trace": self.trace,
        }


def encode_envelope(envelope: Envelope) -> str:
    """Return the body of a message."""
    head: dict[str, object] = {
        "v": ENVELOPE_VERSION,
        "id": envelope.receipt,
        "fn": envelope.function_id,
        "q": envelope.queue,
        "at": envelope.accepted_ms,
        "hops": envelope.hops,
    }
    optional = {
        "grp": envelope.group,
        "dd": envelope.dedupe_id,
        "tp": envelope.traceparent,
        "bg": envelope.baggage,
        "md": envelope.metadata,
    }
    head.update({name: value for name, value in optional.items() if value is not None})
    text = encode_json(head, "envelope")
    if isinstance(envelope.payload, BlobLink):
        link = envelope.payload
        member = '"pl":' + encode_json({"k": link.key, "n": link.size, "h": link.sha256})
    else:
        member = '"p":' + envelope.payload
    return f"{text[:-1]},{member}}}"


def decode_envelope(body: str) -> Envelope:
    """Parse the body of a message or a letter.

    Raises:
        PayloadError: `envelope_unreadable`: no envelope; `envelope_newer`: one of a later version.
    """
    try:
        fields = json.loads(body)
        version = fields["v"]
        envelope = _envelope(fields) if version == ENVELOPE_VERSION else None
    except (ValueError, LookupError, TypeError, RecursionError, PayloadError) as error:
        raise PayloadError(f"the message body is no envelope: {fault(error)}", code="envelope_unreadable") from error
    if envelope is None:
        is_newer = isinstance(version, int) and version > ENVELOPE_VERSION
        raise PayloadError(
            f"the message body has version {shown_version(version)}; this runtime reads version {ENVELOPE_VERSION}.",
            code="envelope_newer" if is_newer else "envelope_unreadable",
        )
    return envelope


def is_receipt(receipt: str) -> bool:
    """Return whether a message can be known by this id."""
    return 0 < len(receipt) <= MAX_RECEIPT


def encode_letter(body: str, member: DeadLetterMember) -> str:
    """Return the letter of a dead message: its enqueued body byte for byte, and the `dead_letter` member last."""
    cut = enqueued_length(body)
    return f'{body[:cut]},"dead_letter":{encode_json(member.to_json(cut), "dead_letter")}}}'


def enqueued_length(body: str) -> int:
    """Return where the enqueued part of a body or letter ends, before the closing brace or the `dead_letter` member."""
    member = letter_member(body)
    return int(cast(int, member["cut"])) if member is not None else len(body.rstrip()) - 1


def letter_member(body: str) -> dict[str, Json] | None:
    """Return the `dead_letter` member of a letter, None for a message that never died."""
    if '"dead_letter":' not in body:
        return None
    try:
        fields = decode_stored(body)
    except (ValueError, RecursionError):
        return None
    member = fields.get("dead_letter") if isinstance(fields, dict) else None
    if not isinstance(member, dict) or not isinstance(member.get("g"), int):
        return None
    cut = member.get("cut")
    return member if isinstance(cut, int) and 0 < cut < len(body) else None


def bounded_error(type_name: str, message: str, stack: str = "") -> ErrorRecord:
    """Return an error record cut to what a letter may hold; the end of a stack is what tells."""
    return ErrorRecord(
        type=bounded_text(printable(type_name), 256),
        message=bounded_text(printable(message), MAX_ERROR_BYTES),
        stack=bounded_text(printable(stack), MAX_STACK_BYTES, keep_end=True),
    )


def printable(text: str) -> str:
    """Return a text as UTF-8 has it: a lone surrogate, which is no character, as an escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def bounded_text(text: str, limit: int, *, keep_end: bool = False) -> str:
    """Return as much of `text` as has at most `limit` bytes as JSON, where one character takes 1 to 12."""
    text = text[-limit:] if keep_end else text[:limit]
    while (surplus := len(json.dumps(text)) - 2 - limit) > 0:
        dropped = -(-surplus // 12)
        text = text[dropped:] if keep_end else text[:-dropped]
    return text


def _envelope(fields: dict[str, object]) -> Envelope:
    # Somebody may have sent what no store keeps: lone surrogates, integers beyond 64 bits.
    to_json({name: value for name, value in fields.items() if name not in {"p", "dead_letter"}}, "envelope")
    link = optional(fields, "pl", dict)
    receipt = text(fields, "id")
    if not is_receipt(receipt):
        raise ValueError("member 'id' is no receipt")
    return Envelope(
        receipt=receipt,
        function_id=text(fields, "fn"),
        queue=text(fields, "q"),
        accepted_ms=integer(fields, "at"),
        hops=integer(fields, "hops"),
        group=cast(Json, fields.get("grp")),
        dedupe_id=optional(fields, "dd", str),
        traceparent=optional(fields, "tp", str),
        baggage=optional(fields, "bg", str),
        metadata=optional(fields, "md", dict),
        payload=encode_json(fields["p"])
        if link is None
        else BlobLink(key=text(link, "k"), size=integer(link, "n"), sha256=text(link, "h")),
    )
