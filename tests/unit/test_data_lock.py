"""One host per data directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from iii_runtime.adapters.embedded.lock import DataLock
from iii_runtime.core.errors import StoreError


def test_a_second_host_is_refused_and_told_who_holds_the_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with DataLock.acquire(data):
        with pytest.raises(StoreError, match=f"process {os.getpid()}") as caught:
            DataLock.acquire(data)
        assert caught.value.code == "store_locked"
        assert str(data) in caught.value.message
    DataLock.acquire(data).release()


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, sys\n"
        "from iii_runtime.adapters.embedded.lock import DataLock\n"
        "lock = DataLock.acquire(pathlib.Path(sys.argv[1]))\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(StoreError, match=f"process {process.pid}"):
            DataLock.acquire(tmp_path)
        process.kill()
        process.wait()
    DataLock.acquire(tmp_path).release()


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for data in (tmp_path / "file", tmp_path / "file" / "data"):
        with pytest.raises(StoreError) as caught:
            DataLock.acquire(data)
        assert caught.value.code == "store_unavailable"


def test_releasing_twice_does_nothing(tmp_path: Path) -> None:
    lock = DataLock.acquire(tmp_path)
    lock.release()
    second = DataLock.acquire(tmp_path)
    lock.release()
    with pytest.raises(StoreError):
        DataLock.acquire(tmp_path)
    second.release()
