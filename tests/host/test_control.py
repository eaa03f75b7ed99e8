"""The control endpoint, its client and the file by which they find each other."""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from iii_runtime.core.errors import EnqueueError, HostError, InvocationError, StoreError
from iii_runtime.core.payload import Json, decode_json
from iii_runtime.core.trigger_request import TriggerAction, TriggerActionEnqueue, TriggerActionVoid, TriggerRequest
from iii_runtime.hosts.control_client import ControlClient, answers
from iii_runtime.hosts.embedded import control_server
from iii_runtime.hosts.embedded.control_server import ControlServer
from iii_runtime.hosts.host_file import HostFile, RunningHost, new_token

TOKEN, OTHER_TOKEN = "a token", "secret-token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
GRACE = timedelta(seconds=5)
HOST = RunningHost(
    pid=os.getpid(), http="127.0.0.1:3111", stream="[::1]:3112", control="127.0.0.1:1", token=OTHER_TOKEN
)


class Engine:
    """Answers calls with the request itself, or fails as the test says."""

    def __init__(self) -> None:
        self.requests: list[TriggerRequest] = []
        self.error: Exception | None = None

    async def call(self, request: TriggerRequest) -> Json:
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        return {"function_id": request.function_id, "payload": request.payload}


@asynccontextmanager
async def serving(engine: Engine, data: Path, token: str = TOKEN) -> AsyncIterator[ControlServer]:
    server = ControlServer(engine.call, TOKEN)
    await server.start()
    host_file = HostFile(data)
    running = replace(HOST, control=server.address, token=token)
    host_file.write(running)
    try:
        yield server
    finally:
        host_file.remove(running)
        await server.stop(GRACE)


async def called(data: Path, request: TriggerRequest | dict[str, Any]) -> Json:
    return await asyncio.to_thread(ControlClient(HostFile(data)).call, request)


async def posted(
    server: ControlServer, body: bytes | io.BytesIO, headers: dict[str, str], path: str = "/call"
) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{server.address}{path}", data=body, headers=headers) as response,
    ):
        return response.status, await response.json()


async def test_a_call_goes_to_the_host_and_its_result_comes_back(tmp_path: Path) -> None:
    engine = Engine()
    async with serving(engine, tmp_path):
        result = await called(
            tmp_path,
            TriggerRequest("orders::get", {"id": "ä"}, timeout_ms=1500, metadata={"by": "test"}),
        )
    assert result == {"function_id": "orders::get", "payload": {"id": "ä"}}
    assert engine.requests == [TriggerRequest("orders::get", {"id": "ä"}, timeout_ms=1500, metadata={"by": "test"})]


async def test_the_loop_goes_on_while_a_large_request_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = 0
    turns_at_decoding: list[int] = []

    async def watch() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    def decode(raw: str | bytes, where: str) -> Json:
        turns_at_decoding.append(turns)
        value = decode_json(raw, where)
        turns_at_decoding.append(turns)
        return value

    monkeypatch.setattr(control_server, "decode_json", decode)
    engine = Engine()
    async with serving(engine, tmp_path) as server:
        payload = "[" + "0," * 2_000_000 + "0]"
        body = f'{{"function_id": "a::b", "payload": {payload}, "timeout_ms": "x"}}'.encode()
        watching = asyncio.create_task(watch())
        status, answer = await posted(server, io.BytesIO(body), BEARER)
        watching.cancel()
    assert (status, answer["error"]["code"]) == (400, "request_invalid")
    before, after = turns_at_decoding
    assert after - before > 10


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (TriggerAction.Void(), TriggerActionVoid()),
        (TriggerAction.Enqueue(queue="q", delay=1.5, dedupe_id="d"), TriggerActionEnqueue("q", 1.5, "d")),
        ({"type": "enqueue", "queue": "q"}, TriggerActionEnqueue("q")),
        (None, None),
    ],
)
async def test_actions_survive_the_way(tmp_path: Path, action: Any, expected: object) -> None:
    engine = Engine()
    async with serving(engine, tmp_path):
        await called(tmp_path, {"function_id": "orders::ship", "action": action})
    assert [request.action for request in engine.requests] == [expected]


