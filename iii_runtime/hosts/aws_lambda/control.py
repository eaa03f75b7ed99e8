"""The Lambda that carries out requests of the command line. Nobody else may invoke it."""

from __future__ import annotations

from datetime import datetime, timedelta

from iii_runtime.core.cron import CronJob
from iii_runtime.core.payload import Json
from iii_runtime.core.remote import RemoteTrigger, decode_request, is_request
from iii_runtime.core.trigger_request import parse_trigger_request
from iii_runtime.engine.cron import job_busy, job_of, run_job
from iii_runtime.hosts.aws_lambda.answers import answer_to
from iii_runtime.hosts.aws_lambda.bootstrap import entry_point
from iii_runtime.hosts.aws_lambda.context import LambdaContext, remaining
from iii_runtime.hosts.aws_lambda.cron_event import release_job
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.hosts.cron_builtins import cron_builtins
from iii_runtime.hosts.unknown_event import EventUnknownError
from iii_runtime.plan.jobs import plan_jobs

_MILLISECOND = timedelta(milliseconds=1)
_CLAIMS = 10
"""Ticks of this very moment that others may have claimed."""


def handle(sandbox: Sandbox, event: object, context: LambdaContext) -> Json:
    """Carry out a trigger request as `Worker.trigger` does, and answer `{"ok": result}` or `{"error": {...}}`.

    Raises:
        EventUnknownError: The event is no trigger request.
        PayloadError: `request_unreadable`.
    """
    request = decode_request(event) if is_request(event) else None
    if not isinstance(request, RemoteTrigger):
        raise EventUnknownError("this Lambda carries out trigger requests of the command line, and nothing else.")
    fields = request.request

    async def run_now(function_id: str) -> datetime:
        return await _run_now(sandbox, function_id, context)

    sandbox.runtime.add_builtins(cron_builtins(sandbox.runtime.app, sandbox.clock, run_now))

    async def trigger() -> Json:
        return await sandbox.runtime.trigger(parse_trigger_request(fields))

    return sandbox.run(lambda: answer_to(sandbox, trigger()), context)


async def _run_now(sandbox: Sandbox, function_id: str, context: LambdaContext) -> datetime:
    """Fire the first job of a function in its own Lambda and wait for its end.

    A lease comes with the claim of a tick, so the present is claimed as one; a tick that was due before and arrives
    after it is skipped.

    Raises:
        CronJobNotFoundError: No job starts this function.
        CronBusyError: The job is running and may not overlap itself.
        InvocationError: It failed.
    """
    job = job_of(plan_jobs(sandbox.runtime.app.catalog), function_id)
    nominal = sandbox.clock.now()
    if job.overlap:
        await run_job(sandbox.runtime.invoker, sandbox.clock, job, nominal)
        return nominal
    claimed = await _claim_present(sandbox, job, nominal, remaining(context))
    try:
        await run_job(sandbox.runtime.invoker, sandbox.clock, job, nominal)
    finally:
        await release_job(sandbox, job, claimed)
    return nominal


async def _claim_present(sandbox: Sandbox, job: CronJob, nominal: datetime, lease: timedelta) -> datetime:
    """Return the instant that was claimed: the first free one from the present on, by the millisecond.

    Raises:
        CronBusyError: The job is running.
    """
    for number in range(_CLAIMS):
        instant = nominal + number * _MILLISECOND
        acquired = await sandbox.job_lease.acquire(job.job_id, instant, lease=lease)
        if acquired == "acquired":
            return instant
        if acquired == "running":
            break
    raise job_busy(job)


handler = entry_point(handle, "control")
