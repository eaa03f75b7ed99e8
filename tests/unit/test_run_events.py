"""What viewers are told of runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iii_runtime.core.payload import Json
from iii_runtime.core.runs.events import run_change, run_event
from iii_runtime.core.runs.fact_codec import encode_fact, link_to
from iii_runtime.core.runs.facts import (
    AttemptFailed,
    AttemptStarted,
    CancelRequested,
    Fact,
    Key,
    Patched,
    SignalReceived,
    StepCompleted,
    StepFailed,
    Suspended,
    TimerFired,
)
from iii_runtime.core.runs.failure import Failure
from iii_runtime.core.runs.record import InboxItem, RunRecord

KEY = Key("step", "charge", 2)
FAILURE = Failure(type="Declined", message="no " * 200, stack="secret stack")
ERROR: Json = {"type": "Declined", "message": ("no " * 200)[:300]}
LEASED = RunRecord(
    workflow_id="w",
    run_id="r",
    first_run_id="r",
    workflow="orders::process",
    epoch=1,
    owner="me",
    lease_until_ms=100,
    created_ms=5,
    input='"secret input"',
)
WAITING = replace(LEASED, owner=None, lease_until_ms=None, wake_at_ms=70)

TOLD: list[tuple[Fact, dict[str, Json]]] = [
    (
        StepCompleted(key=KEY, at_ms=9, value="secret", attempts=3, elapsed_ms=7),
        {"kind": "step_completed", "name": "charge", "occurrence": 2, "attempts": 3, "elapsed_ms": 7},
    ),
    (
        StepFailed(key=KEY, at_ms=9, failure=FAILURE, attempts=3),
        {"kind": "step_failed", "name": "charge", "occurrence": 2, "attempts": 3, "elapsed_ms": 0, "error": ERROR},
    ),
    (
        AttemptFailed(key=KEY, at_ms=9, attempt=1, failure=FAILURE, next_at_ms=30, elapsed_ms=12),
        {
            "kind": "attempt_failed",
            "name": "charge",
            "occurrence": 2,
            "attempt": 1,
            "elapsed_ms": 12,
            "error": ERROR,
            "next_at_ms": 30,
        },
    ),
    (
        AttemptStarted(key=KEY, at_ms=9, attempt=1),
        {"kind": "attempt_started", "name": "charge", "occurrence": 2, "attempt": 1},
    ),
    (TimerFired(number=0, deadline_ms=8, at_ms=9), {"kind": "timer_fired", "deadline_ms": 8}),
    (SignalReceived(id="i", name="paid", at_ms=9, value="secret"), {"kind": "signal_received", "name": "paid"}),
    (CancelRequested(id="i", at_ms=9, reason="late"), {"kind": "cancel_requested", "reason": "late"}),
    (Patched(patch_id="p", at_ms=9), {"kind": "patched", "patch_id": "p"}),
    (Suspended(at_ms=9), {"kind": "suspended"}),
]


@pytest.mark.parametrize(("fact", "expected"), TOLD, ids=[type(fact).__name__ for fact, _ in TOLD])
def test_a_fact_is_told_without_its_value(fact: Fact, expected: dict[str, Json]) -> None:
    change = run_change(LEASED, replace(LEASED, sequence=1), ["ignored", encode_fact(fact)], 9)
    assert change is not None
    assert isinstance(change.data, dict)
    assert change.data["last_fact"] == {"at_ms": 9, **expected}
    assert "secret" not in str(change.data)


def test_a_fact_whose_value_is_stored_apart_is_told_all_the_same() -> None:
    for fact, expected in TOLD[:3]:
        text = encode_fact(fact, link_to('"the value"', "r/"))
        change = run_change(LEASED, replace(LEASED, sequence=1), [text], 9)
        assert change is not None
        assert isinstance(change.data, dict)
        wanted = {"at_ms": 9, **expected} | ({"error": None} if "error" in expected else {})
        assert change.data["last_fact"] == wanted


def test_a_run_is_told_with_what_it_waits_for() -> None:
    assert run_event(WAITING, []) == {
        "workflow": "orders::process",
        "workflow_id": "w",
        "run_id": "r",
        "status": "running",
        "facts": 0,
        "last_fact": None,
        "waiting": {"until_ms": 70},
        "parked": None,
        "created_ms": 5,
        "cancel_requested_ms": None,
        "deadline_ms": None,
        "closed_ms": None,
    }


@pytest.mark.parametrize(
    ("record", "waiting"),
    [
        (LEASED, None),
        (replace(WAITING, wake_at_ms=None), {"until_ms": None}),
        (replace(WAITING, parked="diverged", wake_at_ms=None), None),
        (replace(WAITING, status="completed"), None),
    ],
    ids=["executed", "for a delivery alone", "parked", "closed"],
)
def test_what_a_run_waits_for(record: RunRecord, waiting: Json) -> None:
    event = run_event(record, [])
    assert isinstance(event, dict)
    assert event["waiting"] == waiting


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (LEASED, replace(LEASED, lease_until_ms=200)),
        (LEASED, replace(LEASED, wake_at_ms=100)),
        (LEASED, replace(LEASED, inbox=(InboxItem(id="i", kind="signal", at_ms=1),), wake_at_ms=1)),
        (replace(WAITING, status="failed", duties=("d",)), replace(WAITING, status="failed", wake_at_ms=None)),
    ],
    ids=["a renewal", "a guard", "an item for its holder", "duties done"],
)
def test_what_changes_nothing_that_is_told_is_not_told(before: RunRecord, after: RunRecord) -> None:
    assert run_change(before, after, [], 9) is None


@pytest.mark.parametrize(
    "after",
    [
        WAITING,
        replace(LEASED, cancel_requested_ms=4),
        replace(LEASED, status="terminated", lease_until_ms=None),
        replace(WAITING, parked="why", wake_at_ms=None),
    ],
    ids=["given back", "a cancellation", "terminated", "parked"],
)
def test_what_changes_what_is_told_is_told(after: RunRecord) -> None:
    change = run_change(LEASED, after, [], 9)
    assert change is not None
    assert (change.kind, change.at_ms, change.stream_name, change.group_id, change.item_id) == (
        "update",
        9,
        "runs",
        "w",
        "r",
    )
