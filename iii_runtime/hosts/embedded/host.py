"""The embedded host: engine, store, servers and loops in one process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from iii_runtime.adapters.system import SystemClock, Uuid4Source
from iii_runtime.adapters.threads import ThreadExecutor
from iii_runtime.core.config import Config
from iii_runtime.core.errors import HostError
from iii_runtime.core.worker import Worker
from iii_runtime.engine.app import App
from iii_runtime.engine.runtime import Runtime
from iii_runtime.hosts.embedded.background import Background
from iii_runtime.hosts.embedded.servers import Servers
from iii_runtime.hosts.embedded.stores import Listeners, OpenData, open_data
from iii_runtime.hosts.loop_invoker import LoopInvoker
from iii_runtime.plan.checks import check_app
from iii_runtime.ports.clock import Clock, IdSource

_log = logging.getLogger("iii_runtime.host")
DEFAULT_GRACE = timedelta(seconds=10)
_LAST_CALLS = timedelta(seconds=1)
_STORE_WAIT = timedelta(seconds=10)
"""A command that is at work in the store, or a host that stops, may take so long to give it free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOptions:
    """How an embedded host runs.

    Attributes:
        data: Data directory: the SQLite file, blobs, and the file by which the CLI finds the host.
        http_port: Overrides the config's; 0 takes a free one.
        stream_port: Overrides the config's; 0 takes a free one.
        grace: How long a stop waits for what runs.
        synchronous: SQLite's setting. FULL survives a power cut; NORMAL only the death of the process.
        is_reload: Whether it follows a host with other code; its log then says `reloaded` where it is `ready`.
    """

    data: Path
    http_port: int | None = None
    stream_port: int | None = None
    grace: timedelta = DEFAULT_GRACE
    synchronous: Literal["FULL", "NORMAL"] = "FULL"
    is_reload: bool = False


class EmbeddedHost:
    """Runs workers durably in this process. Every accepted message survives the death of the process."""

    def __init__(
        self,
        workers: Sequence[Worker],
        config: Config,
        options: HostOptions,
        *,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        self._config = config
        self._options = options
        self._clock = clock or SystemClock()
        self._ids = ids or Uuid4Source()
        self.app = App(config, workers)
        self._executor = ThreadExecutor()
        self._data: OpenData | None = None
        self._background: Background | None = None
        self._servers: Servers | None = None

    @property
    def runtime(self) -> Runtime:
        """The engine; only between `start` and `stop`."""
        return self._runtime

    @property
    def background(self) -> Background:
        """The loops; only between `start` and `stop`."""
        assert self._background is not None, "the host is not started"  # noqa: S101
        return self._background

    @property
    def servers(self) -> Servers:
        """The servers; only between `start` and `stop`."""
        assert self._servers is not None, "the host is not started"  # noqa: S101
        return self._servers

    async def start(self) -> None:
        """Open the store, listen, and start to consume. If anything fails, nothing is left open.

        Raises:
            HostError: `app_invalid` with every finding, `port_in_use`, ...
            StoreError: The data directory cannot be used; `store_locked`: it was not free within 10 seconds.
        """
        self._check()
        loop = asyncio.get_running_loop()
        listeners = Listeners(on_message=self._on_message, on_change=self._on_change)
        self._data = await open_data(
            self._options.data,
            self._config,
            clock=self._clock,
            ids=self._ids,
            holder="host",
            wait=_STORE_WAIT,
            listeners=listeners,
            synchronous=self._options.synchronous,
        )
        try:
            stores = self._data.stores
            self._runtime = Runtime(self.app, stores, self._executor)
            self._servers = Servers(
                self._runtime,
                self._config,
                self._options.data,
                http_port=self._options.http_port,
                stream_port=self._options.stream_port,
                holder=self._ids.new_id(),
            )
            self._background = Background(self._runtime, self._servers.push, self._swept)
            for worker in self.app.workers:
                worker.attach(LoopInvoker(self._runtime, loop))
            await self._servers.start()
            await self._background.start()
        except BaseException:
            if self._background is not None:
                await self._background.stop(timedelta(0))
            await self._close()
            raise
        _log.info(
            "reloaded" if self._options.is_reload else "ready",
            extra={
                "iii": {
                    "functions": len(self.app.catalog.functions),
                    "queues": len(self.app.queues),
                    "http": f"http://{self._servers.http_address}",
                    "stream": f"ws://{self._servers.stream_address}",
                    "data": str(self._options.data),
                    "synchronous": self._data.database.synchronous,
                }
            },
        )

    async def stop(self) -> None:
        """Drain and close: no new requests, messages or ticks; what runs may end within the grace period."""
        _log.info("draining", extra={"iii": {"grace_s": self._options.grace.total_seconds()}})
        if self._servers is not None and self._background is not None:
            # At the same time, so that the grace period is one and not one after the other.
            _, given_up = await asyncio.gather(
                self._servers.drain(self._options.grace), self._background.stop(self._options.grace)
            )
            await self._runtime.settle(_LAST_CALLS)  # void calls that the last requests made
            if given_up:
                _log.warning(
                    "gave up waiting; these messages are attempted again at the next start",
                    extra={"iii": {"messages": given_up}},
                )
        await self._close()
        _log.info("stopped")

    def _check(self) -> None:
        findings = check_app(self._config, self.app.catalog)
        for finding in findings:
            if finding.level == "warning":
                _log.warning("%s", finding.message, extra={"iii": {"where": finding.where}})
        for notice in self._config.notices:
            _log.warning("%s", notice)
        errors = [f"{finding.where}: {finding.message}" for finding in findings if finding.level == "error"]
        if errors:
            raise HostError("\n".join(errors), code="app_invalid")

    async def _swept(self) -> None:
        if self._data is not None:
            await self._data.retention.sweep(self._clock.now_ms())

    async def _close(self) -> None:
        self.app.close()
        for worker in self.app.workers:
            worker.attach(None)
        if self._servers is not None:
            await self._servers.close()
        self._executor.close()
        if self._data is not None:
            await self._data.close()
        self._servers = self._background = self._data = None

    def _on_message(self, queue_name: str) -> None:
        if self._background is not None:
            self._background.wake_queue(queue_name)

    def _on_change(self) -> None:
        if self._background is not None:
            self._background.wake_feed()
