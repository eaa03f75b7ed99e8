"""What `iii-runtime stream watch` shows people."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from iii_runtime.cli.main import cli
from iii_runtime.hosts.aws_lambda.websocket_endpoint import WEBSOCKET_URL
from tests.host.process import DevProcess
from tests.host.stage import lambda_service, own_credentials
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.process
WORKER = """
from iii_runtime import register_worker

worker = register_worker()

@worker.function("shop::nothing")
def nothing(payload): ...
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(WORKER)
    with DevProcess(folder, "shop.py", "--no-reload") as process:
        process.address()
        yield process


def call(host: DevProcess, function_id: str, payload: object) -> None:
    arguments = ["trigger", function_id, "--payload", json.dumps(payload), "--data", str(host.data)]
    assert CliRunner().invoke(cli, arguments, catch_exceptions=False).exit_code == 0


def watch(host: DevProcess, *arguments: str) -> Result:
    command = ["stream", "watch", *arguments, "--until", "1", "--data", str(host.data)]
    return CliRunner().invoke(cli, command, catch_exceptions=False)


def test_an_empty_group_is_said_to_show_only_what_comes(host: DevProcess) -> None:
    told = "notice: nothing is stored there; sent events are not kept, so only what comes from now on is shown\n"
    assert watch(host, "s", "empty").stderr == told
    assert watch(host, "s", "empty", "--item", "i").stderr == told
    call(host, "stream::set", {"stream_name": "s", "group_id": "full", "item_id": "i", "data": 1})
    assert watch(host, "s", "full").stderr == ""


def test_events_stand_in_columns_and_a_step_says_step_and_time_once(host: DevProcess) -> None:
    command = [sys.executable, "-m", "iii_runtime.cli", "stream", "watch", "progress", "o-1", "--until", "3"]
    with subprocess.Popen(
        [*command, "--data", str(host.data)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watcher:
        assert watcher.stdout is not None
        synced = watcher.stdout.readline()
        step = {"step": "charge-payment", "status": "running", "detail": {"by": "card"}, "overall": "running"}
        call(host, "iii::track_step", {"scope": "orders", "key": "o-1", "stream_name": "progress", **step})
        call(host, "stream::set", {"stream_name": "progress", "group_id": "o-1", "item_id": "i", "data": [1]})
        rest, _ = watcher.communicate(timeout=PATIENCE_S)
    lines = [line.partition(" ")[2] for line in [synced.rstrip("\n"), *rest.splitlines()]]
    assert lines == [
        "sync        -              []",
        'step_update charge-payment {"by": "card", "status": "running"}',
        "create      i              [1]",
    ]


def test_a_stream_of_a_stage_is_watched_over_its_websocket(host: DevProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The WebSocket API is the server of this host."""
    own_credentials(monkeypatch)
    endpoint = f"http://{json.loads((host.data / 'host.json').read_text())['stream']}/"
    settings = {"Environment": {"Variables": {WEBSOCKET_URL: endpoint}}}
    lambda_service(monkeypatch, "GetFunctionConfiguration", lambda _name, _body: (200, {}, settings))
    ticket = {"statusCode": 201, "body": '{"ticket": "t"}'}
    asked = lambda_service(monkeypatch, "Invoke", lambda _name, _body: (200, {}, ticket))
    call(host, "stream::set", {"stream_name": "s", "group_id": "watched", "item_id": "i", "data": {"n": 1}})
    command = ["stream", "watch", "s", "watched", "--until", "1", "--json", "--stage", "prod", "--app", "shop"]
    result = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert json.loads(result.stdout)["event"] == {"type": "sync", "data": [{"n": 1}]}
    assert [name for name, _ in asked] == ["shop-prod-x-websocket"]
