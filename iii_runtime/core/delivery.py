"""Decisions about messages of a broker that forgets: what a body says, and what the message item says is to be done.

A broker's message carries its receipt and its generation. What must be remembered about it (failed attempts, death,
redrive) is in one item per receipt. An item's state only goes forward: alive, then dead, then redriven or discarded,
and alive again in the next generation once a redriven message claims it. So no decision from an item becomes wrong.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Literal, TypeAlias, cast

from iii_runtime.core.frozen import frozen
from iii_runtime.core.letter import ErrorLog
from iii_runtime.core.letter_transport import read_member, with_token
from iii_runtime.core.message import (
    BlobLink,
    DeadLetterMember,
    decode_envelope,
    encode_envelope,
    is_receipt,
    letter_member,
)
from iii_runtime.core.payload import Json, PayloadError, decode_stored, to_json
from iii_runtime.core.queue import QueueSpec
from iii_runtime.core.remote import decode_link

LONGEST_HIDE = timedelta(hours=12)
"""How long SQS keeps a received message hidden at most, counted from its receive."""

_HIDE_MARGIN = timedelta(minutes=1)
_EARLY = timedelta(seconds=2)

State: TypeAlias = Literal["alive", "dead", "redriven", "discarded"]


@frozen(kw_only=True)
class MessageItem:
    """All that is remembered of a receipt.

    Attributes:
        generation: The newest generation known.
        token: Token of the redrive that claimed it; None in generation 0.
        failed: Attempts of this generation that are recorded as failed.
        not_before_ms: When the next attempt may start, Unix milliseconds.
        state: See the module.
        errors: The last failed attempts of this generation.
        letter: The letter or where it lies, while dead.
        queue: Name of the queue it is dead in.
        died: Its place in the order of deaths, Unix microseconds.
    """

    generation: int = 0
    token: str | None = None
    failed: int = 0
    not_before_ms: int = 0
    state: State = "alive"
    errors: ErrorLog = ()
    letter: str | BlobLink | None = None
    queue: str | None = None
    died: int = 0


@frozen(kw_only=True)
class Incoming:
    """What the body of a received message says.

    Attributes:
        receipt: The message receipt id; the broker's own id of a body that is no envelope.
        generation: How often it was redriven.
        token: Token of its letter or redrive, None in generation 0.
        body: The body to handle, unwrapped if it was wrapped in a letter.
        first_ms: When it was first enqueued, if it has died before.
        linked: The letter this message only links to; read that and go on with `linked_incoming`.
        is_newer: Whether a later version wrote it; nothing else is known of it then.
    """

    receipt: str
    body: str
    generation: int = 0
    token: str | None = None
    first_ms: int | None = None
    linked: BlobLink | None = None
    is_newer: bool = False


@frozen
class Attempt:
    """Run the function; this is attempt `number`."""

    number: int


@frozen
class Claim:
    """Claim the generation for the redrive this message comes from, then run the function."""


@frozen
class Wait:
    """Hide the message until then, Unix milliseconds: its back-off has not passed."""

    until_ms: int


@frozen
class FinishDeath:
    """Put the letter on the dead-letter queue and acknowledge: whoever wrote the death may have died before that."""


@frozen
class Drop:
    """Acknowledge: a copy whose generation is over, or that lost the claim."""


NextStep: TypeAlias = Attempt | Claim | Wait | FinishDeath | Drop

Standing: TypeAlias = Literal["recorded", "dead", "over", "unknown"]
"""Why a failure or death could not be written: that attempt is recorded already; the message is dead; its generation is
over; the item is not of this generation yet, so nothing is known."""

LetterFate: TypeAlias = Literal["keep", "delete", "adopt", "replace"]
"""What becomes of a message on a dead-letter queue: it stays; it goes; an item is written from it; the letter of its
item takes its place."""


def read_incoming(body: str, message_id: str, queue: QueueSpec) -> Incoming:
    """Return what a received body says. It does not raise, whatever somebody has sent.

    Args:
        body: As received.
        message_id: The broker's id of the message.
        queue: Where it was received.
    """
    member = read_member(body)
    if member is not None and (wrapped := _wrapped(body, member)) is not None:
        return wrapped
    try:
        envelope = decode_envelope(body)
    except PayloadError as error:
        return Incoming(receipt=message_id, body=body, is_newer=error.code == "envelope_newer")
    receipt = envelope.receipt if queue.topic is None else subscription_receipt(envelope.receipt, queue.name)
    if member is not None:
        return _redriven(receipt, body, member)
    is_spoilt = letter_member(body) is not None  # by somebody's own member, which would get into its letter
    return Incoming(receipt=receipt, body=encode_envelope(envelope) if is_spoilt else body)


def linked_incoming(incoming: Incoming, letter: str, queue: QueueSpec) -> Incoming:
    """Return what a message says that only links to its letter, given the letter."""
    return read_incoming(with_token(letter, incoming.token or ""), incoming.receipt, queue)


def subscription_receipt(receipt: str, queue_name: str) -> str:
    """Return the receipt of a topic's message on the queue of one subscription: the same at each receive."""
    try:
        space = uuid.UUID(receipt)
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{receipt}/{queue_name}"))
    return str(uuid.uuid5(space, queue_name))


