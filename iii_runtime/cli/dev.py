"""`iii-runtime dev`."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Literal

import click

from iii_runtime.cli.failure import failure_of_output
from iii_runtime.cli.place import (
    Place,
    config_option,
    config_or_default,
    data_option,
    filled,
    required_targets,
)
from iii_runtime.cli.standard_streams import OutputLostError

_PATIENCE = timedelta(seconds=15)
"""Longer than the time that the host itself gives what runs."""
_CHECK_PATIENCE = timedelta(seconds=30)
_PORT = click.IntRange(0, 65535)
_LEVELS = click.Choice(["debug", "info", "warning", "error"])


@click.command()
@click.argument("targets", nargs=-1, callback=filled)
@click.option("--http-port", type=_PORT, help="Port of the http server; 0 takes a free one.")
@click.option("--stream-port", type=_PORT, help="Port of the WebSocket server; 0 takes a free one.")
@data_option
@config_option
@click.option("--no-reload", is_flag=True, help="Do not start anew when the code changes.")
@click.option("--json", "as_json", is_flag=True, help="Print the log as JSON lines.")
@click.option("--log-level", type=_LEVELS, default="info", show_default=True, help="Least severe lines to print.")
@click.option(
    "--synchronous",
    type=click.Choice(["full", "normal"]),
    default="full",
    show_default=True,
    help="SQLite's setting; normal is faster, and a power cut may lose the last writes.",
)
@click.option("--parent-fd", type=int, hidden=True)
@click.option("--banner-fd", type=int, hidden=True)
@click.option("--check-only", is_flag=True, hidden=True)
def dev(  # noqa: PLR0913 - one for each option
    targets: tuple[str, ...],
    *,
    http_port: int | None,
    stream_port: int | None,
    data: Path,
    config: Path | None,
    log_level: str,
    synchronous: str,
    parent_fd: int | None,
    banner_fd: int | None,
    no_reload: bool,
    as_json: bool,
    check_only: bool,
) -> None:
    """Run workers on this machine.

    TARGETS are their files, folders or modules; by default the folder `functions`.

    Starts anew when a Python file of theirs or the configuration changes. Ctrl-C drains and stops: nothing new is
    begun, what runs may end. Ctrl-C again stops at once; what was accepted is not lost.
    """
    place = Place(
        data=data, config=config_or_default(config), targets=required_targets(targets, "dev"), as_json=as_json
    )
    if not (no_reload or check_only):
        ctx = click.get_current_context()
        ctx.exit(_with_reload(_arguments(ctx), place, config))
    # Here because the supervisor does without the host and its libraries.
    from iii_runtime.cli.banner import LastBanner  # noqa: PLC0415
    from iii_runtime.cli.serve import Serving, check, serve  # noqa: PLC0415
    from iii_runtime.hosts.embedded.host import HostOptions  # noqa: PLC0415

    if check_only:
        check(place)
        return
    level: Literal["FULL", "NORMAL"] = "FULL" if synchronous == "full" else "NORMAL"
    last = None if banner_fd is None else LastBanner(banner_fd)
    options = HostOptions(
        data=data,
        http_port=http_port,
        stream_port=stream_port,
        synchronous=level,
        is_reload=last is not None and last.exists,
    )
    serving = Serving(
        place=place,
        options=options,
        log_level=logging.getLevelNamesMapping()[log_level.upper()],
        parent_fd=parent_fd,
        last_banner=last,
    )
    try:
        serve(serving)
    except OutputLostError as lost:
        if parent_fd is None or lost.is_unread:
            raise
        raise failure_of_output(lost, is_supervised=True) from lost


def _with_reload(arguments: Sequence[str], place: Place, config: Path | None) -> int:
    # Here because the host's own process does without a supervisor.
    from iii_runtime.cli.code_watch import watched_files  # noqa: PLC0415
    from iii_runtime.cli.supervisor import Plan, supervise  # noqa: PLC0415

    # -P: a file beside the workers must not be taken for a module of Python's own.
    command = [sys.executable, "-P", "-m", "iii_runtime.cli", "dev"]
    plan = Plan(
        host=lambda parent, banner: [
            *(*command, "--no-reload", "--parent-fd", str(parent), "--banner-fd", str(banner), *arguments)
        ],
        check=[*command, "--check-only", *arguments],
        watched=watched_files(place.targets, config),
        patience=_PATIENCE,
        check_patience=_CHECK_PATIENCE,
    )
    return asyncio.run(supervise(plan))


def _arguments(ctx: click.Context) -> list[str]:
    """Return the arguments of this command once more, for the process that runs the host."""
    arguments: list[str] = []
    for parameter in ctx.command.params:
        value = ctx.params.get(parameter.name or "")
        if (
            not isinstance(parameter, click.Option)
            or parameter.hidden
            or parameter.name == "no_reload"
            or value is None
        ):
            continue
        if not parameter.is_flag:
            arguments += [parameter.opts[-1], str(value)]
        elif value:
            arguments.append(parameter.opts[-1])
    return [*arguments, "--", *ctx.params["targets"]]
