"""When a dead-letter queue is worth a look, by its count and that of the list. Decides; asks nobody."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, TypeAlias

AGAIN = timedelta(minutes=15)
"""When a queue that holds letters, or whose difference has stayed, is looked through again.

SQS forgets a letter earlier than its item goes, so a difference may stay; and such a letter beside one that SQS has
moved by itself makes no difference.
"""

Reason: TypeAlias = Literal["news", "age"]
"""Why to look: the counts differ, and not as they did before; or the last look was `AGAIN` ago."""


class LookSchedule:
    """What was seen of each queue, sweep by sweep."""

    def __init__(self) -> None:
        self._differing: set[str] = set()
        self._looked_into: dict[str, tuple[int, int]] = {}
        self._looked_at: dict[str, datetime] = {}

    def reason(self, name: str, sent: int, listed: int, now: datetime) -> Reason | None:
        """Take note of the counts of a sweep, and return why to look through the queue now; None if there is no reason.

        Args:
            name: Name of the queue.
            sent: Messages on its dead-letter queue.
            listed: Letters in its list.
            now: The time of the sweep.
        """
        is_news, is_old = self._is_news(name, sent, listed), self._is_old(name, sent, listed, now)
        return "news" if is_news else "age" if is_old else None

    def looked(self, name: str, now: datetime) -> None:
        """Take note that a queue is looked through now."""
        self._looked_at[name] = now

    def _is_news(self, name: str, sent: int, listed: int) -> bool:
        """Return whether a queue differs for the second time, and otherwise than when it was looked into for that."""
        if sent == listed:
            self._differing.discard(name)
            self._looked_into.pop(name, None)  # a difference from now on is another one
            return False
        if name not in self._differing:
            self._differing.add(name)
            return False
        is_news = self._looked_into.get(name) != (sent, listed)
        self._looked_into[name] = (sent, listed)
        return is_news

    def _is_old(self, name: str, sent: int, listed: int, now: datetime) -> bool:
        """Return whether the last look was long ago. Before the first one, time counts from the first sweep."""
        if sent == listed == 0:
            self._looked_at[name] = now
        return now >= self._looked_at.setdefault(name, now) + AGAIN
