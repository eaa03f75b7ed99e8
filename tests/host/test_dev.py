"""`iii-runtime dev` as a process: it serves, drains, reloads, and never outlives its supervisor."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from iii_runtime.adapters.embedded.lock import DataLock
from iii_runtime.cli.main import cli
from iii_runtime.hosts.host_file import RunningHost
from tests.host.process import DevProcess, post
from tests.patience import PATIENCE_S, eventually

pytestmark = pytest.mark.process
FULL = Path("/dev/full")

WORKER = """
import os
import threading
from iii_runtime import Cron, Http, NonRetryableError, OnState, Queue, register_worker

worker = register_worker(worker_name="shop")
VERSION = 1

@worker.function("shop::hello", triggers=[Http("POST", "/hello")])
def hello(request):
    return {"status_code": 200, "body": {"version": VERSION, "body": request["body"]}}

@worker.function("shop::keep", triggers=[Queue("default")])
def keep(payload):
    if payload["id"] == "hang":
        threading.Event().wait(60)
    if payload["id"] == "bad":
        raise NonRetryableError("no")
    worker.trigger({"function_id": "stream::set", "payload": {
        "stream_name": "kept", "group_id": "all", "item_id": payload["id"], "data": payload}})

@worker.function("shop::tidy", triggers=[Cron("0 0 0 1 1 *")])
def tidy(tick):
    worker.trigger({"function_id": "state::set", "payload": {"scope": "tidy", "key": "last", "value": tick["trigger"]}})

@worker.function("shop::die")
def die(payload):
    os._exit(7)
