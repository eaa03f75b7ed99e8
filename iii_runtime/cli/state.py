"""`iii-runtime state`: read and write state documents."""

from __future__ import annotations

from typing import cast

import click

from iii_runtime.cli.connection import engine
from iii_runtime.cli.json_argument import read_json
from iii_runtime.cli.output import print_json
from iii_runtime.cli.place import Place, with_place
from iii_runtime.cli.stage import stage_option
from iii_runtime.cli.table import print_list
from iii_runtime.core.payload import Json


@click.group()
def state() -> None:
    """Read and write state."""


@state.command()
@click.argument("scope")
@click.argument("key")
@stage_option
@with_place
def get(place: Place, scope: str, key: str) -> None:
    """Print a value; null if there is none."""
    _print_result(place, "state::get", is_reading=True, scope=scope, key=key)


@state.command("set")
@click.argument("scope")
@click.argument("key")
@click.argument("value", metavar="JSON")
@stage_option
@with_place
def set_value(place: Place, scope: str, key: str, value: str) -> None:
    """Replace a value, and print the old and the new one.

    As JSON `-` reads stdin, `@FILE` a file.
    """
    _print_result(place, "state::set", scope=scope, key=key, value=read_json(value, "the value"))


@state.command("list")
@click.argument("scope")
@stage_option
@with_place
def list_values(place: Place, scope: str) -> None:
    """Print the values of a scope, ordered by key."""
    _print_result(place, "state::list", is_reading=True, scope=scope)


@state.command()
@click.argument("scope")
@click.argument("key")
@stage_option
@with_place
def delete(place: Place, scope: str, key: str) -> None:
    """Remove a value, and print what it was."""
    _print_result(place, "state::delete", scope=scope, key=key)


@state.command()
@stage_option
@with_place
def scopes(place: Place) -> None:
    """List the scopes that hold a value."""
    with engine(place, is_reading=True) as live:
        result = live.ask("state::list_groups")
    if place.as_json:
        print_json(result, compact=True)
    else:
        names = cast("dict[str, list[str]]", result)["groups"]
        print_list(("scope",), [(name,) for name in names], empty="No scope holds a value.")


def _print_result(place: Place, function_id: str, *, is_reading: bool = False, **payload: Json) -> None:
    with engine(place, is_reading=is_reading) as live:
        result = live.ask(function_id, **payload)
    print_json(result, compact=place.as_json)
