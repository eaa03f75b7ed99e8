"""Cron ticks where a job has no one process to run in: claimed, and held while the job runs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, Protocol, TypeAlias

Acquired: TypeAlias = Literal["acquired", "taken", "running"]
"""The tick is the caller's; it, or a later one of the same job, was claimed before; the job still runs."""


class JobLease(Protocol):
    """At most one run of a job at a time, over all hosts."""

    async def acquire(self, job_id: str, nominal: datetime, *, lease: timedelta | None) -> Acquired:
        """Claim a tick and, with a `lease`, the right to run until it ends; both in one step.

        Without a lease the job may overlap itself: only the tick is claimed. A lease whose time has passed counts as
        released: its host has died.
        """
        ...

    async def release(self, job_id: str, nominal: datetime) -> None:
        """Give the lease of this tick back. One that was lost to a later tick is left alone."""
        ...
