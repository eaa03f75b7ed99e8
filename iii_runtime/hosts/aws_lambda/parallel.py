"""Jobs side by side where every port blocks: each on a thread, with a loop of its own."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from iii_runtime.ports.parallel import Job

T = TypeVar("T")


class ThreadParallel:
    """Runs jobs on at most `limit` threads, which are kept for the next jobs. A job must not run others this way."""

    def __init__(self, limit: int) -> None:
        self._threads = ThreadPoolExecutor(limit, thread_name_prefix="iii-parallel")

    async def run(self, jobs: Sequence[Job[T]]) -> list[T]:
        """Begin the jobs in their order, wait for the end of all, and return their results in the same order.

        A single one runs right here.

        Raises:
            Exception: The first one that a job raised, after all have ended.
        """
        if len(jobs) == 1:
            return [await jobs[0]()]
        futures = [self._threads.submit(contextvars.copy_context().run, _run, job) for job in jobs]
        outcomes = await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
        results: list[T] = []
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            results.append(outcome)
        return results

    def close(self) -> None:
        """Let the threads end."""
        self._threads.shutdown()


def _run(job: Job[T]) -> T:
    return asyncio.run(job())