def decide_step(item: MessageItem | None, incoming: Incoming, now_ms: int) -> NextStep:
    """Return what to do with a received message whose item was read."""
    generation = incoming.generation
    if item is None:
        return Claim() if generation else Attempt(1)
    if item.state == "discarded":
        return Drop()
    if item.generation < generation:
        return Claim()
    is_copy = generation > 0 and item.token != incoming.token
    if item.generation > generation or item.state == "redriven" or is_copy:
        return Drop()
    if item.state == "dead":
        return FinishDeath()
    if item.not_before_ms - now_ms > _EARLY // timedelta(milliseconds=1):
        return Wait(item.not_before_ms)
    return Attempt(item.failed + 1)


def decide_standing(item: MessageItem | None, generation: int) -> Standing:
    """Return why a failure or death of `generation` was refused."""
    if item is None or item.generation < generation:
        return "unknown"
    if item.generation > generation or item.state in {"redriven", "discarded"}:
        return "over"
    return "dead" if item.state == "dead" else "recorded"


def decide_letter(item: MessageItem | None, incoming: Incoming, *, is_native: bool) -> LetterFate:
    """Return what becomes of a message found on a dead-letter queue.

    Args:
        item: Its item.
        incoming: What its body says, as if it had been received from its source.
        is_native: Whether the broker moved it there by itself; else it is a letter the runtime has put.
    """
    if item is None:
        return "adopt"
    if item.state == "discarded":
        return "delete"
    if is_native:
        return _decide_native(item, incoming)
    died = incoming.generation - 1
    if item.generation < died:
        return "adopt"
    if item.generation == died:
        return "keep" if item.state in {"dead", "alive"} else "delete"
    # The broker may have moved a message that somebody redrove by hand, and not say so: then this is no spent letter.
    may_be_native = item.generation == died + 1 and item.state == "alive" and item.token == incoming.token
    return "keep" if may_be_native else "delete"


def visibility_s(delay: timedelta, age: timedelta) -> int:
    """Return for how many whole seconds to hide a message, within what SQS grants a receive of that age."""
    seconds = -(-delay // timedelta(seconds=1))
    left = (LONGEST_HIDE - _HIDE_MARGIN - age) // timedelta(seconds=1)
    return max(min(seconds, left), 0)


def _decide_native(item: MessageItem, incoming: Incoming) -> LetterFate:
    if item.generation != incoming.generation:
        return "adopt" if item.generation < incoming.generation else "delete"
    if item.state == "dead":
        return "replace"
    return "adopt" if item.state == "alive" and item.token == incoming.token else "delete"


def _wrapped(body: str, member: DeadLetterMember) -> Incoming | None:
    """Return what a letter says around a body that is no envelope; None for the letter of an envelope."""
    fields = cast("dict[str, Json]", decode_stored(body))
    try:
        to_json({name: fields.get(name) for name in ("id", "raw", "lb")}, "letter")
    except PayloadError:
        return None
    receipt, raw, link = fields.get("id"), fields.get("raw"), fields.get("lb")
    if fields.get("fn") is not None or not isinstance(receipt, str) or not is_receipt(receipt):
        return None
    if isinstance(raw, str):
        return _redriven(receipt, raw, member)
    if not isinstance(link, dict):
        return None
    try:
        return _redriven(receipt, body, member, decode_link(link))
    except (KeyError, TypeError):
        return None


def _redriven(receipt: str, body: str, member: DeadLetterMember, linked: BlobLink | None = None) -> Incoming:
    return Incoming(
        receipt=receipt,
        body=body,
        generation=member.generation + 1,
        token=member.token,
        first_ms=member.first_ms,
        linked=linked,
    )
