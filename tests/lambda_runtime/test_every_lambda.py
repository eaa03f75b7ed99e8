"""Every kind of Lambda starts from the bundle under the real client, and answers what AWS sends it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iii_runtime.adapters.aws.clients import Clients
from tests.lambda_runtime.built import DEPLOYMENT, Built
from tests.lambda_runtime.conftest import Start
from tests.lambda_runtime.events import message_event, sent_event, stored_event, trigger
from tests.lambda_runtime.sandbox_process import SandboxProcess

pytestmark = pytest.mark.process

CONNECTION = ("connect", "join-group", "join-item", "unknown-frame", "binary-frame", "leave", "disconnect")
CHANGES = ("state-with-step", "stream-item", "stream-event", "expired-event")
EVENTS: dict[str, dict[str, Any]] = {
    "control": {"invoke/trigger-enqueue": {}, "invoke/trigger-state-get": {}},
    "websocket": {f"websocket/{name}": {"statusCode": 200} for name in CONNECTION},
    "feed": {f"dynamodb-stream/{name}": {"batchItemFailures": []} for name in CHANGES},
    "orders::notify": {"invoke/call-notify": {"ok": None}},
}
"""Answers by Lambda and event, or what they have at least."""


def test_a_change_is_pushed_to_the_viewer_of_its_stream(start: Start, taken: Callable[[], list[Any]]) -> None:
    websocket, feed = start("websocket"), start("feed")
    for event in ("websocket/connect", "websocket/join-group"):
        assert websocket.invoke(stored_event(event)).answer["statusCode"] == 200
    assert feed.invoke(stored_event("dynamodb-stream/stream-item")).answer == {"batchItemFailures": []}
    connection = stored_event("websocket/join-group")["requestContext"]["connectionId"]
    frames = [(path, frame["event"]["type"]) for path, frame in taken()]
    assert frames == [(f"/live/@connections/{connection}", kind) for kind in ("sync", "create", "update", "delete")]
    assert_nothing_went_wrong(websocket)
    assert_nothing_went_wrong(feed)


@pytest.mark.parametrize("name", EVENTS)
def test_a_cold_sandbox_answers_what_aws_sends(start: Start, name: str) -> None:
    sandbox = start(name)
    for event, expected in EVENTS[name].items():
        answer = sandbox.invoke(stored_event(event)).answer
        assert {member: answer[member] for member in expected} == expected, event
        assert "error" not in answer, event
    assert_nothing_went_wrong(sandbox)


def test_an_http_function_takes_an_order_and_enqueues_it(start: Start, services: Clients, built: Built) -> None:
    sandbox = start("orders::create")
    answer = sandbox.invoke(stored_event("http/order-ok")).answer
    assert (answer["statusCode"], json.loads(answer["body"])["status"]) == (202, "created")
    refused = sandbox.invoke(stored_event("http/order-malformed")).answer
    assert refused["statusCode"] == 400
    assert "orders::validate" in functions_on(services, built, "order-validate")
    assert_nothing_went_wrong(sandbox)


def test_a_consumer_handles_messages_and_passes_them_on(start: Start, services: Clients, built: Built) -> None:
    control = start("control")
    for sku in ("tea", "mug"):
        entry = {"scope": "catalogue", "key": sku, "value": {"name": sku, "price": 700}}
        assert "ok" in control.invoke(trigger("state::set", entry)).answer
    sandbox = start("orders::validate")
    (stored,) = stored_event("sqs/order-validate-as-sent")["Records"]
    answer = sandbox.invoke(sent_event(services, built, "order-validate", stored["body"])).answer
    assert answer == {"batchItemFailures": []}, sandbox.output
    assert "orders::charge-payment" in functions_on(services, built, "order-payment")
    assert_nothing_went_wrong(sandbox)
    assert_nothing_went_wrong(control)


def test_the_consumer_of_an_ordered_queue_handles_its_messages(start: Start, services: Clients, built: Built) -> None:
    sandbox = start("orders::charge-payment")
    (stored,) = stored_event("sqs/order-payment")["Records"]
    function = "orders::charge-payment"
    payload = {**json.loads(stored["body"]), "order_id": "ord-paid"}
    event = message_event(services, built, "order-payment", payload, function_id=function)
    assert sandbox.invoke(event).answer == {"batchItemFailures": []}, sandbox.output
    assert "orders::ship" in functions_on(services, built, "order-ship")
    assert_nothing_went_wrong(sandbox)


def test_a_message_that_is_none_of_ours_becomes_a_dead_letter(start: Start, services: Clients, built: Built) -> None:
    sandbox = start("orders::validate")
    (stored,) = stored_event("sqs/order-validate")["Records"]
    event = sent_event(services, built, "order-validate", stored["body"])
    assert sandbox.invoke(event).answer == {"batchItemFailures": []}
    assert [(line["message"], line["cause"]) for line in sandbox.log] == [("dead letter", "unreadable")]
    assert "visa-4242" not in sandbox.output


def test_the_dispatcher_calls_the_functions_of_messages(
    start: Start, services: Clients, built: Built, taken: Callable[[], list[Any]]
) -> None:
    sandbox = start("dispatcher")
    assert sandbox.invoke(stored_event("invoke/forward-validate")).answer == {"ok": None}
    message = message_event(services, built, "default", {"n": 1}, function_id="probe::echo")
    assert sandbox.invoke(message).answer == {"batchItemFailures": []}, sandbox.output
    called = [(name, body["iii"]["kind"], body["iii"]["call"]["fn"]) for name, body in taken()]
    assert called == [
        (DEPLOYMENT.function_name(function), "call", function) for function in ("orders::validate", "probe::echo")
    ]
    assert_nothing_went_wrong(sandbox)


def test_the_tick_of_the_minute_looks_after_the_app(start: Start) -> None:
    sandbox = start("tick")
    answer = sandbox.invoke(stored_event("schedule/minute-tick")).answer
    assert answer == {"minute": "2026-05-04T12:01:00+00:00", "ticks": 0}
    assert [line["message"] for line in sandbox.log if line["level"] == "WARNING"] == ["cron ticks skipped"]
    assert_nothing_went_wrong(sandbox, warnings=1)


def test_a_cron_tick_that_comes_too_late_is_skipped(start: Start) -> None:
    sandbox = start("orders::cleanup-stale")
    assert sandbox.invoke(stored_event("invoke/cron-cleanup-stale")).answer == {"ok": None}
    assert [line["reason"] for line in sandbox.log if line["message"] == "cron tick skipped"] == ["late"]
    assert_nothing_went_wrong(sandbox, warnings=1)


def test_every_handler_of_the_plan_is_started_here(built: Built) -> None:
    started = {*EVENTS, "orders::create", "dispatcher", "tick"}
    planned = built.plan.functions.values()
    assert {each.handler for each in planned} == {
        each.handler for each in planned if started & {each.function_id, each.role}
    }


@pytest.mark.parametrize("library", ["aws_lambda_powertools", "pydantic"])
def test_a_library_that_the_bundle_lacks_is_found_nowhere_else(start: Start, bundle_without: Any, library: str) -> None:
    """Or else a library that is missing in the bundle would show on AWS alone."""
    bundle: Path = bundle_without(library)
    outcome = start("orders::create", bundle=bundle).invoke(stored_event("http/order-ok"))
    assert f"No module named '{library}'" in outcome.error["errorMessage"]


def functions_on(services: Clients, built: Built, queue: str) -> set[str]:
    """Return the functions that the messages of a queue are for."""
    url = DEPLOYMENT.queue_url(built.plan.queues[queue].name)
    answer = services.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0)
    return {json.loads(message["Body"])["fn"] for message in answer.get("Messages", [])}


def assert_nothing_went_wrong(sandbox: SandboxProcess, *, warnings: int = 0) -> None:
    """Check that nothing was printed but lines of the log, and no bad ones."""
    assert sandbox.others == []
    bad = [line for line in sandbox.log if line["level"] not in {"INFO", "DEBUG"}]
    assert len(bad) == warnings, bad
    assert not [line for line in bad if line["level"] != "WARNING"], bad
