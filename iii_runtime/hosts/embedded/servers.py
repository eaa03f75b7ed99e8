"""The three listeners of a host and the file by which the command line finds them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from iii_runtime.core.change import StreamChange
from iii_runtime.core.config import Config
from iii_runtime.engine.http_entry import HttpEntry
from iii_runtime.engine.runtime import Runtime
from iii_runtime.hosts.embedded.control_server import ControlServer
from iii_runtime.hosts.embedded.http_server import HttpServer
from iii_runtime.hosts.embedded.listener import ListeningServer
from iii_runtime.hosts.embedded.origins import origin_rule, run_routes_rule
from iii_runtime.hosts.embedded.stream_hub import StreamHub
from iii_runtime.hosts.embedded.stream_server import StreamServer
from iii_runtime.hosts.host_file import HostFile, RunningHost, new_token

_CLOSE_GRACE = timedelta(seconds=2)


class Servers:
    """HTTP, WebSocket streams and the control endpoint.

    Args:
        runtime: The engine.
        config: Where they listen and which origins they trust.
        data: Data directory, for `host.json`.
        http_port: Overrides the config's.
        stream_port: Overrides the config's.
        holder: Identity of this host's life, for idempotency keys.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: Config,
        data: Path,
        *,
        http_port: int | None,
        stream_port: int | None,
        holder: str,
    ) -> None:
        stores = runtime.stores
        self._token = new_token()
        self._file = HostFile(data)
        self._running: RunningHost | None = None
        self._hub = StreamHub()
        self._http = HttpServer(
            HttpEntry(runtime, holder, may_use_runs=run_routes_rule(config.http)),
            config.http.host,
            config.http.port if http_port is None else http_port,
            ids=stores.ids,
        )
        self._stream = StreamServer(
            self._hub,
            stores.stream,
            stores.clock,
            config.stream.host,
            config.stream.port if stream_port is None else stream_port,
            allowed_origins=origin_rule(config.http.cors),
            ids=stores.ids,
        )
        self._control = ControlServer(runtime.trigger, self._token, ids=stores.ids)
        self._started: list[ListeningServer] = []

    @property
    def http_address(self) -> str:
        """`host:port` of the http server."""
        return self._http.address

    @property
    def stream_address(self) -> str:
        """`host:port` of the WebSocket server."""
        return self._stream.address

    def push(self, changes: Sequence[StreamChange]) -> None:
        """Send changes to whoever subscribed; never waits."""
        self._hub.push(changes)

    async def start(self) -> None:
        """Listen, and say where in `host.json`.

        Raises:
            HostError: `port_in_use` and the like; what was started is left to `close`.
        """
        for server in (self._http, self._stream, self._control):
            await server.start()
            self._started.append(server)
        self._running = RunningHost(
            pid=os.getpid(),
            http=self._http.address,
            stream=self._stream.address,
            control=self._control.address,
            token=self._token,
        )
        self._file.write(self._running)

    async def drain(self, grace: timedelta) -> None:
        """Take no further requests or commands and wait for the active ones, at most `grace`. Streams go on."""
        draining = [server for server in self._started if server is not self._stream]
        self._started = [server for server in self._started if server is self._stream]
        await asyncio.gather(*(server.stop(grace) for server in draining))

    async def close(self) -> None:
        """Close what is open and remove `host.json`."""
        while self._started:
            await self._started.pop().stop(_CLOSE_GRACE)
        if self._running is not None:
            self._file.remove(self._running)
