"""Runs as people read them: what stands where, and why one ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iii_runtime.cli.output import local_time
from iii_runtime.cli.run_timeline import duration, fact_text
from iii_runtime.core.runs.errors import RecordedError

COLUMNS = ("workflow id", "workflow", "status", "started", "took", "run")


def row(run: Mapping[str, Any]) -> tuple[object, ...]:
    """Return a run of `iii::runs::list` as a line of the table."""
    took = None if run["closed_ms"] is None else duration(max(run["closed_ms"] - run["created_ms"], 0))
    status = run["status"] + (" (parked)" if run["parked"] is not None else "")
    return run["workflow_id"], run["workflow"], status, instant(run["created_ms"]), took, run["run_id"]


def description(told: Mapping[str, Any], now_ms: int) -> list[str]:
    """Return where a run of `iii::runs::describe` stands, a line for each thing there is to say."""
    status = told["status"].replace("_", " ")
    members: list[tuple[str, str | None]] = [
        ("workflow id", told["workflow_id"]),
        ("run", told["run_id"]),
        ("workflow", told["workflow"]),
        ("status", status if told["parked"] is None else f"{status}, parked"),
        ("started", instant(told["created_ms"])),
        ("begins", instant(told["start_at_ms"])),
        ("times out", instant(told["deadline_ms"]) if told["closed_ms"] is None else None),
        ("cancelled", instant(told["cancel_requested_ms"])),
        ("closed", instant(told["closed_ms"])),
        ("parked", told["parked"]),
        ("executing", _since(told["executing"], now_ms)),
        ("wakes", instant((told["waiting"] or {}).get("until_ms"))),
        ("waits for", "\n".join(told["waiting_for"] or []) or None),
        ("messages", f"{told['messages']} not taken yet" if told["messages"] else None),
    ]
    return [
        f"{label if index == 0 else '':<13}{line}"
        for label, value in members
        if value is not None
        for index, line in enumerate(value.split("\n"))
    ]


def change(told: Any) -> str:
    """Return a change of the stream `runs` as it is shown while it is watched."""
    if not isinstance(told, Mapping):
        return "the runs from now on"
    fact, words = told["last_fact"], [told["workflow"], told["status"]]
    if told["parked"] is not None:
        words.append(f"parked: {told['parked']}")
    elif told["waiting"] is not None:
        words.append(f"waits until {instant(told['waiting']['until_ms']) or 'it is told something'}")
    return f"{' '.join(words)}{'' if fact is None else ': ' + fact_text(fact)}"


def causes(error: BaseException) -> str | None:
    """Return what an error was raised from, with the stacks that were recorded; None if nothing is known."""
    lines: list[str] = []
    cause = error.__cause__
    while isinstance(cause, RecordedError):
        lines += [f"caused by {cause}" if lines else str(cause), *getattr(cause, "__notes__", ())]
        cause = cause.__cause__
    return "\n".join(lines) or None


def instant(at_ms: int | None) -> str | None:
    """Return Unix milliseconds as local date and time; None for none."""
    return None if at_ms is None else local_time(at_ms / 1000)


def _since(executing: Mapping[str, int] | None, now_ms: int) -> str | None:
    return None if executing is None else f"for {duration(max(now_ms - executing['since_ms'], 0))}"
