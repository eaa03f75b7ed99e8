"""`iii-runtime runs`: start durable runs, follow them and act on them."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from typing import Any, cast

import click

from iii_runtime.adapters.system import SystemClock, Uuid4Source
from iii_runtime.cli.connection import Engine, engine
from iii_runtime.cli.json_argument import read_json
from iii_runtime.cli.output import json_text, print_json, say, visible
from iii_runtime.cli.place import Handler, Place, with_place, worker_option
from iii_runtime.cli.run_texts import COLUMNS, causes, change, description, instant, row
from iii_runtime.cli.run_timeline import ASCII, BLOCKS, timeline
from iii_runtime.cli.stage import stage_option
from iii_runtime.cli.table import print_list
from iii_runtime.core.client.messages import ended
from iii_runtime.core.errors import InvocationError
from iii_runtime.core.payload import Json
from iii_runtime.core.runs.errors import RunNotCompletedError
from iii_runtime.core.runs.policies import IdConflictPolicy, IdReusePolicy
from iii_runtime.core.trigger_request import TriggerRequest

_STATUSES = ("running", "completed", "failed", "cancelled", "terminated", "timed_out")
_WAIT_MS, _MARGIN_MS = 20_000, 10_000

run_option = click.option("--run", "run_id", metavar="ID", help="That run; else the current one of the workflow id.")


@click.group()
def runs() -> None:
    """Start durable runs, follow them and act on them."""


@runs.command("list")
@click.option("--workflow", metavar="ID", help="Only runs of this workflow.")
@click.option("--status", type=click.Choice(_STATUSES), help="Only runs that are this.")
@click.option("--id", "workflow_id", metavar="ID", help="Only runs of this workflow id, earlier ones included.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")
@stage_option
@with_place
def list_runs(place: Place, workflow: str | None, status: str | None, workflow_id: str | None, limit: int) -> None:
    """List runs, newest first."""
    with engine(place, is_reading=True) as live:
        found = _ask(live, "list", workflow=workflow, status=status, workflow_id=workflow_id, limit=limit)
    if place.as_json:
        print_json(found, compact=True)
    else:
        print_list(COLUMNS, [row(run) for run in found], empty=f"There are no such runs{place.of_stage}.")


@runs.command()
@click.argument("workflow")
@click.option("--input", "given", metavar="JSON", help="Input; `-` reads stdin, `@FILE` a file. Default null.")
@click.option("--id", "workflow_id", metavar="ID", help="Workflow id, unique among open runs. Default a fresh one.")
@click.option("--request-id", metavar="ID", help="The same one names the same run, however often it is asked for.")
@click.option(
    "--reuse", type=click.Choice([each.value for each in IdReusePolicy]), help="May the id of a closed run be used?"
)
@click.option(
    "--conflict", type=click.Choice([each.value for each in IdConflictPolicy]), help="What if the id has an open run?"
)
@click.option("--delay", type=click.FloatRange(0), metavar="S", help="Seconds before it begins.")
@click.option("--run-timeout", type=click.FloatRange(0, min_open=True), metavar="S", help="Its longest life, seconds.")
@click.option("--wait", "is_waited_for", is_flag=True, help="Wait for its result and print that.")
@worker_option
@stage_option
@with_place
def start(  # noqa: PLR0913 - one for each option
    place: Place,
    workflow: str,
    *,
    given: str | None,
    workflow_id: str | None,
    request_id: str | None,
    reuse: str | None,
    conflict: str | None,
    delay: float | None,
    run_timeout: float | None,
    is_waited_for: bool,
) -> None:
    """Start a run of a workflow, and print its workflow id and run id.

    Without a host the run is stored, and begins when one starts.
    """
    payload = None if given is None else read_json(given, "the input")
    with engine(place) as live:
        if is_waited_for:
            _check_live(live)
        started = _ask(
            live,
            "start",
            workflow=workflow,
            input=payload,
            workflow_id=workflow_id,
            request_id=request_id or Uuid4Source().new_id(),
            id_reuse=reuse,
            id_conflict=conflict,
            delay_ms=_ms(delay),
            run_timeout_ms=_ms(run_timeout),
        )
        if is_waited_for:
            _print_result(live, started["workflow_id"], started["run_id"], None, as_json=place.as_json)
            return
    if place.as_json:
        print_json(started, compact=True)
        return
    if not started["is_new"]:
        say(f"notice: it is there already, and {started['status']}")
    if not live.is_live:
        say("notice: no host runs; the run begins when one starts")
    print(f"{visible(started['workflow_id'])}  {started['run_id']}")


@runs.command()
@click.argument("workflow_id")
@run_option
@click.option("--timeout", type=click.FloatRange(0), metavar="S", help="Seconds to wait. Default as long as it takes.")
@stage_option
@with_place
def result(place: Place, workflow_id: str, run_id: str | None, timeout: float | None) -> None:
    """Wait for a run to end, and print its result."""
    with engine(place, is_reading=True) as live:
        _print_result(live, workflow_id, run_id, timeout if live.is_live else 0, as_json=place.as_json)


@runs.command()
@click.argument("workflow_id")
@run_option
@worker_option
@stage_option
@with_place
def show(place: Place, workflow_id: str, run_id: str | None) -> None:
    """Show where a run stands, and its life as a timeline."""
    with engine(place, is_reading=True) as live:
        told = _ask(live, "describe", workflow_id=workflow_id, run_id=run_id)
        events = _ask(live, "history", workflow_id=workflow_id, run_id=told["run_id"])
    if place.as_json:
        print_json({**told, "history": events}, compact=True)
        return
    print("\n".join(visible(line) for line in description(told, SystemClock().now_ms())))
    print()
    until_ms = told["closed_ms"] or SystemClock().now_ms()
    is_unicode = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 160
    print("\n".join(timeline(events, until_ms=until_ms, width=width, marks=BLOCKS if is_unicode else ASCII)))


@runs.command()
@click.argument("workflow_id")
@run_option
@stage_option
@with_place
def history(place: Place, workflow_id: str, run_id: str | None) -> None:
    """Print all that has happened to a run, with its values, one event a line."""
    with engine(place, is_reading=True) as live:
        events = _ask(live, "history", workflow_id=workflow_id, run_id=run_id)
    if place.as_json:
        print_json(events, compact=True)
        return
    for event in events:
        rest = {name: value for name, value in event.items() if name not in ("kind", "at_ms")}
        print(f"{instant(event['at_ms'])}  {event['kind']:<16}  {visible(json_text(rest, compact=True))}")


@runs.command()
@click.argument("workflow_id")
@click.argument("name")
@click.option("--payload", metavar="JSON", help="Payload; `-` reads stdin, `@FILE` a file. Default null.")
@click.option("--signal-id", metavar="ID", help="The same one is received once, however often it is sent.")
@run_option
@stage_option
@with_place
def signal(
    place: Place, workflow_id: str, name: str, payload: str | None, signal_id: str | None, run_id: str | None
) -> None:
    """Send a signal to an open run."""
    content = None if payload is None else read_json(payload, "the payload")
    with engine(place) as live:
        _ask(
            live,
            "signal",
            workflow_id=workflow_id,
            run_id=run_id,
            name=name,
            payload=content,
            signal_id=signal_id or Uuid4Source().new_id(),
        )
    _done(place, f"signal '{name}' is in the inbox of '{workflow_id}'")


@runs.command()
@click.argument("workflow_id")
@click.argument("name")
@click.argument("arguments", nargs=-1, metavar="[JSON]...")
@run_option
@worker_option
@stage_option
@with_place
def query(place: Place, workflow_id: str, name: str, arguments: tuple[str, ...], run_id: str | None) -> None:
    """Ask a run's workflow a question, and print the answer; an ended run answers too."""
    given = [read_json(each, f"argument {index}") for index, each in enumerate(arguments, 1)]
    with engine(place, is_reading=True) as live:
        answer = _ask(live, "query", workflow_id=workflow_id, run_id=run_id, name=name, arguments=given)
    print_json(answer, compact=place.as_json)


