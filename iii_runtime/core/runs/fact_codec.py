"""Facts as text: one short ASCII JSON object each, for journals that are paid for by the byte.

A reader passes over members that it does not know, so a later writer may add some. The value of a fact, or its failure,
may live elsewhere: it is stored first, and the text has a link to it in its place. A payload outside of a fact is its
JSON text, or a link, which begins with `@` and so is no JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from iii_runtime.core.errors import IiiError
from iii_runtime.core.frozen import frozen
from iii_runtime.core.members import fault, integer, optional, text
from iii_runtime.core.payload import MAX_PAYLOAD_BYTES, Json
from iii_runtime.core.runs.errors import LimitError
from iii_runtime.core.runs.facts import (
    AttemptFailed,
    AttemptStarted,
    CancelRequested,
    Fact,
    Key,
    Kind,
    Patched,
    SignalReceived,
    StepCompleted,
    StepFailed,
    Suspended,
    TimerFired,
)
from iii_runtime.core.runs.failures import failure_from_json, failure_to_json

_dumps = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


class FactUnreadableError(IiiError):
    """A stored fact is damaged, or of a kind that only a later version knows."""

    code = "fact_unreadable"


@frozen
class Link:
    """Where a value lives that is not kept in place.

    Attributes:
        key: Its name in the store of payloads.
        size: Length of its text, which is ASCII.
        sha256: Hash of its text, as hexadecimal digits.
    """

    key: str
    size: int
    sha256: str


def encode_fact(fact: Fact, link: Link | None = None) -> str:
    """Return the text of a fact.

    Args:
        fact: What happened.
        link: Where its value or failure was stored, to be named in its place.

    Raises:
        LimitError: The value is longer than `MAX_PAYLOAD_BYTES`.
    """
    members, value = _parts(fact)
    if link is None:
        return _text_with(members, None if value is None else f'"v":{_render(value, fact)}')
    return _text_with(members, f'"l":{_dumps([link.key, link.size, link.sha256])}')


def split_value(fact: Fact, limit: int, prefix: str) -> tuple[str, Link | None, str | None]:
    """Return the text of a fact, and apart from it what of it is too large to be kept in place.

    Store the value's text under the key of the link first, then the fact. The key follows from the text: the same key
    always has the same text, and storing it again does no harm.

    Args:
        fact: What happened.
        limit: Longest text of a value that is kept in place, in bytes.
        prefix: Beginning of the key, such as the run id.

    Returns:
        The fact's text; the link that it has, and the text to store there, both None if the value is in place.

    Raises:
        LimitError: The value is longer than `MAX_PAYLOAD_BYTES`.
    """
    members, value = _parts(fact)
    if value is None:
        return _text_with(members, None), None, None
    value_text = _render(value, fact)
    if len(value_text) <= limit:
        return _text_with(members, f'"v":{value_text}'), None, None
    link = link_to(value_text, prefix)
    return encode_fact(fact, link), link, value_text


def link_to(value_text: str, prefix: str) -> Link:
    """Return the link to a text: its key is the prefix and the beginning of its hash."""
    digest = hashlib.sha256(value_text.encode("ascii")).hexdigest()
    return Link(f"{prefix}{digest[:32]}", len(value_text), digest)


def fact_link(fact_text: str) -> Link | None:
    """Return where the value of a fact lives; None if it is in place.

    Raises:
        FactUnreadableError: The text is no fact.
    """
    if '"l":' not in fact_text:
        return None
    fields = _fields(fact_text)
    return _link(fields["l"]) if "l" in fields else None


def decode_fact(fact_text: str, value_text: str | None = None) -> Fact:
    """Return the fact that `encode_fact` wrote.

    Args:
        fact_text: Its text.
        value_text: What is stored where its link points to, see `fact_link`.

    Raises:
        FactUnreadableError: The text is no fact, or one of a later version; its value is elsewhere, and was not given
            or is not the one that it was.
    """
    fields = _fields(fact_text)
    if "l" in fields:
        if value_text is None:
            raise FactUnreadableError("the value of a fact is stored elsewhere, and was not read.")
        fields["v"] = read_linked(_link(fields["l"]), value_text)
    try:
        return _READERS[text(fields, "t")](fields)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise FactUnreadableError(f"a stored fact cannot be read: {fault(error)}.") from error


def encode_link(link: Link) -> str:
    """Return a link as it stands in place of a payload's JSON text."""
    return f"@{_dumps([link.key, link.size, link.sha256])}"


def decode_link(payload: str) -> Link | None:
    """Return the link that stands in place of a payload; None if this is its JSON text.

    Raises:
        FactUnreadableError: It begins like a link, and is none.
    """
    if not payload.startswith("@"):
        return None
    try:
        return _link(json.loads(payload[1:]))
    except ValueError as error:
        raise FactUnreadableError("a link to a stored value cannot be read.") from error


def read_linked(link: Link, value_text: str) -> Json:
    """Return a value that was stored elsewhere.

    Raises:
        FactUnreadableError: It is not the text that was linked.
    """
    if len(value_text) != link.size or hashlib.sha256(value_text.encode()).hexdigest() != link.sha256:
        raise FactUnreadableError(f"the stored value '{link.key}' is not the one that was linked.")
    return cast(Json, json.loads(value_text))


