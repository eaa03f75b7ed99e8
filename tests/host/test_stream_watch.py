"""What `iii-runtime stream watch` shows people."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from iii_runtime.cli.main import cli
from tests.host.process import PATIENCE_S, DevProcess

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
