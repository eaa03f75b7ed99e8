"""The executor of the embedded host: user code in threads, and nothing it does ends the host."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

import pytest

from iii_runtime import InvocationError, register_worker
from iii_runtime.adapters.bodies import HandlerExitError
from iii_runtime.adapters.threads import ThreadExecutor
from iii_runtime.core.config import Config
from iii_runtime.core.errors import DeadlineExceededError
from iii_runtime.core.trigger_request import TriggerRequest
from iii_runtime.engine.app import App
from iii_runtime.engine.runtime import Runtime
from iii_runtime.hosts.loop_invoker import LoopInvoker
from iii_runtime.testing.clock import SequenceIds, SkipClock
from iii_runtime.testing.stores import memory_stores
from tests.patience import PATIENCE_S, eventually

LONG = timedelta(seconds=20)
SHORT = timedelta(milliseconds=20)

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


class Endless:
    """An asynchronous body that never ends by itself.

    Attributes:
        started: Set when it begins.
        cancelled: Set when it is cancelled.
    """

    def __init__(self) -> None:
        self.started, self.cancelled = threading.Event(), threading.Event()

    async def __call__(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


@pytest.fixture(autouse=True)
def loops_ended() -> Iterator[None]:
    """Let no loop that was blocked react, and log it, in a later test; those of `executor` are closed before."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        if thread.name == "iii-handlers":
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a loop of async handlers goes on after its test"


@pytest.fixture
def executor() -> Iterator[ThreadExecutor]:
    executor = ThreadExecutor()
    yield executor
    executor.close()


def as_sync(body: Callable[[], Any]) -> tuple[Callable[[], Any], bool]:
    return body, False


def as_async(body: Callable[[], Any]) -> tuple[Callable[[], Any], bool]:
    async def run() -> Any:
        await asyncio.sleep(0)
        return body()

    return run, True


async def loop_thread() -> threading.Thread:
    return threading.current_thread()


@asynccontextmanager
async def blocked(executor: ThreadExecutor, *, timeout: timedelta) -> AsyncIterator[asyncio.Task[None]]:
    """Let a body block the loop of asynchronous bodies until the end; yields whoever waits for it."""
    blocking, go = threading.Event(), threading.Event()

    async def blocks_here() -> None:
        blocking.set()
        go.wait(20)

    caller = asyncio.create_task(executor.run(blocks_here, is_async=True, timeout=timeout))
    try:
        assert await asyncio.to_thread(blocking.wait, 10)
        yield caller
    finally:
        go.set()
        await asyncio.gather(caller, return_exceptions=True)


Form = Callable[[Callable[[], Any]], tuple[Callable[[], Any], bool]]
both = pytest.mark.parametrize("form", [as_sync, as_async])


def raise_(error: BaseException) -> NoReturn:
    raise error


@both
async def test_the_value_of_a_body_is_returned(executor: ThreadExecutor, form: Form) -> None:
    body, is_async = form(lambda: {"n": 1})
    assert await executor.run(body, is_async=is_async, timeout=LONG) == {"n": 1}


@both
async def test_a_body_runs_apart_from_the_engine(executor: ThreadExecutor, form: Form) -> None:
    body, is_async = form(threading.current_thread)
    thread = await executor.run(body, is_async=is_async, timeout=LONG)
    assert thread is not threading.current_thread()
    assert thread.daemon


@both
async def test_a_body_that_blocks_does_not_block_the_engine(executor: ThreadExecutor, form: Form) -> None:
    go = threading.Event()
    body, is_async = form(lambda: go.wait(10))
    running = asyncio.create_task(executor.run(body, is_async=is_async, timeout=LONG))
    await asyncio.sleep(0)
    go.set()
    assert await running is True


@both
async def test_a_body_sees_the_context_of_its_caller_and_changes_only_its_own(
    executor: ThreadExecutor, form: Form
) -> None:
    def body() -> str:
        seen = variable.get()
        variable.set("changed by the body")
        return seen

    variable.set("set by the caller")
    for _ in range(2):
        run, is_async = form(body)
        assert await executor.run(run, is_async=is_async, timeout=LONG) == "set by the caller"
    assert variable.get() == "set by the caller"


