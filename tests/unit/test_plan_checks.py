"""What cannot work in an app is found before it runs."""

from __future__ import annotations

from typing import Any

import pytest

from iii_runtime import (
    Cron,
    DurableSubscriber,
    Http,
    OnState,
    Queue,
    RegistrationError,
    Worker,
    register_worker,
)
from iii_runtime.core.config import Config, QueueConfig
from iii_runtime.core.registry import Catalog
from iii_runtime.core.triggers import TriggerKind
from iii_runtime.plan.checks import Finding, check_app

CONFIG = Config(queues={"order-payment": QueueConfig(name="order-payment")})


def worker_with(*triggers: TriggerKind) -> Worker:
    worker = register_worker()
    worker.function("orders::pay", triggers=triggers)(lambda data: data)
    return worker


def findings_of(worker: Worker) -> list[Finding]:
    return check_app(CONFIG, Catalog.of([worker.registry]))


def test_an_app_that_works_has_no_findings() -> None:
    worker = worker_with(
        Http("POST", "/orders"),
        Http("GET", "/orders"),
        Cron("0 0 * * * *"),
        Queue("order-payment"),
        Queue("default"),
        DurableSubscriber("t"),
        OnState("orders", condition="orders::pay"),
    )
    assert findings_of(worker) == []


def test_a_queue_that_is_not_declared_is_an_error_with_a_suggestion() -> None:
    (finding,) = findings_of(worker_with(Queue("order-payments")))
    assert finding.level == "error"
    assert finding.where.startswith(__file__)
    assert finding.message == (
        "queue trigger of 'orders::pay': queue 'order-payments' is not in queue_configs "
        "(did you mean 'order-payment'?). Declare it in iii-config.yaml."
    )


def test_the_queue_of_a_subscription_cannot_be_bound() -> None:
    with pytest.raises(RegistrationError, match="'topic/t/orders::pay'"):
        worker_with(DurableSubscriber("t"), Queue("topic/t/orders::pay"))


def test_two_routes_of_one_shape_are_an_error() -> None:
    worker = worker_with(Http("GET", "/orders/:id"), Http("GET", "orders/{order_id}"), Http("POST", "/orders/:id"))
    (finding,) = findings_of(worker)
    assert finding.level == "error"
    assert finding.where.startswith(f"{__file__}:")
    assert finding.message == (
        "http trigger of 'orders::pay': GET /orders/{order_id} takes the same requests as GET /orders/:id of "
        f"'orders::pay', {finding.where}. Change the path or the method of one."
    )


def test_a_route_under_the_paths_of_the_runtime_is_an_error() -> None:
    (finding,) = findings_of(worker_with(Http("GET", "_iii/runs/:id"), Http("GET", "/_iiii/runs")))
    assert finding.level == "error"
    assert finding.message == (
        "http trigger of 'orders::pay': GET /_iii/runs/:id: paths under /_iii are the runtime's. Take another."
    )


def test_a_trigger_of_a_function_nobody_registered_is_a_warning() -> None:
    worker = worker_with()
    worker.register_trigger({"type": "state", "function_id": "orders::pai"})
    (finding,) = findings_of(worker)
    assert (finding.level, finding.where) == ("warning", "trigger of orders::pai")
    assert finding.message == (
        "state trigger of 'orders::pai': its function 'orders::pai' is not registered (did you mean 'orders::pay'?); "
        "it cannot run."
    )


def test_a_condition_nobody_registered_is_a_warning() -> None:
    (finding,) = findings_of(worker_with(OnState(condition="is::open")))
    assert finding.level == "warning"
    assert (
        finding.message == "state trigger of 'orders::pay': its condition 'is::open' is not registered; it cannot run."
    )


def test_an_unknown_trigger_type_is_a_warning() -> None:
    worker = worker_with()
    config: dict[str, Any] = {"type": "stream:join", "function_id": "orders::pay"}
    worker.register_trigger(config)
    (finding,) = findings_of(worker)
    assert finding.level == "warning"
    assert finding.message == (
        "stream:join trigger of 'orders::pay': trigger type 'stream:join' is unknown; it never fires."
    )


def test_everything_is_found_at_once_errors_first() -> None:
    worker = worker_with(Queue("a"), Http("GET", "/x"), Http("GET", "/x"), Queue("b"))
    worker.register_trigger({"type": "log", "function_id": "nobody::here"})
    assert [finding.level for finding in findings_of(worker)] == ["error"] * 3 + ["warning"] * 2
