"""Where a command's calls go: to the running host, or to the store itself when no host runs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from iii_runtime.cli.output import say
from iii_runtime.cli.place import Place
from iii_runtime.core.payload import Json
from iii_runtime.core.trigger_request import TriggerRequest
from iii_runtime.hosts.embedded.control_client import ControlClient
from iii_runtime.hosts.embedded.host_file import HostFile, RunningHost


class Calls(Protocol):
    """Something that carries out trigger requests."""

    def call(self, request: TriggerRequest) -> Json:
        """Carry out one request; see `Worker.trigger` for results and errors."""
        ...


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine behind a data directory.

    Attributes:
        is_live: Whether a host runs, so that queues, triggers and schedules are served.
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
def engine(place: Place, *, queue: str | None = None) -> Iterator[Engine]:
    """Connect to the host on the data directory, or open the store with the place's workers if there is none.

    Args:
        place: Where.
        queue: All that the command is about. If the configuration declares it no worker is imported: only topics need
            them.

    Raises:
        StoreError: The store cannot be opened.
        ConfigError: No host runs, and the configuration cannot be used.
        HostError: The host does not answer; or no host runs, and a worker cannot be imported.
    """
    if running_host(place.data) is not None:
        yield Engine(ControlClient(HostFile(place.data)), is_live=True)
        return
    # Here because a command that reaches a host needs neither the store nor the workers.
    from iii_runtime.hosts.embedded.discovery import discover_workers  # noqa: PLC0415
    from iii_runtime.hosts.embedded.lines import hide_lines, show_lines  # noqa: PLC0415
    from iii_runtime.hosts.embedded.session import LocalSession  # noqa: PLC0415

    if not place.data.exists():
        say(f"notice: {place.data} holds no store yet; a new one is made")
    config = place.load_config()
    is_enough = not place.targets or queue in config.queues
    lines = show_lines(sys.stderr, level=logging.INFO)
    results = sys.stdout
    try:
        with redirect_stdout(sys.stderr):
            workers = [] if is_enough else discover_workers(place.targets)
            with LocalSession(place.data, config, workers) as session, redirect_stdout(results):
                yield Engine(_Aside(session), is_live=False)
    finally:
        hide_lines(lines)


def running_host(data: Path) -> RunningHost | None:
    """Return where the host on a data directory listens; None if none runs.

    Raises:
        HostError: `host_file_invalid`.
    """
    return HostFile(data).running() if data.is_dir() else None
