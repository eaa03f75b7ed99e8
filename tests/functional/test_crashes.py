"""A host that dies loses nothing: what ran is attempted again, and what kills it each time is given up."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from iii_runtime import TriggerAction, Worker, current_invocation
from iii_runtime.core.errors import StoreError
from iii_runtime.core.message import Envelope, encode_envelope
from iii_runtime.core.queue import LEASE, QueueSpec
from iii_runtime.engine.stores import Stores
from iii_runtime.ports.message_queue import Delivery, OutgoingMessage
from iii_runtime.testing import Harness

Host = Callable[..., Harness]


def attempt() -> int:
    invocation = current_invocation()
    assert invocation is not None
    return invocation.attempt


async def letters_of(harness: Harness, queue: str) -> list[dict[str, Any]]:
    letters = await harness.trigger({"function_id": "engine::queue::dlq_messages", "payload": {"queue": queue}})
    return list(letters)


class Killer:
    """A handler that hangs in its first `kills` runs, as one that takes its process down does."""

    def __init__(self, kills: int) -> None:
        self.kills = kills
        self.attempts: list[int] = []
        self.entered = threading.Semaphore(0)
        self.go = threading.Event()

    def __call__(self, data: Any) -> None:
        self.attempts.append(attempt())
        if len(self.attempts) <= self.kills:
            self.entered.release()
            self.go.wait(20)

    async def has_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.acquire, timeout=10)


async def test_an_attempt_that_was_interrupted_is_made_again_with_the_same_number(worker: Worker, host: Host) -> None:
    killer = Killer(kills=2)
    worker.register_function("mail::send", killer)
    async with host() as harness:
        await harness.trigger({"function_id": "mail::send", "action": TriggerAction.Enqueue(queue="mail")})
        for _ in range(2):
            await killer.has_entered()
            await harness.restart()
        await harness.settle()
        assert killer.attempts == [1, 1, 1]
        assert await letters_of(harness, "mail") == []
        killer.go.set()


async def test_a_message_that_kills_every_host_is_given_up_with_its_cause(worker: Worker, host: Host) -> None:
    killer = Killer(kills=99)
    worker.register_function("mail::send", killer)
    async with host() as harness:
        await harness.trigger({"function_id": "mail::send", "action": TriggerAction.Enqueue(queue="quick")})
        for _ in range(4):
            await killer.has_entered()
            await harness.restart()
            harness.clock.advance(timedelta(minutes=1))  # the more often it kills, the longer it waits
        await harness.settle()
        assert killer.attempts == [1, 1, 1, 1]
        (letter,) = await letters_of(harness, "quick")
        assert (letter["cause"], letter["retries"], letter["receives"]) == ("receives", 0, 5)
        assert letter["error"].startswith("received 5 times without an outcome")
        killer.go.set()


async def test_what_was_enqueued_and_not_started_is_started_in_the_next_life(worker: Worker, host: Host) -> None:
    seen: list[Any] = []
    worker.register_function("mail::send", seen.append)
    action = TriggerAction.Enqueue(queue="mail", delay=60)
    async with host() as harness:
        await harness.trigger({"function_id": "mail::send", "payload": 1, "action": action})
        await harness.restart()
        await harness.settle()
        assert seen == [1]


async def test_failed_attempts_are_counted_across_lives(worker: Worker, host: Host) -> None:
    attempts: list[int] = []

    def fail(data: Any) -> None:
        attempts.append(attempt())
        raise ValueError("no")

    worker.register_function("mail::send", fail)
    async with host() as harness:
        await harness.trigger({"function_id": "mail::send", "action": TriggerAction.Enqueue(queue="mail")})
        for _ in range(3):
            await harness.idle()
            await harness.restart()
            await harness.advance(timedelta(seconds=2))
        assert attempts == [1, 2, 3]
        assert [letter["retries"] for letter in await letters_of(harness, "mail")] == [3]


async def test_a_handler_that_runs_for_long_keeps_its_message(worker: Worker, host: Host) -> None:
    """Its lease is renewed, so that nobody else is given the message while it runs."""
    killer = Killer(kills=1)
    worker.register_function("mail::send", killer)
    async with host() as harness:
        await harness.trigger({"function_id": "mail::send", "action": TriggerAction.Enqueue(queue="mail")})
        await killer.has_entered()
        for _ in range(12):
            harness.clock.advance(LEASE / 3)
            for _ in range(5):  # enough turns of the loop and of the store for a renewal that is due
                await asyncio.to_thread(lambda: None)
                await harness.stores.queue.depth("mail")
            assert (await harness.stores.queue.depth("mail")).in_flight == 1
        killer.go.set()
        await harness.settle()
        assert killer.attempts == [1]


class Failing:
    """A queue whose acknowledgements fail as often as the test says."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.failures = 2
        self.tried = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def acknowledge(self, delivery: Any) -> bool:
        self.tried += 1
        if self.tried <= self.failures:
            raise StoreError("the disk is full", code="store_full")
        return bool(await self._inner.acknowledge(delivery))


