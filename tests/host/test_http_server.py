"""The http server over real sockets."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import aiohttp
import pytest

from iii_runtime.adapters.system import SystemClock
from iii_runtime.adapters.threads import ThreadExecutor
from iii_runtime.core.config import Config, HttpConfig
from iii_runtime.core.errors import HostError
from iii_runtime.core.http import HttpReply
from iii_runtime.core.triggers import Http, HttpAuth
from iii_runtime.core.worker import Worker, register_worker
from iii_runtime.engine.app import App
from iii_runtime.engine.http_entry import HttpCall, HttpEntry
from iii_runtime.engine.runtime import Runtime
from iii_runtime.hosts.embedded.http_server import HttpServer
from iii_runtime.testing.clock import SequenceIds
from iii_runtime.testing.stores import memory_stores

NO_GRACE = timedelta(0)
GRACE = timedelta(seconds=10)


class Gate:
    """A function that waits inside until the test lets it go on."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.left = threading.Event()
        self.is_through = False

    async def pass_through(self, _request: Any) -> dict[str, Any]:
        self.entered.set()
        try:
            await asyncio.to_thread(self.opened.wait, 10)
            self.is_through = True
        finally:
            self.left.set()
        return {"status_code": 200, "body": "done"}

    async def wait_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.wait, 10)

    async def wait_left(self) -> None:
        assert await asyncio.to_thread(self.left.wait, 10)


def echo(request: dict[str, Any]) -> dict[str, Any]:
    kept = {name: request[name] for name in ("method", "path_params", "query_params", "headers", "body")}
    return {"status_code": 200, "body": kept, "headers": ["Set-Cookie: a=1", "Set-Cookie: b=2"]}


def echo_worker() -> Worker:
    worker = register_worker(worker_name="test")
    for number, (method, path) in enumerate([("GET", "/files/:name"), ("POST", "/echo")]):
        worker.register_function(f"test::echo-{number}", echo)
        config = {"api_path": path, "http_method": method}
        worker.register_trigger({"type": "http", "function_id": f"test::echo-{number}", "config": config})
    return worker


def gate_worker(gate: Gate) -> Worker:
    worker = echo_worker()
    worker.function("test::gate", triggers=[Http("GET", "/gate")])(gate.pass_through)
    return worker


@asynccontextmanager
async def serving(worker: Worker, **options: Any) -> AsyncIterator[HttpServer]:
    executor = ThreadExecutor()
    runtime = Runtime(App(Config(), [worker]), memory_stores(SystemClock(), SequenceIds()), executor)
    server = HttpServer(HttpEntry(runtime, "host-1"), "127.0.0.1", 0, ids=SequenceIds(), **options)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(NO_GRACE)
        executor.close()


