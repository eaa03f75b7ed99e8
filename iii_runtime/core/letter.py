"""How a message becomes a dead letter and a letter a message again; the log of its last failed attempts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias, cast

from iii_runtime.core.errors import IiiError, StoreError, message_of
from iii_runtime.core.frozen import frozen
from iii_runtime.core.message import (
    ENVELOPE_VERSION,
    BlobLink,
    Cause,
    DeadLetterMember,
    Envelope,
    ErrorRecord,
    decode_envelope,
    encode_letter,
    printable,
)
from iii_runtime.core.payload import Json, PayloadError, decode_stored, encode_json

KEPT_ERRORS = 3
"""Failed attempts that are remembered with a message: the last ones."""

KEPT_STACK_CHARACTERS = 2 * 1024
"""How much of the end of each remembered stack is kept."""

DAMAGES = frozenset({"blob_missing", "store_corrupt"})
"""Codes of what is wrong with one letter alone, and no repetition mends."""

_TOLD = 3

ErrorLog: TypeAlias = tuple[tuple[int, ErrorRecord], ...]
"""The last failed attempts, oldest first, as `(attempt, error)`."""


class LettersLeftError(StoreError):
    """Of all letters of a queue some are damaged and were left; the others were moved.

    Attributes:
        done: How many were moved.
        left: What is wrong with each of the others, by receipt.
    """

    def __init__(self, queue_name: str, verb: str, done: int, left: Mapping[str, StoreError]) -> None:
        """Tell that `done` letters were `verb`, such as `redriven`, and `left` were not."""
        told = [error.message for error in left.values()]
        more = [] if len(told) <= _TOLD else [f"And {len(told) - _TOLD} more."]
        message = f"queue '{queue_name}': {done} {verb}, {len(left)} left: {' '.join([*told[:_TOLD], *more])}"
        super().__init__(message, code="letters_left")
        self.done = done
        self.left = left


@frozen(kw_only=True)
class Death:
    """What a store knows of a message that dies.

    Attributes:
        receipt: The message receipt id.
        queue: Name of the queue.
        generation: How often it had been redriven.
        token: Fresh identity of the letter.
        cause: Why it died.
        error: The last error.
        attempts: Failed attempts of this generation.
        receives: Receives of this generation.
        first_ms: When it was enqueued, Unix milliseconds.
        failed_ms: When it died, Unix milliseconds.
    """

    receipt: str
    queue: str
    generation: int
    token: str
    cause: Cause
    error: ErrorRecord
    attempts: int
    receives: int
    first_ms: int
    failed_ms: int


@frozen(kw_only=True)
class Letter:
    """A letter's text, and what its listing shows of the envelope.

    Attributes:
        text: See `encode_letter`.
        function_id: The function it was for; None if the body is no envelope.
        size_bytes: Size of the payload, or of the body if that is no envelope.
    """

    text: str
    function_id: str | None
    size_bytes: int


def compose_letter(body: str, death: Death) -> Letter:
    """Return the letter of a dead message. A body that is no envelope is wrapped, so that nothing is lost."""
    try:
        envelope = decode_envelope(body)
    except PayloadError:
        return Letter(
            text=encode_letter(_wrapped(body, death.receipt), _member(death, None)),
            function_id=None,
            size_bytes=len(body),
        )
    return Letter(
        text=encode_letter(body, _member(death, envelope)),
        function_id=envelope.function_id,
        size_bytes=_payload_size(envelope),
    )


def body_of_redriven(letter: str) -> str:
    """Return the body of the message that a letter becomes: the letter, or the body that was wrapped in it."""
    fields = decode_stored(letter)
    raw = fields.get("raw") if isinstance(fields, dict) and fields.get("fn") is None else None
    return raw if isinstance(raw, str) else letter


def incomplete(receipt: str, queue_name: str, error: StoreError) -> StoreError:
    """Return what is said of a letter whose text or payload cannot be had, because of `error`."""
    message = (
        f"dead letter {receipt} is not complete: {error.message} If that is not possible, discard the letter: "
        f"iii-runtime dlq discard {queue_name} {receipt}"
    )
    return StoreError(message, code=error.code)


def damage_of(error: IiiError | ValueError) -> StoreError:
    """Return as an error of the store what was raised because of one letter alone, which others must not suffer from.

    Args:
        error: What was raised; a `StoreError` is returned as it is.
    """
    if isinstance(error, StoreError):
        return error
    told = error.message if isinstance(error, IiiError) else f"{type(error).__name__}: {printable(message_of(error))}"
    return StoreError(f"the letter is damaged, or was edited by hand: {told}", code="store_corrupt")


def with_error(log: ErrorLog, attempt: int, error: ErrorRecord) -> ErrorLog:
    """Return `log` with one more failed attempt, cut to what is kept."""
    kept = replace(error, stack=error.stack[-KEPT_STACK_CHARACTERS:])
    return (*log, (attempt, kept))[-KEPT_ERRORS:]


def encode_errors(log: ErrorLog) -> str:
    """Return the stored form of `log`."""
    return encode_json([[attempt, error.to_json()] for attempt, error in log], "errors")


def decode_errors(text: str | None) -> ErrorLog:
    """Parse the stored form; None is an empty log."""
    entries = cast("list[tuple[int, dict[str, Json]]]", decode_stored(text)) if text else []
    return tuple((attempt, error_from_json(fields)) for attempt, fields in entries)


def error_from_json(fields: dict[str, Json]) -> ErrorRecord:
    """Parse what `ErrorRecord.to_json` returned."""
    return ErrorRecord(type=str(fields["type"]), message=str(fields["message"]), stack=str(fields["stack"]))


def _wrapped(body: str, receipt: str) -> str:
    return encode_json({"v": ENVELOPE_VERSION, "id": receipt, "fn": None, "raw": body}, "message body")


def _member(death: Death, envelope: Envelope | None) -> DeadLetterMember:
    return DeadLetterMember(
        generation=death.generation,
        token=death.token,
        cause=death.cause,
        error=death.error,
        attempts=death.attempts,
        receives=death.receives,
        first_ms=death.first_ms,
        failed_ms=death.failed_ms,
        queue=death.queue,
        group=envelope.group if envelope else None,
        function_id=envelope.function_id if envelope else None,
        trace=envelope.traceparent if envelope else None,
    )


def _payload_size(envelope: Envelope) -> int:
    return envelope.payload.size if isinstance(envelope.payload, BlobLink) else len(envelope.payload)
