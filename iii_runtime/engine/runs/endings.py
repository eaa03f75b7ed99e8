"""How runs end: what is stored of a result or a failure, and what of it is told to who asks for the result."""

from __future__ import annotations

from typing import Any, cast

from iii_runtime.core.payload import Json, PayloadError, render_json
from iii_runtime.core.runs.crossing import NOT_COMPLETED, told_failure
from iii_runtime.core.runs.failure import Failure
from iii_runtime.core.runs.failures import failure_from_json, failure_of, failure_to_json
from iii_runtime.core.runs.record import RunRecord, Status
from iii_runtime.core.runs.values import decode_value, encode_value
from iii_runtime.core.workflow.commands import Complete, EndCancelled, Fail
from iii_runtime.engine.runs.journal import Journal
from iii_runtime.ports.run_store import Closing


async def closing_of(end: Complete | Fail | EndCancelled, journal: Journal, record: RunRecord, at_ms: int) -> Closing:
    """Return how a run is closed whose workflow has ended so. A result that cannot be kept is a failure."""
    status: Status = "completed"
    if isinstance(end, Complete):
        try:
            content = encode_value(end.value, "the result of the workflow")
        except PayloadError as error:
            status, content = "failed", _failed(error)
    else:
        status = "cancelled" if isinstance(end, EndCancelled) else "failed"
        content = _failed(end.error)
    outcome = await journal.kept(record.workflow_id, f"{record.run_id}.outcome", render_json(content, "the outcome"))
    return Closing(status=status, outcome=outcome, at_ms=at_ms)


def timed_out(record: RunRecord, at_ms: int) -> Closing:
    """Return how a run is closed that has reached its longest life."""
    lived_s = ((record.deadline_ms or at_ms) - (record.start_at_ms or record.created_ms)) / 1000
    return Closing(status="timed_out", outcome=reason(f"not completed within {lived_s:g} s"), at_ms=at_ms)


def reason(text: str) -> str:
    """Return the outcome of a run that was ended from outside."""
    return render_json({"r": text[:1000]}, "the reason")


async def result_of(journal: Journal, record: RunRecord, hint: Any = None) -> Any:
    """Return the result of a closed run.

    Args:
        journal: Where its outcome is read.
        record: The run.
        hint: The type of the result, as an annotation; plain values without one.

    Raises:
        RunNotCompletedError: It has none; each way of ending has a class of its own.
    """
    content = None if record.outcome is None else await journal.value(record, record.outcome)
    if record.status == "completed":
        return decode_value(content, hint, "the result of the run")
    failure, why = _read(content)
    raise NOT_COMPLETED[record.status](record.workflow_id, record.run_id, failure, why)


async def ending_of(journal: Journal, record: RunRecord) -> dict[str, Json]:
    """Return how a run stands, for who asks from elsewhere: `status`, and by that `result`, or `error` or `reason`.

    The result is as `encode_value` wrote it, the error as `told_failure` tells it.
    """
    ending: dict[str, Json] = {"status": record.status}
    content = None if record.outcome is None else await journal.value(record, record.outcome)
    if record.status == "completed":
        return ending | {"result": content}
    failure, why = _read(content)
    if failure is not None:
        ending["error"] = told_failure(failure)
    return ending | ({"reason": why} if why else {})


def told(content: Json) -> Json:
    """Return what is told of an outcome to who cannot be raised at: the failure, or the reason."""
    failure, why = _read(content)
    return {"message": why} if failure is None else {"type": failure.type, "message": failure.message}


def _failed(error: BaseException) -> Json:
    return {"f": cast(Json, failure_to_json(failure_of(error)))}


def _read(content: Json) -> tuple[Failure | None, str]:
    if not isinstance(content, dict):
        return None, ""
    failure = content.get("f")
    return (None if not isinstance(failure, dict) else failure_from_json(failure)), str(content.get("r") or "")
