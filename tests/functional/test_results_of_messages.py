"""Nobody waits for the result of what a trigger starts, so it may be anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from iii_runtime import DurableSubscriber, OnState, Queue, Subscribe, TriggerAction, Worker
from iii_runtime.core.payload import MAX_PAYLOAD_BYTES
from iii_runtime.testing import Harness

Host = Callable[..., Harness]

RESULTS: dict[str, Callable[[], Any]] = {"no JSON": object, "too large": lambda: "x" * (MAX_PAYLOAD_BYTES + 1)}


async def trigger(harness: Harness, function_id: str, **payload: Any) -> Any:
    return await harness.trigger({"function_id": function_id, "payload": payload})


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
@pytest.mark.parametrize("queue", ["quick", "mail"], ids=["shared", "of its own"])
async def test_a_message_is_done_whatever_its_function_returns(
    worker: Worker, host: Host, queue: str, result: Callable[[], Any]
) -> None:
    ran: list[Any] = []

    @worker.function("a::b", triggers=[Queue("mail")])
    def handle(data: Any) -> Any:
        ran.append(data)
        return result()

    async with host() as harness:
        enqueue = {"function_id": "a::b", "payload": 1, "action": TriggerAction.Enqueue(queue=queue)}
        await harness.trigger(enqueue)
        await harness.settle()
        assert ran == [1]
        assert await trigger(harness, "engine::queue::dlq_messages", queue=queue) == []


async def test_neither_does_what_triggers_it_look_at_a_result(
    worker: Worker, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    def returning(name: str) -> Callable[[Any], Any]:
        def handle(_data: Any) -> Any:
            ran.append(name)
            return object()

        return handle

    worker.function("a::hears", triggers=[Subscribe("news")])(returning("hears"))
    worker.function("a::keeps", triggers=[DurableSubscriber("news")])(returning("keeps"))
    worker.function("a::watches", triggers=[OnState("s")])(returning("watches"))
    async with host() as harness:
        await trigger(harness, "publish", topic="news", data=1)
        await trigger(harness, "iii::durable::publish", topic="news", data=1)
        await trigger(harness, "state::set", scope="s", key="k", value=1)
        await harness.settle()
    assert sorted(ran) == ["hears", "keeps", "watches"]
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