def _parts(fact: Fact) -> tuple[dict[str, Json], Json]:
    """Return the members of a fact's text, and apart from them what may be large; None for nothing."""
    name = type(fact).__name__
    members: dict[str, Json] = {"t": _NAMES[name], "a": fact.at_ms}
    value: Json = None
    match fact:
        case StepCompleted():
            members |= _key_members(fact.key) | ({"n": fact.attempts} if fact.attempts != 1 else {}) | _elapsed(fact)
            value = fact.value
        case StepFailed():
            members |= _key_members(fact.key) | {"n": fact.attempts} | _elapsed(fact)
            value = failure_to_json(fact.failure)
        case AttemptFailed():
            members |= _key_members(fact.key) | {"n": fact.attempt, "x": fact.next_at_ms} | _elapsed(fact)
            value = failure_to_json(fact.failure)
        case AttemptStarted():
            members |= _key_members(fact.key) | {"n": fact.attempt}
        case TimerFired():
            members |= {"n": fact.number} | ({"d": fact.deadline_ms} if fact.deadline_ms != fact.at_ms else {})
        case SignalReceived():
            members |= {"i": fact.id, "k": fact.name}
            value = fact.value
        case CancelRequested():
            members |= {"i": fact.id} | ({"r": fact.reason} if fact.reason else {})
        case Patched():
            members["i"] = fact.patch_id
        case Suspended():
            pass
    return members, value


def _elapsed(fact: StepCompleted | StepFailed | AttemptFailed) -> dict[str, Json]:
    return {"e": fact.elapsed_ms} if fact.elapsed_ms else {}


def _key_members(key: Key) -> dict[str, Json]:
    members: dict[str, Json] = {"k": key.name}
    if key.occurrence:
        members["o"] = key.occurrence
    kind: str = key.kind
    if kind != "step":
        members["kd"] = kind
    return members


def _key(fields: Mapping[str, object]) -> Key:
    kind = optional(fields, "kd", str) or "step"
    if kind not in _KINDS:
        raise ValueError
    return Key(cast(Kind, kind), text(fields, "k"), optional(fields, "o", int) or 0)


def _attempts(fields: Mapping[str, object]) -> int:
    return integer(fields, "n") if "n" in fields else 1


def _value(fields: Mapping[str, object]) -> Json:
    return cast(Json, fields.get("v"))


def _failed(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "key": _key(fields),
        "at_ms": integer(fields, "a"),
        "failure": failure_from_json(fields["v"]),
        "elapsed_ms": _elapsed_ms(fields),
    }


def _elapsed_ms(fields: Mapping[str, object]) -> int:
    return optional(fields, "e", int) or 0


def _timer(fields: Mapping[str, object]) -> TimerFired:
    at_ms = integer(fields, "a")
    return TimerFired(
        number=integer(fields, "n"), deadline_ms=integer(fields, "d") if "d" in fields else at_ms, at_ms=at_ms
    )


_KINDS = frozenset({"step"})
_NAMES: Mapping[str, str] = {
    "StepCompleted": "c",
    "StepFailed": "f",
    "AttemptFailed": "r",
    "AttemptStarted": "b",
    "TimerFired": "t",
    "SignalReceived": "s",
    "CancelRequested": "x",
    "Patched": "p",
    "Suspended": "z",
}
_READERS: Mapping[str, Callable[[dict[str, Any]], Fact]] = {
    "c": lambda fields: StepCompleted(
        key=_key(fields),
        at_ms=integer(fields, "a"),
        value=_value(fields),
        attempts=_attempts(fields),
        elapsed_ms=_elapsed_ms(fields),
    ),
    "f": lambda fields: StepFailed(**_failed(fields), attempts=integer(fields, "n")),
    "r": lambda fields: AttemptFailed(**_failed(fields), attempt=integer(fields, "n"), next_at_ms=integer(fields, "x")),
    "b": lambda fields: AttemptStarted(key=_key(fields), at_ms=integer(fields, "a"), attempt=integer(fields, "n")),
    "t": _timer,
    "s": lambda fields: SignalReceived(
        id=text(fields, "i"), name=text(fields, "k"), at_ms=integer(fields, "a"), value=_value(fields)
    ),
    "x": lambda fields: CancelRequested(
        id=text(fields, "i"), at_ms=integer(fields, "a"), reason=optional(fields, "r", str) or ""
    ),
    "p": lambda fields: Patched(patch_id=text(fields, "i"), at_ms=integer(fields, "a")),
    "z": lambda fields: Suspended(at_ms=integer(fields, "a")),
}


def _fields(fact_text: str) -> dict[str, Any]:
    try:
        fields = json.loads(fact_text)
    except (ValueError, RecursionError) as error:
        raise FactUnreadableError("a stored fact is no JSON.") from error
    if not isinstance(fields, dict):
        raise FactUnreadableError("a stored fact is no object.")
    return fields


def _link(members: object) -> Link:
    match members:
        case [str(key), int(size), str(sha256), *_]:
            return Link(key, size, sha256)
    raise FactUnreadableError("a link to a stored value cannot be read.")


def _text_with(members: Mapping[str, Json], last: str | None) -> str:
    head = _dumps(members)
    return head if last is None else f"{head[:-1]},{last}}}"


def _render(value: Json, fact: Fact) -> str:
    rendered = _dumps(value)
    if len(rendered) > MAX_PAYLOAD_BYTES:
        match fact:
            case StepCompleted() | StepFailed() | AttemptFailed():
                where = f"the result of {fact.key}"
            case SignalReceived():
                where = f"the payload of signal '{fact.name}'"
            case _:
                where = "a fact"
        raise LimitError(where, MAX_PAYLOAD_BYTES, "bytes", len(rendered))
    return rendered
