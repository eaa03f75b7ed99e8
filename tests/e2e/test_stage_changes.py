"""A stage from its second deployment to its end; the last tests of a run, because they leave no stage behind."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.deployed import Answer, Deployed
from tests.e2e.project import CommandFailedError, e2e_config
from tests.patience import eventually

_BETWEEN_ORDERS_S = 0.3
_ALL_S = 200.0
_ADDED = '''"""Added between two deployments."""

from typing import Any

from e2e_functions.functions import worker
from iii_runtime import ApiRequest, ApiResponse, Http


@worker.function("e2e::added", triggers=[Http("GET", "/e2e/added")])
def added(request: ApiRequest[Any]) -> ApiResponse[dict[str, Any]]:
    """Answer."""
    return ApiResponse(status_code=200, body={"added": True})
'''


def test_a_deployment_while_orders_flow_loses_none_and_no_route_is_missing_meanwhile(deployed: Deployed) -> None:
    project = deployed.project
    assert deployed.request("GET", "/e2e/added").status == 404
    (project.root / "e2e_functions" / "added.py").write_text(_ADDED, "utf-8")
    config = e2e_config()
    queues(config)["order-ship"].update(max_retries=4, backoff_ms=700)
    project.configure(config)
    project.bundle()
    with flowing(deployed) as answers:
        project.deploy()
    assert deployed.request("GET", "/e2e/added") == Answer(200, {"added": True})
    assert len(answers) > 5
    assert {order_id: answer.status for order_id, answer in answers.items()} == dict.fromkeys(answers, 202)

    def ended() -> bool:
        orders = deployed.orders()
        return all(orders[order_id]["status"] == "fulfilled" for order_id in answers)

    eventually(ended, "all orders to be fulfilled", within_s=_ALL_S)
    receives = deployed.emulator.client("sqs").get_queue_attributes(
        QueueUrl=deployed.queue_url("order-ship"), AttributeNames=["RedrivePolicy"]
    )
    assert receives["Attributes"]["RedrivePolicy"]


def test_a_queue_that_turns_from_standard_to_fifo_is_refused_before_anything_is_deployed(deployed: Deployed) -> None:
    config = e2e_config()
    queues(config)["order-ship"].update(type="fifo", message_group_field="order_id")
    deployed.project.configure(config)
    try:
        with pytest.raises(CommandFailedError, match="order-ship") as refused:
            deployed.project.deploy()
        assert "standard" in str(refused.value)
        with pytest.raises(CommandFailedError, match="order-ship"):
            deployed.project.cli("config", "check")
    finally:
        deployed.project.configure(e2e_config())


def test_nothing_is_left_of_a_stage_that_was_destroyed(deployed: Deployed) -> None:
    deployed.project.destroy()
    assert deployed.leftovers() == []


def queues(config: dict[str, Any]) -> dict[str, Any]:
    """Return the queues of a configuration."""
    sections = {worker["name"]: worker["config"] for worker in config["workers"] if "config" in worker}
    found: dict[str, Any] = sections["iii-queue"]["queue_configs"]
    return found


@contextmanager
def flowing(deployed: Deployed) -> Iterator[dict[str, Answer]]:
    """Post one order after the other until the block ends; yields what they were answered, by id."""
    answers: dict[str, Answer] = {}
    ended = threading.Event()

    def post_on() -> None:
        while not ended.wait(_BETWEEN_ORDERS_S):
            order_id = f"ord-flow-{len(answers):03}"
            items = [{"sku": "mug", "quantity": 1}]
            order = {"order_id": order_id, "items": items, "total": 1200}
            # The emulator ends the process of a Lambda whose code is replaced, which AWS does not: a request it was at
            # gets no answer, or 502 ("Worker process died"). Its client repeats it, as after any error of a server.
            with contextlib.suppress(TimeoutError):
                answer = deployed.request("POST", "/orders", order)
                if answer.status != 502:
                    answers[order_id] = answer

    poster = threading.Thread(target=post_on)
    poster.start()
    began = time.monotonic()
    try:
        yield answers
    finally:
        ended.set()
        poster.join()
        deployed.project.timings.append(("orders flowing", time.monotonic() - began))
