"""`iii-runtime dlq`: what is in the dead-letter queues, and what to do with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, cast

import click

from iii_runtime.cli.confirm import confirm_loss
from iii_runtime.cli.connection import Engine, engine
from iii_runtime.cli.output import json_text, local_time, one_line, print_json, visible
from iii_runtime.cli.place import Place, with_place, worker_option
from iii_runtime.cli.stage import stage_option
from iii_runtime.cli.table import print_list
from iii_runtime.core.errors import InvocationError
from iii_runtime.core.payload import Json

COLUMNS = ("receipt", "queue", "function", "cause", "attempts", "failed at", "error")


class ListedError(TypedDict):
    """A failed attempt in `engine::queue::dlq_message`."""

    attempt: int
    type: str
    message: str
    stack: str


class ListedLetter(TypedDict):
    """A letter of `engine::queue::dlq_messages`."""

    id: str
    queue: str
    function_id: str | None
    payload: Json
    payload_omitted: bool
    error: str
    error_type: str
    cause: str
    failed_at: int
    enqueued_at: int
    retries: int
    receives: int
    size_bytes: int
    traceparent: str | None


class ShownLetter(ListedLetter):
    """The letter of `engine::queue::dlq_message`."""

    stack: str
    errors: list[ListedError]
    generation: int


@click.group()
def dlq() -> None:
    """List, show, redrive and discard dead letters."""


@dlq.command("list")
@click.argument("queue", required=False)
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="At most so many.")
@click.option("--offset", type=click.IntRange(0, 100_000), default=0, show_default=True, help="Skip the oldest ones.")
@worker_option
@stage_option
@with_place
def list_letters(place: Place, queue: str | None, limit: int, offset: int) -> None:
    """List dead letters of one queue or topic, or all; oldest first."""
    with engine(place, queue=queue, is_reading=True) as live:
        letters = _letters(live, queue, limit, offset)
    if place.as_json:
        print_json(cast("Json", letters), compact=True)
    else:
        where = "" if queue is None else f" on queue '{queue}'"
        beyond = f" after the first {offset}" if offset else ""
        rows = [_row(letter) for letter in letters]
        print_list(COLUMNS, rows, empty=f"There are no dead letters{where}{place.of_stage}{beyond}.", has_text=True)


@dlq.command()
@click.argument("receipt")
@stage_option
@with_place
def show(place: Place, receipt: str) -> None:
    """Show one dead letter: error, attempts with their stacks, payload."""
    with engine(place, is_reading=True) as live:
        letter = cast("ShownLetter | None", live.ask("engine::queue::dlq_message", message_id=receipt))
    if letter is None:
        raise _not_found(receipt)
    if place.as_json:
        print_json(cast("Json", letter), compact=True)
    else:
        print("\n".join(_description(letter)))


def _chosen(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments that say which letters a command is about."""
    for decorate in (
        click.option("--all", "is_all", is_flag=True, help="All dead letters of the queue."),
        click.argument("receipt", required=False),
        click.argument("queue"),
    ):
        command = decorate(command)
    return command


@dlq.command()
@_chosen
@worker_option
@stage_option
@with_place
def redrive(place: Place, queue: str, receipt: str | None, *, is_all: bool) -> None:
    """Put one dead letter, or all of a queue, back on the queue. Attempts start at 1 again."""
    _check_choice(receipt, is_all=is_all)
    _carry_out(place, "redrive", "redriven", queue, receipt)


@dlq.command()
@_chosen
@click.option("--yes", is_flag=True, help="Do not ask.")
@worker_option
@stage_option
@with_place
def discard(place: Place, queue: str, receipt: str | None, *, is_all: bool, yes: bool) -> None:
    """Remove one dead letter, or all of a queue, for good."""
    _check_choice(receipt, is_all=is_all)
    if is_all:
        confirm_loss(f"Discard all dead letters of queue '{queue}'{place.of_stage}?", is_agreed=yes)
    _carry_out(place, "discard", "discarded", queue, receipt)


def _check_choice(receipt: str | None, *, is_all: bool) -> None:
    if (receipt is None) != is_all:
        raise click.UsageError("give the receipt of one dead letter, or --all.")


def _carry_out(place: Place, verb: str, counted: str, queue: str, receipt: str | None) -> None:
    with engine(place, queue=queue) as live:
        if receipt is None:
            result = live.ask(f"iii::queue::{verb}", queue=queue)
        else:
            result = live.ask(f"iii::queue::{verb}_message", queue=queue, message_id=receipt)
    count = cast("dict[str, Json]", result)[counted]
    if receipt is not None and not count:
        raise _not_found(receipt, queue)
    if place.as_json:
        print_json(result, compact=True)
    else:
        print(f"{count} {counted}")


def _letters(live: Engine, queue: str | None, limit: int, offset: int) -> list[ListedLetter]:
    if queue is not None:
        page = live.ask("engine::queue::dlq_messages", queue=queue, limit=limit, offset=offset)
        return cast("list[ListedLetter]", page)
    found: list[ListedLetter] = []
    for topic in cast("list[dict[str, str]]", live.ask("engine::queue::dlq_topics")):
        page = live.ask("engine::queue::dlq_messages", queue=topic["topic"], limit=limit + offset)
        found += cast("list[ListedLetter]", page)
    # Stable, so letters of one second stay in the order in which their queue lists them.
    found.sort(key=lambda letter: letter["failed_at"])
    return found[offset : offset + limit]


def _row(letter: ListedLetter) -> tuple[object, ...]:
    return (
        letter["id"],
        letter["queue"],
        letter["function_id"] or "(unreadable)",
        letter["cause"],
        letter["retries"],
        local_time(letter["failed_at"]),
        one_line(f"{letter['error_type']}: {letter['error']}"),
    )


def _description(letter: ShownLetter) -> list[str]:
    facts = {
        "receipt": letter["id"],
        "queue": letter["queue"],
        "function": letter["function_id"] or "(unreadable)",
        "cause": letter["cause"],
        "error": f"{letter['error_type']}: {letter['error']}",
        "attempts": f"{letter['retries']} failed, {letter['receives']} received, {_redriven(letter['generation'])}",
        "enqueued": local_time(letter["enqueued_at"]),
        "failed": local_time(letter["failed_at"]),
        "trace": letter["traceparent"] or "",
    }
    lines = [f"{name:<10}{visible(one_line(value, 2000))}" for name, value in facts.items() if value]
    for error in letter["errors"]:
        lines += ["", f"attempt {error['attempt']}: {visible(error['type'])}: {visible(error['message'])}"]
        lines += [f"    {line}" for line in visible(error["stack"]).rstrip().splitlines()]
    lines += ["", f"payload ({letter['size_bytes']:,} bytes)"]
    return [*lines, *(f"    {line}" for line in _payload(letter["payload"]).splitlines())]


def _redriven(generation: int) -> str:
    return {0: "never redriven", 1: "redriven once"}.get(generation, f"redriven {generation} times")


def _payload(payload: Json) -> str:
    return visible(json_text(payload, compact=False))


def _not_found(receipt: str, queue: str | None = None) -> InvocationError:
    where = "" if queue is None else f" on queue '{queue}'"
    return InvocationError("dead_letter_not_found", f"There is no dead letter '{receipt}'{where}.")
