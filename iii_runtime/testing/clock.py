"""Time and identities under the control of a test."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from datetime import UTC, datetime, timedelta


class SkipClock:
    """A clock that stands still until a test moves it. Sleepers wake in the order of their instants."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._sleepers: list[tuple[datetime, int, asyncio.Future[None]]] = []
        self._order = 0

    def now(self) -> datetime:
        """Return the instant the test has moved to."""
        return self._now

    def now_ms(self) -> int:
        """Return the instant as Unix milliseconds."""
        return round(self._now.timestamp() * 1000)

    async def sleep_until(self, instant: datetime) -> None:
        """Return when the clock has reached `instant`."""
        if instant <= self._now:
            await asyncio.sleep(0)
            return
        self._order += 1
        entry = (instant, self._order, asyncio.get_running_loop().create_future())
        self._sleepers.append(entry)
        try:
            await entry[2]
        finally:
            if entry in self._sleepers:
                self._sleepers.remove(entry)

    def advance(self, duration: timedelta) -> None:
        """Move forward; sleepers on the way wake, each at its own instant's turn."""
        self.advance_to(self._now + duration)

    def advance_to(self, instant: datetime) -> None:
        """Move to `instant`; a time in the past changes nothing."""
        self._now = max(self._now, instant)
        for entry in sorted(self._sleepers, key=lambda sleeper: sleeper[:2]):
            if entry[0] <= self._now:
                self._sleepers.remove(entry)
                if not entry[2].done():
                    entry[2].set_result(None)

    def next_wake(self) -> datetime | None:
        """Return the earliest instant somebody sleeps for."""
        return min((entry[0] for entry in self._sleepers), default=None)


class SequenceIds:
    """Identities that count: valid uuid4 texts, the same in every run of a test."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def new_id(self) -> str:
        """Return the next identity; from any thread."""
        return str(uuid.UUID(int=next(self._numbers), version=4))
