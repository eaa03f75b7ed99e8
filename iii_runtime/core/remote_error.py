"""How an error crosses from one host of an app to another: described there, and raised again here."""

from __future__ import annotations

from collections.abc import Mapping

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
from iii_runtime.core.message import bounded_error, printable
from iii_runtime.core.payload import Json, PayloadError, render_json, to_json

_LARGEST_DETAILS = 64 * 1024


def describe_error(error: BaseException) -> dict[str, Json]:
    """Return an error as it crosses hosts; texts are cut to the bounds of a letter.

    Members: `code`, `message`, `function_id`, `stacktrace`, `invocation_id`, and `reason` of an `EnqueueError`. If a
    handler raised, `type` names its exception, `text` is what that one says where it is not `message`, and `final` says
    that no further attempt can help. If its host died, `interrupted` says so. `details` lists the problems of an input
    that does not fit, `about` has the members of that name. Members without a value are left out. Any error of the
    runtime keeps its code, such as `store_throttled`; one that is none is `invocation_failed`.
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
        "about": {**error.about} or None,
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
    stacktrace, invocation_id = _text(fields, "stacktrace"), _text(fields, "invocation_id")
    about = told_about(fields.get("about"))
    error = InvocationError(code, message, function_id, stacktrace, invocation_id, about=about)
    error.__cause__ = _cause_of(fields, message)
    return error


def told_about(value: object) -> dict[str, str | int]:
    """Return what an error that has crossed says of itself to programs, see `InvocationError.about`."""
    if not isinstance(value, Mapping):
        return {}
    return {name: each for name, each in value.items() if isinstance(name, str) and isinstance(each, str | int)}


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