def _ending(handler: Handler) -> Handler:
    for decorate in (
        with_place,
        stage_option,
        run_option,
        click.option("--reason", metavar="TEXT", help="Why."),
        click.argument("workflow_id"),
        runs.command(),
    ):
        handler = decorate(handler)
    return handler


@_ending
def cancel(place: Place, workflow_id: str, reason: str | None, run_id: str | None) -> None:
    """Ask an open run to end itself; it may clean up first."""
    with engine(place) as live:
        _ask(live, "cancel", workflow_id=workflow_id, run_id=run_id, reason=reason)
    _done(place, f"'{workflow_id}' is asked to end itself")


@_ending
def terminate(place: Place, workflow_id: str, reason: str | None, run_id: str | None) -> None:
    """End an open run at once; it cleans up nothing."""
    with engine(place) as live:
        _ask(live, "terminate", workflow_id=workflow_id, run_id=run_id, reason=reason)
    _done(place, f"'{workflow_id}' is terminated")


@runs.command()
@click.argument("workflow_id")
@stage_option
@with_place
def resume(place: Place, workflow_id: str) -> None:
    """Let a run that was parked be executed again."""
    with engine(place) as live:
        _ask(live, "resume", workflow_id=workflow_id)
    _done(place, f"'{workflow_id}' goes on")


