"""Claimed cron ticks in a dict."""

from __future__ import annotations

from datetime import datetime


class MemoryTickStore:
    """The newest claimed tick of each job."""

    def __init__(self) -> None:
        self._newest: dict[str, datetime] = {}

    async def claim(self, job_id: str, nominal: datetime) -> bool:
        """Claim a tick; False if it, or a later one of the same job, was claimed before."""
        newest = self._newest.get(job_id)
        if newest is not None and nominal <= newest:
            return False
        self._newest[job_id] = nominal
        return True
