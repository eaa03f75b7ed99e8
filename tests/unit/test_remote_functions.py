"""An app whose functions have hosts of their own: what runs here, and what is handed on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime import (
    DurableSubscriber,
    InvocationError,
    OnState,
    Queue,
    Subscribe,
    TriggerAction,
    Worker,
    register_worker,
)
from iii_runtime.adapters.threads import ThreadExecutor
from iii_runtime.core.call import Call, call_from_json, call_to_json
from iii_runtime.core.config import Config, QueueConfig
from iii_runtime.core.errors import (
    FunctionBusyError,
    FunctionInterruptedError,
    RemoteHandlerError,
    StoreError,
)
from iii_runtime.core.message import TOPIC_FUNCTION, decode_envelope
from iii_runtime.core.payload import Json, PayloadError
from iii_runtime.core.trigger_request import parse_trigger_request
from iii_runtime.engine.app import App
from iii_runtime.engine.runtime import Runtime
from iii_runtime.plan.manifest import describe_app, read_manifest
from iii_runtime.ports.message_queue import OutgoingMessage
from iii_runtime.testing.clock import SequenceIds, SkipClock
from iii_runtime.testing.stores import memory_stores


@dataclass
class Elsewhere:
    """Stands for all functions with a host of their own."""

    invoked: list[tuple[Call, timedelta]] = field(default_factory=list)
    started: list[Call] = field(default_factory=list)
    failure: Exception | None = None

    async def invoke(self, call: Call, timeout: timedelta) -> Json:
        self.invoked.append((call, timeout))
        if self.failure is not None:
            raise self.failure
        return f"{call.function_id} ran elsewhere"

    async def start(self, call: Call) -> None:
        self.started.append(call)


@dataclass
class Broker:
    published: list[tuple[str, OutgoingMessage, bool]] = field(default_factory=list)

    async def publish(self, topic: str, message: OutgoingMessage, *, ordered: bool) -> None:
        self.published.append((topic, message, ordered))


def registered() -> Worker:
    worker = register_worker()
    worker.function("a::here", triggers=[Queue("mail", condition="a::if")])(lambda data: "here")
    worker.function("a::if")(lambda data: True)
    worker.function("a::there", timeout=timedelta(seconds=7))(lambda data: "not in this process")
    worker.function("a::hears", triggers=[Subscribe("news", condition="a::if")])(lambda data: None)
    worker.function("a::keeps", triggers=[DurableSubscriber("orders")])(lambda data: None)
    worker.function("a::watches", triggers=[OnState("s", condition="a::if")])(lambda data: None)
    return worker


class Deployed:
    """The host of `a::here` alone."""

    def __init__(self, **config: Any) -> None:
        worker = registered()
        whole = Config(queues={"mail": QueueConfig(name="mail")}, **config)
        catalog = read_manifest(describe_app(whole, [worker], ["app"])).catalog
        self.elsewhere, self.broker = Elsewhere(), Broker()
        self.clock = SkipClock()
        stores = replace(memory_stores(self.clock, SequenceIds()), remote=self.elsewhere, topics=self.broker)
        self.app = App(whole, [worker], deployed=catalog, local={"a::here", "a::if"})
        self.executor = ThreadExecutor()
        self.runtime = Runtime(self.app, stores, self.executor)

    async def trigger(self, function_id: str, payload: Any = None, **more: Any) -> Any:
        request = {"function_id": function_id, "payload": payload, **more}
        try:
            return await self.runtime.trigger(parse_trigger_request(request))
        finally:
            await self.runtime.settle()


async def test_its_own_function_runs_in_the_process() -> None:
    host = Deployed()
    assert await host.trigger("a::here") == "here"
    assert host.elsewhere.invoked == []


async def test_another_function_runs_in_its_own_host_with_its_own_timeout() -> None:
    host = Deployed()
    assert await host.trigger("a::there", {"n": 1}) == "a::there ran elsewhere"
    [(call, timeout)] = host.elsewhere.invoked
    assert (call.payload, timeout) == ({"n": 1}, timedelta(seconds=7))


async def test_no_function_is_given_longer_than_its_host_has_left() -> None:
    host = Deployed()
    host.runtime.invoker.remaining = lambda: timedelta(seconds=3)
    await host.trigger("a::there")
    assert host.elsewhere.invoked[0][1] == timedelta(seconds=3)


async def test_a_void_call_is_started_elsewhere_even_of_the_own_function() -> None:
    host = Deployed()
    await host.trigger("a::here", 1, action=TriggerAction.Void())
    assert [(call.function_id, call.payload) for call in host.elsewhere.started] == [("a::here", 1)]


async def test_subscribers_are_started_elsewhere_with_their_condition() -> None:
    host = Deployed()
    await host.trigger("publish", {"topic": "news", "data": 5})
    [call] = host.elsewhere.started
    assert (call.function_id, call.condition, call.source, call.payload) == ("a::hears", "a::if", "topic", 5)


async def test_a_durable_publish_is_one_message_for_the_broker() -> None:
    host = Deployed()
    await host.trigger("iii::durable::publish", {"topic": "orders", "data": {"n": 1}})
    [(topic, message, ordered)] = host.broker.published
    envelope = decode_envelope(message.body)
    assert (topic, ordered, envelope.queue, envelope.function_id) == ("orders", False, "orders", TOPIC_FUNCTION)
    assert envelope.payload == '{"n":1}'


async def test_a_durable_publish_nobody_subscribes_to_goes_nowhere() -> None:
    host = Deployed()
    await host.trigger("iii::durable::publish", {"topic": "nobody", "data": 1})
    assert host.broker.published == []


async def test_a_busy_function_is_told_apart_from_a_failed_one() -> None:
    host = Deployed()
    host.elsewhere.failure = FunctionBusyError("its concurrency is used up")
    with pytest.raises(InvocationError) as busy:
        await host.trigger("a::there")
    assert busy.value.code == "function_busy"


async def test_a_store_that_keeps_a_function_from_its_call_is_told_by_its_own_code() -> None:
    host = Deployed()
    host.elsewhere.failure = StoreError("slow down", code="store_throttled")
    with pytest.raises(InvocationError, match="slow down") as caught:
        await host.trigger("a::there")
    assert (caught.value.code, caught.value.function_id) == ("store_throttled", "a::there")


def interrupted() -> InvocationError:
    """What comes of a function whose Lambda dies."""
    error = InvocationError("invocation_failed", "broke off", "a::there")
    error.__cause__ = FunctionInterruptedError("Runtime.ExitError", "status 137")
    return error


@pytest.mark.parametrize("failure", [FunctionBusyError("busy"), interrupted()], ids=["busy", "interrupted"])
async def test_a_message_whose_function_is_busy_or_dies_comes_back_without_a_failed_attempt(failure: Exception) -> None:
    host = Deployed()
    await host.trigger("a::there", 1, action=TriggerAction.Enqueue(queue="mail"))
    queue, host.elsewhere.failure = host.app.queues["mail"], failure
    [delivery] = await host.runtime.stores.queue.receive(queue, 1, timedelta(seconds=30))
    await host.runtime.deliverer.deliver(queue, delivery)
    assert await host.runtime.stores.queue.receive(queue, 1, timedelta(seconds=30)) == []
    host.clock.advance_to(host.clock.now() + timedelta(seconds=60))
    [again] = await host.runtime.stores.queue.receive(queue, 1, timedelta(seconds=30))
    assert again.attempt == 1


async def test_a_message_whose_function_dies_each_time_is_buried_by_its_receives() -> None:
    host = Deployed()
    await host.trigger("a::there", 1, action=TriggerAction.Enqueue(queue="mail"))
    queue, host.elsewhere.failure = host.app.queues["mail"], interrupted()
    while deliveries := await host.runtime.stores.queue.receive(queue, 1, timedelta(seconds=30)):
        await host.runtime.deliverer.deliver(queue, deliveries[0])
        host.clock.advance_to(host.clock.now() + timedelta(seconds=60))
    [letter] = await host.runtime.stores.letters.list_letters("mail", 0, 10)
    assert (letter.cause, letter.attempts, letter.receives) == ("receives", 0, queue.receives_for("a::there"))
    assert len(host.elsewhere.invoked) == letter.receives - 1


@pytest.mark.parametrize(("is_final", "dead"), [(True, 1), (False, 0)])
async def test_a_failure_elsewhere_is_recorded_with_the_handlers_own_error(*, is_final: bool, dead: int) -> None:
    host = Deployed()
    await host.trigger("a::there", 1, action=TriggerAction.Enqueue(queue="mail"))
    failure = InvocationError("invocation_failed", "no such card", "a::there", "the stack")
    failure.__cause__ = RemoteHandlerError("CardError", "no such card", is_final=is_final)
    queue, host.elsewhere.failure = host.app.queues["mail"], failure
    [delivery] = await host.runtime.stores.queue.receive(queue, 1, timedelta(seconds=30))
    await host.runtime.deliverer.deliver(queue, delivery)
    letters = await host.runtime.stores.letters.list_letters("mail", 0, 10)
    assert [letter.error.type for letter in letters] == ["CardError"] * dead


async def test_without_a_way_to_call_it_a_function_elsewhere_is_not_found() -> None:
    worker = registered()
    catalog = read_manifest(describe_app(Config(), [worker], [])).catalog
    runtime = Runtime(App(Config(), [], deployed=catalog), memory_stores(SkipClock(), SequenceIds()), ThreadExecutor())
    with pytest.raises(InvocationError, match="has no way to call it"):
        await runtime.trigger(parse_trigger_request({"function_id": "a::there", "payload": None}))
    await asyncio.sleep(0)


def test_a_call_keeps_all_it_carries() -> None:
    call = Call(
        function_id="a::b",
        payload={"n": [1, None]},
        source="queue",
        identity="i",
        metadata={"m": 1},
        timeout=timedelta(milliseconds=1500),
        condition="a::if",
        queue="mail",
        receipt="r",
        attempt=2,
        max_attempts=3,
        hops=4,
        depth=5,
        traceparent="00-a-b-01",
        baggage="k=v",
    )
    assert call_from_json(call_to_json(call)) == call
    assert call_from_json(call_to_json(Call(function_id="a::b"))) == Call(function_id="a::b")


@pytest.mark.parametrize("stored", [{}, {"fn": "a::b"}, {"fn": 1, "p": None}, {"fn": "a", "src": "moon", "p": 1}])
def test_a_call_that_cannot_be_read_is_refused(stored: dict[str, Json]) -> None:
    with pytest.raises(PayloadError) as refusal:
        call_from_json(stored)
    assert refusal.value.code == "call_unreadable"
