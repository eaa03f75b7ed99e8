"""Where a command's calls go: to the running host, to the store itself when no host runs, or to a stage on AWS."""

from __future__ import annotations

import fcntl
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from iii_runtime.cli.output import say, takes_colour
from iii_runtime.cli.place import Place
from iii_runtime.core.config import Config
from iii_runtime.core.errors import StoreError
from iii_runtime.core.payload import Json
from iii_runtime.core.trigger_request import TriggerRequest
from iii_runtime.core.worker import Worker
from iii_runtime.hosts.control_client import ControlClient, answers
from iii_runtime.hosts.host_file import HostFile, RunningHost

PATIENCE = timedelta(seconds=5)
"""How long a command waits for a host to answer, and for a store that is in use."""
_LOOK_AGAIN = timedelta(milliseconds=200)


class Calls(Protocol):
    """Something that carries out trigger requests."""

    def call(self, request: TriggerRequest) -> Json:
        """Carry out one request; see `Worker.trigger` for results and errors."""
        ...


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine behind a data directory, or of a stage.

    Attributes:
        is_live: Whether a host runs, as it always does in a stage, so that queues, triggers and schedules are served.
    """

    _calls: Calls
    is_live: bool

    def call(self, request: TriggerRequest) -> Json:
        """Carry out one request; see `Worker.trigger` for results and errors."""
        return self._calls.call(request)

    def ask(self, function_id: str, /, **payload: Json) -> Json:
        """Call a function with these members as its payload."""
        return self.call(TriggerRequest(function_id, payload))


@dataclass(frozen=True, slots=True)
class _Aside:
    """Sends what functions print to stderr: stdout is for results."""

    _session: Calls

    def call(self, request: TriggerRequest) -> Json:
        with redirect_stdout(sys.stderr):
            return self._session.call(request)


@contextmanager
def engine(place: Place, *, queue: str | None = None, is_reading: bool = False) -> Iterator[Engine]:
    """Connect to the host on the data directory, or open the store with the place's workers if there is none.

    With a stage, connect to that instead.

    A store that is in use is waited for; if a host comes up in the meantime, this connects to it. If there is no store
    yet, one is made, or an empty one in memory answers a command that only reads.

    Args:
        place: Where.
        queue: All that the command is about. If the configuration declares it no worker is imported: only topics need
            them.
        is_reading: Whether the command changes nothing.

    Raises:
        StoreError: The store cannot be opened; `store_locked`: it was in use for 5 seconds.
        ConfigError: No host runs, and the configuration cannot be used.
        HostError: The host does not answer; or no host runs, and a worker cannot be imported. For a stage see
            `stage_access`; its calls raise those of `StageCalls.call`.
    """
    if place.stage is not None:
        # Here because most commands need nothing of AWS.
        from iii_runtime.cli.stage_engine import stage_calls  # noqa: PLC0415

        yield Engine(stage_calls(place, place.stage), is_live=True)
        return
    live = _live(place.data)
    if live is not None:
        yield live
        return
    # Here because a command that reaches a host needs neither the store nor the workers.
    from iii_runtime.hosts.embedded.discovery import discover_workers  # noqa: PLC0415
    from iii_runtime.hosts.embedded.lines import ReadableLine, hide_lines, show_lines  # noqa: PLC0415

    data = _store(place.data, is_reading=is_reading)
    config = place.load_config()
    is_enough = not place.targets or queue in config.queues
    lines = show_lines(sys.stderr, formatter=ReadableLine(is_coloured=takes_colour(sys.stderr)))
    results = sys.stdout
    try:
        with redirect_stdout(sys.stderr), ExitStack() as stack:
            workers = [] if is_enough else discover_workers(place.targets)
            found = _open(data, config, workers, stack)
            with redirect_stdout(results):
                yield found
    finally:
        hide_lines(lines)


def running_host(data: Path) -> RunningHost | None:
    """Return where the host on a data directory listens; None if none runs.

    A file that a killed host has left is not believed: another process may have its id by now, and another program its
    ports, and that is not to see the token. Who runs on the directory is who has locked it.

    Raises:
        HostError: `host_file_invalid`.
    """
    host = HostFile(data).running() if data.is_dir() else None
    return host if host is not None and _holder(data) == host.pid else None


def _holder(data: Path) -> int | None:
    """Return the process that holds the lock of a data directory; None if none does."""
    from iii_runtime.adapters.embedded.lock import LOCK_NAME  # noqa: PLC0415

    try:
        with (data / LOCK_NAME).open("rb") as lock:
            try:
                # Shared and for a moment: whoever wants the lock then tries again at once.
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(lock.read(64).split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return None


def _live(data: Path) -> Engine | None:
    host = running_host(data)
    if host is None or not answers(host, PATIENCE):
        return None
    return Engine(ControlClient(HostFile(data)), is_live=True)


def _store(data: Path, *, is_reading: bool) -> Path | None:
    """Return the directory of the store to open; None if there is none and nothing is to be made."""
    from iii_runtime.hosts.embedded.stores import holds_store  # noqa: PLC0415

    if holds_store(data):
        return data
    say(f"notice: no store in {data} yet{'' if is_reading else '; a new one is made'}")
    return None if is_reading else data


def _open(data: Path | None, config: Config, workers: Sequence[Worker], stack: ExitStack) -> Engine:
    """Open the store as soon as it is free, until `stack` ends; or return the host that has come up instead."""
    from iii_runtime.hosts.embedded.session import LocalSession  # noqa: PLC0415

    deadline = time.monotonic() + PATIENCE.total_seconds()
    while True:
        try:
            session = stack.enter_context(LocalSession(data, config, workers, wait=_LOOK_AGAIN))
            return Engine(_Aside(session), is_live=False)
        except StoreError as error:
            if data is None or error.code != "store_locked":
                raise
            live = _live(data)
            if live is not None:
                return live
            if time.monotonic() >= deadline:
                raise
