"""Large texts as files beside the database."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from iii_runtime.adapters.embedded.store_errors import from_os
from iii_runtime.core.errors import StoreError
from iii_runtime.ports.clock import Clock

_THREADS = 2


class FileBlobStore:
    """Blobs under `<data>/blobs/`, named by the hash of their key; written whole, or not at all.

    The age of a file is that of the clock, not of the file system, so that retention follows the clock.
    """

    def __init__(self, directory: Path, clock: Clock, *, is_durable: bool = True) -> None:
        """Use `directory`, created on the first write; `is_durable=False` does not wait for the disk."""
        self._directory = directory
        self._clock = clock
        self._is_durable = is_durable
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="iii-blobs")

    async def put(self, key: str, text: str) -> None:
        """Store `text` durably.

        Raises:
            StoreError: `store_full` or `store_unavailable`; there is no such blob then.
        """
        await asyncio.get_running_loop().run_in_executor(self._threads, self.write, key, text)

    async def get(self, key: str) -> str:
        """Return the text.

        Raises:
            StoreError: `blob_missing`, or `store_unavailable`.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.load, key)

    def write(self, key: str, text: str) -> None:
        """Do what `put` does, on a thread that may block."""
        path = self.path_of(key)
        part = path.with_suffix(".part")
        now_ns = self._clock.now_ms() * 1_000_000
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as file:
                file.write(text.encode("utf-8"))
                file.flush()
                os.utime(file.fileno(), ns=(now_ns, now_ns))
                if self._is_durable:
                    os.fsync(file.fileno())
            part.replace(path)
            if self._is_durable:
                _sync_directory(self._directory)
        except OSError as error:
            with contextlib.suppress(OSError):  # the first error is the one to tell
                part.unlink(missing_ok=True)
            raise from_os(error, path) from error

    def load(self, key: str) -> str:
        """Do what `get` does, on a thread that may block."""
        path = self.path_of(key)
        try:
            return path.read_bytes().decode("utf-8")
        except FileNotFoundError as error:
            raise StoreError(
                f"blob {key} is missing: {path} does not exist. Restore the data directory as a whole.",
                code="blob_missing",
            ) from error
        except OSError as error:
            raise from_os(error, path) from error

    def remove_unreferenced(self, keys: set[str], before_ms: int, limit: int) -> int:
        """Remove up to `limit` files older than `before_ms` that are the blob of none of `keys`; return how many."""
        kept = {self.path_of(key).name for key in keys}
        removed = 0
        try:
            for entry in os.scandir(self._directory) if self._directory.is_dir() else ():
                if removed < limit and entry.name not in kept and entry.stat().st_mtime_ns < before_ms * 1_000_000:
                    Path(entry.path).unlink(missing_ok=True)
                    removed += 1
        except OSError as error:
            raise from_os(error, self._directory) from error
        return removed

    def path_of(self, key: str) -> Path:
        """Return where the blob lives."""
        return self._directory / hashlib.sha256(key.encode("utf-8")).hexdigest()

    def close(self) -> None:
        """End the threads after what they were asked to do."""
        self._threads.shutdown()


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
