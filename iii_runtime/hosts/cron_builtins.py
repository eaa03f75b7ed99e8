"""`iii::cron::run` and `iii::cron::list`, for every host that has cron jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

from iii_runtime.core.errors import InvocationError
from iii_runtime.core.invocation import Invocation
from iii_runtime.core.payload import Json
from iii_runtime.engine.app import App
from iii_runtime.engine.builtins.payload import Fields
from iii_runtime.engine.builtins.state import Builtin
from iii_runtime.engine.cron import CronBusyError, CronJobNotFoundError
from iii_runtime.plan.jobs import plan_jobs
from iii_runtime.ports.clock import Clock

RunNow = Callable[[str], Awaitable[datetime]]
"""Fires the first cron job of a function and waits for its end; returns the nominal time it was fired with."""


def cron_builtins(app: App, clock: Clock, run_now: RunNow) -> Mapping[str, Builtin]:
    """Return the cron functions by id.

    Args:
        app: The registered functions.
        clock: What the next tick is counted from.
        run_now: How this host fires a job. Raises `CronJobNotFoundError` and `CronBusyError`.
    """

    async def run_cron(payload: Json, _caller: Invocation | None) -> Json:
        """`{function_id}` -> `{function_id, scheduled_time}`: fire its first cron job now and wait for its end."""
        function_id = Fields("iii::cron::run", "request_invalid", payload).name("function_id")
        try:
            nominal = await run_now(function_id)
        except (CronBusyError, CronJobNotFoundError) as error:
            raise InvocationError(error.code, error.message, function_id) from error
        return {"function_id": function_id, "scheduled_time": nominal.isoformat()}

    async def list_cron(_payload: Json, _caller: Invocation | None) -> Json:
        """`{}` -> every cron job with the time of its next tick."""
        now = clock.now()
        listed: list[Json] = []
        for job in plan_jobs(app.catalog):
            following = job.schedule.next_after(now)
            listed.append(
                {
                    "function_id": job.function_id,
                    "expression": job.schedule.expression,
                    "timezone": job.schedule.timezone,
                    "next": None if following is None else following.isoformat(),
                }
            )
        return listed

    return {"iii::cron::run": run_cron, "iii::cron::list": list_cron}
