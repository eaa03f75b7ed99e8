"""What a host prints when it is ready."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TextIO, cast

from iii_runtime.cli import cron, functions, queues
from iii_runtime.cli.cron import ListedJob
from iii_runtime.cli.functions import ListedFunction
from iii_runtime.cli.place import Place
from iii_runtime.cli.queues import ListedQueue
from iii_runtime.cli.table import Row, print_table
from iii_runtime.core.config import Config
from iii_runtime.core.payload import Json
from iii_runtime.core.trigger_request import TriggerRequest
from iii_runtime.hosts.embedded.host import EmbeddedHost

_SYNCHRONOUS = {
    "FULL": "FULL: what is accepted survives a power cut",
    "NORMAL": "NORMAL: what is accepted survives the death of the process, not a power cut",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """Where a host listens, how it stores, and what it runs."""

    facts: Mapping[str, str]
    functions: Sequence[ListedFunction]
    queues: Sequence[ListedQueue]
    jobs: Sequence[ListedJob]

    @classmethod
    async def of(cls, host: EmbeddedHost, place: Place, config: Config, synchronous: str) -> Self:
        """Return the banner of a started host. The built-in queue is left out while it has nothing to do."""
        listed_queues = cast("list[ListedQueue]", await _ask(host, "engine::queue::list"))
        declared = {name for name, queue in config.queues.items() if queue.line is not None}
        return cls(
            facts={
                "http": f"http://{host.servers.http_address}",
                "stream": f"ws://{host.servers.stream_address}",
                "data": str(place.data),
                "synchronous": _SYNCHRONOUS[synchronous],
                "config": str(place.config or "defaults (no file)"),
            },
            functions=functions.listed(await _ask(host, "engine::functions::list")),
            queues=[queue for queue in listed_queues if queue["name"] in declared or queues.is_in_use(queue)],
            jobs=cast("list[ListedJob]", await _ask(host, "iii::cron::list")),
        )

    def show(self, file: TextIO) -> None:
        """Print it."""
        for name, value in self.facts.items():
            print(f"{name:<12} {value}", file=file)
        _section(file, functions.COLUMNS, functions.rows(self.functions))
        _section(file, queues.COLUMNS, queues.rows(self.queues))
        _section(file, cron.COLUMNS, cron.rows(self.jobs))
        print(file=file, flush=True)

    def digest(self) -> str:
        """Return what two banners have in common that say the same.

        Lines of code, counts and next ticks are left out: they change with every edit, or by themselves.
        """
        lasting = (
            dict(self.facts),
            [{**function, "source": function["source"].rpartition(":")[0]} for function in self.functions],
            [(queue["name"], queue["config"], queue["consumers"]) for queue in self.queues],
            [{**job, "next": None} for job in self.jobs],
        )
        return hashlib.sha256(json.dumps(lasting).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class LastBanner:
    """The banner that was printed last, in a file that goes from one host to the next.

    Attributes:
        descriptor: The file; empty until a first banner is printed.
    """

    descriptor: int

    @property
    def exists(self) -> bool:
        """Whether one was printed."""
        return os.fstat(self.descriptor).st_size > 0

    def replace(self, digest: str) -> bool:
        """Keep the digest of a banner; returns whether it is another one than before."""
        new = digest.encode()
        is_other = os.pread(self.descriptor, len(new), 0) != new
        os.pwrite(self.descriptor, new, 0)
        return is_other


async def _ask(host: EmbeddedHost, function_id: str) -> Json:
    return await host.runtime.trigger(TriggerRequest(function_id))


def _section(file: TextIO, columns: Sequence[str], rows: Sequence[Row]) -> None:
    if rows:
        print(file=file)
        print_table(columns, rows, file)
