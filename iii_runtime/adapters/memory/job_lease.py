"""Claimed cron ticks and leases of running jobs in a dict."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from iii_runtime.ports.clock import Clock
from iii_runtime.ports.job_lease import Acquired


class _Run(NamedTuple):
    nominal: datetime
    ends: datetime


class MemoryJobLease:
    """The newest claimed tick of each job, and the lease of the one that runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._newest: dict[str, datetime] = {}
        self._runs: dict[str, _Run] = {}

    async def acquire(self, job_id: str, nominal: datetime, *, lease: timedelta | None) -> Acquired:
        """Claim a tick and, with a `lease`, the right to run until it ends."""
        newest = self._newest.get(job_id)
        if newest is not None and nominal <= newest:
            return "taken"
        now = self._clock.now()
        if lease is not None:
            run = self._runs.get(job_id)
            if run is not None and run.ends > now:
                return "running"
            self._runs[job_id] = _Run(nominal, now + lease)
        self._newest[job_id] = nominal
        return "acquired"

    async def release(self, job_id: str, nominal: datetime) -> None:
        """Give the lease of this tick back. One that was lost to a later tick is left alone."""
        run = self._runs.get(job_id)
        if run is not None and run.nominal == nominal:
            del self._runs[job_id]
