"""`iii-runtime queues`: list them, purge one, pause and resume one of a stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NotRequired, TypedDict, cast

import click
from click.core import ParameterSource

from iii_runtime.cli.confirm import confirm_loss
from iii_runtime.cli.connection import engine
from iii_runtime.cli.output import print_json, say
from iii_runtime.cli.place import Place, with_place, worker_option
from iii_runtime.cli.stage import Stage, stage_option
from iii_runtime.cli.table import print_list
from iii_runtime.core.errors import HostError
from iii_runtime.core.payload import Json

if TYPE_CHECKING:
    from iii_runtime.adapters.aws.switch import Switched

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
    """A queue in the listing of `engine::queue::list`. `config` is null if it is no longer declared.

    The last three are there on AWS only: whether `visible`, `delayed` and `in_flight` are exact, about how many letters
    SQS sees, and about how many of those `dead` does not count yet.
    """

    name: str
    config: ListedSettings | None
    consumers: list[str]
    visible: int
    delayed: int
    in_flight: int
    dead: int
    is_exact: NotRequired[bool]
    sqs_visible: NotRequired[int]
    unindexed: NotRequired[int]


@click.group(invoke_without_command=True)
@worker_option
@stage_option
@with_place
@click.pass_context
def queues(ctx: click.Context, place: Place) -> None:
    """List the queues with settings, consumers and counts.

    Counts are exact on this machine. Those of SQS are marked with `~`.
    """
    if ctx.invoked_subcommand is not None:
        _refuse_options(ctx)
        return
    with engine(place, is_reading=True) as live:
        listing = cast("list[ListedQueue]", live.ask("engine::queue::list"))
    states = None if place.stage is None else _states(place, place.stage, listing)
    if place.as_json:
        known: dict[str, str | None] = states or {}
        stated = [{**queue, **({"state": known[queue["name"]]} if states else {})} for queue in listing]
        print_json(cast("Json", stated), compact=True)
    else:
        columns = COLUMNS if states is None else (*COLUMNS, "state")
        print_list(columns, rows(listing, states), empty="There are no queues.")


@queues.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@worker_option
@stage_option
@with_place
def purge(place: Place, name: str, *, yes: bool) -> None:
    """Remove every waiting message of a queue, for good. Dead letters and what is in flight stay.

    SQS removes what is in flight as well: what runs ends, and is not tried again.
    """
    what = "waiting messages" if place.stage is None else "messages, those in flight too,"
    confirm_loss(f"Remove all {what} of queue '{name}'{place.of_stage}?", is_agreed=yes)
    with engine(place, queue=name) as live:
        result = live.ask("iii::queue::purge", queue=name)
    if place.as_json:
        print_json(result, compact=True)
    else:
        mark = "" if place.stage is None else "~"
        print(f"{mark}{cast('dict[str, Json]', result)['purged']} purged")


@queues.command()
@click.argument("name")
@stage_option
@with_place
def pause(place: Place, name: str) -> None:
    """Take no more messages from a queue of a stage: the kill switch."""
    if _switch(place, name, pauses=True):
        say("What is in flight ends. New messages are accepted and wait with the others, each for 14 days at most.")
        say(f"`iii-runtime queues resume {name} {_stage(place).options}` goes on with them.")


@queues.command()
@click.argument("name")
@stage_option
@with_place
def resume(place: Place, name: str) -> None:
    """Take messages from a paused queue of a stage again."""
    _switch(place, name, pauses=False)


def is_in_use(queue: ListedQueue) -> bool:
    """Whether a queue has a consumer or holds something."""
    return bool(queue["consumers"]) or any(_counts(queue))


def rows(listing: Sequence[ListedQueue], states: Mapping[str, str | None] | None = None) -> list[tuple[object, ...]]:
    """Return the lines of the table; with the states of the queues, if there are any, in a column of their own."""
    return [
        (*_settings(queue), _consumers(queue), *_figures(queue), *(() if states is None else (states[queue["name"]],)))
        for queue in listing
    ]


class _Figure(int):
    """A number that is shown with marks, and still aligned as one."""

    shown: str

    def __new__(cls, value: int, shown: str) -> _Figure:
        figure = super().__new__(cls, value)
        figure.shown = shown
        return figure

    def __str__(self) -> str:
        return self.shown


def _figures(queue: ListedQueue) -> tuple[int, ...]:
    """Return the counts; `~` marks those of SQS, which are near the truth."""
    if queue.get("is_exact", True):
        return _counts(queue)
    *waiting, dead = _counts(queue)
    unindexed = queue.get("unindexed", 0)
    shown = f"{dead} +~{unindexed}" if unindexed else str(dead)
    return (*(_Figure(count, f"~{count}") for count in waiting), _Figure(dead, shown))


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


def _states(place: Place, stage: Stage, listing: Sequence[ListedQueue]) -> dict[str, str | None]:
    """Return by queue whether its messages are taken; `?` for all if that cannot be found out, which is told."""
    from iii_runtime.cli.stage_engine import queue_switch  # noqa: PLC0415

    switch = queue_switch(place, stage)
    try:
        found = switch.states()
    except HostError as error:
        say(f"notice: whether queues are paused is not known: {error.message}")
        return {queue["name"]: None for queue in listing}
    return {
        queue["name"]: next(
            (found[name] for name in switch.names_on_aws(queue["name"]) if name in found), "no consumer"
        )
        for queue in listing
    }


def _stage(place: Place) -> Stage:
    if place.stage is None:
        raise click.UsageError(
            "only queues of a stage can be paused and resumed: add --stage. On this machine stop `iii-runtime dev`; "
            "its messages wait."
        )
    return place.stage


def _switch(place: Place, name: str, *, pauses: bool) -> bool:
    """Pause or resume a queue and say so; return whether to a reader and not to a program."""
    # Here because it needs the AWS library.
    from iii_runtime.cli.stage_engine import queue_switch  # noqa: PLC0415

    switch = queue_switch(place, _stage(place))
    done = switch.pause(name) if pauses else switch.resume(name)
    if place.as_json:
        _print_switched(done)
        return False
    already = "" if done.is_changed else " already"
    takes = "takes no more messages" if pauses else "takes messages"
    print(f"queue '{name}'{place.of_stage} is {done.state}{already}: {done.consumer} {takes} from it")
    return True


def _print_switched(done: Switched) -> None:
    switched = {"queue": done.queue, "state": done.state, "changed": done.is_changed, "consumer": done.consumer}
    print_json(cast("Json", switched), compact=True)


def _refuse_options(ctx: click.Context) -> None:
    """An option before the command would be lost, and `--stage` must not be."""
    for parameter in ctx.command.params:
        if ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"write {parameter.opts[-1]} after '{ctx.invoked_subcommand}'.")
