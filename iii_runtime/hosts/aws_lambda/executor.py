"""Runs user code in a sandbox: the engine has a thread of its own, so a synchronous body can have the main one.

Only there can Python end a body from outside. A body whose time is up is ended there and then: the sandbox serves the
next invocation, and what an earlier one left running would run beside it.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from types import FrameType
from typing import Any, TypeVar

from iii_runtime.adapters.threads import Outcome, ThreadExecutor, call_body
from iii_runtime.core.errors import DeadlineExceededError

T = TypeVar("T")

GRACE = timedelta(seconds=1)
"""How long a body may need to end when its time is up: after that its outcome is recorded without it."""

_AGAIN_S = 0.5
_LEAST_S = 0.001


class TimeUp(BaseException):
    """Raised inside a body whose time is up."""


@dataclass(slots=True)
class _Job:
    body: Callable[[], Any]
    timeout: timedelta
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    future: Future[Outcome] = field(default_factory=Future)


class MainThreadExecutor:
    """Runs one synchronous body at a time on the main thread, while `serve` is called there; the others on threads.

    So does a body that runs beside another one, or inside it, and every asynchronous one: see `ThreadExecutor`.
    """

    def __init__(self) -> None:
        self._threads = ThreadExecutor()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_free = False

    async def run(self, body: Callable[[], Any], *, is_async: bool, timeout: timedelta) -> Any:
        """Run `body` in a copy of the caller's context and return its value.

        Raises:
            DeadlineExceededError: It did not end in time. On the main thread it was ended; see `ThreadExecutor.run`
                for the others.
            HandlerExitError: It raised something that is no `Exception`, such as `SystemExit`.
        """
        job = None if is_async else self._offer(body, timeout)
        if job is None:
            return await self._threads.run(body, is_async=is_async, timeout=timeout)
        try:
            async with asyncio.timeout((timeout + GRACE).total_seconds()):
                outcome = await asyncio.wrap_future(job.future)
        except TimeoutError as error:
            raise _too_late(timeout) from error
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    def serve(self, start: Callable[[], Future[T]]) -> T:
        """Start work and run its bodies on the calling thread until its outcome is known; return that.

        Any other thread than the main one only waits.

        Args:
            start: Starts the work, on a loop of another thread. From then on this thread is ready.

        Raises:
            BaseException: What the work came to.
        """
        if threading.current_thread() is not threading.main_thread():
            return start().result()
        self._free()
        try:
            outcome = start()
            outcome.add_done_callback(lambda _: self._jobs.put(None))
            while (job := self._jobs.get()) is not None:
                self._perform(job)
        finally:
            self._dismiss()
        return outcome.result()

    def close(self) -> None:
        """Cancel asynchronous bodies and let idle threads end."""
        self._threads.close()

    def _offer(self, body: Callable[[], Any], timeout: timedelta) -> _Job | None:
        with self._lock:
            if not self._is_free:
                return None
            self._is_free = False
            job = _Job(body, timeout)
            self._jobs.put(job)
            return job

    def _free(self) -> None:
        with self._lock:
            self._is_free = True

    def _perform(self, job: _Job) -> None:
        if job.future.set_running_or_notify_cancel():
            outcome = _call_until(job)
            # Free before the outcome is known, so that whoever waited for it finds this thread.
            self._free()
            job.future.set_result(outcome)
        else:
            self._free()

    def _dismiss(self) -> None:
        with self._lock:
            self._is_free = False
        while not self._jobs.empty():
            late = self._jobs.get_nowait()
            if late is not None and late.future.set_running_or_notify_cancel():
                late.future.set_result(Outcome(error=DeadlineExceededError("the invocation has ended")))


class _Alarm:
    """The timer of the process, which interrupts the main thread."""

    def __init__(self) -> None:
        self.has_rung = False
        self.is_set = False

    def ring(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_set:
            self.has_rung = True
            raise TimeUp


def _call_until(job: _Job) -> Outcome:
    """Call a body and end it when its time is up: again and again, should it catch what ends it."""
    alarm = _Alarm()
    before = signal.signal(signal.SIGALRM, alarm.ring)
    outcome = Outcome()
    try:
        try:
            alarm.is_set = True
            signal.setitimer(signal.ITIMER_REAL, max(job.timeout.total_seconds(), _LEAST_S), _AGAIN_S)
            outcome = call_body(job.body, job.context)
        finally:
            alarm.is_set = False
    except TimeUp:  # it rang after the body
        alarm.is_set = False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before or signal.SIG_DFL)
    return Outcome(error=_too_late(job.timeout)) if alarm.has_rung else outcome


def _too_late(timeout: timedelta) -> DeadlineExceededError:
    return DeadlineExceededError(f"no outcome within {timeout.total_seconds():g} s")
