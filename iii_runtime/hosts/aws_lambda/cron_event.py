"""One cron tick at the Lambda of its function: claimed, run, and never twice at the same time."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from iii_runtime.core.cron import CronJob
from iii_runtime.core.errors import InvocationError, StoreError
from iii_runtime.core.remote import RemoteTick
from iii_runtime.engine.cron import LATE_LIMIT, CronJobNotFoundError, run_job, tick_fields
from iii_runtime.hosts.aws_lambda.context import LambdaContext, remaining
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.plan.jobs import plan_jobs

_log = logging.getLogger("iii_runtime.cron")
_PRECISION = timedelta(minutes=1)
"""How late EventBridge may be by itself: it fires at some second of the minute."""


async def run_tick(sandbox: Sandbox, tick: RemoteTick, context: LambdaContext) -> None:
    """Run the function of a job for a tick, at most once.

    A tick that comes late, was claimed before, or comes while the job runs and must not overlap itself, is skipped.
    What does not run is logged, as on the embedded host.

    Raises:
        CronJobNotFoundError: The bundle has no such job: its trigger has changed meanwhile.
        InvocationError: The condition or the function failed. That is logged, and no further attempt follows.
        StoreError: The tick could not be claimed; nothing ran.
    """
    job = _job_of(sandbox, tick.job_id)
    nominal = _nominal(job, tick.time)
    late = sandbox.clock.now() - nominal
    if late > _late_limit(job):
        _skip(sandbox, job, nominal, reason="late", late_s=round(late.total_seconds()))
        return
    lease = None if job.overlap else remaining(context)
    acquired = await sandbox.job_lease.acquire(job.job_id, nominal, lease=lease)
    if acquired == "running":
        _skip(sandbox, job, nominal, reason="running")
    elif acquired == "taken":
        _log.debug("cron tick claimed elsewhere", extra=tick_fields(job, nominal))
    else:
        await _run(sandbox, job, nominal, has_lease=lease is not None)


async def _run(sandbox: Sandbox, job: CronJob, nominal: datetime, *, has_lease: bool) -> None:
    try:
        await run_job(sandbox.runtime.invoker, sandbox.clock, job, nominal)
    except InvocationError as error:
        _log.error("cron tick failed", extra=tick_fields(job, nominal, error=str(error), stack=error.stacktrace))
        raise
    finally:
        if has_lease:
            await release_job(sandbox, job, nominal)


async def release_job(sandbox: Sandbox, job: CronJob, nominal: datetime) -> None:
    """Give the lease of a job back. If the store refuses, it ends by itself when the invocation would have."""
    try:
        await sandbox.job_lease.release(job.job_id, nominal)
    except StoreError as error:
        _log.error("cron lease not released", extra=tick_fields(job, nominal, error=error.message))


def _job_of(sandbox: Sandbox, job_id: str) -> CronJob:
    own = sandbox.environment.function_id
    for job in plan_jobs(sandbox.runtime.app.catalog):
        if job.job_id == job_id and job.function_id == own:
            return job
    raise CronJobNotFoundError(
        f"function '{own}' has no cron job {job_id!r} any more: the trigger has changed since this tick was planned."
    )


def _nominal(job: CronJob, time: datetime) -> datetime:
    """Return when the tick was due. A rule fires to the minute, and its event may name any second of it."""
    is_of_a_minute = job.schedule.fields.seconds == (0,)
    return time.replace(second=0, microsecond=0) if is_of_a_minute else time


def _late_limit(job: CronJob) -> timedelta:
    return LATE_LIMIT + _PRECISION if job.schedule.fields.seconds == (0,) else LATE_LIMIT


def _skip(sandbox: Sandbox, job: CronJob, nominal: datetime, *, reason: str, late_s: int | None = None) -> None:
    _log.warning("cron tick skipped", extra=tick_fields(job, nominal, reason=reason, late_s=late_s))
    sandbox.runtime.stores.meter.add("SkippedTicks", function_id=job.function_id)
