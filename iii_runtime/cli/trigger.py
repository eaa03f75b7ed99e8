"""`iii-runtime trigger`."""

from __future__ import annotations

from pathlib import Path

import click

from iii_runtime.adapters.system import SystemClock
from iii_runtime.cli.connection import Engine, engine
from iii_runtime.cli.event_file import payloads_of
from iii_runtime.cli.json_argument import read_json
from iii_runtime.cli.output import print_json, say
from iii_runtime.cli.place import Place, with_place, worker_option
from iii_runtime.cli.stage import stage_option
from iii_runtime.core.payload import Json
from iii_runtime.core.trigger_request import Action, TriggerActionEnqueue, TriggerActionVoid, TriggerRequest


@click.command()
@click.argument("function_id", metavar="FUNCTION")
@click.option("--payload", metavar="JSON", help="Payload; `-` reads stdin, `@FILE` a file. Default null.")
@click.option(
    "--event",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="AWS event: an HTTP API request, SQS records (called one after the other), or a schedule.",
)
@click.option("--queue", metavar="NAME", help="Enqueue on this queue and print the receipt.")
@click.option("--void", "is_void", is_flag=True, help="Start the call and do not wait for its result.")
@click.option("--delay", type=click.FloatRange(0, 900), metavar="S", help="With --queue: seconds to wait.")
@click.option("--dedupe-id", metavar="ID", help="With --queue: enqueue the same id once in five minutes.")
@click.option("--timeout-ms", type=click.IntRange(1), metavar="N", help="Wait so long for the result.")
@click.option("--metadata", metavar="JSON", help="Object for handlers with a `metadata` parameter.")
@worker_option
@stage_option
@with_place
def trigger(  # noqa: PLR0913 - one for each option
    place: Place,
    function_id: str,
    *,
    payload: str | None,
    event: Path | None,
    queue: str | None,
    delay: float | None,
    dedupe_id: str | None,
    timeout_ms: int | None,
    metadata: str | None,
    is_void: bool,
) -> None:
    """Call a function and print its result.

    The call goes to the running host, or is made without one. Without a host a message that is enqueued waits until
    one starts.
    """
    if payload is not None and event is not None:
        raise click.UsageError("--payload and --event exclude each other.")
    action = _action(queue, delay, dedupe_id, is_void=is_void)
    sidecar = _sidecar(metadata)
    given = None if payload is None else read_json(payload, "the payload")
    with engine(place) as live:
        for each in _payloads(given, event, function_id, live):
            request = TriggerRequest(function_id, each, action, timeout_ms, sidecar)
            print_json(live.call(request), compact=place.as_json)
        if isinstance(action, TriggerActionEnqueue) and not live.is_live:
            say(f"notice: no host is running on {place.data}; the message is stored and waits for one")


def _payloads(given: Json, event: Path | None, function_id: str, live: Engine) -> tuple[Json, ...]:
    return (given,) if event is None else payloads_of(event, function_id, live, SystemClock().now())


def _action(queue: str | None, delay: float | None, dedupe_id: str | None, *, is_void: bool) -> Action | None:
    if queue is None:
        if delay is not None or dedupe_id is not None:
            raise click.UsageError("--delay and --dedupe-id need --queue.")
        return TriggerActionVoid() if is_void else None
    if is_void:
        raise click.UsageError("--queue and --void exclude each other.")
    return TriggerActionEnqueue(queue, delay or 0, dedupe_id)


def _sidecar(text: str | None) -> dict[str, Json] | None:
    value = None if text is None else read_json(text, "the metadata")
    if value is not None and not isinstance(value, dict):
        raise click.UsageError("--metadata has to be a JSON object.")
    return value
