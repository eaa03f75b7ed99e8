"""`trigger` in its three forms: call and wait, start and go on, enqueue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from iii_runtime import (
    EnqueueError,
    InitOptions,
    InvocationError,
    RegistrationError,
    TriggerAction,
    TriggerActionEnqueue,
    TriggerRequest,
    Worker,
    current_invocation,
    register_worker,
)
from iii_runtime.testing import Harness

Host = Callable[..., Harness]


class Order(BaseModel):
    order_id: str


async def test_every_spelling_of_an_action_does_the_same(worker: Worker, host: Host) -> None:
    seen: list[Any] = []
    worker.register_function("a::b", seen.append)
    enqueues = [
        TriggerAction.Enqueue(queue="mail"),
        TriggerAction.Enqueue({"queue": "mail"}),
        TriggerActionEnqueue("mail"),
        {"type": "enqueue", "queue": "mail"},
    ]
    async with host() as harness:
        for action in enqueues:
            result = await harness.trigger({"function_id": "a::b", "payload": "enqueued", "action": action})
            assert list(result) == ["messageReceiptId"]
        for action in (TriggerAction.Void(), {"type": "void"}):
            assert await harness.trigger({"function_id": "a::b", "payload": "void", "action": action}) is None
        assert await harness.trigger(TriggerRequest("a::b", "direct")) is None
        await harness.settle()
        assert sorted(seen) == ["direct"] + ["enqueued"] * 4 + ["void"] * 2


@pytest.mark.parametrize(
    ("returned", "result"),
    [
        (None, None),
        (5, 5),
        ((1, (2,)), [1, [2]]),
        ({"a": {"b": None}}, {"a": {"b": None}}),
        (Order(order_id="o1"), {"order_id": "o1"}),
        ([Order(order_id="o1")], [{"order_id": "o1"}]),
    ],
)
async def test_a_direct_call_returns_the_result_as_json(worker: Worker, host: Host, returned: Any, result: Any) -> None:
    async def asynchronous(data: Any) -> Any:
        return returned

    worker.register_function("a::sync", lambda data: returned)
    worker.register_function("a::async", asynchronous)
    async with host() as harness:
        assert await harness.trigger({"function_id": "a::sync"}) == result
        assert await harness.trigger({"function_id": "a::async"}) == result


async def test_a_plain_function_that_returns_a_coroutine_is_awaited(worker: Worker, host: Host) -> None:
    """A decorator around `async def` that does not say so is common."""

    async def inner(data: Any) -> Any:
        await asyncio.sleep(0)
        present = current_invocation()
        assert present is not None
        return {"data": data, "function": present.function_id}

    worker.register_function("a::b", lambda data: inner(data))  # noqa: PLW0108 - the lambda is what is tested
    async with host() as harness:
        result = await harness.trigger({"function_id": "a::b", "payload": 5})
        assert result == {"data": 5, "function": "a::b"}


async def test_payload_and_result_are_deep_copies(worker: Worker, host: Host) -> None:
    kept: dict[str, Any] = {}

    def keep(data: Any) -> Any:
        kept["given"] = data
        data["items"].append("by the callee")
        kept["returned"] = {"items": [1]}
        return kept["returned"]

    worker.register_function("a::b", keep)
    payload = {"items": [1], "pair": (1, 2)}
    async with host() as harness:
        result = await harness.trigger({"function_id": "a::b", "payload": payload})
        assert payload == {"items": [1], "pair": (1, 2)}
        assert kept["given"] == {"items": [1, "by the callee"], "pair": [1, 2]}
        result["items"].append("by the caller")
        assert kept["returned"] == {"items": [1]}


async def test_a_void_call_gets_what_the_payload_was_when_it_was_made(worker: Worker, host: Host) -> None:
    seen: list[Any] = []
    worker.register_function("a::later", seen.append)

    def start(data: Any) -> None:
        mine = {"n": 1}
        worker.trigger({"function_id": "a::later", "payload": mine, "action": TriggerAction.Void()})
        mine["n"] = 2

    worker.register_function("a::start", start)
    async with host() as harness:
        for _ in range(20):
            await harness.trigger({"function_id": "a::start"})
        await harness.settle()
        assert seen == [{"n": 1}] * 20


async def test_a_void_call_returns_at_once_and_its_error_is_only_logged(
    worker: Worker, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    go = threading.Event()

    def fail(data: Any) -> None:
        go.wait(10)
        raise ValueError("nobody waits")

    worker.register_function("a::fail", fail)
    void = TriggerAction.Void()
    async with host() as harness:
        assert await harness.trigger({"function_id": "a::fail", "action": void}) is None
        assert await harness.trigger({"function_id": "a::missing", "action": void}) is None
        assert await harness.trigger({"function_id": "state::set", "payload": {}, "action": void}) is None
        go.set()
        await harness.settle()
    errors = [record.__dict__["iii"]["error"] for record in caplog.records if record.getMessage() == "void call failed"]
    assert sorted(errors) == [
        "SET_ERROR: state::set needs 'scope'.",
        "function_not_found: Function 'a::missing' not found.",
        "invocation_failed: nobody waits",
    ]


async def test_a_chain_of_void_calls_may_be_long(worker: Worker, host: Host) -> None:
    """Nobody waits in it, so it is not nested."""
    steps: list[int] = []

    def step(data: int) -> None:
        steps.append(data)
        if data < 100:
            worker.trigger({"function_id": "a::step", "payload": data + 1, "action": TriggerAction.Void()})

    worker.register_function("a::step", step)
    async with host() as harness:
        await harness.trigger({"function_id": "a::step", "payload": 0})
        await harness.settle()
        assert steps == list(range(101))


async def test_the_error_of_a_handler_reaches_its_caller(worker: Worker, host: Host) -> None:
    def fail(data: Any) -> None:
        raise KeyError("order_id")

    worker.register_function("a::fail", fail)
    async with host() as harness:
        with pytest.raises(InvocationError) as raised:
            await harness.trigger({"function_id": "a::fail"})
        error = raised.value
        assert (error.code, error.message, error.function_id) == ("invocation_failed", "'order_id'", "a::fail")
        assert str(error) == "invocation_failed: 'order_id'"
        assert "in fail" in (error.stacktrace or "")
        assert error.invocation_id is not None
        assert isinstance(error.__cause__, KeyError)


async def test_an_error_goes_up_through_nested_calls(worker: Worker, host: Host) -> None:
    def fail(data: Any) -> None:
        raise ValueError("at the bottom")

    async def middle(data: Any) -> Any:
        return await worker.trigger_async({"function_id": "a::fail"})

    worker.register_function("a::fail", fail)
    worker.register_function("a::middle", middle)
    worker.register_function("a::top", lambda data: worker.trigger({"function_id": "a::middle"}))
    async with host() as harness:
        with pytest.raises(InvocationError) as raised:
            await harness.trigger({"function_id": "a::top"})
        assert str(raised.value) == "invocation_failed: invocation_failed: invocation_failed: at the bottom"


async def test_a_nested_call_belongs_to_the_trace_of_its_caller(worker: Worker, host: Host) -> None:
    seen: list[Any] = []

    def inner(data: Any) -> None:
        seen.append(current_invocation())

    def outer(data: Any) -> None:
        seen.append(current_invocation())
        worker.trigger({"function_id": "a::inner"})

    worker.register_function("a::inner", inner)
    worker.register_function("a::outer", outer)
    async with host() as harness:
        await harness.trigger({"function_id": "a::outer"})
        assert [(call.function_id, call.depth, call.source) for call in seen] == [
            ("a::outer", 0, "direct"),
            ("a::inner", 1, "direct"),
        ]
        assert seen[0].trace_id == seen[1].trace_id


async def test_an_unknown_function_is_not_found_with_a_suggestion(worker: Worker, host: Host) -> None:
    worker.register_function("orders::create", lambda data: data)
    async with host() as harness:
        with pytest.raises(InvocationError) as raised:
            await harness.trigger({"function_id": "orders::creat"})
        assert raised.value.code == "function_not_found"
        assert raised.value.function_id == "orders::creat"
        assert raised.value.message == "Function 'orders::creat' not found. Did you mean 'orders::create'?"


async def test_a_call_beyond_its_timeout_is_a_timeout(worker: Worker, host: Host) -> None:
    go = threading.Event()
    worker.register_function("a::slow", lambda data: go.wait(10), timeout=timedelta(milliseconds=20))
    worker.register_function("a::slower", lambda data: go.wait(10))
    async with host() as harness:
        with pytest.raises(InvocationError, match=r"function 'a::slow' did not end within 0\.02 s") as own:
            await harness.trigger({"function_id": "a::slow"})
        with pytest.raises(InvocationError, match=r"function 'a::slower' did not end within 0\.03 s") as asked:
            await harness.trigger({"function_id": "a::slower", "timeout_ms": 30})
        assert own.value.code == asked.value.code == "TIMEOUT"
        go.set()


async def test_who_is_waited_for_has_hardly_more_time_than_who_waits_and_who_is_not_has_its_own(
    worker: Worker, host: Host
) -> None:
    ends: dict[str, float] = {}

    def note(name: str) -> None:
        invocation = current_invocation()
        assert invocation is not None
        assert invocation.ends_at is not None
        ends[name] = invocation.ends_at

    async def waits(data: Any) -> None:
        note("waits")
        await worker.trigger_async({"function_id": "a::called", "payload": "called"})
        await worker.trigger_async({"function_id": "a::called", "payload": "asked", "timeout_ms": 100})
        for name, action in (("void", TriggerAction.Void()), ("enqueue", TriggerAction.Enqueue(queue="mail"))):
            await worker.trigger_async({"function_id": "a::called", "payload": name, "action": action})

    worker.register_function("a::waits", waits, timeout=timedelta(seconds=10))
    worker.register_function("a::called", note, timeout=timedelta(seconds=25))
    async with host() as harness:
        await harness.trigger({"function_id": "a::waits"})
        await harness.settle()
    beyond = {name: end - ends["waits"] for name, end in ends.items()}
    assert 0 < beyond["called"] < 2
    assert beyond["asked"] < 0
    assert min(beyond["void"], beyond["enqueue"]) > 10


async def test_the_worker_of_a_function_sets_its_default_timeout(host: Host) -> None:
    go = threading.Event()
    hasty = register_worker(options=InitOptions(invocation_timeout_ms=20))
    hasty.register_function("hasty::wait", lambda data: go.wait(10))
    async with host(hasty) as harness:
        with pytest.raises(InvocationError, match=r"did not end within 0\.02 s"):
            await harness.trigger({"function_id": "hasty::wait"})
        go.set()


@pytest.mark.parametrize("action", [None, TriggerAction.Void(), TriggerAction.Enqueue(queue="mail")])
@pytest.mark.parametrize("part", ["payload", "metadata"])
async def test_what_is_not_json_is_refused_for_every_action(worker: Worker, host: Host, action: Any, part: str) -> None:
    worker.register_function("a::b", lambda data: data)
    async with host() as harness:
        with pytest.raises(InvocationError, match=rf"{part}\.x is a value of type set") as refusal:
            await harness.trigger({"function_id": "a::b", part: {"x": {1}}, "action": action})
        code = refusal.value.reason if isinstance(refusal.value, EnqueueError) else refusal.value.code
        assert code == "payload_not_json"
        assert refusal.value.function_id == "a::b"


@pytest.mark.parametrize("action", [None, TriggerAction.Void(), TriggerAction.Enqueue(queue="mail")])
async def test_metadata_has_one_bound_whatever_the_action(worker: Worker, host: Host, action: Any) -> None:
    seen: list[int] = []
    worker.register_function("a::b", lambda data, metadata: seen.append(len(metadata["x"])))
    fits = 4096 - len('{"x":""}')
    async with host() as harness:
        await harness.trigger({"function_id": "a::b", "metadata": {"x": "y" * fits}, "action": action})
        with pytest.raises(InvocationError, match="metadata must be an object of at most 4096 bytes") as refusal:
            await harness.trigger({"function_id": "a::b", "metadata": {"x": "y" * (fits + 1)}, "action": action})
        code = refusal.value.reason if isinstance(refusal.value, EnqueueError) else refusal.value.code
        assert (code, refusal.value.function_id) == ("payload_not_json", "a::b")
        await harness.settle()
    assert seen == [fits]


async def test_a_result_that_is_not_json_is_a_failure_of_the_function(worker: Worker, host: Host) -> None:
    worker.register_function("a::b", lambda data: {"at": object()})
    async with host() as harness:
        with pytest.raises(InvocationError, match=r"returned no JSON: result\.at is a value of type object") as refusal:
            await harness.trigger({"function_id": "a::b"})
        assert refusal.value.code == "invocation_failed"


async def test_trigger_in_an_async_handler_says_what_to_use_instead(worker: Worker, host: Host) -> None:
    async def handler(data: Any) -> None:
        worker.trigger({"function_id": "a::other"})

    worker.register_function("a::b", handler)
    async with host() as harness:
        with pytest.raises(InvocationError, match=r"use `await worker.trigger_async"):
            await harness.trigger({"function_id": "a::b"})


@pytest.mark.parametrize(
    ("function_id", "payload", "code"),
    [
        ("state::set", {}, "SET_ERROR"),
        ("state::set", {"scope": "s", "key": "k"}, "SET_ERROR"),
        ("state::set", {"scope": 5, "key": "k", "value": 1}, "SET_ERROR"),
        ("state::set", ["s", "k", 1], "SET_ERROR"),
        ("state::get", {"scope": "s"}, "GET_ERROR"),
        ("state::delete", {"key": "k"}, "DELETE_ERROR"),
        ("state::update", {"scope": "s", "key": "k"}, "UPDATE_ERROR"),
        ("state::update", {"scope": "s", "key": "k", "ops": {}}, "UPDATE_ERROR"),
        ("state::list", None, "LIST_ERROR"),
        ("stream::set", {"stream_name": "s", "group_id": "g", "item_id": "i"}, "STREAM_SET_ERROR"),
        ("stream::get", {"stream_name": "s"}, "STREAM_GET_ERROR"),
        ("stream::delete", {}, "STREAM_DELETE_ERROR"),
        ("stream::update", {"stream_name": "s", "group_id": "g", "item_id": "i", "ops": 5}, "STREAM_UPDATE_ERROR"),
        ("stream::list", {"stream_name": "s"}, "STREAM_LIST_ERROR"),
        ("stream::list_groups", {}, "STREAM_LIST_GROUPS_ERROR"),
        ("stream::send", {"stream_name": "s", "group_id": "g", "data": 1}, "STREAM_SEND_ERROR"),
        ("publish", {"data": 1}, "topic_not_set"),
        ("publish", {"topic": ""}, "topic_not_set"),
        ("iii::durable::publish", {}, "topic_not_set"),
        ("enqueue", {"topic": None}, "topic_not_set"),
        ("iii::cron::run", {}, "request_invalid"),
    ],
)
async def test_a_builtin_refuses_a_wrong_payload_with_its_own_code(
    host: Host, function_id: str, payload: Any, code: str
) -> None:
    async with host() as harness:
        with pytest.raises(InvocationError) as refusal:
            await harness.trigger({"function_id": function_id, "payload": payload})
        assert refusal.value.code == code
        assert refusal.value.message


async def test_functions_are_listed_with_their_triggers(worker: Worker, host: Host) -> None:
    worker.register_function("a::b", lambda data: data, description="Echo.", timeout=timedelta(seconds=5))
    worker.register_trigger({"type": "http", "function_id": "a::b", "config": {"api_path": "/a"}})
    worker.register_trigger({"type": "state", "function_id": "a::b", "config": {"scope": "s", "key": "k"}})
    async with host() as harness:
        listed = await harness.trigger({"function_id": "engine::functions::list"})
        (function,) = listed["functions"]
        source = function.pop("source")
        assert source.startswith(__file__)
        assert function == {
            "function_id": "a::b",
            "description": "Echo.",
            "timeout_ms": 5000,
            "triggers": [{"type": "http", "detail": "GET /a"}, {"type": "state", "detail": "s/k"}],
        }


async def test_an_id_that_another_worker_has_is_refused_while_the_host_runs(worker: Worker, host: Host) -> None:
    other = register_worker(worker_name="other")
    worker.register_function("a::b", lambda data: "first")
    async with host(other) as harness:
        with pytest.raises(RegistrationError, match="registered by two workers"):
            other.register_function("a::b", lambda data: "second")
        assert await harness.trigger({"function_id": "a::b"}) == "first"
        other.register_function("a::c", lambda data: "third")
        assert await harness.trigger({"function_id": "a::c"}) == "third"
