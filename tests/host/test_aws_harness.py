"""The harness of AWS: what begins when does not depend on how fast the machine is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from iii_runtime import Queue, TriggerAction, Worker, register_worker
from iii_runtime.core.config import Config, QueueConfig
from tests.aws.harness import AwsHarness
from tests.aws.invocations import Invocation
from tests.aws.overseers import Recorder

MANY_TURNS = 50
CONFIG = Config(queues={"mail": QueueConfig(name="mail")})


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture
def worker(seen: list[Any]) -> Worker:
    worker = register_worker(worker_name="app")
    worker.function("mail::send", triggers=[Queue("mail")])(seen.append)
    return worker


async def enqueue(harness: AwsHarness, payload: Any) -> None:
    action = TriggerAction.Enqueue(queue="mail")
    await harness.trigger({"function_id": "mail::send", "payload": payload, "action": action})


class Lingering(Recorder):
    """Lets the loop do what it likes when the first handler has returned and its answer has not left yet."""

    def __init__(self, harness: AwsHarness) -> None:
        super().__init__()
        self._harness = harness
        self._loop = asyncio.get_running_loop()
        self.running: list[str] = []

    def ends(self, invocation: Invocation) -> None:
        self._harness.simulator.lambdas.overseer = None
        asyncio.run_coroutine_threadsafe(self._linger(), self._loop).result()
        self.running = [other.function for other in self._harness.simulator.lambdas.running]

    async def _linger(self) -> None:
        await self._harness.trigger({"function_id": "engine::queue::list", "payload": {}})
        for _ in range(MANY_TURNS):
            await asyncio.sleep(0)


async def test_what_a_request_sets_off_does_not_begin_before_its_answer_however_long_that_takes(
    worker: Worker, seen: list[Any]
) -> None:
    async with AwsHarness([worker], config=CONFIG) as harness:
        lingering = harness.simulator.lambdas.overseer = Lingering(harness)
        await enqueue(harness, "a")
        assert lingering.running == [harness.simulator.deployment.system_name("control")]
        await harness.restart()
        await harness.settle()
        assert seen == ["a"]


async def test_a_restart_kills_what_has_begun_though_its_thread_has_not(worker: Worker, seen: list[Any]) -> None:
    async with AwsHarness([worker], config=CONFIG) as harness:
        await enqueue(harness, "a")
        worked_off = asyncio.create_task(harness.idle())
        for _ in range(2):  # it begins in its second turn, and the thread starts in a later one
            await asyncio.sleep(0)
        begun = len(harness.simulator.lambdas.running)
        await harness.restart()
        await worked_off
        await harness.settle()
        assert (seen, begun) == (["a"], 1)