"""


def shop(folder: Path, text: str = WORKER) -> Path:
    file = folder / "shop.py"
    file.write_text(text)
    return file


def ask(process: DevProcess, *arguments: str) -> str:
    """Run a command against the process and return what it prints."""
    result = CliRunner().invoke(cli, [*arguments, "--data", str(process.data)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    folder = tmp_path_factory.mktemp("shop")
    shop(folder)
    with DevProcess(folder, "shop.py") as process:
        process.address()
        yield process


def test_it_answers_http(running: DevProcess) -> None:
    assert post(running.address().http, "/hello", [1]) == {"version": 1, "body": [1]}


def test_it_first_prints_what_it_runs_and_where(running: DevProcess) -> None:
    running.wait_for("ready")
    banner = running.output.partition("ready")[0]
    assert f"http://{running.address().http}" in banner.splitlines()[0]
    expected = [f"ws://{running.address().stream}", str(running.data), "FULL", "shop::hello", "POST /hello"]
    for text in [*expected, "1000 ms", "0 0 0 1 1 *"]:
        assert text in banner


def test_commands_reach_the_running_host(running: DevProcess) -> None:
    assert json.loads(ask(running, "trigger", "shop::hello", "--payload", '{"body": "ü"}'))["body"]["body"] == "ü"
    assert "shop::keep" in ask(running, "queues")
    assert ask(running, "cron", "list", "--json").startswith('[{"function_id":"shop::tidy"')


def test_a_command_can_fire_a_cron_job(running: DevProcess) -> None:
    ask(running, "cron", "run", "shop::tidy")
    assert json.loads(ask(running, "state", "get", "tidy", "last")) == "cron"


def test_a_failed_call_of_the_running_host_is_exit_code_1(running: DevProcess) -> None:
    result = CliRunner().invoke(cli, ["trigger", "shop::unknown", "--data", str(running.data)])
    assert result.exit_code == 1
    assert "error: function_not_found:" in result.stderr


def test_watch_prints_what_is_stored_and_ends_after_the_events_asked_for(running: DevProcess) -> None:
    ask(running, "trigger", "shop::keep", "--queue", "default", "--payload", '{"id": "first"}')
    eventually(lambda: "first" in ask(running, "stream", "list", "kept", "all"), "the item")
    line = ask(running, "stream", "watch", "kept", "all", "--item", "first", "--until", "1", "--json")
    assert json.loads(line)["event"] == {"type": "sync", "data": {"id": "first"}}


def test_a_second_host_on_the_directory_is_refused_with_exit_code_2(running: DevProcess) -> None:
    with DevProcess(running.folder, "shop.py") as second:
        assert second.end() == 2
    assert "waiting for its end" in second.lines[0]
    assert "error: store_locked: " in second.output
    assert f"in use by another host, process {running.address().pid}." in second.output
    assert "Traceback" not in second.output


def test_a_host_waits_for_a_command_that_is_at_work_in_the_store(tmp_path: Path) -> None:
    shop(tmp_path, "print('imported')\n" + WORKER)
    with command_at_work(tmp_path / "data") as lock, DevProcess(tmp_path, "shop.py") as process:
        process.wait_for("imported")
        threading.Timer(0.5, lock.release).start()
        assert post(process.address().http, "/hello")["version"] == 1


def test_ctrl_c_ends_the_wait_for_the_store(tmp_path: Path) -> None:
    shop(tmp_path, "print('imported')\n" + WORKER)
    with command_at_work(tmp_path / "data"), DevProcess(tmp_path, "shop.py") as process:
        process.wait_for("imported")
        process.signal(signal.SIGINT)
        assert process.end() == 0
    assert "store_locked" not in process.output


def test_ctrl_c_drains_and_exits_0(tmp_path: Path) -> None:
    shop(tmp_path)
    with DevProcess(tmp_path, "shop.py", "--json") as process:
        process.address()
        process.wait_for('"ready"')
        process.signal(signal.SIGINT)
        assert process.end() == 0
        process.wait_for('"stopped"')
    assert not (process.data / "host.json").exists()


@pytest.mark.parametrize("options", [(), ("--no-reload",)])
def test_when_the_reader_of_stdout_goes_it_drains_and_exits_141(tmp_path: Path, options: tuple[str, ...]) -> None:
    shop(tmp_path)
    with subprocess.Popen(dev(tmp_path, *options), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"http ")
        process.stdout.close()
        try:
            assert process.wait(PATIENCE_S) == 141
        finally:
            process.kill()
    assert (tmp_path / "data" / "iii.db").exists()
    assert not (tmp_path / "data" / "host.json").exists()


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("options", [(), ("--no-reload",)])
def test_a_stdout_that_is_full_is_one_clear_error_and_exit_code_1(tmp_path: Path, options: tuple[str, ...]) -> None:
    shop(tmp_path)
    with FULL.open("w") as full:
        result = subprocess.run(
            dev(tmp_path, *options), stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE_S
        )
    assert result.stderr.startswith("error: output_lost: ")
    assert len(result.stderr.splitlines()) == 1
    assert result.returncode == 1
    assert not (tmp_path / "data" / "host.json").exists()


def test_a_second_ctrl_c_stops_at_once_with_exit_code_130(tmp_path: Path) -> None:
    shop(tmp_path)
    with DevProcess(tmp_path, "shop.py") as process:
        process.address()
        ask(process, "trigger", "shop::keep", "--queue", "default", "--payload", '{"id": "hang"}')
        eventually(lambda: json.loads(ask(process, "queues", "--json"))[0]["in_flight"] == 1, "the message")
        process.signal(signal.SIGINT)
        process.wait_for("draining  grace")
        process.signal(signal.SIGINT)
        assert process.end() == 130


def test_changed_code_is_used_and_broken_code_is_not(tmp_path: Path) -> None:
    file = shop(tmp_path)
    with DevProcess(tmp_path, "shop.py") as process:
        first = process.address()
        shop(tmp_path, WORKER.replace("VERSION = 1", "VERSION = 2"))
        second = eventually(lambda: other(process, first.pid), "the new host")
        assert post(second.http, "/hello")["version"] == 2

        file.write_text("def broken(:\n")
        process.wait_for("the host goes on with the old code")
        assert "shop.py:1: SyntaxError" in process.output
        assert post(second.http, "/hello")["version"] == 2

        (tmp_path / "iii-config.yaml").write_text("workers: 3\n")
        shop(tmp_path)
        at = process.wait_for("error: config_invalid")
        process.wait_for("the host goes on with the old code", after=at)
        assert post(second.http, "/hello")["version"] == 2


def test_a_reload_is_one_line_unless_the_banner_says_something_new(tmp_path: Path) -> None:
    shop(tmp_path)
    ports = ("--http-port", str(free_port()), "--stream-port", str(free_port()))
    with DevProcess(tmp_path, "shop.py", *ports) as process:
        first = process.address()
        at = process.wait_for("host     ready  functions=4 ")
        shop(tmp_path, "# Moves every line.\n" + WORKER.replace("VERSION = 1", "VERSION = 2"))
        second = eventually(lambda: other(process, first.pid), "the new host")
        reloaded = process.wait_for("host     reloaded  functions=4 queues=1 ", after=at)
        shop(tmp_path, WORKER.replace("shop::tidy", "shop::clear"))
        eventually(lambda: other(process, second.pid), "the newest host")
        process.wait_for("host     reloaded  functions=4 ", after=reloaded)
    assert [line for line in process.lines[at:reloaded] if line.startswith(("http ", "function "))] == []
    newest = [line for line in process.lines[reloaded:] if line.startswith(("http ", "shop::clear"))]
    assert len(newest) == 3, "the banner, where the function is among the functions and among the cron jobs"


def test_the_banner_shows_no_built_in_queue_that_nobody_uses(tmp_path: Path) -> None:
    shop(tmp_path, WORKER.replace('Queue("default")', "OnState()"))
    with DevProcess(tmp_path, "shop.py", "--no-reload") as process:
        process.wait_for("ready")
    banner = process.output.partition("ready")[0]
    assert "shop::keep" in banner
    assert "concurrency" not in banner


def test_the_banner_shows_a_declared_queue_without_a_consumer(tmp_path: Path) -> None:
    shop(tmp_path, WORKER.replace('Queue("default")', "OnState()"))
    queues = "{ idle: {}, default: {} }"
    (tmp_path / "iii-config.yaml").write_text(
        f"workers:\n  - name: iii-queue\n    config: {{ queue_configs: {queues} }}\n"
    )
    with DevProcess(tmp_path, "shop.py", "--no-reload") as process:
        process.wait_for("ready")
    shown = [line.split()[0] for line in process.output.splitlines() if " standard " in line]
    assert sorted(shown) == ["default", "idle"]


def test_the_line_of_a_dead_letter_says_how_to_see_it(tmp_path: Path) -> None:
    shop(tmp_path)
    with DevProcess(tmp_path, "shop.py", "--no-reload") as process:
        process.address()
        ask(process, "trigger", "shop::keep", "--queue", "default", "--payload", '{"id": "bad"}')
        line = process.lines[process.wait_for("dead letter") - 1]
        command = line.rpartition("show it: iii-runtime ")[2].split()
        result = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert "NonRetryableError: no" in result.stdout
    assert "\x1b" not in process.output, "no colours without a terminal"


def test_a_host_that_crashed_is_reported_and_started_again_after_a_change(tmp_path: Path) -> None:
    shop(tmp_path)
    with DevProcess(tmp_path, "shop.py") as process:
        first = process.address()
        result = CliRunner().invoke(cli, ["trigger", "shop::die", "--data", str(process.data)])
        assert result.exit_code == 2
        assert "error: host_unreachable" in result.stderr
        process.wait_for("the host ended with exit code 7")
        shop(tmp_path)
        eventually(lambda: other(process, first.pid), "the new host")


def test_a_host_ends_when_its_supervisor_is_killed(tmp_path: Path) -> None:
    shop(tmp_path)
    with DevProcess(tmp_path, "shop.py") as process:
        host = process.address()
        assert host.pid != process.process.pid
        process.signal(signal.SIGKILL)
        eventually(lambda: not alive(host.pid), "the end of the host")
        process.end()
    assert "the supervising process is gone" in process.output
    assert "stopped" in process.output


def test_a_port_in_use_is_one_clear_error_and_exit_code_2(tmp_path: Path) -> None:
    shop(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with DevProcess(tmp_path, "shop.py", "--http-port", str(port)) as process:
            assert process.end() == 2
    assert process.lines[0].startswith("error: port_in_use: ")
    assert str(port) in process.lines[0]
    assert "Traceback" not in process.output


def dev(folder: Path, *options: str) -> list[str]:
    places = [str(folder / "shop.py"), "--data", str(folder / "data")]
    return [sys.executable, "-m", "iii_runtime.cli", "dev", *places, "--http-port=0", "--stream-port=0", *options]


def command_at_work(data: Path) -> DataLock:
    return asyncio.run(DataLock.acquire(data, holder="command", wait=timedelta(0)))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def other(process: DevProcess, pid: int) -> RunningHost | None:
    host = process.address()
    return host if host.pid != pid else None


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that nobody has waited for is dead all the same.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
