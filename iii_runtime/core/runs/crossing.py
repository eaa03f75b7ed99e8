"""How what is said of runs crosses to a client in another process: errors, and why a run ended without a result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from iii_runtime.core.errors import IiiError, InvocationError
from iii_runtime.core.payload import Json
from iii_runtime.core.runs.errors import (
    InboxFullError,
    QueryError,
    RunAlreadyStartedError,
    RunCancelledError,
    RunClosedError,
    RunError,
    RunFailedError,
    RunNotCompletedError,
    RunNotFoundError,
    RunTerminatedError,
    RunTimedOutError,
    WorkflowDivergedError,
)
from iii_runtime.core.runs.failure import Failure
from iii_runtime.core.runs.record import Status

NOT_COMPLETED: Mapping[Status, type[RunNotCompletedError]] = {
    "failed": RunFailedError,
    "cancelled": RunCancelledError,
    "terminated": RunTerminatedError,
    "timed_out": RunTimedOutError,
}
"""The error that is raised for a run that has ended so."""

_ABOUT = ("workflow_id", "run_id", "status", "limit")


def refusal_of(error: IiiError, function_id: str) -> InvocationError:
    """Return what the caller of a function is told of an error of runs: its code, its text, what it is about."""
    values = {name: getattr(error, name, None) for name in _ABOUT}
    about = {name: value for name, value in values.items() if isinstance(value, str | int)}
    return InvocationError(error.code, error.message, function_id, about=about)


def run_error_of(error: InvocationError) -> IiiError:
    """Return the error of runs that `refusal_of` was given; the error itself if it is none of them."""
    reader = _READERS.get(error.code)
    if reader is None:
        return error
    try:
        return reader(error)
    except KeyError:  # of a host that says less
        return error


def told_failure(failure: Failure) -> dict[str, Json]:
    """Return a failure as clients are told it: `type`, `message`, and if there are any `stack` and `cause`.

    With `non_retryable` if it says that no further attempt can succeed.
    """
    members: dict[str, Json] = {"type": failure.type, "message": failure.message}
    if failure.stack:
        members["stack"] = failure.stack
    if failure.non_retryable:
        members["non_retryable"] = True
    if failure.cause is not None:
        members["cause"] = told_failure(failure.cause)
    return members


def failure_told(members: Mapping[str, Json]) -> Failure:
    """Return the failure that `told_failure` told. What is missing is empty."""
    cause = members.get("cause")
    return Failure(
        type=str(members.get("type") or "Error"),
        message=str(members.get("message") or ""),
        stack=str(members.get("stack") or ""),
        non_retryable=members.get("non_retryable") is True,
        cause=failure_told(cause) if isinstance(cause, dict) else None,
    )


def _closed(error: InvocationError) -> RunError:
    return RunClosedError(*(str(error.about[name]) for name in ("workflow_id", "run_id", "status")))


def _already_started(error: InvocationError) -> RunError:
    return RunAlreadyStartedError(*(str(error.about[name]) for name in ("workflow_id", "run_id", "status")))


def _not_found(error: InvocationError) -> RunError:
    return RunNotFoundError(str(error.about["workflow_id"]), cast("str | None", error.about.get("run_id")))


_READERS: Mapping[str, Callable[[InvocationError], RunError]] = {
    RunNotFoundError.code: _not_found,
    RunClosedError.code: _closed,
    RunAlreadyStartedError.code: _already_started,
    InboxFullError.code: lambda error: InboxFullError(str(error.about["workflow_id"]), int(error.about["limit"])),
    QueryError.code: lambda error: QueryError(error.message),
    WorkflowDivergedError.code: lambda error: WorkflowDivergedError(error.message),
}
