"""One thread that works off operations in batches, for callers on any event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from iii_runtime.core.errors import StoreError


@dataclass(slots=True, kw_only=True)
class Job:
    """One operation and what became of it.

    Attributes:
        work: What to do, on the lane's thread.
        future: Where the caller waits.
        after: Called on the caller's loop with the value if the operation succeeded, even if the caller was cancelled.
        value: What `work` returned.
        error: Why there is no value.
    """

    work: Callable[[], Any]
    future: asyncio.Future[Any]
    after: Callable[[Any], None] | None = None
    value: Any = None
    error: BaseException | None = None


class Lane:
    """A thread that takes all waiting jobs at once, up to `batch`, and reports them together.

    A job runs even if its caller stops waiting. Jobs run in the order in which they were submitted.
    """

    def __init__(self, name: str, run: Callable[[list[Job]], None], *, batch: int) -> None:
        self._name = name
        self._run = run
        self._batch = batch
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def submit(self, work: Callable[[], Any], after: Callable[[Any], None] | None = None) -> Any:
        """Run `work` on the thread and return its value or raise its error.

        Raises:
            StoreError: The lane is closed.
        """
        job = Job(work=work, future=asyncio.get_running_loop().create_future(), after=after)
        with self._changed:
            if self._is_closed:
                raise StoreError(f"{self._name} is closed; nothing was written. Start the host again.")
            self._waiting.append(job)
            self._changed.notify()
        return await job.future

    def close(self) -> None:
        """Finish what was submitted and end the thread. Later calls do nothing."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._take():
            try:
                self._run(batch)
            except BaseException as error:  # noqa: BLE001 - a caller must learn of it, and the thread must live
                for job in batch:
                    job.error = job.error or error
            _report(batch)

    def _take(self) -> list[Job]:
        with self._changed:
            while not self._waiting and not self._is_closed:
                self._changed.wait()
            return [self._waiting.popleft() for _ in range(min(self._batch, len(self._waiting)))]


def _report(batch: list[Job]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in batch:
        by_loop.setdefault(job.future.get_loop(), []).append(job)
    for loop, jobs in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, loop, jobs)


def _settle(loop: asyncio.AbstractEventLoop, jobs: list[Job]) -> None:
    for job in jobs:
        if job.error is None and job.after is not None:
            loop.call_soon(job.after, job.value)
        if job.future.done():
            continue
        if job.error is None:
            job.future.set_result(job.value)
        else:
            job.future.set_exception(job.error)
