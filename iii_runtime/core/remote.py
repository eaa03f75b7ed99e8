"""What hosts of one app say to each other: a request to run something, and the answer.

A request is the payload of an Invoke, `{"iii": {"v": 1, "kind": ..., ...}}`:

| kind | value here | members | answered with |
|---|---|---|---|
| `call` | `RemoteCall` | `call`: see `core.call.call_to_json` | an answer |
| `forward` | `RemoteCall`, `is_forwarded` | the same; the dispatcher then calls the function's own host | an answer |
| `cron` | `RemoteTick` | `job`: id, `time`: RFC 3339 | an answer |
| `trigger` | `RemoteTrigger` | `request`: `{function_id, payload, action?, timeout_ms?, metadata?}` | an answer |

A payload too large for an Invoke lies in a blob: its call has no `p`, and `pl`, a link `{k, n, h}`, in its place.
An answer is `{"ok": result}`, `{"ok_blob": link}` or `{"error": {...}}`, see `describe_error`.

Both sides use this module: `encode_request` and `decode_request`; `encode_answer` and `decode_answer`.
`adapters.aws.remote_calls` moves what is too large into and out of blobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeAlias, TypeGuard, cast

from iii_runtime.core.call import Call, call_from_json, call_to_json
from iii_runtime.core.errors import (
    EnqueueError,
    FunctionBusyError,
    FunctionInterruptedError,
    IiiError,
    InputInvalidError,
    InvocationError,
    NonRetryableError,
    RemoteHandlerError,
    message_of,
)
from iii_runtime.core.members import fault, integer, shown_version, text
from iii_runtime.core.message import BlobLink, bounded_error, printable
from iii_runtime.core.payload import Json, PayloadError, render_json, to_json

VERSION = 1
MARK = "iii"
"""The member that tells a request of the runtime from an event of AWS."""

_LARGEST_DETAILS = 64 * 1024


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


def describe_error(error: BaseException) -> dict[str, Json]:
    """Return an error as it crosses hosts; texts are cut to the bounds of a letter.

    Members: `code`, `message`, `function_id`, `stacktrace`, `invocation_id`, and `reason` of an `EnqueueError`. If a
    handler raised, `type` names its exception, `text` is what that one says where it is not `message`, and `final` says
    that no further attempt can help. If its host died, `interrupted` says so. `details` lists the problems of an input
    that does not fit. Members without a value are left out. Any error of the runtime keeps its code, such as
    `store_throttled`; one that is none is `invocation_failed`.
    """
    if not isinstance(error, InvocationError):
        error = _wrapped(error)
    record = bounded_error(error.code, error.message, error.stacktrace or "")
    members: dict[str, Json] = {
        "code": error.code,
        "message": record.message,
        "function_id": None if error.function_id is None else printable(error.function_id),
        "stacktrace": record.stack or None,
        "invocation_id": error.invocation_id,
        "reason": error.reason if isinstance(error, EnqueueError) else None,
        **_describe_cause(error.__cause__, record.message),
    }
    return {name: value for name, value in members.items() if value is not None}


def error_of(fields: Mapping[str, object]) -> InvocationError | FunctionBusyError:
    """Return the error that `describe_error` described, its `__cause__` as an `except` there would have seen it.

    A handler's exception comes back as a `RemoteHandlerError`, an input that did not fit as an `InputInvalidError`, the
    death of its host as a `FunctionInterruptedError`. A function that could not be started is a `FunctionBusyError`,
    whoever found it busy.
    """
    code = _text(fields, "code") or "invocation_failed"
    message = _text(fields, "message") or "the function failed, and its host did not say why"
    if code == FunctionBusyError.code:
        return FunctionBusyError(message)
    function_id, reason = _text(fields, "function_id"), _text(fields, "reason")
    if reason is not None:
        return EnqueueError(reason, message, function_id)
    error = InvocationError(code, message, function_id, _text(fields, "stacktrace"), _text(fields, "invocation_id"))
    error.__cause__ = _cause_of(fields, message)
    return error


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


def _wrapped(error: BaseException) -> InvocationError:
    """Return what a caller is told of an error that no invoker has wrapped: one of the runtime keeps its code."""
    code = error.code if isinstance(error, IiiError) else "invocation_failed"
    wrapped = InvocationError(code, message_of(error))
    wrapped.__cause__ = error
    return wrapped


def _describe_cause(cause: BaseException | None, message: str) -> dict[str, Json]:
    if cause is None:
        return {}
    if isinstance(cause, InputInvalidError):
        return {"details": _details(cause)}
    if isinstance(cause, RemoteHandlerError):
        record, is_final = bounded_error(cause.type_name, cause.message), cause.is_final
    else:
        record = bounded_error(type(cause).__name__, message_of(cause))
        is_final = isinstance(cause, NonRetryableError)
    own = None if record.message == message else record.message
    is_interrupted = isinstance(cause, FunctionInterruptedError)
    return {"type": record.type, "text": own, "final": is_final or None, "interrupted": is_interrupted or None}


def _details(error: InputInvalidError) -> list[Json]:
    try:
        details = to_json(error.details, "details")
        is_small = len(render_json(details)) <= _LARGEST_DETAILS
    except PayloadError:  # the message says it too; the details are for programs
        return []
    return details if is_small and isinstance(details, list) else []


def _cause_of(fields: Mapping[str, object], message: str) -> BaseException | None:
    details = fields.get("details")
    if isinstance(details, list):
        return InputInvalidError(message, [dict(problem) for problem in details if isinstance(problem, Mapping)])
    type_name = _text(fields, "type")
    if type_name is None:
        return None
    told = _text(fields, "text") or message
    if fields.get("interrupted") is True:
        return FunctionInterruptedError(type_name, told)
    return RemoteHandlerError(type_name, told, is_final=fields.get("final") is True)


def _text(fields: Mapping[str, object], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) else None
