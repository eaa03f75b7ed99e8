"""Commands without a host whose store is in use: they wait for it, go to the host that comes up, or give up."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from iii_runtime.adapters.embedded.lock import DataLock, Holder
from iii_runtime.cli import connection
from iii_runtime.core.payload import Json
from iii_runtime.core.trigger_request import TriggerRequest
from iii_runtime.hosts.embedded.control_server import ControlServer
from iii_runtime.hosts.host_file import HostFile, RunningHost, new_token
from tests.host.commands import WORKER, answer, done, refused
from tests.patience import PATIENCE_S, eventually

pytestmark = pytest.mark.usefixtures("own_folder")
TOKEN = new_token()


def test_a_command_waits_for_another_one() -> None:
    with held("command") as lock:
        release = threading.Timer(0.3, lock.release)
        release.start()
        assert answer("state", "set", "s", "k", "1")["new_value"] == 1
        release.join()


def test_a_command_that_waits_goes_through_the_host_that_comes_up(shop: Path) -> None:
    """As while a host starts anew: the store stays in use, and the command has begun without a host."""
    imported, is_over = shop / "imported", threading.Event()
    (shop / "functions" / "shop_worker.py").write_text(f"open({str(imported)!r}, 'w').close()\n{WORKER}")

    async def call(_request: TriggerRequest) -> Json:
        return "from the host"

    async def come_up() -> None:
        server = ControlServer(call, TOKEN)
        await server.start()
        try:
            await asyncio.to_thread(eventually, imported.exists, "the import, after the first look for a host")
            announce(server.address)
            assert await asyncio.to_thread(is_over.wait, PATIENCE_S)
        finally:
            await server.stop(timedelta(0))

    with held("host"), ThreadPoolExecutor(1) as threads:
        host = threads.submit(asyncio.run, come_up())
        try:
            assert answer("trigger", "shop::echo") == "from the host"
        finally:
            is_over.set()
        host.result()


@pytest.mark.parametrize(
    ("holder", "told"), [("command", "in use by a command"), ("host", "in use by a host that does not answer")]
)
def test_a_store_that_stays_in_use_is_exit_code_2(holder: Holder, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PATIENCE", timedelta(milliseconds=50))
    done("state", "set", "s", "k", "1")
    with held(holder):
        error = refused(2, "state", "scopes")
    assert error.startswith("error: store_locked: ")
    assert f"{told}, process {os.getpid()}." in error


def test_a_host_that_accepts_and_never_answers_is_exit_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PATIENCE", timedelta(milliseconds=50))
    with held("host"), socket.create_server(("127.0.0.1", 0)) as silent:
        announce(f"127.0.0.1:{silent.getsockname()[1]}")
        error = refused(2, "state", "scopes")
    assert error.startswith(f"error: host_unreachable: the host (process {os.getpid()}) does not answer.")


def test_a_stranger_on_the_port_of_a_killed_host_is_not_taken_for_the_host() -> None:
    """The file is left over, and its process id and port belong to somebody else by now."""
    done("state", "set", "s", "k", "1")
    with stranger() as (address, requests):
        announce(address)
        assert answer("state", "get", "s", "k") == 1
    assert requests == []


def test_a_stranger_is_not_taken_for_the_host_that_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PATIENCE", timedelta(milliseconds=50))
    done("state", "set", "s", "k", "1")
    with stranger() as (address, requests), held("host"):
        announce(address, pid=os.getppid())
        assert "error: store_locked: " in refused(2, "state", "get", "s", "k")
    assert requests == []


@contextmanager
def stranger() -> Iterator[tuple[str, list[str]]]:
    """Serve http as any program might; yields the address, and the requests that come."""
    requests: list[str] = []

    class Greeting(BaseHTTPRequestHandler):
        def handle_one_request(self) -> None:
            line = self.rfile.readline()
            if line:
                requests.append(line.decode())
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            self.close_connection = True

    with HTTPServer(("127.0.0.1", 0), Greeting) as server, ThreadPoolExecutor(1) as threads:
        threads.submit(server.serve_forever, 0.01)
        try:
            yield f"127.0.0.1:{server.server_port}", requests
        finally:
            server.shutdown()


@contextmanager
def held(holder: Holder) -> Iterator[DataLock]:
    """Hold the store, as a host without a control endpoint or another command would."""
    with asyncio.run(DataLock.acquire(Path("data"), holder=holder, wait=timedelta(0))) as lock:
        yield lock


def announce(address: str, pid: int | None = None) -> None:
    """Write that a host listens there."""
    host = RunningHost(pid=pid or os.getpid(), http=address, stream=address, control=address, token=TOKEN)
    HostFile(Path("data")).write(host)