async def test_an_invocation_error_is_raised_as_the_host_raised_it(tmp_path: Path) -> None:
    engine = Engine()
    engine.error = InvocationError("invocation_failed", "no \ud800 money", "orders::pay", "Traceback: ...", "id-1")
    async with serving(engine, tmp_path):
        with pytest.raises(InvocationError) as caught:
            await called(tmp_path, TriggerRequest("orders::checkout"))
    error = caught.value
    assert type(error) is InvocationError
    assert (error.code, error.message, error.function_id) == ("invocation_failed", "no \ud800 money", "orders::pay")
    assert (error.stacktrace, error.invocation_id) == ("Traceback: ...", "id-1")


async def test_an_enqueue_error_keeps_its_reason(tmp_path: Path) -> None:
    engine = Engine()
    engine.error = EnqueueError("queue_not_found", "there is no queue 'q'", "orders::pay")
    async with serving(engine, tmp_path):
        with pytest.raises(EnqueueError) as caught:
            await called(tmp_path, TriggerRequest("orders::pay"))
    assert (caught.value.reason, caught.value.message) == ("queue_not_found", "there is no queue 'q'")


async def test_another_error_of_the_runtime_keeps_its_code(tmp_path: Path) -> None:
    engine = Engine()
    engine.error = StoreError("the disk is full", code="store_full")
    async with serving(engine, tmp_path):
        with pytest.raises(InvocationError) as caught:
            await called(tmp_path, TriggerRequest("state::set"))
    assert (caught.value.code, caught.value.function_id) == ("store_full", "state::set")


async def test_a_defect_of_the_host_is_a_host_error_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine()
    engine.error = ZeroDivisionError("a defect")
    async with serving(engine, tmp_path):
        with pytest.raises(HostError, match="its log says why"):
            await called(tmp_path, TriggerRequest("orders::pay"))
    assert "a defect" in caplog.text


async def test_a_result_that_is_too_large_is_a_typed_error(tmp_path: Path) -> None:
    async with serving(Engine(), tmp_path):
        with pytest.raises(InvocationError) as caught:
            await called(tmp_path, TriggerRequest("orders::get", "x" * (32 * 1024 * 1024 - 40)))
    assert caught.value.code == "payload_too_large"


@pytest.mark.parametrize(
    ("request_", "code"),
    [({"function_id": " "}, "request_invalid"), (TriggerRequest("a::b", {1}), "payload_not_json")],
)
async def test_a_request_that_cannot_be_sent_fails_before_it_is(tmp_path: Path, request_: Any, code: str) -> None:
    with pytest.raises(InvocationError) as caught:
        await called(tmp_path, request_)
    assert caught.value.code == code


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"payload": 1}', b'{"function_id": "a::b", "timeout_ms": "x"}'])
async def test_a_body_that_is_no_request_is_refused(tmp_path: Path, body: bytes) -> None:
    engine = Engine()
    async with serving(engine, tmp_path) as server:
        status, answer = await posted(server, io.BytesIO(body), BEARER)
    assert (status, engine.requests) == (400, [])
    assert "function_id" in answer["error"]


@pytest.mark.parametrize(
    ("headers", "path", "status"),
    [
        ({}, "/call", 401),
        ({"Authorization": "Bearer wrong"}, "/call", 401),
        ({"Authorization": f"Bearer {TOKEN}\xff"}, "/call", 401),
        ({"Authorization": TOKEN}, "/call", 401),
        ({**BEARER, "Origin": "http://localhost:3111"}, "/call", 403),
        ({**BEARER, "Origin": "null"}, "/call", 403),
        ({**BEARER, "Host": "evil.example"}, "/call", 403),
        ({**BEARER, "Host": "127.0.0.1.evil.example:80"}, "/call", 403),
        (BEARER, "/other", 404),
    ],
)
async def test_whoever_is_not_the_command_line_is_refused(
    tmp_path: Path, headers: dict[str, str], path: str, status: int
) -> None:
    engine = Engine()
    async with serving(engine, tmp_path) as server:
        refused, answer = await posted(server, b'{"function_id": "a::b"}', headers, path)
    assert (refused, engine.requests) == (status, [])
    assert set(answer["error"]) == {"code", "message"}


