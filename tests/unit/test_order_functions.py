"""The order pipeline: each function alone, over an engine that keeps state in a dict and records what it is asked."""

import contextvars
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from functions.charge_payment import PaymentUnavailableError, charge_payment
from functions.cleanup_stale import cleanup_stale
from functions.create import create
from functions.lookup import ENDPOINTS, get_order, get_steps, list_orders
from functions.notify import notify
from functions.orders import ChargePayment, CronTick, Item, NewOrder, OrderFulfilled, ShipOrder, ValidateOrder
from functions.ship import ship
from functions.validate import UnknownProductError, validate
from functions.worker import worker
from iii_runtime import (
    ApiRequest,
    ApiResponse,
    Cron,
    Http,
    Invocation,
    InvocationError,
    NonRetryableError,
    Queue,
    Subscribe,
    TriggerActionEnqueue,
    TriggerActionVoid,
    TriggerRequest,
)
from iii_runtime.adapters.config_file import load_config
from iii_runtime.core.invocation import enter_invocation
from iii_runtime.core.update_ops import apply_ops
from iii_runtime.engine.http_entry import HttpCall
from iii_runtime.hosts.events import CronTick as ScheduledEvent
from iii_runtime.hosts.events import Event, QueuePayloads, parse_event

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
MAX_ATTEMPTS = {"order-validate": 2, "order-payment": 5, "order-ship": 3}


class FakeEngine:
    """Answers `trigger` as an engine would, from memory."""

    def __init__(self) -> None:
        self.state: dict[tuple[str, str], Any] = {("catalogue", "tea"): {"name": "Tea", "price": 450}}
        self.enqueued: list[tuple[TriggerActionEnqueue, TriggerRequest]] = []
        self.published: list[Any] = []
        self.tracked: list[tuple[str, str]] = []
        self.refused: set[str] = set()

    def trigger(self, request: TriggerRequest) -> Any:
        if request.function_id in self.refused:
            raise InvocationError("store_unavailable", "the disk is full", request.function_id)
        if isinstance(request.action, TriggerActionEnqueue):
            self.enqueued.append((request.action, request))
            return {"messageReceiptId": f"receipt-{len(self.enqueued)}"}
        if isinstance(request.action, TriggerActionVoid):
            assert request.function_id == "publish"
            self.published.append(request.payload)
            return None
        return self._builtin(request.function_id, request.payload)

    async def trigger_async(self, request: TriggerRequest) -> Any:
        return self.trigger(request)

    def _builtin(self, function_id: str, payload: dict[str, Any]) -> Any:
        key = (payload.get("scope", ""), payload.get("key", ""))
        match function_id:
            case "state::get":
                return self.state.get(key)
            case "state::set":
                self.state[key] = payload["value"]
            case "state::update":
                self.state[key] = apply_ops(self.state.get(key), payload["ops"]).value
            case "state::list":
                return [value for (scope, _), value in sorted(self.state.items()) if scope == payload["scope"]]
            case "iii::track_step":
                self._track(key, payload)
            case _:
                raise AssertionError(f"unexpected call of {function_id}")
        return None

    def _track(self, key: tuple[str, str], payload: dict[str, Any]) -> None:
        self.tracked.append((payload["step"], payload["status"]))
        order = self.state.setdefault(key, {"steps": {}})
        order |= {"current_step": payload["step"], "status": payload["overall"]}
        order["steps"][payload["step"]] = {**payload["detail"], "status": payload["status"], "at": NOW.isoformat()}


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    worker.attach(engine)
    yield engine
    worker.attach(None)


def inside(invocation: Invocation, call: Callable[[], Any]) -> Any:
    """Run `call` as the body of an invocation."""

    def body() -> Any:
        enter_invocation(invocation)
        return call()

    return contextvars.copy_context().run(body)


def delivery(queue: str, *, attempt: int = 1, receipt: str = "receipt-7") -> Invocation:
    return Invocation(
        id="call",
        function_id="f",
        source="queue",
        queue=queue,
        message_receipt_id=receipt,
        attempt=attempt,
        max_attempts=MAX_ATTEMPTS[queue],
    )