@runs.command()
@click.argument("workflow_id")
@click.option("--until", type=click.IntRange(1), metavar="N", help="End after N events.")
@stage_option
@with_place
def watch(place: Place, workflow_id: str, until: int | None) -> None:
    """Print what happens to the runs of a workflow id as it happens, one event a line. Ctrl-C ends."""
    # Here because the other commands need no WebSocket.
    from iii_runtime.cli.stream_watch import watch_stream  # noqa: PLC0415
    from iii_runtime.core.runs.events import RUNS_STREAM  # noqa: PLC0415
    from iii_runtime.core.stream_protocol import Subscription  # noqa: PLC0415

    subscription = Subscription(subscription_id="watch", stream_name=RUNS_STREAM, group_id=workflow_id)
    asyncio.run(watch_stream(place, subscription, until, tell=change))


def _print_result(live: Engine, workflow_id: str, run_id: str | None, timeout: float | None, *, as_json: bool) -> None:
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left_ms = _WAIT_MS if end is None else max(round((end - time.monotonic()) * 1000), 0)
        wait_ms = min(left_ms, _WAIT_MS)
        told = _ask(
            live, "result", timeout_ms=wait_ms + _MARGIN_MS, workflow_id=workflow_id, run_id=run_id, wait_ms=wait_ms
        )
        if told["status"] != "running":
            break
        run_id = told["run_id"]
        if end is not None and time.monotonic() >= end:
            raise InvocationError("TIMEOUT", f"run '{workflow_id}' ({run_id}) has not ended yet. It goes on.")
    try:
        ended(told, None)
    except RunNotCompletedError as error:
        raise InvocationError(error.code, error.message, stacktrace=causes(error)) from error
    print_json(told["result"], compact=as_json)


def _check_live(live: Engine) -> None:
    if not live.is_live:
        raise click.UsageError("--wait needs a running host: without one nobody executes the run.")


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _ask(live: Engine, operation: str, *, timeout_ms: int | None = None, **payload: Json) -> Any:
    members = {name: value for name, value in payload.items() if value is not None}
    return cast("Any", live.call(TriggerRequest(f"iii::runs::{operation}", members, timeout_ms=timeout_ms)))


def _done(place: Place, told: str) -> None:
    if place.as_json:
        print_json({"done": True}, compact=True)
    else:
        say(visible(told))
