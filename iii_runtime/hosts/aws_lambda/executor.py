"""Runs user code in a sandbox: the engine has a thread of its own, so a body can have the main one.

Only there can Python end a body from outside. A body whose time is up is ended there and then: the sandbox serves the
next invocation, and what an earlier one left running would run beside it, or keep what that one needs. It is ended
before the answer, which tells of its end, leaves; what a process does between its answer and the next event, Lambda
does not say. One that does not let itself be ended takes the process with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from iii_runtime.adapters.bodies import Job, Outcome, call_body, outcome_of, too_late
from iii_runtime.adapters.threads import ThreadExecutor
from iii_runtime.core.errors import FunctionBusyError
from iii_runtime.hosts.aws_lambda.alarm import Alarm
from iii_runtime.hosts.aws_lambda.main_loop import MainLoop

T = TypeVar("T")

GRACE = timedelta(seconds=1)
"""How long a body may need to end when its time is up: after that its outcome is recorded without it."""

EXIT_CODE = 70
"""Of a process that is ended because a body does not let itself be ended."""

_log = logging.getLogger("iii_runtime.host")


@dataclass(slots=True, eq=False, kw_only=True)
class _MainJob(Job):
    timeout: timedelta
    is_async: bool


class MainThreadExecutor:
    """Runs one body at a time on the main thread, while `serve` is called there; the others on threads.

    So does a body that runs beside another one, or inside it, see `ThreadExecutor`. An asynchronous one that runs
    inside an asynchronous one shares its loop.
    """

    def __init__(self) -> None:
        self._threads = ThreadExecutor()
        self._loop = MainLoop()
        self._jobs: queue.SimpleQueue[_MainJob | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_free = False
        self._is_held = False

    @property
    def is_held(self) -> bool:
        """Whether a body has the main thread. Where none is waited for, one does not end: no answer will leave."""
        with self._lock:
            return self._is_held

    async def run(self, body: Callable[[], Any], *, is_async: bool, timeout: timedelta) -> Any:
        """Run `body` in a copy of the caller's context and return its value.

        Raises:
            DeadlineExceededError: It did not end in time. On the main thread it was ended; see `ThreadExecutor.run`
                for the others.
            FunctionBusyError: It is asynchronous, and did not begin in that time, because something that an earlier one
                has left behind blocks their loop. It never begins.
            HandlerExitError: It raised something that is no `Exception`, such as `SystemExit`.
        """
        job = self._offer(body, timeout, is_async=is_async)
        if job is not None:
            return (await _outcome_on_main(job)).result()
        if is_async and (inside := self._loop.submit(body)) is not None:
            return (await outcome_of(inside, timeout.total_seconds(), lambda: _give_up(inside))).result()
        return await self._threads.run(body, is_async=is_async, timeout=timeout)

    def serve(self, start: Callable[[], Future[T]]) -> T:
        """Start work and run its bodies on the calling thread until its outcome is known; return that.

        Any other thread than the main one only waits. If a body holds the main thread when the outcome is known, so
        that no answer can leave, the process ends a second later, with `EXIT_CODE`: to Lambda that is a crash.

        Args:
            start: Starts the work, on a loop of another thread. From then on this thread is ready.

        Raises:
            BaseException: What the work came to.
        """
        if threading.current_thread() is not threading.main_thread():
            return start().result()
        served = threading.Event()
        self._free()
        try:
            outcome = start()
            outcome.add_done_callback(lambda _: self._stop(served))
            while (job := self._jobs.get()) is not None:
                self._perform(job)
        finally:
            served.set()
            self._dismiss()
        return outcome.result()

    def close(self) -> None:
        """Cancel asynchronous bodies and let idle threads end."""
        self._threads.close()
        self._loop.close()

    def _offer(self, body: Callable[[], Any], timeout: timedelta, *, is_async: bool) -> _MainJob | None:
        with self._lock:
            if not self._is_free:
                return None
            self._is_free, self._is_held = False, True
            job = _MainJob(body, timeout=timeout, is_async=is_async)
            self._jobs.put(job)
            return job

    def _free(self) -> None:
        with self._lock:
            self._is_free, self._is_held = True, False

    def _perform(self, job: _MainJob) -> None:
        if job.future.set_running_or_notify_cancel():
            outcome = self._loop.run_until(job, job.timeout) if job.is_async else _call_until(job)
            # Free before the outcome is known, so that whoever waited for it finds this thread.
            self._free()
            job.future.set_result(outcome)
        else:
            self._free()

    def _stop(self, served: threading.Event) -> None:
        self._jobs.put(None)
        if self.is_held:
            threading.Thread(target=_end_unless, args=(served,), name="iii-end", daemon=True).start()

    def _dismiss(self) -> None:
        with self._lock:
            self._is_free = self._is_held = False
        while not self._jobs.empty():
            late = self._jobs.get_nowait()
            if late is not None and late.future.set_running_or_notify_cancel():
                late.future.set_result(Outcome(error=FunctionBusyError("it did not begin: the invocation has ended.")))


async def _outcome_on_main(job: _MainJob) -> Outcome:
    try:
        async with asyncio.timeout((job.timeout + GRACE).total_seconds()):
            return await asyncio.wrap_future(job.future)
    except TimeoutError as error:
        raise too_late(job.timeout.total_seconds()) from error


def _give_up(job: Job) -> None:
    job.future.cancel()
    if job.begun_at is None:
        raise FunctionBusyError("it did not begin in its time: another async handler blocks the loop they share.")


def _call_until(job: _MainJob) -> Outcome:
    """Call a body and end it when its time is up: again and again, should it catch what ends it."""
    alarm = Alarm()
    outcome = alarm.end_after(job.timeout, lambda: call_body(job.body, job.context))
    return Outcome(error=too_late(job.timeout.total_seconds())) if outcome is None or alarm.has_rung else outcome


def _end_unless(served: threading.Event) -> None:
    """End the process if its main thread does not come back: the sandbox could serve nothing any more."""
    if not served.wait(GRACE.total_seconds()):
        _log.error("a handler does not end after its timeout, so the process does; no answer can leave")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(EXIT_CODE)
