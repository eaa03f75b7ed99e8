"""What is told of one run to who asks for it: a description of where it stands, and its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iii_runtime.core.payload import Json
from iii_runtime.core.runs.crossing import told_failure
from iii_runtime.core.runs.events import told_fact
from iii_runtime.core.runs.facts import (
    AttemptFailed,
    AttemptStarted,
    Fact,
    Key,
    SignalReceived,
    StepCompleted,
    StepFailed,
)
from iii_runtime.core.runs.record import RunRecord


def summary(record: RunRecord) -> dict[str, Json]:
    """Return a run as a listing shows it.

    Members: `workflow_id`, `run_id`, `workflow`, `status`, `created_ms`, `closed_ms`, null while it is open, `parked`,
    the reason or null, and `facts`, how many its journal has.
    """
    return {
        "workflow_id": record.workflow_id,
        "run_id": record.run_id,
        "workflow": record.workflow,
        "status": record.status,
        "created_ms": record.created_ms,
        "closed_ms": record.closed_ms,
        "parked": record.parked,
        "facts": record.sequence,
    }


def describe(record: RunRecord, facts: Sequence[Fact], waiting_for: Sequence[str] | None, now_ms: int) -> Json:
    """Return where a run stands.

    Members beyond those of `summary`: `first_run_id`, `start_at_ms`, `deadline_ms`, `cancel_requested_ms`;
    `messages`, how many wait in its inbox; `last_step`, the last of its journal, as a fact of `history` without its
    value; `retrying`, the steps whose last attempt failed, each with `name`, `occurrence`, `attempt`, `error` and
    `next_at_ms`; `executing`, null unless somebody holds the run: `since_ms`, when what it does now has begun;
    `waiting`, null unless it is suspended: `until_ms`, null if only a delivery wakes it; `waiting_for`, in words, null
    where the code of the workflow is not at hand.
    """
    is_waiting = record.is_open and record.lease_until_ms is None and record.parked is None
    is_executing = record.is_leased(now_ms)
    last = next((fact for fact in reversed(facts) if isinstance(fact, _OF_STEPS)), None)
    return {
        **summary(record),
        "first_run_id": record.first_run_id,
        "start_at_ms": record.start_at_ms,
        "deadline_ms": record.deadline_ms,
        "cancel_requested_ms": record.cancel_requested_ms,
        "messages": len(record.inbox),
        "last_step": None if last is None else told_fact(last),
        "retrying": _retrying(facts) if record.is_open else [],
        "executing": {"since_ms": _since_ms(record, facts)} if is_executing else None,
        "waiting": {"until_ms": record.wake_at_ms} if is_waiting else None,
        "waiting_for": None if waiting_for is None or not record.is_open else list(waiting_for),
    }


def history(record: RunRecord, payload: Json, facts: Sequence[Fact], ending: Mapping[str, Json]) -> list[Json]:
    """Return all that has happened to a run, in order.

    Each event has a `kind` and `at_ms`. The first is `run_started`, with the `input`; the last one of a closed run is
    `run_closed`, with `status`, and `result`, `error` or `reason`. Between them are its facts, see `run_event`, with
    the `value` of a completed step or a signal; an `error` has its causes.
    """
    started: dict[str, Json] = {"kind": "run_started", "at_ms": record.created_ms, "input": payload}
    events: list[Json] = [started, *map(_event, facts)]
    if not record.is_open:
        events.append({"kind": "run_closed", "at_ms": record.closed_ms, **ending})
    return events


_OF_STEPS = (StepCompleted, StepFailed, AttemptFailed, AttemptStarted)


def _event(fact: Fact) -> Json:
    told = told_fact(fact)
    if isinstance(fact, StepCompleted | SignalReceived):
        told["value"] = fact.value
    if isinstance(fact, StepFailed | AttemptFailed):
        told["error"] = told_failure(fact.failure)
    return told


def _retrying(facts: Sequence[Fact]) -> list[Json]:
    open_steps: dict[Key, Json] = {}
    for fact in facts:
        if isinstance(fact, AttemptFailed):
            told = told_fact(fact)
            open_steps[fact.key] = {name: told[name] for name in _RETRYING}
        elif isinstance(fact, StepCompleted | StepFailed):
            open_steps.pop(fact.key, None)
    return list(open_steps.values())


_RETRYING = ("name", "occurrence", "attempt", "error", "next_at_ms")


def _since_ms(record: RunRecord, facts: Sequence[Fact]) -> int:
    began_ms = record.start_at_ms or record.created_ms
    return facts[-1].at_ms if facts else began_ms
