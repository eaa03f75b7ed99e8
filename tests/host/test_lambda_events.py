"""The events of `events/` at the handlers they are for, with the functions of the order pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from iii_runtime.adapters.config_file import load_config
from iii_runtime.hosts.aws_lambda import control, dispatcher, function
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.hosts.embedded.discovery import discover_workers
from iii_runtime.plan.manifest import Manifest, describe_app, read_manifest
from tests.contract.aws_services import DEPLOYMENT
from tests.host.lambda_kit import Context, Stage, failures, running_stage

ROOT = Path(__file__).resolve().parents[2]
EVENTS = ROOT / "events"
NOON = datetime(2026, 5, 4, 12, 0, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def orders() -> Manifest:
    workers = discover_workers([str(ROOT / "functions")])
    stored = describe_app(load_config(ROOT / "iii-config.yaml", env={}), workers, ["functions"])
    return read_manifest(json.loads(json.dumps(stored)))


@pytest.fixture
def stage(orders: Manifest) -> Iterator[Stage]:
    with running_stage(NOON, orders) as stage:
        sandbox = stage.sandbox()
        for sku, price in (("tea", 450), ("mug", 1200)):
            product = {"scope": "catalogue", "key": sku, "value": {"name": sku, "price": price}}
            assert "ok" in ask(stage, sandbox, "state::set", product)
        yield stage


def read(name: str) -> Any:
    return json.loads((EVENTS / name).read_text().replace("orders-dev-", f"{DEPLOYMENT.prefix}-"))


def ask(stage: Stage, sandbox: Sandbox, function_id: str, payload: Any) -> Any:
    request = {"v": 1, "kind": "trigger", "request": {"function_id": function_id, "payload": payload}}
    return control.handle(sandbox, {"iii": request}, Context(stage.clock))


def order(stage: Stage, order_id: str) -> Any:
    return ask(stage, stage.sandbox(), "state::get", {"scope": "orders", "key": order_id})["ok"]


@pytest.mark.parametrize(
    ("name", "status", "is_enqueued"),
    [
        ("order-ok", 202, True),
        ("order-declined", 202, True),
        ("order-payment-flaky", 202, True),
        ("order-unknown-product", 202, True),
        ("order-invalid", 422, False),
        ("order-malformed", 400, False),
    ],
)
def test_an_order_is_taken_or_refused_as_on_the_embedded_host(
    stage: Stage, name: str, status: int, is_enqueued: bool
) -> None:
    response: Any = function.handle(stage.sandbox("orders::create"), read(f"http/{name}.json"), Context(stage.clock))
    assert response["statusCode"] == status, response["body"]
    assert len(stage.receive("order-validate")["Records"]) == is_enqueued


def test_a_message_as_it_was_sent_runs_the_bound_function(stage: Stage) -> None:
    event = read("sqs/order-validate-as-sent.json")
    response = function.handle(stage.sandbox("orders::validate"), event, Context(stage.clock))
    assert failures(response) == []
    assert order(stage, "ord-ok")["status"] == "validated"
    assert len(stage.receive("order-payment")["Records"]) == 1


@pytest.mark.parametrize("name", ["order-validate", "order-payment"])
def test_a_body_that_the_runtime_did_not_send_is_a_dead_letter(stage: Stage, name: str) -> None:
    event = read(f"sqs/{name}.json")
    for record in event["Records"]:
        queue = stage.queues[name]
        record["eventSourceARN"] = DEPLOYMENT.queue_arn(DEPLOYMENT.queue_name(queue))
    function_id = "orders::validate" if name == "order-validate" else "orders::charge-payment"
    assert failures(function.handle(stage.sandbox(function_id), event, Context(stage.clock))) == []
    assert stage.meter.counts == {("DeadLetters", name): 1}


def test_a_call_runs_a_subscriber(stage: Stage) -> None:
    answer = function.handle(stage.sandbox("orders::notify"), read("invoke/call-notify.json"), Context(stage.clock))
    assert answer == {"ok": None}
    assert order(stage, "ord-ok")["status"] == "fulfilled"


def test_a_tick_runs_the_job(stage: Stage) -> None:
    sandbox = stage.sandbox("orders::cleanup-stale")
    event = read("invoke/cron-cleanup-stale.json")
    assert function.handle(sandbox, event, Context(stage.clock)) == {"ok": None}


def test_a_forwarded_call_runs_in_the_lambda_of_its_function(stage: Stage) -> None:
    stage.serve(DEPLOYMENT.function_name("orders::validate"), stage.sandbox("orders::validate"), function.handle)
    event = read("invoke/forward-validate.json")
    # Nobody waits for the result of a message; that it ran shows in what it has enqueued.
    assert dispatcher.handle(stage.sandbox(), event, Context(stage.clock)) == {"ok": None}
    assert len(stage.receive("order-payment")["Records"]) == 1


def test_a_request_of_the_command_line_enqueues_and_reads(stage: Stage) -> None:
    sandbox = stage.sandbox()
    enqueued: Any = control.handle(sandbox, read("invoke/trigger-enqueue.json"), Context(stage.clock))
    assert enqueued["ok"]["messageReceiptId"]
    assert len(stage.receive("order-validate")["Records"]) == 1
    state = control.handle(sandbox, read("invoke/trigger-state-get.json"), Context(stage.clock))
    assert state == {"ok": None}