async def test_only_post_is_answered(tmp_path: Path) -> None:
    async with (
        serving(Engine(), tmp_path) as server,
        aiohttp.ClientSession() as session,
        session.get(f"http://{server.address}/call", headers=BEARER) as response,
    ):
        assert response.status == 405


async def test_a_wrong_token_is_an_error_of_the_host(tmp_path: Path) -> None:
    async with serving(Engine(), tmp_path, token=OTHER_TOKEN):
        with pytest.raises(HostError, match="token") as caught:
            await called(tmp_path, TriggerRequest("a::b"))
    assert caught.value.code == "unauthorized"


async def test_without_a_host_the_error_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="iii-runtime dev") as caught:
        await called(tmp_path, TriggerRequest("a::b"))
    assert caught.value.code == "host_unreachable"


async def test_a_host_that_ends_during_a_call_is_unreachable(tmp_path: Path) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        HostFile(tmp_path).write(replace(HOST, control=address))
        with pytest.raises(HostError, match="may have been carried out") as caught:
            await called(tmp_path, TriggerRequest("a::b"))
    assert caught.value.code == "host_unreachable"


async def test_a_host_answers_until_it_stops(tmp_path: Path) -> None:
    async with serving(Engine(), tmp_path):
        host = HostFile(tmp_path).read()
        assert host is not None
        assert await asyncio.to_thread(answers, host, GRACE)
    assert not answers(host, GRACE)


async def test_a_host_that_says_that_it_stops_does_not_answer() -> None:
    async def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert not await asyncio.to_thread(answers, replace(HOST, control=address), GRACE)


async def test_something_else_on_the_port_is_no_host(tmp_path: Path) -> None:
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        HostFile(tmp_path).write(replace(HOST, control=address))
        with pytest.raises(HostError) as caught:
            await called(tmp_path, TriggerRequest("a::b"))
    assert caught.value.code == "host_unreachable"


def test_the_file_comes_back_as_it_was_written_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    host_file = HostFile(tmp_path)
    host_file.write(HOST)
    host_file.write(replace(HOST, http="127.0.0.1:1"))
    assert host_file.read() == replace(HOST, http="127.0.0.1:1")
    assert stat.S_IMODE(host_file.path.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["host.json"]
    assert set(json.loads(host_file.path.read_text())) == {"pid", "http", "stream", "control", "token"}


def test_the_token_is_not_shown() -> None:
    assert OTHER_TOKEN not in repr(HOST)
    assert new_token() != new_token()


def test_without_a_file_there_is_no_host(tmp_path: Path) -> None:
    assert HostFile(tmp_path).read() is None
    assert HostFile(tmp_path).running() is None
    HostFile(tmp_path).remove(HOST)


def test_a_stop_removes_its_own_file_only(tmp_path: Path) -> None:
    host_file = HostFile(tmp_path)
    host_file.write(HOST)
    host_file.remove(replace(HOST, token=TOKEN))
    assert host_file.read() == HOST
    host_file.remove(HOST)
    assert host_file.read() is None


def test_a_host_whose_port_refuses_is_not_running(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        control = f"127.0.0.1:{listening.getsockname()[1]}"
        HostFile(tmp_path).write(replace(HOST, control=control))
        assert HostFile(tmp_path).running() == replace(HOST, control=control)
    assert HostFile(tmp_path).running() is None


def test_a_host_whose_process_has_ended_is_not_running(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        subprocess.Popen([sys.executable, "-c", ""]) as ended,
    ):
        ended.wait(30)
        control = f"127.0.0.1:{listening.getsockname()[1]}"
        HostFile(tmp_path).write(replace(HOST, control=control, pid=ended.pid))
        assert HostFile(tmp_path).running() is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"pid": true, "http": "a:1", "stream": "a:1", "control": "a:1", "token": "t"}',
        '{"pid": 1, "http": "a:1", "stream": "a:1", "control": "nowhere", "token": "t"}',
        "\udcff",
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    path = HostFile(tmp_path).path
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(HostError, match=r"host\.json.*delete the file") as caught:
        HostFile(tmp_path).read()
    assert caught.value.code == "host_file_invalid"


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        HostFile(tmp_path / "missing").write(HOST)
    assert caught.value.code == "host_file_unwritable"
