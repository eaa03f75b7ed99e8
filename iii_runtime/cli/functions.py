"""`iii-runtime functions`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, cast

import click

from iii_runtime.cli.connection import engine
from iii_runtime.cli.output import print_json
from iii_runtime.cli.place import Place, with_place, worker_option
from iii_runtime.cli.stage import stage_option
from iii_runtime.cli.table import print_list
from iii_runtime.core.payload import Json

COLUMNS = ("function", "triggers", "timeout", "where")


class ListedTrigger(TypedDict):
    """A trigger in the listing of `engine::functions::list`."""

    type: str
    detail: str


class ListedFunction(TypedDict):
    """A function in the listing of `engine::functions::list`."""

    function_id: str
    timeout_ms: int
    triggers: list[ListedTrigger]
    source: str


@click.command()
@worker_option
@stage_option
@with_place
def functions(place: Place) -> None:
    """List the registered functions and what starts them."""
    with engine(place, is_reading=True) as live:
        listing = live.ask("engine::functions::list")
    if place.as_json:
        print_json(listing, compact=True)
    else:
        print_list(COLUMNS, rows(listed(listing)), empty="There are no functions. Name their files with --worker.")


def listed(listing: Json) -> list[ListedFunction]:
    """Return the functions in the result of `engine::functions::list`."""
    return cast("dict[str, list[ListedFunction]]", listing)["functions"]


def rows(found: Sequence[ListedFunction]) -> list[tuple[str, str, str, str]]:
    """Return the lines of the table."""
    return [
        (
            function["function_id"],
            "\n".join(f"{trigger['type']} {trigger['detail']}".rstrip() for trigger in function["triggers"]),
            f"{function['timeout_ms'] / 1000:g} s",
            _where(function["source"]),
        )
        for function in found
    ]


def _where(source: str) -> str:
    path, colon, line = source.rpartition(":")
    if not colon or not Path(path).is_relative_to(Path.cwd()):
        return source
    return f"{os.path.relpath(path)}:{line}"
