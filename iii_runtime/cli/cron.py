"""`iii-runtime cron`: list the jobs, run one now."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypedDict, cast

import click

from iii_runtime.adapters.system import SystemClock
from iii_runtime.cli.connection import Engine, engine
from iii_runtime.cli.functions import listed
from iii_runtime.cli.output import local_time, print_json
from iii_runtime.cli.place import Place, with_place, worker_option
from iii_runtime.cli.stage import stage_option
from iii_runtime.cli.table import print_list
from iii_runtime.core.cron import CronSchedule, cron_payload, job_id
from iii_runtime.core.errors import InvocationError
from iii_runtime.core.payload import Json, to_json
from iii_runtime.core.trigger_request import TriggerRequest

COLUMNS = ("function", "expression", "time zone", "next tick (local time)")


class ListedJob(TypedDict):
    """A job in the listing of `iii::cron::list`."""

    function_id: str
    expression: str
    timezone: str
    next: str | None


@click.group()
def cron() -> None:
    """List and run cron jobs."""


@cron.command("list")
@worker_option
@stage_option
@with_place
def list_jobs(place: Place) -> None:
    """List the cron jobs with the time of their next tick."""
    with engine(place, is_reading=True) as live:
        jobs = _jobs(live)
    if place.as_json:
        print_json(cast("Json", jobs), compact=True)
    else:
        print_list(COLUMNS, rows(jobs), empty="There are no cron jobs.")


@cron.command()
@click.argument("function_id", metavar="FUNCTION")
@worker_option
@stage_option
@with_place
def run(place: Place, function_id: str) -> None:
    """Fire a function's first cron job now, and wait for its end. Its schedule goes on as ever."""
    with engine(place) as live:
        result = live.ask("iii::cron::run", function_id=function_id) if live.is_live else _run_here(function_id, live)
    print_json(result, compact=place.as_json)


def rows(jobs: Sequence[ListedJob]) -> list[tuple[str, str, str, str]]:
    """Return the lines of the table."""
    return [(job["function_id"], job["expression"], job["timezone"], _next(job)) for job in jobs]


def _next(job: ListedJob) -> str:
    return "never" if job["next"] is None else local_time(datetime.fromisoformat(job["next"]).timestamp())


def _jobs(live: Engine) -> list[ListedJob]:
    if live.is_live:
        return cast("list[ListedJob]", live.ask("iii::cron::list"))
    now = SystemClock().now()
    jobs: list[ListedJob] = []
    for function_id, schedule in _schedules(live):
        following = schedule.next_after(now)
        jobs.append(
            {
                "function_id": function_id,
                "expression": schedule.expression,
                "timezone": schedule.timezone,
                "next": None if following is None else following.isoformat(),
            }
        )
    return jobs


def _run_here(function_id: str, live: Engine) -> Json:
    """Call the function as its schedule would, without a host to do so."""
    schedule = next((schedule for name, schedule in _schedules(live) if name == function_id), None)
    if schedule is None:
        raise InvocationError("cron_job_not_found", "no cron trigger starts this function.", function_id)
    now = SystemClock().now()
    live.call(TriggerRequest(function_id, to_json(cron_payload(job_id(function_id, schedule), now, now))))
    return {"function_id": function_id, "scheduled_time": now.isoformat()}


def _schedules(live: Engine) -> list[tuple[str, CronSchedule]]:
    """Return the schedules of the registered functions, read from their listing: `expression (zone)`."""
    return [
        (function["function_id"], parse_detail(trigger["detail"]))
        for function in listed(live.ask("engine::functions::list"))
        for trigger in function["triggers"]
        if trigger["type"] == "cron"
    ]


def parse_detail(detail: str) -> CronSchedule:
    """Return the schedule that a listed cron trigger shows."""
    expression, _, timezone = detail.rpartition(" (")
    return CronSchedule.parse(expression, timezone.removesuffix(")"))
