"""`iii-runtime stream`: list what is stored, watch what happens."""

from __future__ import annotations

import asyncio
from typing import cast

import click

from iii_runtime.cli.connection import engine
from iii_runtime.cli.output import print_json
from iii_runtime.cli.place import Place, with_place
from iii_runtime.cli.stage import stage_option
from iii_runtime.cli.table import print_list
from iii_runtime.core.stream_protocol import Subscription


@click.group()
def stream() -> None:
    """List and watch streams."""


@stream.command("list")
@click.argument("stream_name", metavar="STREAM")
@click.argument("group", required=False)
@stage_option
@with_place
def list_items(place: Place, stream_name: str, group: str | None) -> None:
    """Print the items of a group; without GROUP list the groups."""
    with engine(place, is_reading=True) as live:
        if group is not None:
            items = live.ask("stream::list", stream_name=stream_name, group_id=group)
            print_json(items, compact=place.as_json)
            return
        groups = live.ask("stream::list_groups", stream_name=stream_name)
    if place.as_json:
        print_json(groups, compact=True)
    else:
        names = cast("list[str]", groups)
        print_list(("group",), [(name,) for name in names], empty=f"Stream '{stream_name}' has no items.")


@stream.command()
@click.argument("stream_name", metavar="STREAM")
@click.argument("group")
@click.option("--item", metavar="ID", help="One item of the group; by default all.")
@click.option("--until", type=click.IntRange(1), metavar="N", help="End after N events, the first sync included.")
@stage_option
@with_place
def watch(place: Place, stream_name: str, group: str, item: str | None, until: int | None) -> None:
    """Print each event of a group as it happens.

    The first one is what is stored (sync); sent events are not kept, so those of the past are not shown. Ctrl-C ends.

    Needs a running host, or a stage. When the connection is lost it is made again, and what is stored is printed again.
    """
    # Here because `stream list` does without a WebSocket.
    from iii_runtime.cli.stream_watch import watch_stream  # noqa: PLC0415

    subscription = Subscription(subscription_id="watch", stream_name=stream_name, group_id=group, item_id=item)
    asyncio.run(watch_stream(place, subscription, until))
