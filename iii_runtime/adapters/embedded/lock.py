"""One host per data directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from iii_runtime.adapters.embedded.store_errors import from_os
from iii_runtime.core.errors import StoreError

LOCK_NAME = "host.lock"


class DataLock:
    """An exclusive lock on a data directory. It ends with `release`, or with the process, however that ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, data: Path) -> DataLock:
        """Lock the directory `data`, which is created if it is missing.

        Raises:
            StoreError: `store_locked`, naming the process that holds it; `store_unavailable`: it cannot be created.
        """
        path = data / LOCK_NAME
        try:
            data.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise from_os(error, path) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise StoreError(
                f"{data} is in use by another host, process {holder}. Stop that one, or choose another --data.",
                code="store_locked",
            ) from error
        except OSError as error:
            os.close(descriptor)
            raise from_os(error, path) from error
        return cls(descriptor)

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