class Wire:
    """A connection on which a test writes its own bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(10):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return int(head[0].split()[1]), headers, body

    async def error(self) -> tuple[int, str]:
        status, _, body = await self.answer()
        return status, json.loads(body)["error"]["code"]

    async def is_closed(self) -> bool:
        async with asyncio.timeout(15):
            return await self.reader.read() == b""


@asynccontextmanager
async def wire(server: HttpServer) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()


async def test_a_request_reaches_its_function_and_the_result_comes_back() -> None:
    async with serving(echo_worker()) as server, aiohttp.ClientSession() as session:
        url = f"http://{server.address}/echo?a=1&b=x%20y"
        async with session.post(url, json={"n": 1}, headers={"X-Own": "ä"}) as response:
            answered = await response.json()
            cookies = response.headers.getall("Set-Cookie")
    assert response.status == 200
    assert answered["body"] == {"n": 1}
    assert answered["query_params"] == {"a": "1", "b": "x y"}
    assert answered["headers"]["x-own"] == "ä"
    assert cookies == ["a=1", "b=2"]


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (b"/files/a%2Fb%20c", "a/b c"),
        (b"/files/%C3%A4", "ä"),
        (b"/files/a+b?x=%2B", "a+b"),
        (b"http://somewhere.example/files/absolute?x=1", "absolute"),
    ],
)
async def test_the_path_is_matched_as_it_was_sent(target: bytes, name: str) -> None:
    async with serving(echo_worker()) as server, wire(server) as connection:
        await connection.send(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        status, _, body = await connection.answer()
    assert (status, json.loads(body)["path_params"]) == (200, {"name": name})


async def test_repeated_headers_arrive_joined_in_their_order() -> None:
    async with serving(echo_worker()) as server, wire(server) as connection:
        await connection.send(b"GET /files/a HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nX-B: 2\r\nx-a: 3\r\nX-C: \xff\r\n\r\n")
        _, _, body = await connection.answer()
    headers = json.loads(body)["headers"]
    assert (headers["x-a"], headers["x-b"], headers["x-c"]) == ("1, 3", "2", "ÿ")


async def test_a_connection_serves_one_request_after_the_other() -> None:
    async with serving(echo_worker()) as server, wire(server) as connection:
        for name in ("one", "two"):
            await connection.send(f"GET /files/{name} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            _, _, body = await connection.answer()
            assert json.loads(body)["path_params"] == {"name": name}


async def test_head_has_the_length_of_the_body_and_no_body() -> None:
    async with serving(echo_worker()) as server, wire(server) as connection:
        await connection.send(b"HEAD /files/a HTTP/1.1\r\nHost: x\r\n\r\nGET /none HTTP/1.1\r\nHost: x\r\n\r\n")
        head = (await connection.reader.readuntil(b"\r\n\r\n")).lower()
        assert b" 200 " in head
        assert b"content-length: 0\r\n" not in head
        assert await connection.error() == (404, "NOT_FOUND")


async def test_the_server_header_names_no_version() -> None:
    async with serving(echo_worker()) as server, wire(server) as connection:
        for raw in (b"GET /files/a HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03nonsense\r\n\r\n"):
            await connection.send(raw)
            _, headers, _ = await connection.answer()
            assert headers["server"] == "iii-runtime"


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
    ],
)
async def test_what_is_no_http_gets_400_and_the_server_goes_on(raw: bytes) -> None:
    async with serving(echo_worker()) as server:
        async with wire(server) as connection:
            await connection.send(raw)
            assert await connection.error() == (400, "BAD_REQUEST")
            assert await connection.is_closed()
        async with wire(server) as connection:
            await connection.send(b"GET /files/a HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await connection.answer())[0] == 200


async def test_a_body_that_is_declared_too_large_is_refused_before_it_is_sent() -> None:
    async with serving(echo_worker()) as server, wire(server) as connection:
        await connection.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 33554433\r\n\r\n")
        assert await connection.error() == (413, "PAYLOAD_TOO_LARGE")


async def test_a_chunked_body_is_refused_as_soon_as_it_is_too_large() -> None:
    async with serving(echo_worker(), body_limit_bytes=10) as server, wire(server) as connection:
        await connection.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        await connection.send(b"6\r\nabcdef\r\n6\r\nghijkl\r\n")
        status, headers, _ = await connection.answer()
        assert (status, headers["connection"]) == (413, "close")
        await connection.send(b"0\r\n\r\n")
        assert await connection.is_closed()


@pytest.mark.parametrize("framing", [b"Content-Length: 10\r\n\r\n0123456789", b"Transfer-Encoding: chunked\r\n\r\n"])
async def test_a_body_of_exactly_the_limit_is_accepted(framing: bytes) -> None:
    rest = b"a\r\n0123456789\r\n0\r\n\r\n" if b"chunked" in framing else b""
    async with serving(echo_worker(), body_limit_bytes=10) as server, wire(server) as connection:
        await connection.send(b"POST /echo HTTP/1.1\r\nHost: x\r\n" + framing + rest)
        status, _, body = await connection.answer()
    assert (status, json.loads(body)["body"]) == (200, "0123456789")


async def test_a_body_that_does_not_arrive_in_time_gets_408() -> None:
    async with serving(echo_worker(), body_timeout=timedelta(milliseconds=50)) as server, wire(server) as connection:
        await connection.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n01")
        assert await connection.error() == (408, "REQUEST_TIMEOUT")


async def test_broken_chunks_get_400() -> None:
    async with serving(echo_worker()) as server, wire(server) as connection:
        await connection.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        await connection.send(b"nonsense\r\n")
        assert await connection.error() == (400, "BAD_REQUEST")


async def test_a_client_that_asks_first_is_told_to_send_its_body() -> None:
    async with serving(echo_worker()) as server, wire(server) as connection:
        await connection.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert (await connection.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        await connection.send(b"ok")
        status, _, body = await connection.answer()
    assert (status, json.loads(body)["body"]) == (200, "ok")


async def test_a_function_goes_on_when_its_client_disconnects() -> None:
    gate = Gate()
    async with serving(gate_worker(gate)) as server:
        async with wire(server) as connection:
            await connection.send(b"GET /gate HTTP/1.1\r\nHost: x\r\n\r\n")
            await gate.wait_entered()
        async with wire(server) as other:
            await other.send(b"GET /files/a HTTP/1.1\r\nHost: x\r\n\r\n")
            await other.answer()
        gate.opened.set()
        await gate.wait_left()
    assert gate.is_through


async def test_a_stop_waits_for_the_functions_that_run() -> None:
    gate = Gate()
    async with serving(gate_worker(gate)) as server, wire(server) as connection:
        await connection.send(b"GET /gate HTTP/1.1\r\nHost: x\r\n\r\n")
        await gate.wait_entered()
        stopping = asyncio.create_task(server.stop(GRACE))
        await refuses(server.port)
        assert not stopping.done()
        gate.opened.set()
        status, headers, body = await connection.answer()
        await stopping
        assert (status, headers["connection"], body) == (200, "close", b'"done"')
        assert await connection.is_closed()


async def test_a_stop_without_grace_answers_503_and_ends() -> None:
    gate = Gate()
    async with serving(gate_worker(gate)) as server, wire(server) as connection:
        await connection.send(b"GET /gate HTTP/1.1\r\nHost: x\r\n\r\n")
        await gate.wait_entered()
        await server.stop(NO_GRACE)
        assert await connection.error() == (503, "UNAVAILABLE")
        gate.opened.set()
        await gate.wait_left()


async def test_an_open_connection_gets_503_once_the_server_stops_accepting() -> None:
    async with serving(echo_worker()) as server, wire(server) as connection:
        await connection.send(b"GET /files/a HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await connection.answer())[0] == 200
        await server.stop_accepting()
        await connection.send(b"GET /files/a HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await connection.error() == (503, "UNAVAILABLE")


async def test_a_stop_closes_idle_connections_at_once() -> None:
    async with serving(echo_worker()) as server, wire(server) as connection:
        await connection.send(b"GET /files/a HTTP/1.1\r\nHost: x\r\n\r\n")
        await connection.answer()
        async with asyncio.timeout(0.5):
            await server.stop(GRACE)
        assert await connection.is_closed()


async def test_a_port_in_use_is_an_error_that_names_it_and_what_to_do() -> None:
    async with serving(echo_worker()) as first:
        second = HttpServer(entry_of(echo_worker()), "127.0.0.1", first.port)
        with pytest.raises(HostError, match=rf"127\.0\.0\.1:{first.port} is in use.*iii-config\.yaml") as caught:
            await second.start()
    assert caught.value.code == "port_in_use"


@pytest.mark.parametrize("host", ["192.0.2.1", "a..b", "256.256.256.256"])
async def test_a_host_that_is_not_this_machine_is_an_error(host: str) -> None:
    with pytest.raises(HostError) as caught:
        await HttpServer(entry_of(echo_worker()), host, 0).start()
    assert caught.value.code == "host_invalid"
    assert "Stop that process" not in caught.value.message
    assert "Set `host` of iii-http in iii-config.yaml" in caught.value.message


@pytest.mark.parametrize(
    ("host", "default", "warned"),
    [
        ("127.0.0.1", "jwt", []),
        ("0.0.0.0", None, [["POST /jwt"]]),  # noqa: S104 - listening beyond this machine is what this is about
        ("0.0.0.0", "iam", [["GET /any", "POST /jwt"]]),  # noqa: S104
    ],
)
async def test_beyond_this_machine_the_routes_that_are_not_guarded_are_named(
    caplog: pytest.LogCaptureFixture, host: str, default: HttpAuth | None, warned: list[list[str]]
) -> None:
    worker = register_worker(worker_name="test")
    routes = [Http("GET", "/any"), Http("GET", "/open", auth="none"), Http("post", "/jwt", auth="jwt")]
    worker.function("test::all", triggers=routes)(echo)
    app = App(Config(http=HttpConfig(auth=default)), [worker])
    runtime = Runtime(app, memory_stores(SystemClock(), SequenceIds()), ThreadExecutor())
    server = HttpServer(HttpEntry(runtime, "host-1"), host, 0)
    await server.start()
    await server.stop(NO_GRACE)
    records: list[Any] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [record.iii["routes"] for record in records] == warned
    assert [record.iii["address"] for record in records] == [server.address] * len(warned)


async def test_an_entry_that_fails_is_a_500_and_the_server_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(HttpEntry):
        async def handle(self, call: HttpCall) -> HttpReply:
            raise RuntimeError(f"no answer to {call.path}")

    entry = Failing(runtime_of(echo_worker()), "host-1")
    server = HttpServer(entry, "127.0.0.1", 0)
    await server.start()
    for _ in range(2):
        async with wire(server) as connection:
            await connection.send(b"GET /broken HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await connection.error() == (500, "INTERNAL_ERROR")
    await server.stop(NO_GRACE)
    assert "no answer to /broken" in caplog.text


async def refuses(port: int) -> None:
    """Return once nobody listens on the port any more."""
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionError:
                return
            writer.close()


def runtime_of(worker: Worker) -> Runtime:
    return Runtime(App(Config(), [worker]), memory_stores(SystemClock(), SequenceIds()), ThreadExecutor())


def entry_of(worker: Worker) -> HttpEntry:
    return HttpEntry(runtime_of(worker), "host-1")
