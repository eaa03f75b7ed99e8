"""The order pipeline from its http events to its ends, on virtual time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

from iii_runtime.engine.http_entry import HttpCall
from iii_runtime.hosts.embedded.discovery import discover_workers
from iii_runtime.hosts.events import parse_event
from iii_runtime.testing import Harness, Reply
from tests.aws.harness import open_harness

ROOT = Path(__file__).resolve().parents[2]
WORKERS = discover_workers([str(ROOT / "functions")])
TEA = {"name": "Tea", "price": 450}
MUG = {"name": "Mug", "price": 1200}


@pytest.fixture
async def harness(store: Literal["memory", "embedded", "aws"], tmp_path: Path) -> AsyncIterator[Harness]:
    async with open_harness(WORKERS, config=ROOT / "iii-config.yaml", store=store, data=tmp_path / "data") as harness:
        for sku, product in (("tea", TEA), ("mug", MUG)):
            await call(harness, "state::set", {"scope": "catalogue", "key": sku, "value": product})
        yield harness


async def call(harness: Harness, function_id: str, payload: dict[str, Any]) -> Any:
    return await harness.trigger({"function_id": function_id, "payload": payload})


async def post(harness: Harness, name: str, **headers: str) -> Reply:
    event = parse_event(json.loads((ROOT / "events" / "http" / f"{name}.json").read_text()))
    assert isinstance(event, HttpCall)
    return await harness.http(event.method, event.path, body=event.body, headers={**dict(event.headers), **headers})


async def order(harness: Harness, order_id: str) -> Any:
    return await call(harness, "state::get", {"scope": "orders", "key": order_id})


def progress(harness: Harness, order_id: str) -> list[tuple[str, str]]:
    shown = [change.data for change in harness.pushed if change.group_id == order_id]
    return [(str(data["step"]), str(data["status"])) for data in shown if isinstance(data, dict)]


async def test_an_order_passes_every_step_and_each_is_seen_on_the_stream(harness: Harness) -> None:
    reply = await post(harness, "order-ok")
    assert reply.status == 202
    assert reply.headers["location"] == "/orders/ord-ok"
    await harness.settle()
    stored = await order(harness, "ord-ok")
    assert stored["status"] == "fulfilled"
    assert stored["message_receipt_id"] == reply.json()["message_receipt_id"]
    assert progress(harness, "ord-ok") == [
        ("create", "complete"),
        ("validate", "running"),
        ("validate", "complete"),
        ("charge-payment", "running"),
        ("charge-payment", "complete"),
        ("ship", "running"),
        ("ship", "complete"),
        ("notify", "complete"),
    ]


async def test_a_payment_that_fails_twice_succeeds_after_its_back_offs(harness: Harness) -> None:
    started = harness.clock.now()
    await post(harness, "order-payment-flaky")
    await harness.settle()
    stored = await order(harness, "ord-payment-flaky")
    assert stored["status"] == "fulfilled"
    assert stored["steps"]["charge-payment"]["attempt"] == 3
    assert harness.clock.now() - started == timedelta(seconds=2 + 4)


async def test_an_unknown_product_lands_on_the_dead_letter_queue_and_completes_once_it_is_added(
    harness: Harness,
) -> None:
    accepted = (await post(harness, "order-unknown-product")).json()
    await harness.settle()
    [letter] = await call(harness, "engine::queue::dlq_messages", {"queue": "order-validate"})
    assert letter["id"] == accepted["message_receipt_id"]
    assert (letter["error_type"], letter["cause"], letter["retries"]) == ("UnknownProductError", "failed", 2)
    assert "kettle" in letter["error"]
    await call(
        harness, "state::set", {"scope": "catalogue", "key": "kettle", "value": {"name": "Kettle", "price": 3950}}
    )
    assert await call(harness, "iii::queue::redrive", {"queue": "order-validate"}) == {
        "queue": "order-validate",
        "redriven": 1,
    }
    await harness.settle()
    assert (await order(harness, "ord-unknown-product"))["status"] == "fulfilled"
    assert await call(harness, "engine::queue::dlq_messages", {"queue": "order-validate"}) == []


async def test_a_declined_card_is_a_dead_letter_at_its_first_attempt(harness: Harness) -> None:
    await post(harness, "order-declined")
    await harness.settle()
    [letter] = await call(harness, "engine::queue::dlq_messages", {"queue": "order-payment"})
    assert (letter["retries"], letter["error"]) == (1, "the card was declined")
    assert (await order(harness, "ord-declined"))["status"] == "failed"


@pytest.mark.parametrize(("name", "status"), [("order-malformed", 400), ("order-invalid", 422)])
async def test_a_body_that_is_no_order_is_refused_and_nothing_is_stored(
    harness: Harness, name: str, status: int
) -> None:
    assert (await post(harness, name)).status == status
    await harness.settle()
    assert await call(harness, "state::list", {"scope": "orders"}) == []
    assert harness.pushed == []


async def test_the_same_request_under_one_key_is_one_order(harness: Harness) -> None:
    body = json.dumps({"items": [{"sku": "tea", "quantity": 1}], "total": 450}).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": "k1"}
    first = await harness.http("POST", "/orders", body=body, headers=headers)
    second = await harness.http("POST", "/orders", body=body, headers=headers)
    await harness.settle()
    assert (first.status, second.status, first.body) == (202, 202, second.body)
    assert len(await call(harness, "state::list", {"scope": "orders"})) == 1
    assert len(await call(harness, "state::list", {"scope": "payments"})) == 1


async def test_the_hourly_clean_up_marks_an_order_that_got_stuck(harness: Harness) -> None:
    stuck = {"order_id": "ord-stuck", "status": "charging", "current_step": "charge-payment"}
    steps = {"charge-payment": {"status": "running", "at": harness.clock.now().isoformat()}}
    await call(harness, "state::set", {"scope": "orders", "key": "ord-stuck", "value": {**stuck, "steps": steps}})
    await harness.advance(timedelta(hours=24))
    assert (await order(harness, "ord-stuck"))["status"] == "charging"
    await harness.advance(timedelta(hours=1))
    assert (await order(harness, "ord-stuck"))["status"] == "stale"


async def test_payments_of_one_order_keep_their_order_while_others_pass(harness: Harness) -> None:
    await post(harness, "order-payment-flaky")
    await harness.idle()
    await post(harness, "order-ok")
    await harness.idle()
    assert (await order(harness, "ord-ok"))["status"] == "fulfilled"
    assert (await order(harness, "ord-payment-flaky"))["status"] == "retrying"
