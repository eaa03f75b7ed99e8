"""The order pipeline, deployed: orders come in over HTTP, progress goes out by WebSocket, failures are mended."""

from __future__ import annotations

import asyncio
import json

from scripts.demo_expected import EXPECTED, answer_differences, order_differences
from tests.e2e.deployed import Deployed, demo_requests
from tests.patience import eventually

NOTIFIED, FAILED_CHECK, FAILED_PAYMENT = ("notify", "complete"), ("validate", "failed"), ("charge-payment", "failed")
KETTLE = {"name": "Kettle", "price": 3950}

SMOOTH = [
    ("create", "complete", None),
    ("validate", "running", 1),
    ("validate", "complete", 1),
    ("charge-payment", "running", 1),
    ("charge-payment", "complete", 1),
    ("ship", "running", 1),
    ("ship", "complete", 1),
    ("notify", "complete", None),
]
FLAKY = [
    *SMOOTH[:4],
    ("charge-payment", "retrying", 1),
    ("charge-payment", "running", 2),
    ("charge-payment", "retrying", 2),
    ("charge-payment", "running", 3),
    ("charge-payment", "complete", 3),
    *SMOOTH[5:],
]


async def test_the_demo_orders_end_as_they_should_and_progress_comes_in_order_of_each(deployed: Deployed) -> None:
    requests = demo_requests()
    differences: list[str] = []
    accepted = [name for name, expected in EXPECTED.items() if expected.answer == 202]
    ids = {name: name.replace("order-", "ord-", 1) for name in EXPECTED}
    async with deployed.watching(*(ids[name] for name in accepted)) as watch:
        for name, expected in EXPECTED.items():
            call = requests[name]
            headers = {key: value for key, value in call.named.items() if key not in {"host", "content-length"}}
            answer = await asyncio.to_thread(deployed.request, call.method, call.path, call.body, headers=headers)
            differences += answer_differences(name, expected, answer.status, answer.body)
        await watch.until((ids[name] for name in accepted), NOTIFIED, FAILED_CHECK, FAILED_PAYMENT)
    for name, expected in EXPECTED.items():
        differences += order_differences(name, expected, await asyncio.to_thread(deployed.order, ids[name]))
    assert differences == []
    assert watch.steps["ord-ok"] == SMOOTH
    assert watch.steps["ord-payment-flaky"] == FLAKY


async def test_a_failing_order_is_on_its_dead_letter_queue_with_its_error_and_completes_when_redriven(
    deployed: Deployed,
) -> None:
    order_id = "ord-kettle"
    async with deployed.watching(order_id) as watch:
        order = {"order_id": order_id, "items": [{"sku": "steel-kettle", "quantity": 2}], "total": 7900}
        await asyncio.to_thread(deployed.post_order, order)
        await watch.until([order_id], FAILED_CHECK)

        letter = await asyncio.to_thread(eventually, lambda: letter_of(deployed, order_id), "the dead letter")
        shown = await asyncio.to_thread(deployed.project.ask, "dlq", "show", str(letter["id"]))
        assert letter["error"] == "product 'steel-kettle' is not in the catalogue"
        assert (letter["error_type"], letter["retries"]) == ("UnknownProductError", 2)
        assert shown["payload"]["items"] == order["items"]

        await asyncio.to_thread(deployed.fill_catalogue, {"steel-kettle": KETTLE})
        redrive = ("dlq", "redrive", "order-validate", str(letter["id"]))
        await asyncio.to_thread(deployed.project.cli, *redrive)
        await watch.until([order_id], NOTIFIED)
    assert (await asyncio.to_thread(deployed.order_in, order_id, "fulfilled"))["steps"]["validate"]["attempt"] == 1
    assert await asyncio.to_thread(letter_of, deployed, order_id) is None


def test_state_can_be_read_and_written_with_the_command_line(deployed: Deployed) -> None:
    value = {"name": "Cup", "price": 700, "note": "1.10 \u00fc", "deep": [{"a": None}]}
    deployed.project.cli("state", "set", "catalogue", "cup", json.dumps(value))
    assert deployed.project.ask("state", "get", "catalogue", "cup") == value
    assert value in deployed.project.ask("state", "list", "catalogue")


def letter_of(deployed: Deployed, order_id: str) -> dict[str, object] | None:
    """Return the dead letter of an order, if there is one."""
    letters = deployed.project.ask("dlq", "list", "order-validate")
    return next((letter for letter in letters if letter["payload"]["order_id"] == order_id), None)
