"""`trigger(...)` in every spelling the iii SDKs accept."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from iii_runtime import EnqueueResult, InvocationError, TriggerAction, TriggerRequest
from iii_runtime.core.trigger_request import (
    Action,
    TriggerActionEnqueue,
    TriggerActionVoid,
    parse_action,
    parse_trigger_request,
)


@pytest.mark.parametrize(
    "action",
    [
        TriggerAction.Enqueue(queue="mail"),
        TriggerAction.Enqueue({"queue": "mail"}),
        TriggerActionEnqueue(queue="mail"),
        TriggerActionEnqueue("mail"),
        {"type": "enqueue", "queue": "mail"},
        MappingProxyType({"type": "enqueue", "queue": "mail", "delay": None, "unknown": 1}),
    ],
)
def test_every_spelling_of_enqueue_is_the_same(action: object) -> None:
    assert parse_action(action) == TriggerActionEnqueue("mail", 0, None)


@pytest.mark.parametrize("action", [TriggerAction.Void(), TriggerActionVoid(), {"type": "void"}])
def test_every_spelling_of_void_is_the_same(action: object) -> None:
    assert parse_action(action) == TriggerActionVoid()


@pytest.mark.parametrize(
    "action",
    [
        TriggerAction.Enqueue(queue="mail", delay=2.5, dedupe_id="once"),
        TriggerAction.Enqueue({"queue": "mail", "delay": 2.5, "dedupe_id": "once"}),
        {"type": "enqueue", "queue": "mail", "delay": 2.5, "dedupe_id": "once"},
    ],
)
def test_delay_and_dedupe_id_are_kept(action: object) -> None:
    assert parse_action(action) == TriggerActionEnqueue("mail", 2.5, "once")


def test_a_delay_is_not_judged_here() -> None:
    """The queue refuses it, with a reason; nothing may turn it into no delay."""
    assert parse_action({"type": "enqueue", "queue": "q", "delay": ""}) == TriggerActionEnqueue("q", "", None)  # type: ignore[arg-type]


def test_no_action_is_a_direct_call() -> None:
    assert parse_action(None) is None


def test_enqueue_without_a_queue_is_a_type_error_where_it_is_written() -> None:
    with pytest.raises(TypeError, match=r"needs queue='name'"):
        TriggerAction.Enqueue()
    with pytest.raises(TypeError, match=r"needs queue='name'"):
        TriggerAction.Enqueue("mail")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ("enqueue", "unknown action 'enqueue'"),
        ({"type": "later"}, "unknown action"),
        ({}, "unknown action"),
        ({"queue": "mail"}, "unknown action"),
        ({"type": "enqueue"}, "needs the name of a queue, found None"),
        ({"type": "enqueue", "queue": 5}, "needs the name of a queue, found 5"),
        (TriggerActionEnqueue(["mail"]), "needs the name of a queue"),  # type: ignore[arg-type]
        ("x" * 10_000, "unknown action"),
    ],
)
def test_any_other_action_is_refused(action: object, message: str) -> None:
    with pytest.raises(InvocationError, match=message) as refusal:
        parse_action(action, "a::b")
    assert refusal.value.code == "request_invalid"
    assert refusal.value.function_id == "a::b"
    assert len(refusal.value.message) < 250


@pytest.mark.parametrize(
    "request_",
    [
        {"function_id": "a::b", "payload": {"n": 1}, "timeout_ms": 50, "metadata": {"m": 1}},
        {"function_id": "a::b", "payload": {"n": 1}, "timeout_ms": 50, "metadata": {"m": 1}, "timeout": 9, "x": 1},
        TriggerRequest(function_id="a::b", payload={"n": 1}, timeout_ms=50, metadata={"m": 1}),
        TriggerRequest("a::b", {"n": 1}, None, 50, {"m": 1}),
    ],
)
def test_a_dict_and_a_request_are_the_same_and_unknown_keys_are_ignored(
    request_: Mapping[str, Any] | TriggerRequest,
) -> None:
    parsed = parse_trigger_request(request_)
    assert parsed == TriggerRequest(function_id="a::b", payload={"n": 1}, timeout_ms=50, metadata={"m": 1})


def test_the_function_id_is_enough() -> None:
    assert parse_trigger_request({"function_id": "a::b"}) == TriggerRequest(function_id="a::b")


def test_the_action_is_parsed() -> None:
    action: Action | None = TriggerActionEnqueue("q")
    assert parse_trigger_request({"function_id": "f", "action": {"type": "enqueue", "queue": "q"}}).action == action


@pytest.mark.parametrize(("given", "kept"), [(None, None), (0, None), (0.0, None), (0.5, 1), (1, 1), (1500.2, 1501)])
def test_a_timeout_of_0_or_none_is_the_default(given: float | None, kept: int | None) -> None:
    assert parse_trigger_request({"function_id": "f", "timeout_ms": given}).timeout_ms == kept


@pytest.mark.parametrize("timeout", [-1, True, "5", [], float("nan"), float("inf"), 10**30])
def test_a_timeout_that_is_no_number_of_milliseconds_is_refused(timeout: object) -> None:
    with pytest.raises(InvocationError, match="timeout_ms must be a number of milliseconds") as refusal:
        parse_trigger_request({"function_id": "f", "timeout_ms": timeout})
    assert refusal.value.code == "request_invalid"


@pytest.mark.parametrize(
    "request_", [{}, {"function_id": ""}, {"function_id": " "}, {"function_id": 5}, {"payload": 1}]
)
def test_a_request_without_function_id_is_refused(request_: dict[str, Any]) -> None:
    with pytest.raises(InvocationError, match="trigger needs a function_id") as refusal:
        parse_trigger_request(request_)
    assert refusal.value.code == "request_invalid"


@pytest.mark.parametrize("request_", [None, "a::b", ["a::b"], 5])
def test_what_is_no_request_is_refused(request_: object) -> None:
    with pytest.raises(InvocationError, match="trigger takes a dict or a TriggerRequest"):
        parse_trigger_request(request_)


@pytest.mark.parametrize("metadata", ["x", [], 5])
def test_metadata_must_be_an_object(metadata: object) -> None:
    with pytest.raises(InvocationError, match="metadata must be an object") as refusal:
        parse_trigger_request({"function_id": "f", "metadata": metadata})
    assert refusal.value.code == "request_invalid"


def test_an_enqueue_result_is_made_from_the_dict() -> None:
    returned = {"messageReceiptId": "r"}
    assert EnqueueResult(**returned).messageReceiptId == "r"
