"""One host or command at a time per data directory."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from iii_runtime.adapters.embedded.lock import DataLock, Holder
from iii_runtime.core.errors import StoreError

AT_ONCE = timedelta(0)
PATIENCE = timedelta(seconds=30)


async def locked(data: Path, holder: Holder = "host", wait: timedelta = AT_ONCE) -> DataLock:
    return await DataLock.acquire(data, holder=holder, wait=wait)


@pytest.mark.parametrize(
    ("holder", "wanted_by", "told"),
    [
        ("host", "host", "in use by another host, process"),
        ("command", "host", "in use by a command, process"),
        ("host", "command", "in use by a host that does not answer, process"),
        ("command", "command", "in use by a command, process"),
    ],
)
async def test_who_comes_second_is_refused_and_told_what_holds_the_directory(
    tmp_path: Path, holder: Holder, wanted_by: Holder, told: str
) -> None:
    data = tmp_path / "data"
    with await locked(data, holder):
        with pytest.raises(StoreError, match=f"{told} {os.getpid()}\\.") as caught:
            await locked(data, wanted_by)
        assert caught.value.code == "store_locked"
        assert str(data) in caught.value.message
    (await locked(data)).release()


async def test_a_lock_that_is_given_free_in_time_is_taken(tmp_path: Path) -> None:
    first = await locked(tmp_path, "command")
    second = asyncio.create_task(locked(tmp_path, "host", PATIENCE))
    asyncio.get_running_loop().call_later(0.1, first.release)
    with await second:
        assert (tmp_path / "host.lock").read_text() == f"{os.getpid()} host\n"


async def test_a_wait_can_be_cancelled_and_leaves_nothing_locked(tmp_path: Path) -> None:
    first = await locked(tmp_path)
    second = asyncio.create_task(locked(tmp_path, "host", PATIENCE))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait((second,))
    assert second.cancelled()
    first.release()
    (await locked(tmp_path)).release()


async def test_a_wait_that_is_over_is_an_error(tmp_path: Path) -> None:
    with await locked(tmp_path), pytest.raises(StoreError):
        await locked(tmp_path, "host", timedelta(milliseconds=50))


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    script = (
        "import asyncio, datetime, pathlib, sys\n"
        "from iii_runtime.adapters.embedded.lock import DataLock\n"
        "data = pathlib.Path(sys.argv[1])\n"
        "lock = asyncio.run(DataLock.acquire(data, holder='host', wait=datetime.timedelta(0)))\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(StoreError, match=f"process {process.pid}"):
            asyncio.run(locked(tmp_path))
        process.kill()
        process.wait()
    asyncio.run(locked(tmp_path)).release()


async def test_the_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    """It holds payloads."""
    data = tmp_path / "deep" / "data"
    (await locked(data)).release()
    assert stat.S_IMODE(data.stat().st_mode) == 0o700


async def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for data in (tmp_path / "file", tmp_path / "file" / "data"):
        with pytest.raises(StoreError) as caught:
            await locked(data, wait=PATIENCE)
        assert caught.value.code == "store_unavailable"


async def test_releasing_twice_does_nothing(tmp_path: Path) -> None:
    lock = await locked(tmp_path)
    lock.release()
    second = await locked(tmp_path)
    lock.release()
    with pytest.raises(StoreError):
        await locked(tmp_path)
    second.release()
