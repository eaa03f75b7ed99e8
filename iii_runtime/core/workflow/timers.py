"""Durable timers: numbered in the order in which the workflow sets them, each with one deadline for ever."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import Any

from iii_runtime.core.runs.errors import LimitError
from iii_runtime.core.workflow.commands import SetTimer, WithdrawTimer
from iii_runtime.core.workflow.outbox import Outbox

MAX_SLEEP = timedelta(days=366)
"""Longest time a workflow may sleep in one piece."""

_MAX_MS = MAX_SLEEP / timedelta(milliseconds=1)
_MS_PER_DAY = timedelta(days=1) / timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Timer:
    """A timer that was set: what asyncio calls a timer handle."""

    __slots__ = ("args", "callback", "context", "deadline_ms", "entry", "number", "timers")

    def __init__(
        self,
        timers: Timers,
        number: int,
        deadline_ms: int,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: Context,
    ) -> None:
        self.timers: Timers | None = timers
        self.number = number
        self.deadline_ms = deadline_ms
        self.callback = callback
        self.args = args
        self.context = context
        self.entry = 0

    def command(self) -> SetTimer:
        """Return the command that sets it."""
        return SetTimer(number=self.number, deadline_ms=self.deadline_ms)

    def cancel(self) -> None:
        """Withdraw it, if it has not fired."""
        if self.timers is not None:
            timers, self.timers = self.timers, None
            timers.withdraw(self)

    def cancelled(self) -> bool:
        """Return whether it was withdrawn or has fired."""
        return self.timers is None

    def when(self) -> float:
        """Return its deadline in seconds, on the clock of the loop."""
        return self.deadline_ms / 1000


class Timers:
    """The timers of one run."""

    def __init__(self, outbox: Outbox) -> None:
        self.open: dict[int, Timer] = {}
        self.count = 0
        self.is_dying = False
        self._outbox = outbox
        self._queue: list[tuple[int, int]] = []

    def set(self, deadline_ms: int, callback: Callable[..., Any], args: tuple[Any, ...], context: Context) -> Timer:
        """Set a timer."""
        timer = Timer(self, self.count, deadline_ms, callback, args, context)
        self.count += 1
        if not self.is_dying:
            self.open[timer.number] = timer
            heappush(self._queue, (deadline_ms, timer.number))
            timer.entry = self._outbox.add(timer.command)
        return timer

    def withdraw(self, timer: Timer) -> None:
        """Forget a timer. One that was set since the last commands were handed over leaves no trace."""
        if (
            self.open.pop(timer.number, None) is not None
            and not self.is_dying
            and not self._outbox.discard(timer.entry)
        ):
            self._outbox.add(lambda: WithdrawTimer(number=timer.number))

    def take(self, number: int) -> Timer:
        """Return a timer that fires now."""
        timer = self.open.pop(number)
        timer.timers = None
        self._outbox.discard(timer.entry)
        return timer

    def next(self) -> Timer | None:
        """Return the timer that is due first; of several, the one that was set first."""
        while self._queue and self._queue[0][1] not in self.open:
            heappop(self._queue)
        return self.open[self._queue[0][1]] if self._queue else None


def rounded_ms(milliseconds: float) -> int:
    """Return a delay in whole milliseconds.

    Raises:
        LimitError: It is above `MAX_SLEEP`.
        ValueError: It is no number.
    """
    if milliseconds > _MAX_MS:
        days = min(milliseconds / _MS_PER_DAY, 1e15)
        raise LimitError("a timer of a workflow", MAX_SLEEP.days, "days", int(days) + 1 if days % 1 else int(days))
    if milliseconds != milliseconds:  # noqa: PLR0124 - the test for "not a number"
        raise ValueError("a delay must be a number of seconds, found nan")
    return round(milliseconds) if milliseconds > 0 else 0


def seconds_of(duration: timedelta | float, what: str) -> float:
    """Return a duration in seconds."""
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if isinstance(duration, bool) or not isinstance(duration, int | float):
        raise TypeError(f"{what} must be a timedelta or a number of seconds, found {duration!r:.80}")
    return float(duration)


def instant(at_ms: int) -> datetime:
    """Return Unix milliseconds as a datetime in UTC, without a rounding error."""
    return _EPOCH + timedelta(milliseconds=at_ms)


def ms_of(moment: datetime) -> int:
    """Return an aware datetime as Unix milliseconds."""
    if moment.tzinfo is None:
        raise ValueError(f"a time must have a time zone, such as datetime(..., tzinfo=UTC); {moment!r} has none")
    return round((moment - _EPOCH) / timedelta(milliseconds=1))
