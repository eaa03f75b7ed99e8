"""Runs user code in this process: synchronous bodies on daemon threads, asynchronous ones on a loop of their own.

Neither ever runs on the engine's loop, so a body that blocks delays nobody else's lease, timer or request. One that is
asynchronous delays the other asynchronous ones until its time is up: they share a loop, see `HandlerLoops`. Their time
counts from when they begin.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from iii_runtime.adapters.bodies import Job, call_body, outcome_of
from iii_runtime.adapters.handler_loops import HandlerLoops

_IDLE_SECONDS = 10.0


class ThreadExecutor:
    """Runs bodies apart from the engine. There is no limit on threads: queues and the http server bound the work."""

    def __init__(self) -> None:
        self._idle: deque[_Runner] = deque()
        self._lock = threading.Lock()
        self._loops = HandlerLoops()

    async def run(self, body: Callable[[], Any], *, is_async: bool, timeout: timedelta) -> Any:
        """Run `body` and return its value.

        Args:
            body: What to run, in a copy of the caller's context.
            is_async: Whether it returns a coroutine.
            timeout: How long it may take, from when it begins: an asynchronous body waits its turn while another one
                blocks their loop, see `HandlerLoops.run`.

        Raises:
            DeadlineExceededError: It did not end in time. A synchronous body goes on in its thread, its outcome
                dropped; an asynchronous one is cancelled.
            HandlerExitError: It raised something that is no `Exception`, such as `SystemExit`.
        """
        if is_async:
            return (await self._loops.run(body, timeout)).result()
        job = Job(body)
        self._start(job)
        return (await outcome_of(job, timeout.total_seconds())).result()

    def close(self) -> None:
        """Cancel asynchronous bodies and end their loops; let idle threads end. A busy one ends with the process."""
        with self._lock:
            idle = list(self._idle)
            self._idle.clear()
        for runner in idle:
            runner.dismiss()
        self._loops.close()

    def _start(self, job: Job) -> None:
        with self._lock:
            runner = self._idle.pop() if self._idle else None
        if runner is None:
            _Runner(self._idle, self._lock).start(job)
        else:
            runner.give(job)


class _Runner:
    """A daemon thread that is used again for a while."""

    def __init__(self, idle: deque[_Runner], lock: threading.Lock) -> None:
        self._idle = idle
        self._lock = lock
        self._wake = threading.Semaphore(0)
        self._job: Job | None = None

    def start(self, job: Job) -> None:
        self._job = job
        threading.Thread(target=self._work, name="iii-handler", daemon=True).start()

    def give(self, job: Job) -> None:
        self._job = job
        self._wake.release()

    def dismiss(self) -> None:
        self._wake.release()

    def _work(self) -> None:
        while self._job is not None:
            job, self._job = self._job, None
            _run_body(job, self._rest)
            del job
            if not self._wake.acquire(timeout=_IDLE_SECONDS):
                with self._lock:
                    if self in self._idle:
                        self._idle.remove(self)
                        return
                self._wake.acquire()

    def _rest(self) -> None:
        with self._lock:
            self._idle.append(self)


def _run_body(job: Job, rest: Callable[[], None]) -> None:
    if not job.future.set_running_or_notify_cancel():
        rest()
        return
    job.begun_at = time.monotonic()
    outcome = call_body(job.body, job.context)
    # Idle before it is known, so that whoever waited for the outcome finds this thread.
    rest()
    job.future.set_result(outcome)