async def test_an_outcome_that_the_store_refuses_is_written_again(worker: Worker, host: Host) -> None:
    seen: list[Any] = []
    worker.register_function("mail::send", seen.append)
    failing: list[Failing] = []

    def wrap(stores: Stores) -> Stores:
        failing.append(Failing(stores.queue))
        queue: Any = failing[0]
        return dataclasses.replace(stores, queue=queue)

    async with host(wrap=wrap) as harness:
        await harness.trigger(
            {"function_id": "mail::send", "payload": 1, "action": TriggerAction.Enqueue(queue="mail")}
        )
        while failing[0].tried <= failing[0].failures:
            await asyncio.to_thread(lambda: None)
            harness.clock.advance(timedelta(seconds=1))
        await harness.settle()
        assert seen == [1]
        assert (failing[0].tried, await harness.stores.queue.queue_names()) == (3, [])


async def test_a_body_that_is_no_envelope_is_a_dead_letter_with_its_text(worker: Worker, host: Host) -> None:
    """It is the store's, not the sender's: damaged, or from another program."""
    worker.register_function("mail::send", lambda data: None)
    async with host() as harness:
        mail = QueueSpec(name="mail")
        await harness.stores.queue.send(
            mail, [OutgoingMessage(receipt="r1", function_id="mail::send", body='{"v":1,"at":Infinity}')]
        )
        await harness.settle()
        (letter,) = await letters_of(harness, "mail")
        assert (letter["cause"], letter["function_id"], letter["retries"]) == ("unreadable", None, 0)
        redriven = await harness.trigger({"function_id": "iii::queue::redrive", "payload": {"queue": "mail"}})
        assert redriven["redriven"] == 1
        await harness.settle()
        assert [letter["id"] for letter in await letters_of(harness, "mail")] == ["r1"]


class NewerBodies:
    """A queue whose messages have a later version until the host is upgraded, which makes it read them."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.is_upgraded = False
        self.received = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def receive(self, *arguments: Any) -> list[Delivery]:
        deliveries: list[Delivery] = await self._inner.receive(*arguments)
        self.received += len(deliveries)
        if not self.is_upgraded:
            return deliveries
        return [dataclasses.replace(item, body=item.body.replace('"v":2', '"v":1', 1)) for item in deliveries]


async def test_a_message_of_a_newer_host_is_left_to_it_for_as_long_as_it_takes(worker: Worker, host: Host) -> None:
    """It is received again and again, and is not counted out for that."""
    seen: list[Any] = []
    worker.register_function("mail::send", lambda data: seen.append((data, attempt())))
    mail = QueueSpec(name="mail")
    queues: list[NewerBodies] = []

    def wrap(stores: Stores) -> Stores:
        queues.append(NewerBodies(stores.queue))
        queue: Any = queues[0]
        return dataclasses.replace(stores, queue=queue)

    body = encode_envelope(Envelope(receipt="r1", function_id="mail::send", queue="mail", accepted_ms=0, payload="1"))
    async with host(wrap=wrap) as harness:
        message = OutgoingMessage(receipt="r1", function_id="mail::send", body=body.replace('"v":1', '"v":2', 1))
        await harness.stores.queue.send(mail, [message])
        await harness.advance(timedelta(minutes=12))
        assert queues[0].received == 13
        assert await letters_of(harness, "mail") == []
        assert (await harness.stores.queue.depth("mail")).delayed == 1
        assert await harness.stores.queue.next_due_ms(mail) == harness.clock.now_ms() + 60_000
        assert seen == []
        queues[0].is_upgraded = True
        await harness.settle()
        assert seen == [(1, 1)]
        assert await letters_of(harness, "mail") == []
