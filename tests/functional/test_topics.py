"""Topics: `publish` is heard at most once and forgotten, `iii::durable::publish` at least once by each function."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime import DurableSubscriber, EnqueueError, Subscribe, TriggerAction, Worker, current_invocation
from iii_runtime.core.config import TopicDefaults
from iii_runtime.core.errors import StoreError
from iii_runtime.core.queue import QueueSpec
from iii_runtime.engine.stores import Stores
from iii_runtime.ports.message_queue import OutgoingMessage
from iii_runtime.testing import Harness

Host = Callable[..., Harness]


async def publish(harness: Harness, data: Any, topic: str = "order.paid", by: str = "iii::durable::publish") -> None:
    assert await harness.trigger({"function_id": by, "payload": {"topic": topic, "data": data}}) is None


def attempt() -> int:
    invocation = current_invocation()
    assert invocation is not None
    return invocation.attempt


@pytest.mark.parametrize("by", ["iii::durable::publish", "enqueue"])
async def test_a_durable_message_reaches_every_subscribed_function_once(worker: Worker, host: Host, by: str) -> None:
    """A function that subscribes twice is one subscriber."""
    seen: list[Any] = []
    paid = DurableSubscriber("order.paid")
    worker.function("mail::send", triggers=[paid, paid])(lambda data: seen.append(("mail", data)))
    worker.function("stats::count", triggers=[paid])(lambda data: seen.append(("stats", data)))
    worker.function("other::it", triggers=[DurableSubscriber("order.created")])(lambda data: seen.append("wrong"))
    async with host() as harness:
        await publish(harness, {"order_id": "o1"}, by=by)
        await harness.settle()
        assert sorted(seen) == [("mail", {"order_id": "o1"}), ("stats", {"order_id": "o1"})]


async def test_n_retries_are_n_plus_1_attempts_at_exact_times(worker: Worker, host: Host) -> None:
    seen: list[tuple[float, int]] = []

    @worker.function("mail::send", triggers=[DurableSubscriber("order.paid", max_retries=3, backoff_ms=2000)])
    def fail(data: Any) -> None:
        seen.append((harness.clock.now_ms() / 1000 - start, attempt()))
        raise ValueError("no")

    async with host() as harness:
        start = harness.clock.now_ms() / 1000
        await publish(harness, 1)
        await harness.settle()
        assert seen == [(0, 1), (2, 2), (6, 3), (14, 4)]
        letters = await harness.trigger(
            {"function_id": "engine::queue::dlq_messages", "payload": {"topic": "order.paid"}}
        )
        assert [(letter["function_id"], letter["error"]) for letter in letters] == [("mail::send", "no")]


class SmallQueue:
    """A queue with room for so many messages."""

    def __init__(self, inner: Any, room: int) -> None:
        self._inner = inner
        self.room = room

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def send(self, queue: QueueSpec, messages: Sequence[OutgoingMessage]) -> list[str]:
        return await self.send_all([(queue, message) for message in messages])

    async def send_all(self, messages: Sequence[tuple[QueueSpec, OutgoingMessage]]) -> list[str]:
        if len(messages) > self.room:
            raise StoreError("the disk is full", code="store_full")
        self.room -= len(messages)
        return list(await self._inner.send_all(messages))


async def test_a_message_that_is_not_stored_for_all_subscribers_reaches_none(worker: Worker, host: Host) -> None:
    """The publisher is told, and may publish again without anybody hearing it twice."""
    seen: list[Any] = []
    queues: list[SmallQueue] = []

    def wrap(stores: Stores) -> Stores:
        queues.append(SmallQueue(stores.queue, room=1))
        queue: Any = queues[0]
        return dataclasses.replace(stores, queue=queue)

    for name in ("a::hears", "b::hears"):
        worker.function(name, triggers=[DurableSubscriber("order.paid")])(seen.append)
    async with host(wrap=wrap) as harness:
        with pytest.raises(EnqueueError, match="the disk is full") as caught:
            await publish(harness, 1)
        assert caught.value.reason == "enqueue_failed"
        for name in ("a::hears", "b::hears"):
            assert f"'topic/order.paid/{name}'" in caught.value.message
        await harness.settle()
        assert seen == []
        queues[0].room = 2
        await publish(harness, 2)
        await harness.settle()
        assert seen == [2, 2]


async def test_a_large_message_reaches_every_subscriber(worker: Worker, host: Host) -> None:
    seen: list[Any] = []
    for name in ("a::hears", "b::hears"):
        worker.function(name, triggers=[DurableSubscriber("order.paid")])(seen.append)
    async with host() as harness:
        await publish(harness, "x" * 300_000)
        await harness.settle()
        assert seen == ["x" * 300_000] * 2


async def test_a_failing_subscriber_does_not_hold_up_another(worker: Worker, host: Host) -> None:
    seen: list[int] = []

    def fail(data: Any) -> None:
        raise ValueError("no")

    worker.function("a::fails", triggers=[DurableSubscriber("order.paid")])(fail)
    worker.function("b::works", triggers=[DurableSubscriber("order.paid")])(seen.append)
    async with host() as harness:
        await publish(harness, 1)
        await harness.idle()
        assert seen == [1]
        await harness.settle()
        assert seen == [1]


async def test_a_fifo_subscription_is_handled_strictly_in_order(worker: Worker, host: Host) -> None:
    seen: list[tuple[int, int]] = []

    @worker.function("mail::send", triggers=[DurableSubscriber("order.paid", fifo=True)])
    def handle(data: int) -> None:
        seen.append((data, attempt()))
        if data == 1 and attempt() == 1:
            raise ValueError("later")

    async with host() as harness:
        for number in range(3):
            await publish(harness, number)
        await harness.settle()
        assert seen == [(0, 1), (1, 1), (1, 2), (2, 1)]


async def test_the_defaults_of_subscriptions_come_from_the_config(worker: Worker, host: Host) -> None:
    attempts: list[int] = []

    @worker.function("mail::send", triggers=[DurableSubscriber("order.paid")])
    def fail(data: Any) -> None:
        attempts.append(attempt())
        raise ValueError("no")

    async with host(topics=TopicDefaults(max_attempts=2)) as harness:
        await publish(harness, 1)
        await harness.settle()
        assert attempts == [1, 2]


async def test_a_durable_message_waits_for_a_host(worker: Worker, host: Host) -> None:
    """The first life dies while the subscriber runs; the next one has the message still."""
    seen: list[Any] = []
    started, go = threading.Event(), threading.Event()

    @worker.function("mail::send", triggers=[DurableSubscriber("order.paid")])
    def send(data: Any) -> None:
        seen.append(data)
        started.set()
        if len(seen) == 1:
            go.wait(20)

    async with host() as harness:
        await harness.trigger({"function_id": "iii::durable::publish", "payload": {"topic": "order.paid", "data": 1}})
        assert await asyncio.to_thread(started.wait, 10)
        await harness.restart()
        await harness.settle()
        assert seen == [1, 1]
        go.set()


async def test_without_a_subscriber_the_message_goes_nowhere_and_the_log_says_so(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    async with host() as harness:
        await publish(harness, 1, topic="nobody")
        await harness.settle()
    assert "published to a topic nobody subscribes to" in [record.getMessage() for record in caplog.records]


async def test_a_condition_of_a_subscription_decides_for_each_message(worker: Worker, host: Host) -> None:
    seen: list[Any] = []
    failures = 0

    def condition(data: Any) -> Any:
        nonlocal failures
        if data == "broken":
            failures += 1
            raise ValueError("cannot tell")
        return data != "unwanted"

    worker.register_function("mail::wanted", condition)
    worker.function("mail::send", triggers=[DurableSubscriber("order.paid", condition="mail::wanted", max_retries=1)])(
        seen.append
    )
    async with host() as harness:
        for data in ("unwanted", "wanted", "broken"):
            await publish(harness, data)
        await harness.settle()
        assert seen == ["wanted"]
        assert failures == 2


async def test_the_condition_of_a_queue_is_not_that_of_a_topic_of_the_same_name(worker: Worker, host: Host) -> None:
    seen: list[Any] = []
    worker.register_function("never::it", lambda data: False)
    worker.register_function("mail::send", seen.append)
    worker.register_trigger(
        {
            "type": "queue",
            "function_id": "mail::send",
            "config": {"queue": "mail", "condition_function_id": "never::it"},
        }
    )
    worker.register_trigger({"type": "queue", "function_id": "mail::send", "config": {"topic": "mail"}})
    async with host() as harness:
        await publish(harness, "by topic", topic="mail")
        await harness.trigger(
            {"function_id": "mail::send", "payload": "by queue", "action": TriggerAction.Enqueue(queue="mail")}
        )
        await harness.settle()
        assert seen == ["by topic"]


async def test_the_queue_of_a_subscription_is_no_queue_to_enqueue_on(worker: Worker, host: Host) -> None:
    worker.function("mail::send", triggers=[DurableSubscriber("order.paid")])(lambda data: None)
    action = TriggerAction.Enqueue(queue="topic/order.paid/mail::send")
    async with host() as harness:
        with pytest.raises(EnqueueError, match=r"^enqueue_error: Queue 'topic/order.paid/mail::send' not found"):
            await harness.trigger({"function_id": "mail::send", "action": action})


async def test_hops_and_trace_go_through_topics(worker: Worker, host: Host) -> None:
    seen: list[Any] = []

    def first(data: Any) -> None:
        seen.append(current_invocation())
        worker.trigger({"function_id": "iii::durable::publish", "payload": {"topic": "second", "data": 1}})
        worker.trigger({"function_id": "publish", "payload": {"topic": "third", "data": 1}})

    worker.function("a::first", triggers=[DurableSubscriber("first")])(first)
    worker.function("a::second", triggers=[DurableSubscriber("second")])(lambda data: seen.append(current_invocation()))
    worker.function("a::third", triggers=[Subscribe("third")])(lambda data: seen.append(current_invocation()))
    async with host() as harness:
        await publish(harness, 1, topic="first")
        await harness.settle()
        by_function = {call.function_id: call for call in seen}
        assert [by_function[f"a::{name}"].hops for name in ("first", "second", "third")] == [0, 1, 1]
        assert {call.source for call in seen} == {"topic"}
        assert len({call.trace_id for call in seen}) == 1


async def test_publish_reaches_every_subscriber_now_and_is_not_kept(
    worker: Worker, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []

    def fail(data: Any) -> None:
        data["by"] = "the failing one"
        raise ValueError("no")

    def keep(data: Any) -> None:
        data["seen"] = True
        seen.append(data)

    worker.register_function("never::it", lambda data: False)
    worker.function("a::fails", triggers=[Subscribe("news")])(fail)
    worker.function("b::hears", triggers=[Subscribe("news")])(keep)
    worker.function("c::hears", triggers=[Subscribe("news")])(keep)
    worker.function("d::skips", triggers=[Subscribe("news", condition="never::it")])(keep)
    worker.function("e::other", triggers=[Subscribe("olds")])(keep)
    async with host() as harness:
        await publish(harness, {"n": 1}, topic="news", by="publish")
        await harness.settle()
        assert seen == [{"n": 1, "seen": True}] * 2
        await harness.advance(timedelta(hours=1))
        assert len(seen) == 2
        failed = [record.__dict__["iii"] for record in caplog.records if record.getMessage() == "subscriber failed"]
        assert [fields["error"] for fields in failed] == ["invocation_failed: no"]
        await publish(harness, 1, topic="nobody", by="publish")
