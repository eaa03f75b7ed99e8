"""A dead letter as it is listed, made of its item and its text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from iii_runtime.core.delivery import MessageItem
from iii_runtime.core.errors import IiiError, StoreError
from iii_runtime.core.letter import DAMAGES, body_of_redriven, damage_of
from iii_runtime.core.message import BlobLink, DeadLetterMember, ErrorRecord, decode_envelope
from iii_runtime.core.payload import PayloadError
from iii_runtime.ports.dead_letter import DeadLetter


def dead_letter(
    receipt: str, item: MessageItem, letter: str, member: DeadLetterMember, function_id: str | None
) -> DeadLetter:
    """Return a letter as it is listed.

    Args:
        receipt: The message receipt id.
        item: Its item.
        letter: The letter.
        member: What it says of its death.
        function_id: The only function of its queue, None if each message names its own.
    """
    try:
        envelope = decode_envelope(letter)
    except PayloadError:
        function, size = None, len(body_of_redriven(letter))
    else:
        function = function_id or envelope.function_id
        size = envelope.payload.size if isinstance(envelope.payload, BlobLink) else len(envelope.payload)
    return DeadLetter(
        receipt=receipt,
        queue=item.queue or "",
        function_id=function,
        generation=item.generation,
        cause=member.cause,
        error=member.error,
        errors=item.errors,
        attempts=member.attempts,
        receives=member.receives,
        first_ms=member.first_ms,
        failed_ms=member.failed_ms,
        size_bytes=size,
        letter=letter,
    )


@contextmanager
def leaving(left: dict[str, StoreError], receipt: str) -> Iterator[None]:
    """Add what is wrong with one letter alone to `left`, and go on.

    Raises:
        StoreError: A service refuses; that is no fault of the letter.
    """
    try:
        yield
    except (IiiError, ValueError) as error:
        if isinstance(error, StoreError) and error.code not in DAMAGES:
            raise
        left[receipt] = damage_of(error)


def unreadable_letter(
    receipt: str, queue_name: str, died: int, item: MessageItem | None, error: StoreError
) -> DeadLetter:
    """Return what is listed of a letter that cannot be read, because of `error`.

    Args:
        receipt: The message receipt id.
        queue_name: The queue it is listed in.
        died: Its place in the order of deaths, Unix microseconds.
        item: Its item, if that can be read.
        error: What is wrong.
    """
    known = item or MessageItem()
    return DeadLetter(
        receipt=receipt,
        queue=queue_name,
        function_id=None,
        generation=known.generation,
        cause="unreadable",
        error=ErrorRecord(type=error.code, message=error.message),
        errors=known.errors,
        attempts=known.failed,
        receives=known.failed,
        first_ms=died // 1000,
        failed_ms=died // 1000,
        size_bytes=known.letter.size if isinstance(known.letter, BlobLink) else 0,
        letter="",
    )
