"""Functions that start each other without end are stopped, however they do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from iii_runtime import Subscribe, Worker
from iii_runtime.testing import Harness

Host = Callable[..., Harness]


async def test_a_function_that_starts_itself_by_void_calls_is_stopped(
    worker: Worker, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[Any] = []

    def again(data: Any) -> None:
        runs.append(data)
        worker.trigger({"function_id": "loop::again", "action": {"type": "void"}})

    worker.register_function("loop::again", again)
    async with host() as harness:
        await harness.trigger({"function_id": "loop::again", "action": {"type": "void"}})
        await harness.settle()
    assert len(runs) == 101
    assert "not started: functions that start each other without end stop here" in caplog.messages


async def test_a_subscriber_that_publishes_to_its_own_topic_is_stopped(worker: Worker, host: Host) -> None:
    runs: list[Any] = []

    @worker.function("loop::heard", triggers=[Subscribe("echo")])
    def heard(data: Any) -> None:
        runs.append(data)
        worker.trigger({"function_id": "publish", "payload": {"topic": "echo", "data": data}})

    async with host() as harness:
        await harness.trigger({"function_id": "publish", "payload": {"topic": "echo", "data": 1}})
        await harness.settle()
    assert len(runs) == 101
