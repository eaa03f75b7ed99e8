"""The order pipeline on AWS: real Lambda handlers, from the http request to the end of each order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime.core.payload import Json
from tests.aws.calls import Answered, Call, refuse
from tests.aws.invocations import Invocation
from tests.aws.orders import STEPS, OrderStage, deployed_orders
from tests.aws.overseers import Meddling

ORDER_QUEUES = ("order-validate", "order-payment", "order-ship")


@pytest.fixture
def stage() -> Iterator[OrderStage]:
    with deployed_orders() as stage:
        yield stage


def test_an_order_goes_from_its_request_through_three_queues_to_its_end(stage: OrderStage) -> None:
    reply = stage.post("order-ok")
    assert reply.status == 202
    assert ("location", "/orders/ord-ok") in [(name.lower(), value) for name, value in reply.headers]
    stage.simulator.settle()
    order = stage.order("ord-ok")
    assert order["status"] == "fulfilled"
    assert order["message_receipt_id"] == json.loads(reply.body)["message_receipt_id"]
    assert stage.steps("ord-ok") == STEPS
    assert stage.simulator.used_queues() == []


def test_what_can_be_read_over_http_is_there(stage: OrderStage) -> None:
    stage.post("order-ok")
    stage.simulator.settle()
    found = {}
    for path in ("/orders", "/orders/ord-ok", "/orders/ord-ok/steps", "/orders/ord-none"):
        reply = stage.simulator.http.request("GET", path, "", (), b"")
        found[path] = (reply.status, json.loads(reply.body))
    assert [status for status, _ in found.values()] == [200, 200, 200, 404]
    assert found["/orders"][1]["orders"] == [{"order_id": "ord-ok", "status": "fulfilled", "current_step": "notify"}]
    assert set(found["/orders/ord-ok/steps"][1]["steps"]) == {"create", "validate", "charge-payment", "ship", "notify"}


def test_a_payment_that_fails_twice_succeeds_after_its_back_offs(stage: OrderStage) -> None:
    started = stage.simulator.clock.now()
    stage.post("order-payment-flaky")
    stage.simulator.settle()
    order = stage.order("ord-payment-flaky")
    assert (order["status"], order["steps"]["charge-payment"]["attempt"]) == ("fulfilled", 3)
    assert stage.simulator.clock.now() - started == timedelta(seconds=2 + 4)


def test_a_failing_payment_is_a_dead_letter_with_its_real_error_and_goes_on_once_it_is_redriven(
    stage: OrderStage,
) -> None:
    body = {"order_id": "ord-unlucky", "items": [{"sku": "tea", "quantity": 1}], "total": 450, "fail_payment_times": 5}
    headers = (("content-type", "application/json"),)
    stage.simulator.http.request("POST", "/orders", "", headers, json.dumps(body).encode())
    stage.simulator.settle()
    [letter] = stage.letters("order-payment")
    assert (letter["error_type"], letter["cause"], letter["retries"]) == ("PaymentUnavailableError", "failed", 5)
    assert letter["error"] == "the payment provider did not answer (attempt 5)"
    assert stage.order("ord-unlucky")["status"] == "failed"
    detail = stage.call("engine::queue::dlq_message", message_id=letter["id"])
    assert [error["attempt"] for error in detail["errors"]] == [3, 4, 5]
    assert "in _ask_provider" in detail["stack"]
    assert len(stage.simulator.letters("order-payment")) == 1

    stage.call("iii::queue::redrive", queue="order-payment")
    stage.simulator.run_due()
    assert stage.order("ord-unlucky")["steps"]["charge-payment"]["attempt"] == 1
    assert stage.letters("order-payment") == []


def test_a_declined_card_is_a_dead_letter_at_its_first_attempt(stage: OrderStage) -> None:
    stage.post("order-declined")
    stage.simulator.settle()
    [letter] = stage.letters("order-payment")
    assert (letter["retries"], letter["error"], letter["cause"]) == (1, "the card was declined", "failed")
    assert stage.order("ord-declined")["status"] == "failed"


def test_a_redrive_from_the_aws_console_works_too_and_starts_at_attempt_1(stage: OrderStage) -> None:
    stage.post("order-unknown-product")
    stage.simulator.settle()
    [letter] = stage.letters("order-validate")
    stage.call("state::set", scope="catalogue", key="kettle", value={"name": "Kettle", "price": 3950})
    assert stage.simulator.console_redrive("order-validate") == 1
    stage.simulator.settle()
    order = stage.order("ord-unknown-product")
    assert (order["status"], order["steps"]["validate"]["attempt"]) == ("fulfilled", 1)
    assert order["steps"]["validate"]["message_receipt_id"] == letter["id"]
    assert stage.letters("order-validate") == []


def test_payments_of_one_order_keep_their_order_while_others_pass(stage: OrderStage) -> None:
    stage.post("order-payment-flaky")
    stage.simulator.run_due()
    stage.post("order-ok")
    stage.simulator.run_due()
    assert stage.order("ord-ok")["status"] == "fulfilled"
    assert stage.order("ord-payment-flaky")["status"] == "retrying"
    stage.simulator.settle()
    assert stage.order("ord-payment-flaky")["status"] == "fulfilled"


def test_the_same_request_under_one_key_is_one_order(stage: OrderStage) -> None:
    replies = [stage.post("order-ok") for _ in range(2)]
    stage.simulator.settle()
    assert [reply.status for reply in replies] == [202, 202]
    assert replies[0].body == replies[1].body
    assert stage.steps("ord-ok") == STEPS


@pytest.mark.parametrize("name", ["order-malformed", "order-invalid"])
def test_a_body_that_is_no_order_is_refused_and_nothing_is_stored(stage: OrderStage, name: str) -> None:
    assert stage.post(name).status in {400, 422}
    stage.simulator.settle()
    assert stage.call("state::list", scope="orders") == []
    assert stage.simulator.used_queues() == []


def test_the_hourly_clean_up_marks_an_order_that_got_stuck(stage: OrderStage) -> None:
    step: Json = {"status": "running", "at": stage.simulator.clock.now().isoformat()}
    stuck: dict[str, Json] = {"order_id": "ord-stuck", "status": "charging", "current_step": "charge-payment"}
    stage.call("state::set", scope="orders", key="ord-stuck", value=stuck | {"steps": {"charge-payment": step}})
    stage.simulator.advance(timedelta(hours=24))
    assert stage.order("ord-stuck")["status"] == "charging"
    stage.simulator.advance(timedelta(hours=1))
    assert stage.order("ord-stuck")["status"] == "stale"


def test_a_viewer_sees_the_steps_of_its_order_in_order_and_nothing_of_others(stage: OrderStage) -> None:
    sockets = stage.simulator.websocket
    viewer, gone = sockets.connect(), sockets.connect()
    join = {"type": "join", "data": {"subscriptionId": "s", "streamName": "order-progress", "groupId": "ord-ok"}}
    for connection in (viewer, gone):
        sockets.send(connection, json.dumps(join))
    sockets.disconnect(gone, is_noticed=False)
    first_frames = len(viewer.frames)
    stage.post("order-payment-flaky")
    stage.post("order-ok")
    stage.simulator.settle()
    frames: list[Any] = [json.loads(frame) for frame in viewer.frames[first_frames:]]
    assert {frame["groupId"] for frame in frames} == {"ord-ok"}
    told = [frame["event"]["event"]["data"] for frame in frames]
    assert [(data["step"], data["status"]) for data in told] == STEPS


class TestMishaps:
    def test_a_message_that_is_delivered_twice_changes_nothing(self, stage: OrderStage) -> None:
        """SQS forgets each deletion once: every step runs again after it was done."""
        for queue in ORDER_QUEUES:
            source = stage.simulator.source(queue)
            source.forgets = 1
        stage.post("order-ok")
        stage.simulator.settle()
        assert stage.order("ord-ok")["status"] == "fulfilled"
        steps = stage.steps("ord-ok")
        assert [step for step in steps if step != ("notify", "complete")] == STEPS[:-1]
        assert len(stage.call("state::list", scope="payments")) == 1
        assert [stage.letters(queue) for queue in ORDER_QUEUES] == [[], [], []]

    def test_throttled_receives_are_no_attempts(self, stage: OrderStage) -> None:
        for queue in ORDER_QUEUES:
            stage.simulator.source(queue).throttles = 3
        stage.post("order-ok")
        stage.simulator.settle()
        order = stage.order("ord-ok")
        assert order["status"] == "fulfilled"
        assert [order["steps"][step]["attempt"] for step in ("validate", "charge-payment", "ship")] == [1, 1, 1]

    def test_a_message_whose_receives_are_all_throttled_is_adopted_with_its_cause_and_can_be_redriven(
        self, stage: OrderStage
    ) -> None:
        """SQS moves it by itself; the tick finds it a few minutes later."""
        planned = stage.simulator.plan.queues["order-ship"]
        stage.simulator.source("order-ship").throttles = planned.max_receives
        stage.post("order-ok")
        stage.simulator.settle()
        assert len(stage.simulator.letters("order-ship")) == 1
        assert stage.letters("order-ship") == []
        stage.simulator.advance(timedelta(minutes=5))
        [letter] = stage.letters("order-ship")
        assert (letter["cause"], letter["retries"], letter["payload"]["order_id"]) == ("native", 0, "ord-ok")
        assert len(stage.simulator.letters("order-ship")) == 1
        stage.call("iii::queue::redrive_message", queue="order-ship", message_id=letter["id"])
        stage.simulator.settle()
        assert stage.order("ord-ok")["status"] == "fulfilled"
        stage.simulator.advance(timedelta(minutes=5))
        assert stage.simulator.letters("order-ship") == []

    def test_a_message_that_kills_its_sandbox_each_time_is_given_up_with_its_cause(self, stage: OrderStage) -> None:
        """It runs at every receive but the last, always as attempt 1."""
        lives = []

        def kill_while_it_runs(invocation: Invocation, call: Call) -> None:
            reads_state = call.operation == "GetItem" and call.parameters["Key"]["pk"]["S"].startswith("S#")
            if invocation.function.endswith("orders--ship") and reads_state:
                lives.append(invocation.aws_request_id)
                invocation.kill()

        stage.post("order-ok")
        stage.simulator.lambdas.overseer = Meddling(kill_while_it_runs)
        stage.simulator.settle()
        stage.simulator.lambdas.overseer = None
        [letter] = stage.letters("order-ship")
        unrun = stage.simulator.plan.queues["order-ship"].spec.receives_for("orders::ship")
        assert (letter["cause"], letter["retries"], letter["receives"]) == ("receives", 0, unrun)
        assert len(lives) == unrun - 1
        assert stage.order("ord-ok")["status"] == "paid"

    def test_a_table_that_throttles_for_a_while_delays_an_order_and_loses_none(self, stage: OrderStage) -> None:
        left = [12]

        def throttle(_invocation: Invocation, call: Call) -> Answered | None:
            if call.service != "dynamodb" or not left[0]:
                return None
            left[0] -= 1
            return refuse("ProvisionedThroughputExceededException")

        stage.post("order-ok")
        stage.simulator.lambdas.overseer = overseer = Meddling(throttle)
        stage.simulator.settle()
        stage.simulator.lambdas.overseer = None
        assert len(overseer.answered) == 12
        assert stage.order("ord-ok")["status"] == "fulfilled"
        assert stage.simulator.used_queues() == []


@pytest.mark.parametrize("name", ["order-ok", "order-declined", "order-unknown-product"])
def test_every_event_file_of_the_http_api_is_taken_by_the_handlers(stage: OrderStage, name: str) -> None:
    assert stage.post(name).status == 202
