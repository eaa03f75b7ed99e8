"""Runs user code in this process: synchronous bodies on daemon threads, asynchronous ones on a loop of their own.

Neither ever runs on the engine's loop, so a body that blocks delays nobody else's lease, timer or request. One that is
asynchronous delays the other asynchronous ones: they share a loop. Their time counts from when they begin.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from iii_runtime.core.errors import DeadlineExceededError, IiiError, message_of

_IDLE_SECONDS = 10.0
_CLOSE_SECONDS = 1.0


class HandlerExitError(IiiError):
    """A handler tried to end the process: `sys.exit`, `KeyboardInterrupt` or another `BaseException`."""

    code = "handler_exit"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a body came to. An error travels as a value: futures refuse or translate some exceptions."""

    value: Any = None
    error: Exception | None = None


@dataclass(slots=True)
class _Job:
    """A body to run, and what becomes of it.

    Attributes:
        begun_at: When it began, on the monotonic clock; None before.
    """

    body: Callable[[], Any]
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    future: Future[Outcome] = field(default_factory=Future)
    begun_at: float | None = None


def call_body(body: Callable[[], Any], context: contextvars.Context) -> Outcome:
    """Call a synchronous body in `context` and return what it came to. Whatever it raises is an outcome."""
    try:
        return Outcome(value=context.run(body))
    except StopIteration as error:
        return Outcome(error=_stopped(error))
    except Exception as error:  # noqa: BLE001 - whatever the handler raised is its outcome
        return Outcome(error=error)
    except BaseException as error:  # noqa: BLE001 - a handler must not end the host
        return Outcome(error=_exit(error))


class ThreadExecutor:
    """Runs bodies apart from the engine. There is no limit on threads: queues and the http server bound the work."""

    def __init__(self) -> None:
        self._idle: deque[_Runner] = deque()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: threading.Thread | None = None

    async def run(self, body: Callable[[], Any], *, is_async: bool, timeout: timedelta) -> Any:
        """Run `body` and return its value.

        Args:
            body: What to run, in a copy of the caller's context.
            is_async: Whether it returns a coroutine.
            timeout: How long it may take, from when it begins: an asynchronous body waits its turn while another one
                blocks their loop.

        Raises:
            DeadlineExceededError: It did not end in time. A synchronous body goes on in its thread, its outcome
                dropped; an asynchronous one is cancelled.
            HandlerExitError: It raised something that is no `Exception`, such as `SystemExit`.
        """
        job = _Job(body)
        if is_async:
            self._start_async(job)
        else:
            self._start_sync(job)
        outcome = await _outcome_of(job, timeout.total_seconds())
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    def close(self) -> None:
        """Cancel asynchronous bodies and end their loop; let idle threads end. A busy one ends with the process."""
        with self._lock:
            loop, thread = self._loop, self._loop_thread
            self._loop = self._loop_thread = None
            idle = list(self._idle)
            self._idle.clear()
        for runner in idle:
            runner.dismiss()
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_CLOSE_SECONDS)

    def _start_sync(self, job: _Job) -> None:
        with self._lock:
            runner = self._idle.pop() if self._idle else None
        if runner is None:
            _Runner(self._idle, self._lock).start(job)
        else:
            runner.give(job)

    def _start_async(self, job: _Job) -> None:
        # Under the lock, so that it comes before `close` stops the loop: every job has an outcome.
        with self._lock:
            loop = self._handler_loop()
            loop.call_soon_threadsafe(_start_task, loop, job)

    def _handler_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop_thread = threading.Thread(target=_run_loop, args=(self._loop,), name="iii-handlers", daemon=True)
            self._loop_thread.start()
        return self._loop


class _Runner:
    """A daemon thread that is used again for a while."""

    def __init__(self, idle: deque[_Runner], lock: threading.Lock) -> None:
        self._idle = idle
        self._lock = lock
        self._wake = threading.Semaphore(0)
        self._job: _Job | None = None

    def start(self, job: _Job) -> None:
        self._job = job
        threading.Thread(target=self._work, name="iii-handler", daemon=True).start()

    def give(self, job: _Job) -> None:
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


async def _outcome_of(job: _Job, timeout_s: float) -> Outcome:
    waiter = asyncio.wrap_future(job.future)
    remaining_s = timeout_s
    try:
        while remaining_s > 0:
            done, _ = await asyncio.wait({waiter}, timeout=remaining_s)
            if done:
                return waiter.result()
            # A job that has not begun by now has all of its time left.
            begun_at = job.begun_at
            remaining_s = timeout_s if begun_at is None else begun_at + timeout_s - time.monotonic()
    finally:
        waiter.cancel()  # no effect once it is done
    raise DeadlineExceededError(f"no outcome within {timeout_s:g} s")


def _run_body(job: _Job, rest: Callable[[], None]) -> None:
    if not job.future.set_running_or_notify_cancel():
        rest()
        return
    job.begun_at = time.monotonic()
    outcome = call_body(job.body, job.context)
    # Idle before it is known, so that whoever waited for the outcome finds this thread.
    rest()
    job.future.set_result(outcome)


def _start_task(loop: asyncio.AbstractEventLoop, job: _Job) -> None:
    if job.future.cancelled():
        return
    task = loop.create_task(_await_body(job), context=job.context)
    job.future.add_done_callback(lambda done: _cancel(task, loop) if done.cancelled() else None)
    task.add_done_callback(lambda ended: _settle(job.future, ended))


async def _await_body(job: _Job) -> Outcome:
    job.begun_at = time.monotonic()
    try:
        return Outcome(value=await job.body())
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the handler raised is its outcome
        return Outcome(error=error)
    except BaseException as error:  # noqa: BLE001 - a handler must not end the loop of the others
        return Outcome(error=_exit(error))


def _settle(future: Future[Outcome], task: asyncio.Task[Outcome]) -> None:
    outcome = Outcome(error=HandlerExitError("the handler's task was cancelled")) if task.cancelled() else task.result()
    with contextlib.suppress(InvalidStateError):  # given up at this very moment
        future.set_result(outcome)


def _cancel(task: asyncio.Task[Outcome], loop: asyncio.AbstractEventLoop) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed, and the task with it
        loop.call_soon_threadsafe(task.cancel)


def _stopped(error: StopIteration) -> RuntimeError:
    """Return what Python makes of it in a coroutine: it cannot pass through one."""
    wrapped = RuntimeError("the handler raised StopIteration")
    wrapped.__cause__ = error
    return wrapped


def _exit(error: BaseException) -> HandlerExitError:
    wrapped = HandlerExitError(f"the handler raised {type(error).__name__}: {message_of(error)}")
    wrapped.__cause__ = error
    return wrapped


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
