"""Errors name what they are about, so that somebody can act on them."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from iii_runtime import Http, InvocationError, Worker, current_invocation
from iii_runtime.core.errors import IiiError, StoreError
from iii_runtime.engine.stores import Stores
from iii_runtime.ports.message_queue import QueueDepth
from iii_runtime.testing import Harness

Host = Callable[..., Harness]


class Greeting(BaseModel):
    name: str


def fields_of(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    return [getattr(record, "iii", {}) for record in caplog.records if record.getMessage() == message]


async def test_the_error_id_of_an_answer_names_the_invocation_and_stands_in_the_log(
    worker: Worker, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    @worker.function("a::fail", triggers=[Http("GET", "/fail")])
    def fail(_request: dict[str, Any]) -> None:
        invocation = current_invocation()
        assert invocation is not None
        seen.append(invocation.id)
        raise ValueError("no")

    caplog.set_level(logging.INFO, "iii_runtime")
    async with host() as harness:
        error = (await harness.http("GET", "/fail")).json()["error"]
    assert seen == [error["error_id"]]
    assert [fields["error_id"] for fields in fields_of(caplog, "function failed")] == seen
    assert [fields.get("error_id") for fields in fields_of(caplog, "request")] == seen


async def test_a_request_without_a_route_stands_in_the_log_by_the_error_id_of_its_answer(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "iii_runtime")
    async with host() as harness:
        error = (await harness.http("GET", "/nowhere")).json()["error"]
    assert [fields.get("error_id") for fields in fields_of(caplog, "request")] == [error["error_id"]]


async def test_the_lines_of_a_failing_message_name_its_function(
    worker: Worker, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_data: object) -> None:
        raise ValueError("no")

    worker.register_function("a::fail", fail)
    caplog.set_level(logging.INFO, "iii_runtime")
    async with host() as harness:
        await harness.trigger({"function_id": "a::fail", "action": {"type": "enqueue", "queue": "mail"}})
        await harness.settle()
    for message in ("attempt failed", "dead letter"):
        assert {fields["function_id"] for fields in fields_of(caplog, message)} == {"a::fail"}


@pytest.mark.parametrize(
    ("function_id", "payload"),
    [
        ("engine::queue::dlq_messages", {}),
        ("engine::queue::topic_stats", {}),
        ("iii::queue::redrive", {}),
        ("iii::queue::redrive_message", {"message_id": "m"}),
        ("iii::queue::discard", {}),
        ("iii::queue::discard_message", {"message_id": "m"}),
        ("iii::queue::purge", {}),
    ],
)
async def test_a_queue_that_does_not_exist_is_an_error_and_not_an_empty_one(
    host: Host, function_id: str, payload: dict[str, Any]
) -> None:
    async with host() as harness:
        with pytest.raises(InvocationError, match="'mial' not found") as caught:
            await harness.trigger({"function_id": function_id, "payload": {"queue": "mial", **payload}})
        assert caught.value.code == "queue_not_found"


class Uncountable:
    """A queue store that cannot say how much it holds."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def depth(self, queue_name: str) -> QueueDepth:
        raise StoreError(f"queue {queue_name} is out of reach", code="store_throttled")


async def test_an_error_of_the_store_keeps_its_code_wherever_the_call_is_carried_out(host: Host) -> None:
    def wrap(stores: Stores) -> Stores:
        queue: Any = Uncountable(stores.queue)
        return dataclasses.replace(stores, queue=queue)

    async with host(wrap=wrap) as harness:
        with pytest.raises(IiiError) as caught:
            await harness.trigger({"function_id": "engine::queue::topic_stats", "payload": {"queue": "mail"}})
        assert (caught.value.code, caught.value.message) == ("store_throttled", "queue mail is out of reach")


async def test_a_form_sent_to_a_typed_function_is_told_to_send_json(worker: Worker, host: Host) -> None:
    @worker.function("a::greet", triggers=[Http("POST", "/greet")])
    def greet(greeting: Greeting) -> Greeting:
        return greeting

    async with host() as harness:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        reply = await harness.http("POST", "/greet", body=b"name=Ann", headers=form)
        assert reply.status == 422
        assert "send Content-Type: application/json" in reply.json()["error"]["message"]
        answered = await harness.http("POST", "/greet", json={"name": "Ann"})
        assert (answered.status, answered.json()) == (200, {"name": "Ann"})


async def test_a_dict_that_is_no_response_is_not_sent_and_the_log_says_so(
    worker: Worker, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    @worker.function("a::valid", triggers=[Http("GET", "/valid")])
    def valid(_request: dict[str, Any]) -> dict[str, Any]:
        return {"valid": True}

    caplog.set_level(logging.INFO, "iii_runtime")
    async with host() as harness:
        assert (await harness.http("GET", "/valid")).json() == {}
    [fields] = [
        record.__dict__["iii"] for record in caplog.records if record.getMessage().startswith("result not sent")
    ]
    assert fields == {"function_id": "a::valid", "members": ["valid"]}


async def test_an_update_of_which_nothing_applies_writes_and_publishes_nothing(host: Host) -> None:
    async with host() as harness:
        bad = {"type": "increment", "path": "n", "by": "x"}
        payload = {"scope": "s", "key": "k", "ops": [bad]}
        result = await harness.trigger({"function_id": "state::update", "payload": payload})
        assert [error["op_index"] for error in result["errors"]] == [0]
        assert (result["old_value"], result["new_value"]) == (None, None)
        assert await harness.trigger({"function_id": "state::list_groups", "payload": {}}) == {"groups": []}
        assert await harness.stores.feed.read(0, 10) == []
