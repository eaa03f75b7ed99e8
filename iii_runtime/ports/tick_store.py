"""Cron ticks that were claimed, so that a duplicate of one collapses."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class TickStore(Protocol):
    """The newest claimed tick of each job."""

    async def claim(self, job_id: str, nominal: datetime) -> bool:
        """Claim a tick; False if it, or a later one of the same job, was claimed before."""
        ...
