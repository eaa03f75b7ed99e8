"""The loop of asynchronous bodies on the main thread, which runs while a body of it does."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from iii_runtime.adapters.bodies import Job, Outcome, start_task, too_late
from iii_runtime.core.errors import FunctionBusyError
from iii_runtime.hosts.aws_lambda.alarm import AGAIN, Alarm

_REACTION = timedelta(milliseconds=100)
"""How long the loop may take to cancel a body whose time is up, before it counts as blocked."""


class MainLoop:
    """Runs an asynchronous body on the main thread, and those that run inside it.

    The loop is kept from one body to the next, so that what belongs to it, such as the connections of a client, goes on
    working.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: _Running | None = None

    def submit(self, body: Callable[[], Any]) -> Job | None:
        """Begin a body beside the one that runs, in a copy of the caller's context.

        None if none runs whose time is not up: nobody would run the loop for it.
        """
        with self._lock:
            if self._running is None or self._running.is_late or self._loop is None:
                return None
            job = Job(body)
            self._loop.call_soon_threadsafe(start_task, self._loop, job)
            return job

    def run_until(self, job: Job, timeout: timedelta) -> Outcome:
        """Run a body and return what it came to.

        When its time is up it is cancelled. Then it has half a second for its end, and is cancelled again every half
        second until it has ended: it never goes on beside a later body. Whatever blocks the loop at those times is
        ended by `TimeUp`.

        Args:
            job: The body. Its future stays as it is.
            timeout: How long it may take.
        """
        with self._lock:
            self._loop = self._loop or asyncio.new_event_loop()
            running = self._running = _Running(self._loop, Job(job.body, job.context))
        is_sound = running.run(timeout)
        with self._lock:
            self._running = None
            if not is_sound:
                self._loop = None
        return running.outcome(timeout)

    def close(self) -> None:
        """End the loop. What is left of its bodies never goes on."""
        with self._lock:
            if self._loop is not None and self._running is None:
                self._loop.close()
                self._loop = None


class _Running:
    """A body that runs, and its end. On the main thread.

    Attributes:
        is_late: Whether its time was up before it ended.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, job: Job) -> None:
        self._loop = loop
        self._job = job
        self._task = start_task(loop, job)
        self._timer: asyncio.TimerHandle | None = None
        self._has_reacted = False
        self.is_late = False
        job.future.add_done_callback(lambda _: loop.stop())

    def run(self, timeout: timedelta) -> bool:
        """Run the loop until the body has ended; False if the alarm rang in the loop's own code."""
        self._timer = self._loop.call_later(timeout.total_seconds(), self._cancel)
        try:
            return Alarm(self._is_spared).end_after(timeout + _REACTION, self._run) is not None
        finally:
            self._timer.cancel()

    def outcome(self, timeout: timedelta) -> Outcome:
        """Return what the body came to."""
        if self._job.future.done() and not self.is_late:
            return self._job.future.result()
        self._job.future.cancel()
        if self._job.begun_at is not None:
            return Outcome(error=too_late(timeout.total_seconds()))
        message = f"it did not begin within {timeout.total_seconds():g} s: what an earlier async handler left behind"
        return Outcome(error=FunctionBusyError(f"{message} blocked the loop they share."))

    def _run(self) -> bool:
        while not self._job.future.done():
            # asyncio lets through what a task raises that a handler started.
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_forever()
        return True

    def _cancel(self) -> None:
        if self._task is not None and not self._task.done():
            self.is_late = self._has_reacted = True
            self._task.cancel()
            self._timer = self._loop.call_later(AGAIN.total_seconds(), self._cancel)

    def _is_spared(self) -> bool:
        """Return whether the alarm spares what runs: if the loop has cancelled the body since it last rang."""
        if self._has_reacted:
            self._has_reacted = False
            return True
        if self._task is not None and not self._task.done():
            self.is_late = True
            if self._job.begun_at is None:
                self._job.future.cancel()  # something else blocks the loop; it is not to begin now
        return False