@both
@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        TimeoutError("the body's own"),
        concurrent.futures.CancelledError("a future of the body's own"),
        concurrent.futures.InvalidStateError("x"),
        DeadlineExceededError("of a nested call"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_a_body_raises_is_raised_as_it_is(executor: ThreadExecutor, form: Form, error: Exception) -> None:
    body, is_async = form(lambda: raise_(error))
    with pytest.raises(type(error)) as raised:
        await executor.run(body, is_async=is_async, timeout=LONG)
    assert raised.value is error
    assert any(entry.name == "raise_" for entry in raised.traceback)


@both
async def test_an_exhausted_iterator_is_an_error_of_the_body(executor: ThreadExecutor, form: Form) -> None:
    """`next()` without a default is a classic; a future would refuse to carry what it raises."""
    body, is_async = form(lambda: next(iter([])))
    with pytest.raises(RuntimeError, match="StopIteration") as raised:
        await executor.run(body, is_async=is_async, timeout=LONG)
    assert isinstance(raised.value.__cause__, StopIteration)


@both
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("odd")])
async def test_a_body_cannot_end_the_host(executor: ThreadExecutor, form: Form, error: BaseException) -> None:
    body, is_async = form(lambda: raise_(error))
    with pytest.raises(HandlerExitError, match=f"the handler raised {type(error).__name__}") as raised:
        await executor.run(body, is_async=is_async, timeout=LONG)
    assert raised.value.__cause__ is error
    body, is_async = form(lambda: "the next one runs")
    assert await executor.run(body, is_async=is_async, timeout=LONG) == "the next one runs"


async def test_a_task_that_a_body_started_cannot_end_the_loop_of_the_others(executor: ThreadExecutor) -> None:
    async def exits() -> None:
        sys.exit(1)

    async def body() -> None:
        await asyncio.create_task(exits())

    with pytest.raises(HandlerExitError):
        await executor.run(body, is_async=True, timeout=LONG)
    body_after, is_async = as_async(lambda: "alive")
    assert await executor.run(body_after, is_async=is_async, timeout=LONG) == "alive"


async def test_a_synchronous_body_that_cancels_itself_does_not_cancel_the_engine(executor: ThreadExecutor) -> None:
    with pytest.raises(HandlerExitError, match="CancelledError"):
        await executor.run(lambda: raise_(asyncio.CancelledError()), is_async=False, timeout=LONG)


async def test_an_asynchronous_body_that_cancels_itself_does_not_cancel_the_engine(executor: ThreadExecutor) -> None:
    async def body() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    with pytest.raises(HandlerExitError, match="was cancelled"):
        await executor.run(body, is_async=True, timeout=LONG)


async def test_a_synchronous_body_beyond_its_deadline_is_abandoned_and_its_outcome_dropped(
    executor: ThreadExecutor,
) -> None:
    go, ended = threading.Event(), threading.Event()

    def body() -> None:
        go.wait(10)
        ended.set()
        raise ValueError("nobody hears it")

    with pytest.raises(DeadlineExceededError, match=r"no outcome within 0\.02 s"):
        await executor.run(body, is_async=False, timeout=SHORT)
    assert not ended.is_set()
    go.set()
    assert await asyncio.to_thread(ended.wait, 10)


async def test_an_asynchronous_body_beyond_its_deadline_is_cancelled(executor: ThreadExecutor) -> None:
    body = Endless()
    with pytest.raises(DeadlineExceededError):
        await executor.run(body, is_async=True, timeout=SHORT)
    assert await asyncio.to_thread(body.cancelled.wait, 10)


async def test_a_caller_that_is_cancelled_takes_its_asynchronous_body_with_it(executor: ThreadExecutor) -> None:
    body = Endless()
    caller = asyncio.create_task(executor.run(body, is_async=True, timeout=LONG))
    assert await asyncio.to_thread(body.started.wait, 10)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert await asyncio.to_thread(body.cancelled.wait, 10)


