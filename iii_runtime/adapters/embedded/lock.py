"""One host or command at a time per data directory."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

from iii_runtime.adapters.embedded.store_errors import from_os
from iii_runtime.core.errors import StoreError

LOCK_NAME = "host.lock"
Holder: TypeAlias = Literal["host", "command"]

_POLL_SECONDS = 0.02


class DataLock:
    """An exclusive lock on a data directory. It ends with `release`, or with the process, however that ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    async def acquire(cls, data: Path, *, holder: Holder, wait: timedelta) -> DataLock:
        """Lock the directory `data`, which is created for its owner alone if it is missing.

        Args:
            data: The directory.
            holder: What takes the lock; others are told while they cannot have it.
            wait: How long to try if it is taken; zero tries once.

        Raises:
            StoreError: `store_locked`, naming what holds it; `store_unavailable`: it cannot be created.
        """
        deadline = time.monotonic() + wait.total_seconds()
        while True:
            try:
                return cls(_lock(data, holder))
            except StoreError as error:
                if error.code != "store_locked" or time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(_POLL_SECONDS)

    def release(self) -> None:
        """Give the directory free; repeating it does nothing. The file stays, its name is never reused unlocked."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def _lock(data: Path, holder: Holder) -> int:
    path = data / LOCK_NAME
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise from_os(error, path) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {holder}\n".encode(), 0)
    except BlockingIOError as error:
        content = os.pread(descriptor, 64, 0)
        os.close(descriptor)
        raise _in_use(data, content, holder) from error
    except OSError as error:
        os.close(descriptor)
        raise from_os(error, path) from error
    return descriptor


def _in_use(data: Path, content: bytes, wanted_by: Holder) -> StoreError:
    pid, _, holder = content.decode("ascii", "replace").strip().partition(" ")
    if holder == "command":
        what, remedy = "a command", "Wait until it has ended"
    else:
        # A command goes through the host if that answers, and needs no lock then.
        what = "another host" if wanted_by == "host" else "a host that does not answer"
        remedy = "Stop it, or wait if it is starting or stopping"
    return StoreError(
        f"{data} is in use by {what}, process {pid or 'unknown'}. {remedy}; or choose another --data.",
        code="store_locked",
    )
