"""How a supervisor checks changed code; the host and the check are stand-ins. The real ones are in `test_dev.py`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from iii_runtime.cli.code_watch import Watched
from iii_runtime.cli.supervisor import Plan, supervise
from tests.patience import PATIENCE_S, eventually

pytestmark = pytest.mark.process

HANGS = "import threading; threading.Event().wait()"
HOST = "open('starts', 'a').write('x'); import os, sys; os.read(int(sys.argv[1]), 1)"
"""Ends with its supervisor, as a host does."""
CHECK = "open('checks', 'a').write('x'); import code_under_check"


def plan(folder: Path, check_patience: timedelta) -> Plan:
    return Plan(
        host=lambda parent, _banner: [sys.executable, "-c", HOST, str(parent)],
        check=[sys.executable, "-c", CHECK],
        watched=Watched(trees=frozenset([folder]), folders=frozenset(), config=folder / "iii-config.yaml"),
        patience=timedelta(seconds=PATIENCE_S),
        check_patience=check_patience,
    )


async def seen(file: Path, times: int) -> None:
    """Wait until a stand-in has been started so often."""
    await asyncio.to_thread(
        eventually, lambda: file.exists() and len(file.read_text()) == times, f"{times} {file.name}"
    )


async def ended(supervisor: asyncio.Task[int]) -> int:
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(PATIENCE_S):
        return await supervisor


async def test_a_check_that_hangs_is_killed_and_the_host_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    told = ""

    def is_told() -> bool:
        nonlocal told
        told += capsys.readouterr().err
        return "goes on with the old code" in told

    supervisor = asyncio.create_task(supervise(plan(tmp_path, timedelta(seconds=1))))
    await seen(tmp_path / "starts", 1)
    (tmp_path / "code_under_check.py").write_text(HANGS)
    await asyncio.to_thread(eventually, is_told, "the notice")
    assert await ended(supervisor) == 0
    assert "the check of the changed code took longer than 1 s and is killed" in told
    assert (tmp_path / "starts").read_text() == "x"


async def test_a_change_during_a_check_that_hangs_is_checked_afresh_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    supervisor = asyncio.create_task(supervise(plan(tmp_path, timedelta(hours=1))))
    await seen(tmp_path / "starts", 1)
    (tmp_path / "code_under_check.py").write_text(HANGS)
    await seen(tmp_path / "checks", 1)
    (tmp_path / "code_under_check.py").write_text("")
    await seen(tmp_path / "starts", 2)
    assert (tmp_path / "checks").read_text() == "xx"
    assert await ended(supervisor) == 0
