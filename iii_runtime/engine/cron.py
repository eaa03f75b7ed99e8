"""Fires cron jobs: waits for each tick, claims it, and starts the job's function."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from iii_runtime.core.call import Call
from iii_runtime.core.cron import CronJob, cron_payload
from iii_runtime.core.errors import IiiError, InvocationError, message_of
from iii_runtime.core.payload import to_json
from iii_runtime.engine.conditions import condition_holds
from iii_runtime.engine.invoke import FunctionInvoker
from iii_runtime.ports.clock import Clock
from iii_runtime.ports.tick_store import TickStore

_log = logging.getLogger("iii_runtime.cron")

FireTick = Callable[[CronJob, datetime], Awaitable[None]]
"""Starts a job's function for a tick with this nominal time, and returns when it has ended."""

LATE_LIMIT = timedelta(seconds=60)
"""A tick that is noticed later than this after its nominal time is skipped."""


class CronBusyError(IiiError):
    """The job is running, and does not overlap itself."""

    code = "cron_busy"


class CronJobNotFoundError(IiiError):
    """No cron job starts this function."""

    code = "cron_job_not_found"


def job_of(jobs: Iterable[CronJob], function_id: str) -> CronJob:
    """Return the first job of a function.

    Raises:
        CronJobNotFoundError: No job starts it.
    """
    for job in jobs:
        if job.function_id == function_id:
            return job
    raise CronJobNotFoundError(f"no cron trigger starts function {function_id!r}; register one, or check the id")


def job_busy(job: CronJob) -> CronBusyError:
    """Return the error of a job that is started while it runs."""
    return CronBusyError(
        f"cron job {job.job_id!r} is running; try again when it has ended, or let trigger {job.trigger_id!r} overlap"
    )


async def run_job(invoker: FunctionInvoker, clock: Clock, job: CronJob, nominal: datetime) -> None:
    """Run a job's function for a tick with this nominal time, if its condition holds, and return when it has ended.

    Raises:
        InvocationError: The condition or the function failed.
    """
    payload = to_json(cron_payload(job.job_id, nominal, clock.now()))
    call = Call(function_id=job.function_id, payload=payload, source="cron")
    if invoker.is_remote(job.function_id):
        call = replace(call, condition=job.condition)
    elif not await condition_holds(invoker, job.condition, call):
        return
    _log.info("cron tick", extra=tick_fields(job, nominal))
    await invoker.invoke_raw(call)


