"""The ticks of one minute that nothing but the minute tick can fire."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from iii_runtime.core.cron import CronJob
from iii_runtime.core.registry import Catalog
from iii_runtime.plan.jobs import plan_jobs
from iii_runtime.plan.schedules import plan_firing

_MINUTE, _SECOND = timedelta(minutes=1), timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTick:
    """A tick to fire.

    Attributes:
        job: The job.
        instant: When, in UTC.
    """

    job: CronJob
    instant: datetime


def tick_jobs(catalog: Catalog) -> list[CronJob]:
    """Return the jobs that neither a rule nor a schedule can fire and whose function is registered."""
    jobs = plan_jobs(catalog)
    return [job for job in jobs if job.function_id in catalog.functions and plan_firing(job.schedule).kind == "tick"]


def plan_ticks(jobs: Iterable[CronJob], minute: datetime) -> list[PlannedTick]:
    """Return every tick of some jobs within one minute, by time.

    Triggers with the same function, expression and time zone are one job.

    Args:
        jobs: The jobs.
        minute: Begin of the minute, aware.
    """
    ticks: dict[tuple[str, datetime], PlannedTick] = {}
    for job in jobs:
        instant = job.schedule.next_after(minute - _SECOND)
        while instant is not None and instant < minute + _MINUTE:
            ticks[job.job_id, instant] = PlannedTick(job=job, instant=instant)
            instant = job.schedule.next_after(instant)
    return sorted(ticks.values(), key=lambda tick: tick.instant)
