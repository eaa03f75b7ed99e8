"""The life of a run as lines of a terminal: when each thing happened, how long it took, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rich.cells import cell_len

from iii_runtime.cli.output import one_line, visible

Event: TypeAlias = Mapping[str, Any]
"""An event of `iii::runs::history`."""

_LEAST_BAR, _WIDEST_BAR = 10, 40
_LONGEST_NAME = 30
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
_HIDDEN = frozenset({"suspended", "attempt_started"})


@dataclass(frozen=True, slots=True)
class Marks:
    """The characters that bars are made of."""

    done: str
    failed: str
    moment: str
    rest: str


BLOCKS = Marks("█", "▒", "◆", "·")
ASCII = Marks("#", "x", "*", ".")


@dataclass(frozen=True, slots=True)
class _Line:
    from_ms: int
    until_ms: int
    name: str
    text: str
    is_failed: bool = False


def timeline(events: Sequence[Event], *, until_ms: int, width: int, marks: Marks) -> list[str]:
    """Return a line for each thing that happened to a run, on one scale of time.

    Args:
        events: Its history.
        until_ms: Where the scale ends, if not at the last event: now, for an open run.
        width: Of the terminal.
        marks: What bars are made of.
    """
    lines = [_line(event) for event in events if event["kind"] not in _HIDDEN]
    began_ms = min(line.from_ms for line in lines)
    end_ms = max(until_ms, *(line.until_ms for line in lines))
    offsets = [duration(line.from_ms - began_ms) for line in lines]
    names = [one_line(visible(line.name), _LONGEST_NAME) for line in lines]
    offset_width, name_width = max(map(len, offsets)), max(map(cell_len, names))
    bar_width = max(_LEAST_BAR, min(_WIDEST_BAR, (width - offset_width - name_width) // 3))
    text_width = max(20, width - offset_width - name_width - bar_width - 7)
    scale = _Scale(began_ms, max(end_ms - began_ms, 1), bar_width, marks)
    return [
        f"+{offset:>{offset_width}}  {name}{' ' * (name_width - cell_len(name))}  {scale.bar(line)}  "
        f"{one_line(visible(line.text), text_width)}".rstrip()
        for line, offset, name in zip(lines, offsets, names, strict=True)
    ]


def duration(span_ms: int) -> str:
    """Return a duration in its two largest units, or in seconds: `3 d 2 h`, `1.5 s`, `12 ms`."""
    if span_ms < 1000:
        return f"{span_ms} ms"
    if span_ms < 60_000:
        return f"{span_ms / 1000:.3g} s"
    index = next(index for index, (size, _) in enumerate(_UNITS) if span_ms >= size)
    (size, unit), (smaller, small_unit) = _UNITS[index], _UNITS[index + 1]
    rest = span_ms % size // smaller
    return f"{span_ms // size} {unit}" + (f" {rest} {small_unit}" if rest else "")


def fact_text(event: Event) -> str:
    """Return an event in words."""
    line = _line(event)
    return f"{line.name} {line.text}".rstrip()


@dataclass(frozen=True, slots=True)
class _Scale:
    began_ms: int
    span_ms: int
    cells: int
    marks: Marks

    def bar(self, line: _Line) -> str:
        first = min(self._cell(line.from_ms), self.cells - 1)
        if line.until_ms == line.from_ms:
            mark, length = self.marks.failed if line.is_failed else self.marks.moment, 1
        else:
            mark = self.marks.failed if line.is_failed else self.marks.done
            length = max(1, math.ceil((line.until_ms - self.began_ms) / self.span_ms * self.cells) - first)
        length = min(length, self.cells - first)
        return self.marks.rest * first + mark * length + self.marks.rest * (self.cells - first - length)

    def _cell(self, at_ms: int) -> int:
        return (at_ms - self.began_ms) * self.cells // self.span_ms


def _line(event: Event) -> _Line:
    at_ms: int = event["at_ms"]
    kind: str = event["kind"]
    name, text, from_ms, is_failed = kind.replace("_", " "), "", at_ms, False
    if kind in ("step_completed", "step_failed", "attempt_failed"):
        from_ms = at_ms - event.get("elapsed_ms", 0)
        name = event["name"] + (f" ({event['occurrence']})" if event["occurrence"] else "")
        is_failed = kind != "step_completed"
        text = _of_step(event, at_ms - from_ms)
    elif kind == "signal_received":
        name = f"signal {event['name']}"
    elif kind == "timer_fired":
        name = "timer"
        late_ms = at_ms - event["deadline_ms"]
        text = f"fired, {duration(late_ms)} late" if late_ms >= 1000 else "fired"
    elif kind == "cancel_requested":
        text = event["reason"]
    elif kind == "patched":
        text = event["patch_id"]
    elif kind == "run_closed":
        is_failed = event["status"] != "completed"
        name, text = f"run {event['status'].replace('_', ' ')}", _why(event)
    return _Line(from_ms, at_ms, name, text, is_failed)


def _of_step(event: Event, took_ms: int) -> str:
    took = f", {duration(took_ms)}" if took_ms else ""
    if event["kind"] == "step_completed":
        attempts = event["attempts"]
        return ("done" if attempts == 1 else f"done at attempt {attempts}") + took
    if event["kind"] == "attempt_failed":
        wait = duration(max(event["next_at_ms"] - event["at_ms"], 0))
        return f"attempt {event['attempt']} failed{took}, again after {wait}: {_error(event)}"
    times = "" if event["attempts"] == 1 else f" after {event['attempts']} attempts"
    return f"failed{times}{took}: {_error(event)}"


def _why(event: Event) -> str:
    return _error(event) if event.get("error") else str(event.get("reason") or "")


def _error(event: Event) -> str:
    error = event["error"]
    if error is None:
        return "its error is large, and in the history"
    return f"{error['type']}: {error['message']}"
