"""Clients and their connections: made once whoever asks, and not used after they lay idle."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from threading import Barrier, Thread

import pytest

from iii_runtime.adapters.aws.clients import IDLE, Clients
from iii_runtime.adapters.aws.remote_functions import LambdaFunctions
from iii_runtime.adapters.memory.blob_store import MemoryBlobStore
from iii_runtime.core.call import Call
from iii_runtime.testing.clock import SequenceIds
from tests.contract.aws_services import DEPLOYMENT, fake_clients

ANSWER = b'{"ok":null}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)
CALL = Call(function_id="orders::ship", payload={})
TIMEOUT = timedelta(seconds=30)


class Seconds:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Service:
    """Answers requests over HTTP; `resets` makes it reset each connection at its second request.

    Attributes:
        connections: How many were opened.
        answered: How many requests were answered.
    """

    def __init__(self, *, resets: bool) -> None:
        self.connections = 0
        self.answered = 0
        self._resets = resets
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._threads = [Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            self._threads.append(Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            while _read(connection):
                self.answered += 1
                connection.sendall(HEAD + ANSWER)
                if self._resets and connection.recv(1):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return


def _read(connection: socket.socket) -> bytes:
    """Read a request; nothing if the connection has ended."""
    read = b""
    while b"\r\n\r\n" not in read:
        more = connection.recv(65536)
        if not more:
            return b""
        read += more
    head, _, body = read.partition(b"\r\n\r\n")
    (length,) = (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
    while len(body) < length:
        body += connection.recv(65536)
    return read


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[Service, Seconds, Clients]]]:
    opened: list[tuple[Service, Clients]] = []

    def start(*, resets: bool) -> tuple[Service, Seconds, Clients]:
        service, seconds = Service(resets=resets), Seconds()
        session = fake_clients()._session
        clients = Clients("us-east-1", session=session, endpoint_url=service.url, monotonic=seconds)
        opened.append((service, clients))
        return service, seconds, clients

    yield start
    for service, clients in opened:
        clients.lambda_.close()
        clients.invoking(TIMEOUT).close()
        service.close()


@pytest.mark.parametrize("timeout", [TIMEOUT, timedelta(seconds=900)], ids=str)
async def test_a_connection_that_was_lost_during_a_freeze_is_not_used_again(
    serve: Callable[..., tuple[Service, Seconds, Clients]], timeout: timedelta
) -> None:
    """Reset when something is sent, it would leave open whether the function runs."""
    service, seconds, clients = serve(resets=True)
    functions = LambdaFunctions(clients, DEPLOYMENT, MemoryBlobStore(), SequenceIds(), via_dispatcher=False)
    for _ in range(3):
        assert await functions.invoke(CALL, timeout) is None
        seconds.now += IDLE / timedelta(seconds=1)
    assert (service.connections, service.answered) == (3, 3)


async def test_a_connection_in_use_stays(serve: Callable[..., tuple[Service, Seconds, Clients]]) -> None:
    service, seconds, clients = serve(resets=False)
    functions = LambdaFunctions(clients, DEPLOYMENT, MemoryBlobStore(), SequenceIds(), via_dispatcher=False)
    for _ in range(5):
        await functions.invoke(CALL, TIMEOUT)
        seconds.now += IDLE / timedelta(seconds=1) - 1
    assert (service.connections, service.answered) == (1, 5)


def test_threads_that_ask_at_once_get_one_client() -> None:
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(4):
            clients = fake_clients()
            assert len(set(_at_once(lambda clients=clients: clients.invoking(TIMEOUT)))) == 1  # type: ignore[misc]
    finally:
        sys.setswitchinterval(switching)


def _at_once(make: Callable[[], object], threads: int = 8) -> list[int]:
    """Return the identities of what each thread got."""
    made: list[int] = []
    barrier = Barrier(threads)

    def run() -> None:
        barrier.wait()
        made.append(id(make()))

    running = [Thread(target=run) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert len(made) == threads
    return made
