"""What hosts of one app say to each other: a request to run something, and the answer.

A request is the payload of an Invoke, `{"iii": {"v": 1, "kind": ..., ...}}`:

| kind | value here | members | answered with |
|---|---|---|---|
| `call` | `RemoteCall` | `call`: see `core.call.call_to_json` | an answer |
| `forward` | `RemoteCall`, `is_forwarded` | the same; the dispatcher then calls the function's own host | an answer |
| `cron` | `RemoteTick` | `job`: id, `time`: RFC 3339 | an answer |
| `trigger` | `RemoteTrigger` | `request`: `{function_id, payload, action?, timeout_ms?, metadata?}` | an answer |

A payload too large for an Invoke lies in a blob: its call has no `p`, and `pl`, a link `{k, n, h}`, in its place.
An answer is `{"ok": result}`, `{"ok_blob": link}` or `{"error": {...}}`, see `core.remote_error`.

Both sides use this module: `encode_request` and `decode_request`; `encode_answer` and `decode_answer`.
`adapters.aws.remote_calls` moves what is too large into and out of blobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeAlias, TypeGuard, cast

from iii_runtime.core.call import Call, call_from_json, call_to_json
from iii_runtime.core.members import fault, integer, shown_version, text
from iii_runtime.core.message import BlobLink
from iii_runtime.core.payload import Json, PayloadError

VERSION = 1
MARK = "iii"
"""The member that tells a request of the runtime from an event of AWS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCall:
    """A call of a function.

    Attributes:
        call: The call; its payload is None if it lies in a blob.
        payload: Where the payload lies, if it is not in the call.
        is_forwarded: Whether the dispatcher is to call the function's own host.
    """

    call: Call
    payload: BlobLink | None = None
    is_forwarded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTick:
    """A tick of a cron job.

    Attributes:
        job_id: Which job.
        time: When it was due, aware.
    """

    job_id: str
    time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTrigger:
    """A request of `trigger`, as `core.trigger_request.parse_trigger_request` takes it."""

    request: Mapping[str, Json]


RemoteRequest: TypeAlias = RemoteCall | RemoteTick | RemoteTrigger


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a request came to: a result, where the result lies, or an error.

    Attributes:
        result: The result, None as well if it lies in a blob.
        blob: Where the result lies.
        error: See `describe_error`.
    """

    result: Json = None
    blob: BlobLink | None = None
    error: Mapping[str, Json] | None = None


def is_request(event: object) -> TypeGuard[Mapping[str, object]]:
    """Return whether an event is a request of another host of the app."""
    return isinstance(event, Mapping) and isinstance(event.get(MARK), Mapping)


def encode_request(request: RemoteRequest) -> dict[str, Json]:
    """Return the request as JSON."""
    return {MARK: {"v": VERSION, **_members(request)}}


def decode_request(event: Mapping[str, object]) -> RemoteRequest:
    """Parse a request.

    Raises:
        PayloadError: `request_unreadable`: no request, or one of a later version or of an unknown kind.
    """
    try:
        fields = _object(event, MARK)
        version = fields["v"]
        if version != VERSION:
            raise PayloadError(
                f"the request has version {shown_version(version)}; this runtime reads version {VERSION}.",
                code="request_unreadable",
            )
        return _request(fields)
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise PayloadError(f"the request cannot be read: {fault(error)}", code="request_unreadable") from error


def encode_answer(answer: Answer) -> dict[str, Json]:
    """Return the answer as JSON."""
    if answer.error is not None:
        return {"error": dict(answer.error)}
    return {"ok": answer.result} if answer.blob is None else {"ok_blob": encode_link(answer.blob)}


def decode_answer(answer: object) -> Answer:
    """Parse an answer.

    Raises:
        PayloadError: `answer_unreadable`.
    """
    try:
        if not isinstance(answer, Mapping):
            raise TypeError("it is no object")  # noqa: TRY301 - one place turns all of them into the error
        if "error" in answer:
            return Answer(error=cast("Mapping[str, Json]", _object(answer, "error")))
        if "ok_blob" in answer:
            return Answer(blob=decode_link(_object(answer, "ok_blob")))
        return Answer(result=cast(Json, answer["ok"]))
    except (LookupError, TypeError) as error:
        raise PayloadError(f"the answer cannot be read: {fault(error)}", code="answer_unreadable") from error


def encode_link(link: BlobLink) -> dict[str, Json]:
    """Return a link to a blob as JSON."""
    return {"k": link.key, "n": link.size, "h": link.sha256}


def decode_link(fields: Mapping[str, object]) -> BlobLink:
    """Parse a link to a blob.

    Raises:
        KeyError: A member is missing.
        TypeError: A member is of another type.
    """
    return BlobLink(key=text(fields, "k"), size=integer(fields, "n"), sha256=text(fields, "h"))


def _members(request: RemoteRequest) -> dict[str, Json]:
    if isinstance(request, RemoteTick):
        return {"kind": "cron", "job": request.job_id, "time": request.time.isoformat()}
    if isinstance(request, RemoteTrigger):
        return {"kind": "trigger", "request": dict(request.request)}
    call = call_to_json(request.call)
    if request.payload is not None:
        del call["p"]
        call["pl"] = encode_link(request.payload)
    return {"kind": "forward" if request.is_forwarded else "call", "call": call}


def _request(fields: Mapping[str, object]) -> RemoteRequest:
    kind = text(fields, "kind")
    if kind in {"call", "forward"}:
        return replace(_call(_object(fields, "call")), is_forwarded=kind == "forward")
    if kind == "cron":
        return RemoteTick(job_id=text(fields, "job"), time=_instant(text(fields, "time")))
    if kind == "trigger":
        return RemoteTrigger(request=cast("Mapping[str, Json]", _object(fields, "request")))
    raise KeyError("kind")


def _call(fields: Mapping[str, object]) -> RemoteCall:
    members = cast("Mapping[str, Json]", fields)
    if "pl" not in members:
        return RemoteCall(call=call_from_json(members))
    return RemoteCall(call=call_from_json({**members, "p": None}), payload=decode_link(_object(fields, "pl")))


def _instant(value: str) -> datetime:
    instant = datetime.fromisoformat(value)
    if instant.tzinfo is None:
        raise TypeError("member 'time' has no time zone")
    instant.astimezone(UTC)  # one that has none in UTC could not be compared with any other
    return instant


def _object(fields: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = fields[name]
    if not isinstance(value, Mapping):
        raise TypeError(f"member {name!r} is not an object")
    return value
