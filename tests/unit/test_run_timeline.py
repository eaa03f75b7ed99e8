"""The timeline of a run: every event on one scale of time."""

from __future__ import annotations

from typing import Any

import pytest

from iii_runtime.cli.run_texts import causes, change, description
from iii_runtime.cli.run_timeline import ASCII, duration, timeline
from iii_runtime.core.runs.errors import RunFailedError
from iii_runtime.core.runs.failure import Failure

START = {"kind": "run_started", "at_ms": 1000, "input": {"id": 1}}
DECLINED = {"type": "Declined", "message": "no"}


def step(name: str, at_ms: int, elapsed_ms: int, **more: Any) -> dict[str, Any]:
    told = {"kind": "step_completed", "name": name, "occurrence": 0, "attempts": 1}
    return {**told, "at_ms": at_ms, "elapsed_ms": elapsed_ms, **more}


def lines(*events: dict[str, Any], until_ms: int = 0, width: int = 140) -> list[str]:
    return timeline(events, until_ms=until_ms, width=width, marks=ASCII)


def test_steps_that_run_side_by_side_have_bars_side_by_side() -> None:
    drawn = lines(START, step("slow", 2000, 1000), step("late", 2000, 500))
    assert drawn == [
        "+  0 ms  run started  *.......................................",
        "+  0 ms  slow         ########################################  done, 1 s",
        "+500 ms  late         ....................####################  done, 500 ms",
    ]


def test_the_scale_of_an_open_run_ends_now() -> None:
    drawn = lines(START, step("slow", 2000, 1000), until_ms=3000)
    assert drawn[1] == "+0 ms  slow         ####################....................  done, 1 s"


def test_a_failed_attempt_says_why_and_when_the_next_one_is() -> None:
    failed = {**step("charge", 1200, 200), "kind": "attempt_failed", "attempt": 1, "error": DECLINED}
    drawn = lines(START, {**failed, "next_at_ms": 2200}, step("charge", 2400, 200, attempts=2))
    assert "xxx" in drawn[1]
    assert drawn[1].endswith("attempt 1 failed, 200 ms, again after 1 s: Declined: no")
    assert drawn[2].endswith("done at attempt 2, 200 ms")


def test_signals_timers_and_the_end_are_moments() -> None:
    drawn = lines(
        START,
        {"kind": "suspended", "at_ms": 1001},
        {"kind": "signal_received", "name": "paid", "at_ms": 1500, "value": 1},
        {"kind": "timer_fired", "deadline_ms": 1600, "at_ms": 9600},
        {"kind": "cancel_requested", "at_ms": 10_000, "reason": "no need"},
        {"kind": "run_closed", "at_ms": 11_000, "status": "timed_out", "reason": "not completed within 10 s"},
    )
    assert len(drawn) == 5
    assert drawn[0].rstrip(".").endswith("run started       *")
    assert "signal paid" in drawn[1]
    assert drawn[2].endswith("fired, 8 s late")
    assert drawn[3].endswith("no need")
    assert "run timed out" in drawn[4]
    assert drawn[4].endswith("x  not completed within 10 s")


def test_names_and_errors_are_cut_to_the_terminal_and_cannot_steer_it() -> None:
    error = {"type": "E", "message": "\x1b[31mred " + "long " * 100}
    drawn = lines(START, step("\x1b]0;x" + "n" * 200, 1100, 0, kind="step_failed", error=error), width=80)
    assert all(len(line) <= 80 for line in drawn)
    assert not any("\x1b" in line for line in drawn)


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1500, "1.5 s"),
        (59_949, "59.9 s"),
        (60_000, "1 min"),
        (3_661_000, "1 h 1 min"),
        (3 * 86_400_000, "3 d"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_a_duration_is_told_in_its_largest_units(span_ms: int, text: str) -> None:
    assert duration(span_ms) == text


def test_a_change_says_what_happened_and_what_the_run_waits_for() -> None:
    told = {"workflow": "w::f", "status": "running", "parked": None, "waiting": {"until_ms": None}}
    fact = {"kind": "step_failed", "name": "pay", "occurrence": 1, "attempts": 3, "at_ms": 5, "error": None}
    text = change({**told, "last_fact": fact})
    assert text == (
        "w::f running waits until it is told something: "
        "pay (1) failed after 3 attempts: its error is large, and in the history"
    )
    assert change({**told, "last_fact": None, "waiting": None, "parked": "diverged"}) == "w::f running parked: diverged"


def test_the_causes_of_a_failed_run_come_one_after_the_other() -> None:
    failure = Failure(type="StepError", message="failed", cause=Failure(type="Declined", message="no", stack="line 3"))
    assert causes(RunFailedError("w", "r", failure)) == (
        "StepError: failed\ncaused by Declined: no\nrecorded at:\nline 3"
    )


def test_a_description_has_a_line_for_each_thing_there_is_to_say() -> None:
    told = {
        "workflow_id": "w",
        "run_id": "r",
        "workflow": "w::f",
        "status": "running",
        "created_ms": 0,
        "start_at_ms": None,
        "deadline_ms": None,
        "cancel_requested_ms": None,
        "closed_ms": None,
        "parked": None,
        "executing": {"since_ms": 1000},
        "waiting": None,
        "waiting_for": ["signal 'a'", "timer 1"],
        "messages": 2,
    }
    shown = description(told, now_ms=4000)
    assert [line[:13].strip() for line in shown] == [
        "workflow id",
        "run",
        "workflow",
        "status",
        "started",
        "executing",
        "waits for",
        "",
        "messages",
    ]
    assert "executing    for 3 s" in shown
    assert "             timer 1" in shown
