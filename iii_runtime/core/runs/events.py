"""What viewers are told of a run: the changes of the stream `runs`. No input, result or payload is in them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from iii_runtime.core.change import StreamChange
from iii_runtime.core.payload import Json
from iii_runtime.core.runs.fact_codec import decode_fact, fact_link
from iii_runtime.core.runs.facts import (
    AttemptFailed,
    AttemptStarted,
    CancelRequested,
    Fact,
    Patched,
    SignalReceived,
    StepCompleted,
    StepFailed,
    Suspended,
    TimerFired,
)
from iii_runtime.core.runs.failure import Failure
from iii_runtime.core.runs.failures import failure_to_json
from iii_runtime.core.runs.record import RunRecord

RUNS_STREAM = "runs"
"""The stream's name. Its groups are workflow ids, its items run ids."""

_LONGEST_MESSAGE = 300
_ELSEWHERE = Failure(type="", message="")
_KINDS: Mapping[type[Fact], str] = {
    StepCompleted: "step_completed",
    StepFailed: "step_failed",
    AttemptFailed: "attempt_failed",
    AttemptStarted: "attempt_started",
    TimerFired: "timer_fired",
    SignalReceived: "signal_received",
    CancelRequested: "cancel_requested",
    Patched: "patched",
    Suspended: "suspended",
}


def run_event(record: RunRecord, facts: Sequence[Fact]) -> Json:
    """Return what is told of a run.

    Members: `workflow`, `workflow_id`, `run_id`, `status`; `facts`, how many its journal has; `last_fact`, the last of
    those that came with this change, null if there are none; `waiting`, null while it is executed or closed, else
    `until_ms`, which is null if it waits for a delivery alone; `parked`, the reason; and the instants `created_ms`,
    `cancel_requested_ms`, `deadline_ms` and `closed_ms`, Unix milliseconds or null.

    A fact has a `kind`, `at_ms`, and what is known of it: `name`, `occurrence`, `attempt`, `attempts`, `elapsed_ms` of
    its last attempt, `error` with `type` and `message`, null if it is stored apart, `next_at_ms`, `deadline_ms`,
    `reason`, `patch_id`.
    """
    is_waiting = record.is_open and record.lease_until_ms is None and record.parked is None
    return {
        "workflow": record.workflow,
        "workflow_id": record.workflow_id,
        "run_id": record.run_id,
        "status": record.status,
        "facts": record.sequence,
        "last_fact": told_fact(facts[-1]) if facts else None,
        "waiting": {"until_ms": record.wake_at_ms} if is_waiting else None,
        "parked": record.parked,
        "created_ms": record.created_ms,
        "cancel_requested_ms": record.cancel_requested_ms,
        "deadline_ms": record.deadline_ms,
        "closed_ms": record.closed_ms,
    }


def run_change(before: RunRecord | None, after: RunRecord, texts: Sequence[str], at_ms: int) -> StreamChange | None:
    """Return the change that a write makes; None if it changes nothing that is told.

    Args:
        before: The record before the write; None for a new run.
        after: The record now.
        texts: The facts that the write has added, as they are stored.
        at_ms: When, Unix milliseconds.
    """
    if before is not None and not texts and _shown(before) == _shown(after):
        return None
    return StreamChange(
        at_ms=at_ms,
        kind="create" if before is None else "update",
        stream_name=RUNS_STREAM,
        group_id=after.workflow_id,
        item_id=after.run_id,
        data=run_event(after, [_decoded(text) for text in texts[-1:]]),
    )


def _shown(record: RunRecord) -> tuple[object, ...]:
    waits = record.lease_until_ms is None
    wake_at_ms = record.wake_at_ms if waits and record.is_open else None
    return record.status, waits, wake_at_ms, record.parked, record.cancel_requested_ms


def _decoded(text: str) -> Fact:
    """Return a fact, without its value if that is stored elsewhere: what is told of a fact never needs it."""
    if fact_link(text) is None:
        return decode_fact(text)
    fields = json.loads(text)
    del fields["l"]
    return decode_fact(json.dumps({**fields, "v": failure_to_json(_ELSEWHERE)}))


def told_fact(fact: Fact) -> dict[str, Json]:
    """Return what is told of a fact; see `run_event` for the members."""
    members: dict[str, Json] = {"kind": _KINDS[type(fact)], "at_ms": fact.at_ms}
    match fact:
        case StepCompleted() | StepFailed() | AttemptFailed() | AttemptStarted():
            members |= _told_of_step(fact)
        case TimerFired():
            members["deadline_ms"] = fact.deadline_ms
        case SignalReceived():
            members["name"] = fact.name
        case CancelRequested():
            members["reason"] = fact.reason
        case Patched():
            members["patch_id"] = fact.patch_id
        case Suspended():
            pass
    return members


def _told_of_step(fact: StepCompleted | StepFailed | AttemptFailed | AttemptStarted) -> dict[str, Json]:
    members: dict[str, Json] = {"name": fact.key.name, "occurrence": fact.key.occurrence}
    if isinstance(fact, StepCompleted | StepFailed):
        members["attempts"] = fact.attempts
    else:
        members["attempt"] = fact.attempt
    if not isinstance(fact, AttemptStarted):
        members["elapsed_ms"] = fact.elapsed_ms
    if isinstance(fact, StepFailed | AttemptFailed):
        members["error"] = _error(fact.failure)
    if isinstance(fact, AttemptFailed):
        members["next_at_ms"] = fact.next_at_ms
    return members


def _error(failure: Failure) -> Json:
    if failure == _ELSEWHERE:
        return None
    return {"type": failure.type, "message": failure.message[:_LONGEST_MESSAGE]}
