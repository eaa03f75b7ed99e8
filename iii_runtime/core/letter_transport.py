"""Letters on their way over a broker: under a token of their own, and linked to if they are too large for a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast, get_args

from iii_runtime.core.letter import error_from_json
from iii_runtime.core.members import integer, one_of, optional, text
from iii_runtime.core.message import (
    ENVELOPE_VERSION,
    BlobLink,
    Cause,
    DeadLetterMember,
    letter_member,
)
from iii_runtime.core.payload import Json, PayloadError, decode_stored, encode_json, to_json
from iii_runtime.core.remote import encode_link

MAX_LETTER_BYTES = 256 * 1024
"""Largest letter that travels itself. Only a body that is no envelope makes a larger one; that travels as a link."""

REDRIVE_MARK = "r-"
"""How the token of a redrive begins, and that of a letter never does."""

_START = ',"dead_letter":'
_MAX_GENERATION = 1_000_000
_CAUSES: Mapping[str, Cause] = {name: name for name in get_args(Cause)}


def read_member(letter: str) -> DeadLetterMember | None:
    """Return the `dead_letter` member of a letter; None for any other text, also one that only looks like a letter."""
    fields = letter_member(letter)
    if fields is None or not letter.startswith(_START, integer(fields, "cut")):
        return None
    try:
        to_json(fields, "dead_letter")  # somebody may have written what no store keeps
        member = DeadLetterMember(
            generation=integer(fields, "g"),
            token=text(fields, "tok"),
            cause=one_of(fields, "cause", _CAUSES),
            error=error_from_json(cast("dict[str, Json]", fields["error"])),
            attempts=integer(fields, "attempts"),
            receives=integer(fields, "receives"),
            first_ms=integer(fields, "first_at"),
            failed_ms=integer(fields, "failed_at"),
            queue=text(fields, "queue"),
            group=fields.get("group"),
            function_id=optional(fields, "fn", str),
            trace=optional(fields, "trace", str),
        )
    except (LookupError, TypeError, PayloadError):
        return None
    return member if 0 <= member.generation <= _MAX_GENERATION else None


def with_token(letter: str, token: str) -> str:
    """Return a letter under another token; all else stays.

    Raises:
        PayloadError: `letter_unreadable`: it is no letter.
    """
    fields = letter_member(letter)
    if fields is None:
        raise PayloadError("the letter cannot be read: it has no dead_letter member.", code="letter_unreadable")
    member = encode_json({**fields, "tok": token}, "dead_letter")
    return f"{letter[: integer(fields, 'cut')]}{_START}{member}}}"


def travelling(letter: str, stored: str | BlobLink | None) -> str:
    """Return the text that stands for a letter on a queue: itself, or a link to it if it is too large.

    Args:
        letter: The letter.
        stored: The same letter as it is stored; its token may differ.
    """
    fields = letter_member(letter)
    if len(letter) <= MAX_LETTER_BYTES or not isinstance(stored, BlobLink) or fields is None:
        return letter
    receipt = cast("dict[str, Json]", decode_stored(letter)).get("id")
    head = encode_json({"v": ENVELOPE_VERSION, "id": receipt, "fn": None, "lb": encode_link(stored)})
    member = encode_json({**fields, "cut": len(head) - 1}, "dead_letter")
    return f"{head[:-1]}{_START}{member}}}"
