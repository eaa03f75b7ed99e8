"""`iii-runtime queues` and `iii-runtime queues purge`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, cast

import click

from iii_runtime.cli.confirm import confirm_loss
from iii_runtime.cli.connection import engine
from iii_runtime.cli.output import print_json
from iii_runtime.cli.place import Place, with_place, worker_option
from iii_runtime.cli.table import print_list
from iii_runtime.core.payload import Json

COLUMNS = (
    "queue", "type", "concurrency", "attempts", "backoff", "consumers", "visible", "delayed", "in flight", "dead",
)  # fmt: skip


class ListedSettings(TypedDict):
    """The settings of a queue in the listing of `engine::queue::list`."""

    max_attempts: int
    concurrency: int
    type: str
    message_group_field: str | None
    backoff_ms: int


class ListedQueue(TypedDict):
    """A queue in the listing of `engine::queue::list`. `config` is null if it is no longer declared."""

    name: str
    config: ListedSettings | None
    consumers: list[str]
    visible: int
    delayed: int
    in_flight: int
    dead: int


@click.group(invoke_without_command=True)
@worker_option
@with_place
@click.pass_context
def queues(ctx: click.Context, place: Place) -> None:
    """List the queues with settings, consumers and exact counts."""
    if ctx.invoked_subcommand is not None:
        return
    with engine(place, is_reading=True) as live:
        listing = live.ask("engine::queue::list")
    if place.as_json:
        print_json(listing, compact=True)
    else:
        print_list(COLUMNS, rows(cast("list[ListedQueue]", listing)), empty="There are no queues.")


@queues.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@worker_option
@with_place
def purge(place: Place, name: str, *, yes: bool) -> None:
    """Remove every waiting message of a queue, for good. Dead letters and what is in flight stay."""
    confirm_loss(f"Remove all waiting messages of queue '{name}'?", is_agreed=yes)
    with engine(place, queue=name) as live:
        result = live.ask("iii::queue::purge", queue=name)
    if place.as_json:
        print_json(result, compact=True)
    else:
        print(f"{cast('dict[str, Json]', result)['purged']} purged")


def is_in_use(queue: ListedQueue) -> bool:
    """Whether a queue has a consumer or holds something."""
    return bool(queue["consumers"]) or any(_counts(queue))


def rows(listing: Sequence[ListedQueue]) -> list[tuple[object, ...]]:
    """Return the lines of the table."""
    return [(*_settings(queue), _consumers(queue), *_counts(queue)) for queue in listing]


def _settings(queue: ListedQueue) -> tuple[object, ...]:
    config = queue["config"]
    if config is None:
        return queue["name"], "(not declared)", "", "", ""
    kind = config["type"]
    if config["message_group_field"] is not None:
        kind = f"{kind} by {config['message_group_field']}"
    return queue["name"], kind, config["concurrency"], config["max_attempts"], f"{config['backoff_ms']} ms"


def _consumers(queue: ListedQueue) -> str:
    return "\n".join(queue["consumers"])


def _counts(queue: ListedQueue) -> tuple[int, ...]:
    return queue["visible"], queue["delayed"], queue["in_flight"], queue["dead"]
