"""What a message, a step and a whole order ask of AWS, counted; and what a million orders cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from iii_runtime import Queue, StepTracker, Worker, register_worker
from iii_runtime.core.config import Config, QueueConfig
from iii_runtime.core.payload import Json
from tests.aws.counting import Counting, bought_by_mappings
from tests.aws.orders import STEPS, OrderStage, deployed_orders
from tests.aws.prices import prices
from tests.aws.simulator import Simulator
from tests.told import TOLD

NAME = "shop-dev-f-{}"
QUEUES = {
    "bound": QueueConfig(name="bound", max_retries=2),
    "shared": QueueConfig(name="shared", max_retries=2),
}
ENQUEUE = {"type": "enqueue", "queue": "bound"}


@pytest.fixture
def worker() -> Worker:
    return register_worker(worker_name="app")


@contextmanager
def counted(worker: Worker) -> Iterator[tuple[Simulator, Counting]]:
    with Simulator([worker], Config(queues=QUEUES)) as simulator:
        counting = Counting(simulator.cloud)
        simulator.lambdas.overseer = counting
        yield simulator, counting


class TestMessages:
    def test_a_queue_hop_without_state_asks_nothing_of_aws(self, worker: Worker) -> None:
        worker.function("a::work", triggers=[Queue("bound")])(lambda data: None)
        with counted(worker) as (simulator, counting):
            simulator.trigger("a::work", 1, ENQUEUE)
            simulator.settle()
            assert counting.calls_of("shop-dev-x-control") == ["sqs.SendMessage"]
            assert counting.calls_of(NAME.format("a--work")) == []
            assert counting.invocations == ["shop-dev-x-control", NAME.format("a--work")]

    def test_a_message_by_the_dispatcher_is_one_invoke_more(self, worker: Worker) -> None:
        worker.register_function("a::work", lambda data: None)
        with counted(worker) as (simulator, counting):
            simulator.trigger("a::work", 1, {"type": "enqueue", "queue": "shared"})
            simulator.settle()
            assert counting.calls_of("shop-dev-x-dispatcher") == ["lambda.Invoke"]
            assert counting.calls_of(NAME.format("a--work")) == []

    def test_a_dedupe_id_costs_two_writes(self, worker: Worker) -> None:
        worker.function("a::work", triggers=[Queue("bound")])(lambda data: None)
        with counted(worker) as (simulator, counting):
            for _ in range(2):
                simulator.trigger("a::work", 1, {**ENQUEUE, "dedupe_id": "x"})
            first = ["dynamodb.PutItem", "sqs.SendMessage", "dynamodb.UpdateItem"]
            assert counting.calls_of("shop-dev-x-control") == [*first, "dynamodb.PutItem"]

    def test_failures_a_death_and_a_redrive_cost_what_the_protocol_says(self, worker: Worker) -> None:
        is_broken = [True]

        def work(data: Any) -> None:
            if is_broken[0]:
                raise ValueError("no")

        worker.function("a::work", triggers=[Queue("bound")])(work)
        name = NAME.format("a--work")
        with counted(worker) as (simulator, counting):
            receipt: Any = simulator.trigger("a::work", 1, ENQUEUE)
            simulator.run_due()
            assert counting.calls_of(name) == ["dynamodb.UpdateItem", "sqs.ChangeMessageVisibility"]
            counting.charged.clear()
            simulator.settle()
            assert counting.calls_of(name) == ["dynamodb.GetItem", "dynamodb.UpdateItem", "sqs.SendMessage"]
            counting.charged.clear()
            is_broken[0] = False
            payload = {"queue": "bound", "message_id": receipt["messageReceiptId"]}
            simulator.trigger("iii::queue::redrive_message", payload)
            redrive = ["dynamodb.GetItem", "sqs.SendMessage", "dynamodb.UpdateItem"]
            assert counting.calls_of("shop-dev-x-control") == redrive
            simulator.settle()
            assert counting.calls_of(name) == ["dynamodb.GetItem", "dynamodb.UpdateItem"]


def test_a_step_of_a_document_that_has_steps_is_one_write(worker: Worker) -> None:
    tracker = StepTracker(worker, scope="orders", stream_name="progress")
    worker.register_function("a::step", lambda data: tracker.track("o1", "pay", data))
    document: Json = {"scope": "orders", "key": "o1", "value": {"total": 5, "steps": {}}}
    with counted(worker) as (simulator, counting):
        simulator.trigger("state::set", document)
        for status in ("running", "retrying", "complete"):
            simulator.trigger("a::step", status)
        assert counting.calls_of(NAME.format("a--step")) == ["dynamodb.UpdateItem"] * 3
        writes = [one for one in counting.charged if one.function == NAME.format("a--step")]
        assert [one.bought["dynamodb_write_unit"] for one in writes] == [1, 1, 1]


@pytest.mark.parametrize("document", [None, {"total": 5}], ids=["no document", "no steps"])
def test_the_first_step_is_a_refused_update_and_a_write_and_every_other_is_one(worker: Worker, document: Json) -> None:
    """Two requests at most, whatever is missing; three units if the document is, one of them for its name's entry."""
    tracker = StepTracker(worker, scope="orders", stream_name="progress")
    worker.register_function("a::step", lambda data: tracker.track("o1", "pay", data))
    name = NAME.format("a--step")
    with counted(worker) as (simulator, counting):
        if document is not None:
            simulator.trigger("state::set", {"scope": "orders", "key": "o1", "value": document})
        simulator.trigger("a::step", "running")
        assert counting.calls_of(name) == ["dynamodb.UpdateItem", "dynamodb.PutItem"]
        units = [one.bought["dynamodb_write_unit"] for one in counting.charged if one.function == name]
        assert units == [1, 2 if document is None else 1]
        counting.charged.clear()
        simulator.trigger("a::step", "complete")
        assert counting.calls_of(name) == ["dynamodb.UpdateItem"]


