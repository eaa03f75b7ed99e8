"""One body of a function: how it is called, what it comes to, and how long its outcome is waited for."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any

from iii_runtime.core.errors import DeadlineExceededError, IiiError, message_of


class HandlerExitError(IiiError):
    """A handler tried to end the process: `sys.exit`, `KeyboardInterrupt` or another `BaseException`."""

    code = "handler_exit"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a body came to. An error travels as a value: futures refuse or translate some exceptions."""

    value: Any = None
    error: Exception | None = None

    def result(self) -> Any:
        """Return the value.

        Raises:
            Exception: The error.
        """
        if self.error is not None:
            raise self.error
        return self.value


@dataclass(slots=True, eq=False)
class Job:
    """A body to run, and what becomes of it.

    Attributes:
        body: What to run.
        context: What it runs in: a copy of the context of whoever made the job.
        future: Its outcome. Cancelled, the body is not begun, or cancelled if it is asynchronous.
        begun_at: When it began, on the monotonic clock; None before.
    """

    body: Callable[[], Any]
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    future: Future[Outcome] = field(default_factory=Future)
    begun_at: float | None = None


async def outcome_of(job: Job, timeout_s: float, not_begun: Callable[[], object] = lambda: None) -> Outcome:
    """Wait for the outcome of a job.

    Args:
        job: The job. When this ends without an outcome, its future is cancelled.
        timeout_s: How long it may take, from when it begins.
        not_begun: Called each time that it has waited so long to begin; it has all of its time left then.

    Raises:
        DeadlineExceededError: It did not end in time.
    """
    waiter = asyncio.wrap_future(job.future)
    remaining_s = timeout_s
    try:
        while remaining_s > 0:
            done, _ = await asyncio.wait({waiter}, timeout=remaining_s)
            if done:
                return waiter.result()
            begun_at = job.begun_at
            if begun_at is None:
                not_begun()
            remaining_s = timeout_s if begun_at is None else begun_at + timeout_s - time.monotonic()
    finally:
        waiter.cancel()  # no effect once it is done
    raise too_late(timeout_s)


def too_late(timeout_s: float) -> DeadlineExceededError:
    """Return the error of a body that did not end within so many seconds."""
    return DeadlineExceededError(f"no outcome within {timeout_s:g} s")


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


def start_task(loop: asyncio.AbstractEventLoop, job: Job) -> asyncio.Task[Outcome] | None:
    """Start an asynchronous body as a task of `loop`, on the loop's own thread; None if it was given up before.

    Its outcome becomes known through the job's future; cancelling that cancels the task.
    """
    if job.future.cancelled():
        return None
    task = loop.create_task(_await_body(job), context=job.context)
    job.future.add_done_callback(lambda done: _cancel(task, loop) if done.cancelled() else None)
    task.add_done_callback(lambda ended: _settle(job.future, ended))
    return task


async def _await_body(job: Job) -> Outcome:
    job.begun_at = time.monotonic()
    if job.future.cancelled():  # at this very moment, by somebody who may have seen that it had not begun
        job.begun_at = None
        raise asyncio.CancelledError
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
