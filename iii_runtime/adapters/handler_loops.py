"""The loop of asynchronous bodies, and others beside it while a body blocks it.

All bodies share one loop, so that what they keep between calls, such as the connections of a client, goes on working.
One that calls something which blocks holds up the others. Its time ends all the same; from then on the others run on
a loop beside it, until the first one reacts again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from iii_runtime.adapters.bodies import Job, Outcome, outcome_of, start_task
from iii_runtime.core.errors import DeadlineExceededError

_log = logging.getLogger("iii_runtime.function")

_ANSWER_SECONDS = 1.0
"""How long a loop may take to react before it counts as blocked."""

_CLOSE_SECONDS = 1.0
_FRAMES = 8
"""How much of the stack of what blocks is told."""


@dataclass(slots=True, eq=False)
class _LoopJob(Job):
    """An asynchronous body; `on` is the loop that it was given to last."""

    on: _Loop | None = None


class HandlerLoops:
    """Runs asynchronous bodies, each on one loop of at least one thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loops: list[_Loop] = []

    async def run(self, body: Callable[[], Any], timeout: timedelta) -> Outcome:
        """Run a body in a copy of the caller's context and return what it came to.

        A body that waits to begin, because another one blocks the loop, begins on another loop: when that one's time is
        up, and at the latest after as long as its own time is. It then has all of it.

        Raises:
            DeadlineExceededError: It did not end in time, and is cancelled. If it blocks its loop it goes on until it
                no longer does.
        """
        job = _LoopJob(body)
        with self._lock:
            self._free_loop().take(job)
        try:
            return await outcome_of(job, timeout.total_seconds(), lambda: self._leave(job.on))
        except DeadlineExceededError:
            self._watch(job.on)
            raise

    def close(self) -> None:
        """Cancel bodies and end their loops; one that is blocked ends with the process."""
        with self._lock:
            loops, self._loops = self._loops, []
        for each in loops:
            each.loop.call_soon_threadsafe(each.loop.stop)
        latest = time.monotonic() + _CLOSE_SECONDS
        for each in loops:
            each.thread.join(max(latest - time.monotonic(), 0))

    def _free_loop(self) -> _Loop:
        for each in self._loops:
            if not each.is_blocked:
                return each
        self._loops.append(_Loop(self._lock))
        return self._loops[-1]

    def _watch(self, where: _Loop | None) -> None:
        """Leave a loop if it does not react in a moment."""
        if where is not None and not where.is_blocked:
            answered = threading.Event()
            with contextlib.suppress(RuntimeError):  # it is closed
                where.loop.call_soon_threadsafe(answered.set)
                look = asyncio.get_running_loop().call_later
                look(_ANSWER_SECONDS, lambda: None if answered.is_set() else self._leave(where))

    def _leave(self, where: _Loop | None) -> None:
        """Let what waits on a blocked loop, and what comes, run on another one, until it reacts again."""
        with self._lock:
            if where not in self._loops or where.is_blocked:
                return
            where.is_blocked = True
            waiting = where.give_back()
            for job in waiting:
                self._free_loop().take(job)
            where.loop.call_soon_threadsafe(where.react)
        fields = {"moved": len(waiting), "stack": where.stack()}
        _log.error("an async handler blocks its loop; the others go on on another one", extra={"iii": fields})


class _Loop:
    """A loop on a daemon thread. Whoever calls `take` or `give_back` holds the lock."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._waiting: dict[_LoopJob, None] = {}
        self.is_blocked = False
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=_run_loop, args=(self.loop,), name="iii-handlers", daemon=True)
        self.thread.start()

    def take(self, job: _LoopJob) -> None:
        """Begin a job as soon as the loop reacts."""
        job.on = self
        self._waiting[job] = None
        # Under the lock, so that it comes before `close` stops the loop: every job has an outcome.
        self.loop.call_soon_threadsafe(self._begin, job)

    def give_back(self) -> list[_LoopJob]:
        """Return the jobs that have not begun, in their order. They never begin here."""
        jobs = list(self._waiting)
        self._waiting.clear()
        return jobs

    def react(self) -> None:
        """Note that it is no longer blocked. On its own thread."""
        with self._lock:
            self.is_blocked = False
        _log.warning("the loop of async handlers reacts again")

    def stack(self) -> str:
        """Return what its thread does, the innermost call last."""
        frame = sys._current_frames().get(self.thread.ident or 0)  # noqa: SLF001 - there is no other way to look
        return "".join(traceback.format_stack(frame)[-_FRAMES:]) if frame is not None else ""

    def _begin(self, job: _LoopJob) -> None:
        with self._lock:
            if job not in self._waiting:
                return  # it has gone to another loop
            del self._waiting[job]
        start_task(self.loop, job)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        while not _runs_until_stopped(loop):
            pass
        loop.run_until_complete(_cancel_all())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _runs_until_stopped(loop: asyncio.AbstractEventLoop) -> bool:
    """Return False if a task that a handler started asked to end the process: asyncio lets that through."""
    try:
        loop.run_forever()
    except (SystemExit, KeyboardInterrupt):
        return False
    return True


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
