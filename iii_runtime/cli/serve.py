"""Runs the host in this process until it is told to stop."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from iii_runtime.cli.banner import Banner, LastBanner
from iii_runtime.cli.connection import running_host
from iii_runtime.cli.main import INTERRUPTED
from iii_runtime.cli.output import say, takes_colour
from iii_runtime.cli.place import DEFAULT_DATA, Place
from iii_runtime.cli.standard_streams import OutputLostError, forget_stream
from iii_runtime.cli.stdout_reader import on_reader_gone
from iii_runtime.core.config import Config
from iii_runtime.core.errors import HostError
from iii_runtime.core.registry import Catalog
from iii_runtime.core.worker import Worker
from iii_runtime.hosts.embedded.discovery import discover_workers
from iii_runtime.hosts.embedded.host import EmbeddedHost, HostOptions
from iii_runtime.hosts.embedded.lines import JsonLine, ReadableLine, hide_lines, show_lines
from iii_runtime.plan.checks import check_app


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How `dev` runs a host.

    Attributes:
        place: Data directory, configuration, workers; `as_json` chooses the form of the log lines.
        options: The host's.
        log_level: Least severe log lines that are shown, a level of `logging`.
        parent_fd: A pipe whose other end the supervisor holds; when it closes, the supervisor is gone.
        last_banner: Of the host before this one. The same banner is not printed twice.
    """

    place: Place
    options: HostOptions
    log_level: int
    parent_fd: int | None = None
    last_banner: LastBanner | None = None


def serve(serving: Serving) -> None:
    """Import the workers and run them until SIGINT, SIGTERM or the end of the supervisor or of stdout; then drain.

    A second signal ends the process at once, with exit code 130. Log lines that cannot be written later, as on a disk
    that has become full, are lost; the host goes on.

    Raises:
        ConfigError: The configuration cannot be used.
        HostError: The workers or the host cannot start.
        StoreError: The data directory cannot be used.
        RegistrationError: Two workers register one function.
        OutputLostError: The reader of stdout has gone, or what is printed at the start cannot be written.
    """
    config = serving.place.load_config()
    host = EmbeddedHost(import_workers(serving.place.targets), config, serving.options)
    # Lines that cannot be written are lost, without a traceback for each.
    logging.raiseExceptions = False
    asyncio.run(_run(host, config, serving))


def check(place: Place) -> None:
    """Import the workers and check them with the configuration, without starting anything.

    Raises:
        ConfigError: The configuration cannot be used.
        HostError: A worker cannot be imported, or the app cannot work.
        RegistrationError: Two workers register one function.
    """
    config = place.load_config()
    catalog = Catalog.of(worker.registry for worker in import_workers(place.targets))
    errors = [f"{each.where}: {each.message}" for each in check_app(config, catalog) if each.level == "error"]
    if errors:
        raise HostError("\n".join(errors), code="app_invalid")


def import_workers(targets: Sequence[str]) -> list[Worker]:
    """Import the workers for one run.

    No bytecode is kept of them: it is told apart by whole seconds and sizes, which two quick edits can have in common.

    Raises:
        HostError: See `discover_workers`.
    """
    kept = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        return discover_workers(targets)
    finally:
        sys.dont_write_bytecode = kept


async def _run(host: EmbeddedHost, config: Config, serving: Serving) -> None:
    stopping, unread = asyncio.Event(), asyncio.Event()
    _stop_on_signals(stopping)

    def reader_gone() -> None:
        unread.set()
        # A supervisor notices it as well, and says when to drain.
        if serving.parent_fd is None:
            stopping.set()

    on_reader_gone(reader_gone)
    if serving.parent_fd is not None:
        asyncio.get_running_loop().add_reader(serving.parent_fd, _parent_gone(serving.parent_fd, stopping))
    # The lines of the start wait for the banner, which knows the ports only then.
    held = io.StringIO()
    lines = show_lines(held, formatter=_formatter(serving.place), level=serving.log_level)
    _tell_of_another(serving.options.data)
    try:
        await _serve(host, config, serving, stopping, lambda: _release(lines, held))
    finally:
        hide_lines(lines)
    if unread.is_set():
        raise OutputLostError(BrokenPipeError(), sys.stdout.fileno())


async def _serve(
    host: EmbeddedHost, config: Config, serving: Serving, stopping: asyncio.Event, release: Callable[[], None]
) -> None:
    is_started = False
    try:
        try:
            is_started = await _start(host, stopping)
            if is_started and not serving.place.as_json:
                banner = await Banner.of(host, serving.place, config, serving.options.synchronous)
                if serving.last_banner is None or serving.last_banner.replace(banner.digest()):
                    banner.show(sys.stdout)
        finally:
            release()
        if is_started:
            await stopping.wait()
    except OutputLostError as lost:
        # What functions print while the host drains does not fail.
        forget_stream(lost.descriptor)
        raise
    finally:
        if is_started:
            await host.stop()


def _formatter(place: Place) -> logging.Formatter:
    if place.as_json:
        return JsonLine()
    where = () if place.data == DEFAULT_DATA else ("--data", str(place.data))
    return ReadableLine(
        is_coloured=takes_colour(sys.stdout), letter_command=shlex.join(("iii-runtime", "dlq", "show", *where))
    )


def _tell_of_another(data: Path) -> None:
    """Say why the start may take its time. The lock decides, and a damaged `host.json` is about to be replaced."""
    with suppress(HostError):
        other = running_host(data)
        if other is not None:
            say(f"notice: another host, process {other.pid}, runs on {data}; waiting for its end")


async def _start(host: EmbeddedHost, stopping: asyncio.Event) -> bool:
    """Start the host unless it is told to stop before that is done, for instance while it waits for the store."""
    starting = asyncio.create_task(host.start())
    told = asyncio.create_task(stopping.wait())
    await asyncio.wait((starting, told), return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait((starting,))
    if starting.cancelled():
        return False
    await starting
    return True


def _release(lines: logging.Handler, held: io.StringIO) -> None:
    lines.acquire()
    try:
        print(held.getvalue(), end="", flush=True)
        if isinstance(lines, logging.StreamHandler):
            lines.setStream(sys.stdout)
    finally:
        lines.release()


def _stop_on_signals(stopping: asyncio.Event) -> None:
    def stop() -> None:
        if stopping.is_set():
            os._exit(INTERRUPTED)
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)


def _parent_gone(descriptor: int, stopping: asyncio.Event) -> Callable[[], None]:
    def gone() -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        if not stopping.is_set():
            say("notice: the supervising process is gone; draining")
            stopping.set()

    return gone
