"""What is registered and unregistered while a host runs takes effect."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime import InvocationError, TriggerAction, Worker
from iii_runtime.core.queue import QueueSpec
from iii_runtime.engine.stores import Stores
from iii_runtime.testing import Harness

Host = Callable[..., Harness]


def subscribe(worker: Worker, function_id: str, topic: str) -> Any:
    return worker.register_trigger(
        {"type": "durable:subscriber", "function_id": function_id, "config": {"topic": topic}}
    )


async def publish(harness: Harness, topic: str, data: Any) -> None:
    await harness.trigger({"function_id": "iii::durable::publish", "payload": {"topic": topic, "data": data}})


async def test_a_new_function_can_be_called_and_an_unregistered_one_cannot(worker: Worker, host: Host) -> None:
    async with host() as harness:
        reference = worker.register_function("a::b", lambda data: data)
        assert await harness.trigger({"function_id": "a::b", "payload": 1}) == 1
        reference.unregister()
        with pytest.raises(InvocationError, match="Function 'a::b' not found"):
            await harness.trigger({"function_id": "a::b"})
        with pytest.raises(InvocationError, match="Function 'a::b' is not registered"):
            await harness.trigger({"function_id": "a::b", "action": TriggerAction.Enqueue(queue="mail")})


async def test_a_route_comes_and_goes(worker: Worker, host: Host) -> None:
    worker.register_function("a::b", lambda data: {"body": "here"})
    async with host() as harness:
        assert (await harness.http("GET", "/a")).status == 404
        trigger = worker.register_trigger({"type": "http", "function_id": "a::b", "config": {"api_path": "/a"}})
        assert (await harness.http("GET", "/a")).json() == "here"
        trigger.unregister()
        assert (await harness.http("GET", "/a")).status == 404


async def test_a_second_route_of_the_same_shape_leaves_the_first_in_place(worker: Worker, host: Host) -> None:
    worker.register_function("a::first", lambda data: {"body": "first"})
    worker.register_function("a::second", lambda data: {"body": "second"})
    async with host() as harness:
        for function_id, path in (("a::first", "/a/:id"), ("a::second", "/a/{other}"), ("a::second", "/b")):
            worker.register_trigger({"type": "http", "function_id": function_id, "config": {"api_path": path}})
        assert (await harness.http("GET", "/a/1")).json() == "first"
        assert (await harness.http("GET", "/b")).json() == "second"


async def test_a_subscription_is_consumed_from_its_registration_on(worker: Worker, host: Host) -> None:
    seen: list[Any] = []
    async with host() as harness:
        worker.register_function("mail::send", seen.append)
        subscribe(worker, "mail::send", "paid")
        await publish(harness, "paid", 1)
        await harness.settle()
        assert seen == [1]


async def test_an_unregistered_subscription_is_not_consumed_and_its_messages_wait(worker: Worker, host: Host) -> None:
    seen: list[Any] = []

    def fail_once(data: Any) -> None:
        seen.append(data)
        if len(seen) == 1:
            raise ValueError("later")

    worker.register_function("mail::send", fail_once)
    async with host() as harness:
        trigger = subscribe(worker, "mail::send", "paid")
        await publish(harness, "paid", 1)
        await harness.idle()
        trigger.unregister()
        await harness.advance(timedelta(hours=1))
        assert seen == [1]
        await publish(harness, "paid", "nobody hears it")
        subscribe(worker, "mail::send", "paid")
        await harness.settle()
        assert seen == [1, 1]


async def test_a_subscription_may_be_registered_in_a_handler(worker: Worker, host: Host) -> None:
    seen: list[Any] = []

    def subscribe_now(data: Any) -> None:
        worker.register_function("late::one", seen.append)
        subscribe(worker, "late::one", "paid")

    worker.register_function("a::subscribe", subscribe_now)
    async with host() as harness:
        await harness.trigger({"function_id": "a::subscribe", "action": TriggerAction.Enqueue(queue="mail")})
        await harness.settle()
        await publish(harness, "paid", 1)
        await harness.settle()
        assert seen == [1]


async def test_a_handler_may_end_the_subscription_it_is_called_by(worker: Worker, host: Host) -> None:
    seen: list[Any] = []
    triggers: list[Any] = []

    def once(data: Any) -> None:
        seen.append(data)
        triggers.pop().unregister()

    worker.register_function("mail::once", once)
    triggers.append(subscribe(worker, "mail::once", "paid"))
    async with host() as harness:
        await publish(harness, "paid", 1)
        await harness.settle()
        await publish(harness, "paid", 2)
        await harness.settle()
        assert seen == [1]


class PreparedQueues:
    """A queue port that registers one more subscription while the queue of topic `first` is being prepared."""

    def __init__(self, inner: Any, worker: Worker, handler: Callable[[Any], None]) -> None:
        self._inner = inner
        self._worker = worker
        self._handler = handler
        self.prepared: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def prepare(self, queue: QueueSpec) -> None:
        self.prepared.append(queue.name)
        if queue.topic == "first":
            self._worker.register_function("b::b", self._handler)
            subscribe(self._worker, "b::b", "second")
        for _ in range(3):  # what was registered is announced before this ends
            await asyncio.sleep(0)
        await self._inner.prepare(queue)


@pytest.mark.parametrize("when", ["at the start", "later"])
async def test_a_registration_while_another_is_being_followed_is_neither_missed_nor_followed_twice(
    worker: Worker, host: Host, when: str
) -> None:
    seen: list[Any] = []
    queues: list[PreparedQueues] = []

    def wrap(stores: Stores) -> Stores:
        queues.append(PreparedQueues(stores.queue, worker, seen.append))
        queue: Any = queues[0]
        return dataclasses.replace(stores, queue=queue)

    worker.register_function("a::a", lambda data: None)
    if when == "at the start":
        subscribe(worker, "a::a", "first")
    async with host(wrap=wrap) as harness:
        if when == "later":
            subscribe(worker, "a::a", "first")
        await harness.settle()
        await publish(harness, "second", "heard")
        await harness.settle()
        assert seen == ["heard"]
        assert len(queues[0].prepared) == len(set(queues[0].prepared))
        assert queues[0].prepared[-2:] == ["topic/first/a::a", "topic/second/b::b"]


async def test_state_stream_and_topic_triggers_take_effect_at_once(worker: Worker, host: Host) -> None:
    seen: list[str] = []
    worker.register_function("on::it", lambda data: seen.append("state" if isinstance(data, dict) else data))
    async with host() as harness:
        triggers = [
            worker.register_trigger({"type": "state", "function_id": "on::it", "config": {"scope": "s"}}),
            worker.register_trigger({"type": "subscribe", "function_id": "on::it", "config": {"topic": "t"}}),
        ]
        for _ in range(2):
            await harness.trigger({"function_id": "state::set", "payload": {"scope": "s", "key": "k", "value": 1}})
            await harness.trigger({"function_id": "publish", "payload": {"topic": "t", "data": "topic"}})
            await harness.settle()
            for trigger in triggers:
                trigger.unregister()
        assert sorted(seen) == ["state", "topic"]


async def test_a_worker_may_register_after_its_host_has_stopped(worker: Worker, host: Host) -> None:
    async with host():
        pass
    worker.register_function("a::b", lambda data: data)
    async with host() as harness:
        assert await harness.trigger({"function_id": "a::b", "payload": 1}) == 1
