"""Counts of what goes wrong, for alarms and dashboards. A happy path counts nothing."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

MetricName: TypeAlias = Literal[
    "DeadLetters",
    "FailedAttempts",
    "FeedLag",
    "FunctionBusy",
    "FunctionErrors",
    "SkippedTicks",
    "TooManyHops",
]
"""What is measured:

- `DeadLetters`: messages that became dead letters, by queue.
- `FailedAttempts`: failed attempts, by queue.
- `FeedLag`: milliseconds between a change and its delivery by the change feed.
- `FunctionBusy`: messages put off because their function's concurrency was used up, by queue.
- `FunctionErrors`: runs of a function that raised or ran out of time, whatever started them, by function.
- `SkippedTicks`: cron ticks that did not fire, because they were late or the job was running, by function.
- `TooManyHops`: chains of calls and messages that were ended because they have no end, by function.
"""


class Meter(Protocol):
    """Where measurements go. Measuring never fails and never waits."""

    def add(
        self, name: MetricName, value: float = 1, *, function_id: str | None = None, queue: str | None = None
    ) -> None:
        """Add a measurement: to the total of the app, and to the function's or the queue's own number.

        Args:
            name: What was measured.
            value: How many, or milliseconds for `FeedLag`.
            function_id: The function it is about, if it is about one.
            queue: The queue it is about, if it is about one.
        """
        ...


class NoMeter:
    """Measures nothing. For hosts whose log says it all."""

    def add(
        self, name: MetricName, value: float = 1, *, function_id: str | None = None, queue: str | None = None
    ) -> None:
        """Do nothing."""
