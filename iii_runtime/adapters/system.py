"""The real clock and real identities. The only place that asks the operating system for either."""

from __future__ import annotations

import asyncio
import time
import uuid
from datetime import UTC, datetime

_LONGEST_SLEEP_S = 30.0


class SystemClock:
    """Wall-clock time. A long sleep looks at the clock each minute, so it ends in time after the machine slept."""

    def now(self) -> datetime:
        """Return the present instant, aware, in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - this is the clock

    def now_ms(self) -> int:
        """Return the present instant as Unix milliseconds."""
        return time.time_ns() // 1_000_000

    async def sleep_until(self, instant: datetime) -> None:
        """Return at or after `instant`."""
        while (left := (instant - self.now()).total_seconds()) > 0:  # noqa: ASYNC110 - this is the clock
            await asyncio.sleep(min(left, _LONGEST_SLEEP_S))


class Uuid4Source:
    """Random identities."""

    def new_id(self) -> str:
        """Return a fresh uuid4."""
        return str(uuid.uuid4())  # noqa: TID251 - this is the source
