"""A message that kills its host is found out, and those that merely ran beside it are not buried with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from iii_runtime import Worker
from iii_runtime.core.config import QueueConfig
from iii_runtime.testing.harness import Harness

Host = Callable[..., Harness]
BODY_TAKES_S = 0.2


class Life:
    """One life of the host: it ends when the poison runs, and then nothing that runs beside it ends any more."""

    def __init__(self) -> None:
        self.poisoned = threading.Event()
        self.is_over = threading.Event()
        self.died = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def run(self, name: str) -> None:
        if name == "poison":
            self.poisoned.set()
            self.loop.call_soon_threadsafe(self.died.set)
        if self.poisoned.wait(BODY_TAKES_S):
            self.is_over.wait(30)


async def test_only_the_message_that_kills_its_host_becomes_a_dead_letter(worker: Worker, host: Host) -> None:
    lives: list[Life] = [Life()]
    worker.register_function("work::do", lambda name: lives[-1].run(name))  # noqa: PLW0108 - the life of then
    async with host(queues={"work": QueueConfig(name="work", concurrency=4)}) as harness:
        for name in ["a", "b", "poison", "c", "d", "e"]:
            action = {"type": "enqueue", "queue": "work"}
            await harness.trigger({"function_id": "work::do", "payload": name, "action": action})
        deaths = 0
        while await dies(harness, lives[-1]):
            deaths += 1
            assert deaths < 10
            old = lives[-1]
            lives.append(Life())
            await harness.restart()
            old.is_over.set()  # its threads end now, unheard
        letters: Any = await harness.trigger(
            {"function_id": "engine::queue::dlq_messages", "payload": {"queue": "work"}}
        )
        assert [(letter["payload"], letter["cause"]) for letter in letters] == [("poison", "receives")]
        assert deaths == 5
        assert (await harness.stores.queue.depth("work")).visible == 0


async def dies(harness: Harness, life: Life) -> bool:
    """Work everything off; return whether the host died over it."""
    settled = asyncio.create_task(harness.settle())
    died = asyncio.create_task(life.died.wait())
    await asyncio.wait({settled, died}, return_when=asyncio.FIRST_COMPLETED)
    is_dead = died.done()
    for task in (settled, died):
        task.cancel()
    await asyncio.gather(settled, died, return_exceptions=True)
    return is_dead