def post(order: NewOrder, *, invocation_id: str = "call", **headers: str) -> ApiResponse[dict[str, Any]]:
    invocation = Invocation(id=invocation_id, function_id="orders::create", source="http")
    response = inside(invocation, lambda: create(order, ApiRequest(method="POST", headers=headers)))
    assert isinstance(response, ApiResponse)
    return response


def new_order(**members: Any) -> NewOrder:
    return NewOrder.model_validate({"items": [{"sku": "tea", "quantity": 2}], "total": 900, **members})


def to_validate(**members: Any) -> ValidateOrder:
    return ValidateOrder.model_validate(new_order(order_id="ord-1", **members).model_dump())


def order_of(engine: FakeEngine, order_id: str = "ord-1") -> dict[str, Any]:
    order = engine.state["orders", order_id]
    assert isinstance(order, dict)
    return order


class TestCreate:
    def test_an_order_is_stored_enqueued_and_accepted(self, engine: FakeEngine) -> None:
        response = post(new_order(order_id="ord-1"))

        assert response.status_code == 202
        assert response.headers == {"Location": "/orders/ord-1"}
        assert response.body == {"order_id": "ord-1", "status": "created", "message_receipt_id": "receipt-1"}
        [(action, request)] = engine.enqueued
        assert (action.queue, request.function_id) == ("order-validate", "orders::validate")
        assert ValidateOrder.model_validate(request.payload).items == [Item(sku="tea", quantity=2)]

    def test_the_stored_order_names_the_receipt_its_letter_would_have(self, engine: FakeEngine) -> None:
        post(new_order(order_id="ord-1"))

        assert order_of(engine)["message_receipt_id"] == "receipt-1"
        assert order_of(engine)["status"] == "created"

    def test_requests_with_one_idempotency_key_are_one_order(self, engine: FakeEngine) -> None:
        """Also when the first answer was lost with its host, so that no stored response catches the second."""
        first = post(new_order(), invocation_id="a", **{"idempotency-key": "k"})
        second = post(new_order(), invocation_id="b", **{"idempotency-key": "k"})

        assert first.body == second.body
        assert len(engine.enqueued) == 1

    def test_requests_without_a_key_are_two_orders(self, engine: FakeEngine) -> None:
        first, second = (post(new_order(), invocation_id=name).body for name in "ab")

        assert first is not None
        assert second is not None
        assert first["order_id"] != second["order_id"]
        assert first["order_id"].startswith("ord-")

    def test_another_order_under_a_known_id_is_a_conflict(self, engine: FakeEngine) -> None:
        post(new_order(order_id="ord-1"))

        response = post(new_order(order_id="ord-1", total=1))

        assert response.status_code == 409
        assert response.body is not None
        assert response.body["error"]["code"] == "ORDER_EXISTS"
        assert order_of(engine)["total"] == 900

    def test_an_order_that_was_stored_and_not_enqueued_is_enqueued_by_the_next_request(
        self, engine: FakeEngine
    ) -> None:
        post(new_order(order_id="ord-1"))
        del order_of(engine)["message_receipt_id"]

        post(new_order(order_id="ord-1"))

        assert len(engine.enqueued) == 2
        assert {action.dedupe_id for action, _ in engine.enqueued} == {"ord-1"}

    def test_an_id_of_which_only_progress_is_left_is_free(self, engine: FakeEngine) -> None:
        """The order was deleted while its message was in flight."""
        engine.state["orders", "ord-1"] = {"status": "failed", "current_step": "validate", "steps": {}}

        assert post(new_order(order_id="ord-1")).status_code == 202
        assert order_of(engine)["status"] == "created"

    @pytest.mark.parametrize(
        "members",
        [{"items": [{"sku": "tea", "quantity": 0}]}, {"total": -1}, {"order_id": "../etc"}, {"colour": "red"}],
    )
    def test_an_order_of_another_form_is_refused(self, members: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            new_order(**members)


class TestLookup:
    def test_every_endpoint_is_a_registered_route(self) -> None:
        routes = {
            spec.function_id: (spec.kind.method, spec.kind.path)
            for spec in worker.registry.triggers()
            if isinstance(spec.kind, Http) and spec.kind.method == "GET"
        }

        assert routes == {endpoint["id"]: ("GET", endpoint["path"]) for endpoint in ENDPOINTS}

    def test_an_order_its_steps_and_the_list_can_be_read(self, engine: FakeEngine) -> None:
        post(new_order(order_id="ord-1"))
        request = {"path_params": {"order_id": "ord-1"}}

        assert get_order(request)["body"]["total"] == 900
        assert get_steps(request)["body"]["steps"]["create"]["status"] == "complete"
        assert list_orders({})["body"] == {
            "orders": [{"order_id": "ord-1", "status": "created", "current_step": "create"}]
        }

    @pytest.mark.parametrize("read", [get_order, get_steps])
    def test_an_unknown_order_is_404_with_a_code(
        self, engine: FakeEngine, read: Callable[[dict[str, Any]], Any]
    ) -> None:
        response = read({"path_params": {"order_id": "ord-9"}})

        assert response.status_code == 404
        assert response.body["error"]["code"] == "ORDER_NOT_FOUND"


class TestValidate:
    def test_a_valid_order_goes_on_to_its_payment(self, engine: FakeEngine) -> None:
        inside(delivery("order-validate"), lambda: validate(to_validate()))

        [(action, request)] = engine.enqueued
        assert (action.queue, request.function_id) == ("order-payment", "orders::charge-payment")
        assert ChargePayment.model_validate(request.payload).total == 900
        assert engine.tracked == [("validate", "running"), ("validate", "complete")]

    def test_an_unknown_product_is_an_error_that_names_it_and_may_be_retried(self, engine: FakeEngine) -> None:
        order = to_validate(items=[{"sku": "coffee", "quantity": 1}])

        with pytest.raises(UnknownProductError, match="'coffee'"):
            inside(delivery("order-validate"), lambda: validate(order))

        assert engine.tracked[-1] == ("validate", "retrying")
        assert not engine.enqueued

    def test_the_last_attempt_leaves_the_step_failed(self, engine: FakeEngine) -> None:
        order = to_validate(items=[{"sku": "coffee", "quantity": 1}])

        with pytest.raises(UnknownProductError):
            inside(delivery("order-validate", attempt=2), lambda: validate(order))

        assert order_of(engine)["status"] == "failed"
        assert "coffee" in order_of(engine)["steps"]["validate"]["error"]

    @pytest.mark.parametrize("members", [{"items": []}, {"total": 901}])
    def test_what_no_attempt_can_mend_fails_at_once(self, engine: FakeEngine, members: dict[str, Any]) -> None:
        with pytest.raises(NonRetryableError):
            inside(delivery("order-validate"), lambda: validate(to_validate(**members)))

        assert engine.tracked[-1] == ("validate", "failed")

    def test_the_error_of_the_step_survives_a_store_that_refuses_everything_else(self, engine: FakeEngine) -> None:
        engine.refused = {"iii::track_step"}
        order = to_validate(items=[{"sku": "coffee", "quantity": 1}])

        with pytest.raises(UnknownProductError):
            inside(delivery("order-validate"), lambda: validate(order))


class TestChargePayment:
    ORDER = ChargePayment(order_id="ord-1", total=900, card="c")

    def test_a_payment_goes_on_to_shipping(self, engine: FakeEngine) -> None:
        payment = inside(delivery("order-payment"), lambda: charge_payment(self.ORDER))

        assert payment == {"transaction_id": "txn-receipt-7", "charged": 900}
        [(action, request)] = engine.enqueued
        assert (action.queue, request.function_id) == ("order-ship", "orders::ship")
        assert ShipOrder.model_validate(request.payload).transaction_id == "txn-receipt-7"

    def test_a_redelivered_message_does_not_charge_again(self, engine: FakeEngine) -> None:
        """Even one that would fail now: the first attempt charged, then died before its message was acknowledged."""
        first = inside(delivery("order-payment"), lambda: charge_payment(self.ORDER))
        declined = self.ORDER.model_copy(update={"card": "declined"})

        second = inside(delivery("order-payment", attempt=2), lambda: charge_payment(declined))

        assert first == second
        assert {action.dedupe_id for action, _ in engine.enqueued} == {"ord-1"}

    def test_it_fails_as_often_as_asked_and_then_succeeds(self, engine: FakeEngine) -> None:
        flaky = self.ORDER.model_copy(update={"fail_payment_times": 2})

        for attempt in (1, 2):
            with pytest.raises(PaymentUnavailableError):
                inside(delivery("order-payment", attempt=attempt), lambda: charge_payment(flaky))
        inside(delivery("order-payment", attempt=3), lambda: charge_payment(flaky))

        statuses = [status for _, status in engine.tracked]
        assert statuses == ["running", "retrying", "running", "retrying", "running", "complete"]

    def test_a_declined_card_is_not_tried_again(self, engine: FakeEngine) -> None:
        declined = self.ORDER.model_copy(update={"card": "declined"})

        with pytest.raises(NonRetryableError, match="declined"):
            inside(delivery("order-payment"), lambda: charge_payment(declined))

        assert order_of(engine)["status"] == "failed"
        assert ("payments", "ord-1") not in engine.state


class TestRedelivery:
    """After a host died before the acknowledgement, a message comes again, maybe when the order is far ahead."""

    def test_a_late_second_validation_passes_the_order_on_and_leaves_its_progress_alone(
        self, engine: FakeEngine
    ) -> None:
        inside(delivery("order-validate"), lambda: validate(to_validate()))
        order_of(engine)["status"] = "fulfilled"
        seen = list(engine.tracked)

        inside(delivery("order-validate"), lambda: validate(to_validate()))

        assert engine.tracked == seen
        assert order_of(engine)["status"] == "fulfilled"
        assert [action.dedupe_id for action, _ in engine.enqueued] == ["ord-1", "ord-1"]

    def test_a_late_second_charge_charges_nothing_and_leaves_the_progress_alone(self, engine: FakeEngine) -> None:
        order = ChargePayment(order_id="ord-1", total=900, card="c")
        first = inside(delivery("order-payment"), lambda: charge_payment(order))
        seen = list(engine.tracked)

        assert inside(delivery("order-payment", receipt="another"), lambda: charge_payment(order)) == first
        assert engine.tracked == seen
        assert len(engine.enqueued) == 2

    def test_a_redriven_step_that_failed_runs_again(self, engine: FakeEngine) -> None:
        wrong = to_validate(items=[{"sku": "coffee", "quantity": 1}])
        with pytest.raises(UnknownProductError):
            inside(delivery("order-validate", attempt=2), lambda: validate(wrong))

        inside(delivery("order-validate"), lambda: validate(to_validate()))

        assert engine.tracked[-2:] == [("validate", "running"), ("validate", "complete")]


class TestShipAndNotify:
    def test_shipping_fulfils_the_order_and_publishes_it(self, engine: FakeEngine) -> None:
        shipment = inside(delivery("order-ship"), lambda: ship(ShipOrder(order_id="ord-1", transaction_id="t")))

        assert order_of(engine)["status"] == "fulfilled"
        [event] = engine.published
        assert event == {"topic": "order.fulfilled", "data": {"order_id": "ord-1", **shipment}}

    def test_a_redelivered_shipment_keeps_its_tracking_number(self, engine: FakeEngine) -> None:
        order = ShipOrder(order_id="ord-1", transaction_id="t")

        first, second = (inside(delivery("order-ship"), lambda: ship(order)) for _ in range(2))

        assert first == second

    def test_the_notification_is_recorded_with_the_order(self, engine: FakeEngine) -> None:
        notify(OrderFulfilled(order_id="ord-1", tracking_number="PP1", carrier="Post"))

        assert order_of(engine)["steps"]["notify"]["status"] == "complete"
        assert order_of(engine)["status"] == "fulfilled"


class TestCleanupStale:
    def stored(self, engine: FakeEngine, order_id: str, status: str, age: timedelta) -> None:
        steps = {"validate": {"status": status, "at": (NOW - age).isoformat()}}
        order = {"order_id": order_id, "status": status, "current_step": "validate", "steps": steps}
        engine.state["orders", order_id] = order

    def test_orders_without_progress_for_a_day_become_stale(self, engine: FakeEngine) -> None:
        self.stored(engine, "old", "validating", timedelta(hours=24, seconds=1))
        self.stored(engine, "young", "validating", timedelta(hours=24))

        assert cleanup_stale(CronTick(scheduled_time=NOW)) == {"cleaned": 1}
        assert order_of(engine, "old")["status"] == "stale"
        assert order_of(engine, "young")["status"] == "validating"

    @pytest.mark.parametrize("status", ["fulfilled", "failed", "stale"])
    def test_orders_that_ended_stay_as_they_are(self, engine: FakeEngine, status: str) -> None:
        self.stored(engine, "old", status, timedelta(days=9))

        assert cleanup_stale(CronTick(scheduled_time=NOW)) == {"cleaned": 0}
        assert order_of(engine, "old")["status"] == status

    def test_an_order_whose_creation_was_cut_short_becomes_stale(self, engine: FakeEngine) -> None:
        engine.refused = {"iii::track_step"}
        post(new_order(order_id="ord-1"))

        assert cleanup_stale(CronTick(scheduled_time=NOW)) == {"cleaned": 1}

    def test_progress_of_a_deleted_order_is_no_order(self, engine: FakeEngine) -> None:
        """A message in flight goes on reporting; neither the listing nor the cleanup may trip over that."""
        del engine.state["catalogue", "tea"]
        with pytest.raises(UnknownProductError):
            inside(delivery("order-validate"), lambda: validate(to_validate()))

        assert list_orders({})["body"] == {"orders": []}
        assert cleanup_stale(CronTick(scheduled_time=NOW + timedelta(days=9))) == {"cleaned": 0}

    def test_a_tick_is_read_from_what_the_cron_trigger_sends(self) -> None:
        tick = CronTick.model_validate({"trigger": "cron", "job_id": "j", "scheduled_time": "2026-05-04T12:00:00Z"})

        assert tick.scheduled_time == NOW


class TestRegistration:
    def test_each_function_has_the_trigger_of_the_pipeline(self) -> None:
        kinds = {spec.function_id: spec.kind for spec in worker.registry.triggers()}

        assert kinds["orders::create"] == Http("POST", "/orders")
        assert kinds["orders::validate"] == Queue("order-validate")
        assert kinds["orders::charge-payment"] == Queue("order-payment")
        assert kinds["orders::ship"] == Queue("order-ship")
        assert kinds["orders::notify"] == Subscribe("order.fulfilled")
        assert kinds["orders::cleanup-stale"] == Cron("0 0 * * * *")

    def test_every_queue_is_declared_with_the_attempts_the_pipeline_counts_on(self) -> None:
        queues = load_config(ROOT / "iii-config.yaml", {}).queues

        assert {name: queues[name].max_retries for name in MAX_ATTEMPTS} == MAX_ATTEMPTS


class TestEvents:
    @pytest.mark.parametrize("file", sorted((ROOT / "events" / "http").glob("*.json")), ids=lambda file: file.stem)
    def test_an_http_event_is_a_request_to_create_an_order(self, file: Path) -> None:
        call = event(f"http/{file.name}")

        assert isinstance(call, HttpCall)
        assert (call.method, call.path) == ("POST", "/orders")
        assert call.named["content-type"] == "application/json"

    @pytest.mark.parametrize("name", ["order-ok", "order-payment-flaky", "order-unknown-product", "order-declined"])
    def test_the_bodies_of_real_orders_fit_the_model(self, name: str) -> None:
        call = event(f"http/{name}.json")

        assert isinstance(call, HttpCall)
        assert NewOrder.model_validate_json(call.body).order_id is not None

    @pytest.mark.parametrize("name", ["order-malformed", "order-invalid"])
    def test_the_bodies_of_the_others_do_not(self, name: str) -> None:
        call = event(f"http/{name}.json")

        assert isinstance(call, HttpCall)
        with pytest.raises(ValidationError):
            NewOrder.model_validate_json(call.body)

    @pytest.mark.parametrize("model", [ValidateOrder, ChargePayment])
    def test_an_sqs_event_carries_the_messages_of_its_queue(self, model: type[ValidateOrder | ChargePayment]) -> None:
        name = {ValidateOrder: "order-validate", ChargePayment: "order-payment"}[model]
        messages = event(f"sqs/{name}.json")

        assert isinstance(messages, QueuePayloads)
        assert messages.queue == name
        assert [model.model_validate(payload).order_id for payload in messages.payloads] == ["ord-ok"]

    def test_the_schedule_event_is_a_tick_on_the_hour(self) -> None:
        tick = event("schedule/cleanup-stale.json")

        assert isinstance(tick, ScheduledEvent)
        assert tick.scheduled_at == NOW


def event(name: str) -> Event:
    return parse_event(json.loads((ROOT / "events" / name).read_text()))
