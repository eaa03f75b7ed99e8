"""Work nobody waits for: it is waited for at the end, all of it, for as long as it may take."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime import TriggerAction, Worker, register_worker
from iii_runtime.adapters.threads import ThreadExecutor
from iii_runtime.core.config import Config
from iii_runtime.core.trigger_request import TriggerRequest
from iii_runtime.engine.app import App
from iii_runtime.engine.runtime import Runtime
from iii_runtime.hosts.loop_invoker import LoopInvoker
from iii_runtime.testing.clock import SequenceIds, SkipClock
from iii_runtime.testing.stores import memory_stores

VOID = TriggerAction.Void()


@pytest.fixture
def worker() -> Worker:
    return register_worker()


@pytest.fixture
def executor() -> Iterator[ThreadExecutor]:
    executor = ThreadExecutor()
    yield executor
    executor.close()


def runtime_of(worker: Worker, executor: ThreadExecutor) -> Runtime:
    runtime = Runtime(App(Config(), [worker]), memory_stores(SkipClock(), SequenceIds()), executor)
    worker.attach(LoopInvoker(runtime, asyncio.get_running_loop()))
    return runtime


async def test_settling_waits_for_what_the_work_itself_starts(worker: Worker, executor: ThreadExecutor) -> None:
    seen: list[int] = []

    def step(data: int) -> None:
        seen.append(data)
        if data < 5:
            worker.trigger({"function_id": "a::step", "payload": data + 1, "action": VOID})

    worker.register_function("a::step", step)
    runtime = runtime_of(worker, executor)
    await runtime.trigger(TriggerRequest(function_id="a::step", payload=0, action=VOID))
    await runtime.settle()
    assert seen == [0, 1, 2, 3, 4, 5]
    assert runtime.background_count == 0


async def test_settling_gives_up_after_its_grace(worker: Worker, executor: ThreadExecutor) -> None:
    go = threading.Event()
    worker.register_function("a::wait", lambda data: go.wait(10))
    runtime = runtime_of(worker, executor)
    await runtime.trigger(TriggerRequest(function_id="a::wait", action=VOID))
    await runtime.settle(timedelta(milliseconds=10))
    assert runtime.background_count == 0
    go.set()


async def test_a_host_may_add_functions_of_its_own(worker: Worker, executor: ThreadExecutor) -> None:
    async def answer(payload: Any, caller: Any) -> Any:
        return {"payload": payload, "caller": caller}

    runtime = runtime_of(worker, executor)
    runtime.add_builtins({"iii::answer": answer})
    result = await runtime.trigger(TriggerRequest(function_id="iii::answer", payload=(1,)))
    assert result == {"payload": [1], "caller": None}