class CronScheduler:
    """Fires each tick of each job at most once.

    - A tick is claimed in the tick store before it fires, so of several hosts, or of a host and its successor, one
      fires it. A host that dies in between loses the tick.
    - There is no catch-up: ticks missed while no host ran, or noticed over a minute late, are skipped. Of several ticks
      noticed at once only the first fires, if it is recent enough.
    - A job does not overlap itself in this process unless it says so: a tick that comes while an earlier one runs is
      skipped.
    - What fails is logged and not tried again.

    Everything skipped is logged, except a tick that was claimed elsewhere.
    """

    def __init__(self, *, clock: Clock, ticks: TickStore, fire: FireTick) -> None:
        self._clock = clock
        self._ticks = ticks
        self._fire = fire
        self._jobs: dict[str, CronJob] = {}
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._awake: set[asyncio.Task[None] | None] = set()
        self._running: Counter[str] = Counter()
        self._group: asyncio.TaskGroup | None = None
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def is_idle(self) -> bool:
        """Whether no job is running, and each waits for its next tick."""
        return not any(self._running.values()) and not self._awake

    async def settle(self) -> None:
        """Return when it is idle."""
        while not self.is_idle:
            self._ended.clear()
            await self._ended.wait()

    async def run(self) -> None:
        """Fire ticks until `stop` is called, then wait for what still runs.

        Cancelling it also cancels what still runs. It can run once.

        Raises:
            RuntimeError: It runs already.
        """
        if self._group is not None:
            raise RuntimeError("the cron scheduler runs already")
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._follow_jobs()
                try:
                    await self._stopping.wait()
                finally:
                    self.stop()
        finally:
            self._group = None

    @property
    def has_ended(self) -> bool:
        """Whether `run` was told to end, or ended with an error. It does not start again; make a new one."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Let `run` end: no further tick fires, a running one ends undisturbed."""
        self._stopping.set()
        self._stop_following(list(self._followers))

    def replace(self, jobs: Iterable[CronJob]) -> None:
        """Fire the ticks of these jobs from now on, and of no others.

        A removed job that is running ends undisturbed. Triggers with the same function, expression and time zone are
        one job; the last one counts.
        """
        self._jobs = {job.job_id: job for job in jobs}
        self._follow_jobs()

    async def run_now(self, function_id: str) -> datetime:
        """Fire the first job of a function outside its schedule, and wait for its end.

        Nothing is claimed, so its ticks fire as ever. Errors of the function reach the caller.

        Returns:
            The nominal time it was fired with, which is the present.

        Raises:
            CronJobNotFoundError: No job starts this function.
            CronBusyError: The job is running and may not overlap itself.
        """
        job = job_of(self._jobs.values(), function_id)
        if not self._may_start(job):
            raise job_busy(job)
        nominal = self._clock.now()
        self._running[job.job_id] += 1
        try:
            await self._fire(job, nominal)
        finally:
            self._end(job)
        return nominal

    def _follow_jobs(self) -> None:
        if self._group is None or self._stopping.is_set():
            return
        self._stop_following([job_id for job_id in self._followers if job_id not in self._jobs])
        since = self._clock.now()
        for job_id, job in self._jobs.items():
            if job_id not in self._followers:
                follower = self._group.create_task(self._follow(self._group, job, since))
                self._followers[job_id] = follower
                self._awake.add(follower)
                follower.add_done_callback(self._rest)

    def _stop_following(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            self._followers.pop(job_id).cancel()

    async def _follow(self, group: asyncio.TaskGroup, job: CronJob, since: datetime) -> None:
        nominal = job.schedule.next_after(since)
        while nominal is not None:
            self._rest(asyncio.current_task())
            await self._clock.sleep_until(nominal)
            now = self._clock.now()
            # Its registration may have been replaced by one that overlaps.
            self._arrive(group, self._jobs[job.job_id], nominal, now)
            following = job.schedule.next_after(nominal)
            if following is not None and following <= now:
                _log.warning(
                    "cron ticks skipped", extra=tick_fields(job, following, reason="past", until=now.isoformat())
                )
                following = job.schedule.next_after(now)
            nominal = following
        _log.info("cron job has no further tick", extra=tick_fields(job))

    def _arrive(self, group: asyncio.TaskGroup, job: CronJob, nominal: datetime, now: datetime) -> None:
        if now - nominal > LATE_LIMIT:
            late_s = round((now - nominal).total_seconds())
            _log.warning("cron tick skipped", extra=tick_fields(job, nominal, reason="late", late_s=late_s))
        elif not self._may_start(job):
            _log.warning("cron tick skipped", extra=tick_fields(job, nominal, reason="running"))
        else:
            self._running[job.job_id] += 1
            task = group.create_task(self._claim_and_fire(job, nominal))
            # Not in the coroutine: one that is cancelled before its first step runs no `finally`.
            task.add_done_callback(lambda _: self._end(job))

    def _rest(self, follower: asyncio.Task[None] | None) -> None:
        self._awake.discard(follower)
        self._ended.set()

    def _end(self, job: CronJob) -> None:
        self._running[job.job_id] -= 1
        self._ended.set()

    def _may_start(self, job: CronJob) -> bool:
        return job.overlap or not self._running[job.job_id]

    async def _claim_and_fire(self, job: CronJob, nominal: datetime) -> None:
        try:
            if await self._ticks.claim(job.job_id, nominal):
                await self._fire(job, nominal)
            else:
                _log.debug("cron tick claimed elsewhere", extra=tick_fields(job, nominal))
        except InvocationError as error:
            _log.error("cron tick failed", extra=tick_fields(job, nominal, error=str(error), stack=error.stacktrace))
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not end the other jobs
            _log.exception("cron tick failed", extra=tick_fields(job, nominal, error=message_of(error)))


def tick_fields(job: CronJob, nominal: datetime | None = None, **more: object) -> dict[str, dict[str, object]]:
    """Return what a log line about a job carries: the job, the tick and what else is known. For `extra`."""
    fields: dict[str, object] = {"function_id": job.function_id, "job_id": job.job_id}
    if nominal is not None:
        fields["nominal"] = nominal.isoformat()
    return {"iii": {**fields, **{name: value for name, value in more.items() if value is not None}}}
