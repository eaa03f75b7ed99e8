"""Failures: made of an exception, written to a journal, read again."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import PurePath
from types import TracebackType

from iii_runtime.core.errors import NonRetryableError, message_of
from iii_runtime.core.members import optional, text
from iii_runtime.core.message import bounded_text, printable
from iii_runtime.core.payload import Json
from iii_runtime.core.runs.errors import RecordedError, RunError
from iii_runtime.core.runs.failure import Failure

MAX_CAUSES = 8
"""Longest chain of causes that is kept, from the error itself on."""
MAX_TYPE_BYTES = 256
MAX_MESSAGE_BYTES = 2048
MAX_STACK_BYTES = 2048
"""Bounds of what a journal keeps of one error, as JSON text."""

_PACKAGE = str(PurePath(__file__).parents[2])
_BETWEEN = (
    _PACKAGE,
    str(PurePath(traceback.__file__).parent / "asyncio"),
    str(PurePath(traceback.__file__).parent / "concurrent"),
)
_MOST_SHOWN = 5


def failure_of(error: BaseException, *, stack_bytes: int = MAX_STACK_BYTES) -> Failure:
    """Return what is kept of an error and of what it was raised from. Never raises, whatever the error's own code does.

    The type is the name of the class, or the error's own `type` if that is a text. Causes are followed as a traceback
    shows them; a group of errors without a cause has its first one as cause and names the others. A `RecordedError` is
    the failure that it stands for.

    Args:
        error: What was raised.
        stack_bytes: Longest stack of each error, as JSON text; its end is kept.
    """
    failure: Failure | None = None
    for each in reversed(_chain(error)):
        if isinstance(each, RecordedError):
            failure = each.failure
            continue
        failure = Failure(
            type=bounded_text(printable(_type_of(each)), MAX_TYPE_BYTES),
            message=bounded_text(printable(_message_of(each)), MAX_MESSAGE_BYTES),
            stack=bounded_text(printable(_stack_of(each)), stack_bytes, keep_end=True),
            non_retryable=isinstance(each, NonRetryableError),
            cause=failure,
        )
    return failure if failure is not None else Failure(type=type(error).__name__, message="")


def failure_to_json(failure: Failure) -> dict[str, Json]:
    """Return a failure as it is stored; members without a value are left out."""
    members: dict[str, Json] = {"t": failure.type, "m": failure.message}
    if failure.stack:
        members["s"] = failure.stack
    if failure.non_retryable:
        members["f"] = 1
    if failure.cause is not None:
        members["c"] = failure_to_json(failure.cause)
    return members


def failure_from_json(fields: Mapping[str, object]) -> Failure:
    """Return the failure that `failure_to_json` wrote. Members that it does not know are passed over.

    Raises:
        KeyError: A member is missing.
        TypeError: A member is of another type.
    """
    chain: list[Mapping[str, object]] = [fields]
    while (cause := optional(chain[-1], "c", dict)) is not None:
        chain.append(cause)
    failure: Failure | None = None
    for each in reversed(chain):
        failure = Failure(
            type=text(each, "t"),
            message=text(each, "m"),
            stack=optional(each, "s", str) or "",
            non_retryable=bool(each.get("f")),
            cause=failure,
        )
    assert failure is not None  # noqa: S101 - the chain has `fields` at least
    return failure


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and len(chain) < MAX_CAUSES and not any(each is one for one in chain):
        chain.append(each)
        if isinstance(each, RecordedError):
            break
        each = _cause_of(each)
    return chain


def _cause_of(error: BaseException) -> BaseException | None:
    if error.__cause__ is not None:
        return error.__cause__
    if isinstance(error, BaseExceptionGroup):
        first: BaseException = error.exceptions[0]
        return first
    return None if error.__suppress_context__ else error.__context__


def _type_of(error: BaseException) -> str:
    if not isinstance(error, RunError):
        try:
            given = getattr(error, "type", None)
            if isinstance(given, str) and given:
                return str.__str__(given)
        except BaseException:  # noqa: BLE001, S110 - user code; the class has a name in any case
            pass
    return type(error).__name__


def _message_of(error: BaseException) -> str:
    if not isinstance(error, BaseExceptionGroup):
        return message_of(error)
    inner = [f"{type(each).__name__}: {message_of(each)}" for each in error.exceptions[:_MOST_SHOWN]]
    return f"{message_of(error)}: {'; '.join(inner)}"


def _stack_of(error: BaseException) -> str:
    start: TracebackType | None = error.__traceback__
    while start is not None and start.tb_next is not None and start.tb_frame.f_code.co_filename.startswith(_BETWEEN):
        start = start.tb_next
    try:
        return "".join(traceback.format_tb(start))
    except BaseException:  # noqa: BLE001 - reading source lines may run a loader of the user's
        return ""
