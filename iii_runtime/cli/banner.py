"""What a host prints when it is ready."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO, cast

from iii_runtime.cli import cron, functions, queues
from iii_runtime.cli.place import Place
from iii_runtime.cli.table import Row, print_table
from iii_runtime.core.payload import Json
from iii_runtime.core.trigger_request import TriggerRequest
from iii_runtime.hosts.embedded.host import EmbeddedHost

_SYNCHRONOUS = {
    "FULL": "FULL: what is accepted survives a power cut",
    "NORMAL": "NORMAL: what is accepted survives the death of the process, not a power cut",
}


async def print_banner(host: EmbeddedHost, place: Place, synchronous: str, file: TextIO) -> None:
    """Print where a started host listens, how it stores, and what it runs."""
    facts = {
        "http": f"http://{host.servers.http_address}",
        "stream": f"ws://{host.servers.stream_address}",
        "data": str(place.data),
        "synchronous": _SYNCHRONOUS[synchronous],
        "config": str(place.config or "defaults (no file)"),
    }
    for name, value in facts.items():
        print(f"{name:<12} {value}", file=file)
    found = functions.listed(await _ask(host, "engine::functions::list"))
    _section(file, functions.COLUMNS, functions.rows(found))
    _section(
        file, queues.COLUMNS, queues.rows(cast("list[queues.ListedQueue]", await _ask(host, "engine::queue::list")))
    )
    _section(file, cron.COLUMNS, cron.rows(cast("list[cron.ListedJob]", await _ask(host, "iii::cron::list"))))
    print(file=file, flush=True)


async def _ask(host: EmbeddedHost, function_id: str) -> Json:
    return await host.runtime.trigger(TriggerRequest(function_id))


def _section(file: TextIO, columns: Sequence[str], rows: Sequence[Row]) -> None:
    if rows:
        print(file=file)
        print_table(columns, rows, file)