ORDER: dict[str, dict[str, int]] = {
    "orders::create": {"dynamodb.GetItem": 1, "dynamodb.PutItem": 3, "dynamodb.UpdateItem": 4, "sqs.SendMessage": 1},
    "orders::validate": {"dynamodb.GetItem": 3, "dynamodb.PutItem": 1, "dynamodb.UpdateItem": 3, "sqs.SendMessage": 1},
    "orders::charge-payment": {
        "dynamodb.GetItem": 1,
        "dynamodb.PutItem": 2,
        "dynamodb.UpdateItem": 3,
        "sqs.SendMessage": 1,
    },
    "orders::ship": {"dynamodb.GetItem": 1, "dynamodb.UpdateItem": 2, "lambda.Invoke": 1},
    "orders::notify": {"dynamodb.UpdateItem": 1},
    "feed": {"dynamodb.GetItem": 1, "sns.PublishBatch": 1},
}
"""What one order asks of AWS, by function: the http request with its key, three queue hops, state, steps, progress."""

PRICE = 23.90
"""Of a million orders, in the currency of the price list."""


def test_an_order_asks_for_no_more_than_it_did_and_its_price_is_known(
    record_property: Callable[[str, object], None],
) -> None:
    with deployed_orders() as stage:
        counting = Counting(stage.simulator.cloud)
        stage.simulator.lambdas.overseer = counting
        assert stage.post("order-ok").status == 202
        stage.simulator.settle()
        stage.simulator.lambdas.overseer = None
        assert stage.steps("ord-ok") == STEPS
        bought = bought_by(stage, counting)
    record_property(TOLD, report(counting, bought))
    asked = {label: dict(Counter(counting.calls_of(name))) for label, name in names(stage).items()}
    assert asked == ORDER, "more than before? If it is meant, store the new numbers"
    assert round(prices().of(bought) * 1_000_000, 2) == PRICE


def bought_by(stage: OrderStage, counting: Counting) -> Counter[str]:
    """Return everything that AWS charges for one order."""
    batches = dict.fromkeys(("order-validate", "order-payment", "order-ship"), 1)
    fifo = frozenset(name for name in batches if stage.simulator.plan.queues[name].spec.is_ordered)
    bought = bought_by_mappings(batches, fifo)
    for charged in counting.charged:
        bought += charged.bought
    bought["lambda_request"] += len(counting.invocations)
    bought["http_request"] += 1
    return bought


def names(stage: OrderStage) -> dict[str, str]:
    """Return the Lambdas that an order touches, by what they are called in `ORDER`."""
    deployment = stage.simulator.deployment
    functions = {label: deployment.function_name(label) for label in ORDER if "::" in label}
    return {**functions, "feed": deployment.system_name("feed")}


def report(counting: Counting, bought: Counter[str]) -> str:
    """Return every request of the order, and what a million orders cost."""
    lines = ["", "one order asks AWS for"]
    for charged in counting.charged:
        units = ", ".join(f"{count:g} {kind}" for kind, count in charged.bought.items()) or "an invocation"
        lines.append(f"  {charged.function.removeprefix('shop-dev-'):28} {charged.call!s:28} {units}")
    lines.append(f"a million orders cost, in {prices().currency} by the list of {prices().date}")
    for kind, count in sorted(bought.items()):
        lines.append(f"  {count:6g} x {kind:24} {prices().each[kind] * count * 1_000_000:8.2f}")
    time = prices().invocation * bought["lambda_request"] * 1_000_000
    lines.append(f"  {bought['lambda_request']:6g} x {'time of an invocation':24} {time:8.2f}")
    lines.append(f"  {'':6}   {'':24} {prices().of(bought) * 1_000_000:8.2f}")
    return "\n".join([*lines, ""])
