"""Time and identity, taken as arguments so that tests can own them."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> datetime:
        """Return the present instant, aware, in UTC."""
        ...

    def now_ms(self) -> int:
        """Return the present instant as Unix milliseconds."""
        ...

    async def sleep_until(self, instant: datetime) -> None:
        """Return at or after `instant`; can be cancelled."""
        ...


class IdSource(Protocol):
    """Where identities come from."""

    def new_id(self) -> str:
        """Return a fresh uuid4 in its canonical text form."""
        ...
