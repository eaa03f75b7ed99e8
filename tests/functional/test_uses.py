"""`uses` narrows whom a function may call, on a laptop as on AWS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from iii_runtime import EnqueueError, InvocationError, TriggerAction, Worker
from iii_runtime.testing import Harness

Host = Callable[..., Harness]


def narrowed(worker: Worker, request: dict[str, Any], uses: list[str] | None) -> None:
    worker.function("a::asked")(lambda data: "asked")
    worker.function("a::other")(lambda data: None)

    @worker.function("a::asks", uses=uses)
    def asks(_data: Any) -> Any:
        return worker.trigger(request)


CALL = {"function_id": "a::asked", "payload": None}
ENQUEUE = {"function_id": "a::asked", "payload": None, "action": TriggerAction.Enqueue(queue="mail")}
PUBLISH = {"function_id": "publish", "payload": {"topic": "news", "data": 1}}
DURABLE = {"function_id": "iii::durable::publish", "payload": {"topic": "news", "data": 1}}
VOID = {"function_id": "a::asked", "payload": None, "action": TriggerAction.Void()}
REDRIVE = {"function_id": "iii::queue::redrive", "payload": {"queue": "mail"}}
STATE = {"function_id": "state::set", "payload": {"scope": "s", "key": "k", "value": 1}}


@pytest.mark.parametrize(
    ("request_", "use"),
    [
        (CALL, "a::asked"),
        (ENQUEUE, "queue:mail"),
        (PUBLISH, "topic:news"),
        (DURABLE, "topic:news"),
        (VOID, "a::asked"),
        (REDRIVE, "queue:mail"),
    ],
)
async def test_a_function_calls_only_what_it_uses(
    worker: Worker, host: Host, request_: dict[str, Any], use: str
) -> None:
    narrowed(worker, request_, ["a::other"])
    async with host() as harness:
        with pytest.raises(InvocationError, match=f"function 'a::asks' may not use '{use}'"):
            await harness.trigger({"function_id": "a::asks", "payload": None})


@pytest.mark.parametrize(
    ("request_", "use"), [(CALL, "a::asked"), (ENQUEUE, "queue:mail"), (PUBLISH, "topic:news"), (VOID, "a::asked")]
)
async def test_what_it_uses_is_allowed(worker: Worker, host: Host, request_: dict[str, Any], use: str) -> None:
    narrowed(worker, request_, [use])
    async with host() as harness:
        await harness.trigger({"function_id": "a::asks", "payload": None})
        await harness.settle()


async def test_state_is_open_to_a_function_that_uses_nothing(worker: Worker, host: Host) -> None:
    narrowed(worker, STATE, [])
    async with host() as harness:
        await harness.trigger({"function_id": "a::asks", "payload": None})


async def test_the_refusal_of_an_enqueue_has_its_reason(worker: Worker, host: Host) -> None:
    reasons: list[str] = []
    worker.function("a::asked")(lambda data: None)

    @worker.function("a::asks", uses=[])
    def asks(_data: Any) -> None:
        try:
            worker.trigger(ENQUEUE)
        except EnqueueError as error:
            reasons.append(error.reason)

    async with host() as harness:
        await harness.trigger({"function_id": "a::asks", "payload": None})
    assert reasons == ["not_in_uses"]


async def test_a_caller_from_outside_is_not_narrowed(worker: Worker, host: Host) -> None:
    narrowed(worker, CALL, [])
    async with host() as harness:
        assert await harness.trigger(CALL) == "asked"