async def test_an_asynchronous_body_that_never_yields_holds_up_its_like_only(executor: ThreadExecutor) -> None:
    go = threading.Event()

    async def blocks() -> None:
        go.wait(10)

    async def waits() -> str:
        return "ran"

    blocking = asyncio.create_task(executor.run(blocks, is_async=True, timeout=LONG))
    waiting = asyncio.create_task(executor.run(waits, is_async=True, timeout=LONG))
    assert await executor.run(lambda: "at once", is_async=False, timeout=LONG) == "at once"
    assert not waiting.done()
    go.set()
    assert await waiting == "ran"
    await blocking


async def test_the_deadline_of_an_asynchronous_body_counts_from_when_it_begins(executor: ThreadExecutor) -> None:
    """Another one that blocks their loop must not cost it an attempt: after its own time it begins on another loop."""
    async with blocked(executor, timeout=LONG):
        started = time.monotonic()
        assert await executor.run(loop_thread, is_async=True, timeout=10 * SHORT) is not None
        assert time.monotonic() - started >= (10 * SHORT).total_seconds()


class TestABlockedLoop:
    """An asynchronous body that calls something which does not return."""

    async def test_what_comes_after_its_deadline_runs_on_another_loop(self, executor: ThreadExecutor) -> None:
        first = await executor.run(loop_thread, is_async=True, timeout=LONG)
        async with blocked(executor, timeout=SHORT) as blocking:
            with pytest.raises(DeadlineExceededError):
                await blocking
            later = {await executor.run(loop_thread, is_async=True, timeout=LONG) for _ in range(5)}
            assert len(later) == 1
            assert first not in later

    async def test_what_waits_for_it_runs_elsewhere_once_its_time_is_up_in_order(
        self, executor: ThreadExecutor
    ) -> None:
        ran: list[int] = []

        async def note(number: int) -> None:
            ran.append(number)

        async with blocked(executor, timeout=10 * SHORT) as blocking:
            waiting = [
                asyncio.create_task(executor.run(partial(note, number), is_async=True, timeout=LONG))
                for number in range(5)
            ]
            with pytest.raises(DeadlineExceededError):
                await blocking
            await asyncio.gather(*waiting)
        assert ran == list(range(5))

    async def test_when_it_ends_all_runs_on_the_first_loop_again(
        self, executor: ThreadExecutor, caplog: pytest.LogCaptureFixture
    ) -> None:
        """What a handler keeps between calls may belong to that loop."""
        first = await executor.run(loop_thread, is_async=True, timeout=LONG)
        async with blocked(executor, timeout=SHORT) as blocking:
            with pytest.raises(DeadlineExceededError):
                await blocking
            assert await executor.run(loop_thread, is_async=True, timeout=LONG) is not first
        await asyncio.to_thread(eventually, lambda: "the loop of async handlers reacts again" in caplog.messages, "it")
        assert await executor.run(loop_thread, is_async=True, timeout=LONG) is first

    async def test_it_is_told_once_with_the_place_that_blocks(
        self, executor: ThreadExecutor, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with blocked(executor, timeout=SHORT) as blocking:
            with pytest.raises(DeadlineExceededError):
                await blocking
            for _ in range(3):
                await executor.run(loop_thread, is_async=True, timeout=LONG)
            (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert line.getMessage() == "an async handler blocks its loop; the others go on on another one"
        assert "in blocks_here\n" in line.__dict__["iii"]["stack"]

    async def test_a_body_that_only_waits_beyond_its_deadline_blocks_nothing(
        self, executor: ThreadExecutor, caplog: pytest.LogCaptureFixture
    ) -> None:
        first = await executor.run(loop_thread, is_async=True, timeout=LONG)
        with pytest.raises(DeadlineExceededError):
            await executor.run(Endless(), is_async=True, timeout=SHORT)
        assert await executor.run(loop_thread, is_async=True, timeout=LONG) is first
        assert caplog.records == []

    async def test_the_executor_closes_all_the_same(self) -> None:
        executor, body = ThreadExecutor(), Endless()
        async with blocked(executor, timeout=SHORT) as blocking:
            with pytest.raises(DeadlineExceededError):
                await blocking
            running = asyncio.create_task(executor.run(body, is_async=True, timeout=LONG))
            assert await asyncio.to_thread(body.started.wait, 10)
            executor.close()
            assert body.cancelled.is_set()
            with pytest.raises(HandlerExitError, match="was cancelled"):
                await running


async def test_an_asynchronous_body_whose_caller_is_cancelled_before_it_begins_never_begins(
    executor: ThreadExecutor,
) -> None:
    blocking, go = threading.Event(), threading.Event()
    begun: list[str] = []

    async def blocks() -> None:
        blocking.set()
        go.wait(10)

    async def late() -> None:
        begun.append("late")

    first = asyncio.create_task(executor.run(blocks, is_async=True, timeout=LONG))
    assert await asyncio.to_thread(blocking.wait, 10)
    second = asyncio.create_task(executor.run(late, is_async=True, timeout=LONG))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    go.set()
    await first
    assert begun == []


@both
@pytest.mark.parametrize("second", [RuntimeError("no text"), SystemExit(1)], ids=lambda error: type(error).__name__)
async def test_an_exit_whose_text_cannot_be_had_is_an_outcome_all_the_same(
    executor: ThreadExecutor, form: Form, second: BaseException
) -> None:
    class RudeError(BaseException):
        def __str__(self) -> str:
            raise second

    body, is_async = form(lambda: raise_(RudeError()))
    with pytest.raises(HandlerExitError, match=r"the handler raised RudeError: RudeError \(its text cannot be had"):
        await executor.run(body, is_async=is_async, timeout=LONG)


async def test_a_thread_is_used_again(executor: ThreadExecutor) -> None:
    threads = {await executor.run(threading.get_ident, is_async=False, timeout=LONG) for _ in range(20)}
    assert len(threads) == 1


async def test_bodies_that_run_at_once_have_a_thread_each(executor: ThreadExecutor) -> None:
    barrier = threading.Barrier(50)
    runs = [executor.run(lambda: barrier.wait(10), is_async=False, timeout=LONG) for _ in range(50)]
    assert sorted(await asyncio.gather(*runs)) == list(range(50))


async def test_many_short_bodies_lose_nothing(executor: ThreadExecutor) -> None:
    async def one(number: int) -> Any:
        return await executor.run(lambda: number, is_async=False, timeout=LONG)

    for start in range(0, 1000, 100):
        assert await asyncio.gather(*(one(number) for number in range(start, start + 100))) == list(
            range(start, start + 100)
        )


async def test_closing_cancels_asynchronous_bodies_and_lets_idle_threads_end() -> None:
    executor = ThreadExecutor()
    body = Endless()
    idle = await executor.run(threading.current_thread, is_async=False, timeout=LONG)
    running = asyncio.create_task(executor.run(body, is_async=True, timeout=LONG))
    assert await asyncio.to_thread(body.started.wait, 10)
    executor.close()
    executor.close()
    assert body.cancelled.is_set()
    with pytest.raises(HandlerExitError, match="was cancelled"):
        await running
    await asyncio.to_thread(idle.join, 5)
    assert not idle.is_alive()


@pytest.mark.parametrize("is_async", [False, True])
async def test_64_nested_direct_calls_work_and_one_more_is_refused(executor: ThreadExecutor, is_async: bool) -> None:
    worker = register_worker()

    def sync_body(depth: int) -> int:
        return 1 + int(worker.trigger({"function_id": "nest::it", "payload": depth - 1})) if depth else 0

    async def async_body(depth: int) -> int:
        if not depth:
            return 0
        return 1 + int(await worker.trigger_async({"function_id": "nest::it", "payload": depth - 1}))

    worker.register_function("nest::it", async_body if is_async else sync_body)
    runtime = Runtime(App(Config(), [worker]), memory_stores(SkipClock(), SequenceIds()), executor)
    worker.attach(LoopInvoker(runtime, asyncio.get_running_loop()))
    assert await runtime.trigger(TriggerRequest(function_id="nest::it", payload=64)) == 64
    with pytest.raises(InvocationError, match=r"is called 65 levels deep; the limit is 64"):
        await runtime.trigger(TriggerRequest(function_id="nest::it", payload=65))


async def test_the_deadline_is_real_time(executor: ThreadExecutor) -> None:
    go = threading.Event()
    before = time.monotonic()
    with pytest.raises(DeadlineExceededError):
        await executor.run(lambda: go.wait(10), is_async=False, timeout=SHORT)
    go.set()
    assert time.monotonic() - before < 5
