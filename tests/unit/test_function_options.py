"""What a registration may ask for a function."""

from __future__ import annotations

from typing import Any

import pytest

from iii_runtime import RegistrationError, register_worker
from iii_runtime.core.function_options import FunctionOptions


def registered(**options: Any) -> FunctionOptions:
    worker = register_worker()
    worker.function("a::b", **options)(lambda data: data)
    return worker.registry.functions()[0].options


def test_a_function_that_asks_for_nothing_has_the_defaults() -> None:
    assert registered() == FunctionOptions()


def test_both_ways_to_register_take_the_same_options() -> None:
    options: dict[str, Any] = {
        "memory_mb": 1024,
        "reserved_concurrency": 5,
        "environment": {"MODE": "fast"},
        "secrets": {"STRIPE_KEY": "ssm:/orders/{stage}/stripe"},
        "uses": ["orders::ship", "queue:order-ship", "topic:order.fulfilled"],
    }
    worker = register_worker()
    worker.register_function("a::b", lambda data: data, **options)
    assert worker.registry.functions()[0].options == registered(**options)
    assert registered(**options).uses == ("orders::ship", "queue:order-ship", "topic:order.fulfilled")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"memory_mb": 64}, "memory_mb must be an integer from 128 to 10240, found 64"),
        ({"memory_mb": True}, "memory_mb must be an integer"),
        ({"reserved_concurrency": 0}, "reserved_concurrency must be an integer from 1"),
        ({"environment": {"AWS_REGION": "x"}}, "does not start with AWS_"),
        ({"environment": {"A B": "x"}}, "environment has the key 'A B'"),
        ({"environment": {"A": 1}}, "environment.A must be a text, found 1"),
        ({"environment": "A=1"}, "environment must be a mapping"),
        ({"secrets": {"KEY": "hunter2"}}, r"secrets.KEY must be 'ssm:<parameter>' or 'secretsmanager:<secret>'"),
        ({"secrets": {"KEY": "ssm:"}}, r"secrets.KEY must be"),
        ({"secrets": {"KEY": "ssm:/orders/*"}}, r"secrets.KEY must name one secret"),
        ({"secrets": {"KEY": "secretsmanager:orders-??????"}}, r"secrets.KEY must name one secret"),
        ({"uses": "orders::ship"}, "uses must be a list of texts"),
        ({"uses": [1]}, "uses lists function ids"),
        ({"uses": ["queue:"]}, "uses lists function ids"),
    ],
)
def test_what_no_host_could_give_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(RegistrationError, match=told):
        registered(**options)


def test_a_secret_source_is_not_told_in_the_refusal() -> None:
    with pytest.raises(RegistrationError) as refusal:
        registered(secrets={"KEY": "hunter2"})
    assert "hunter2" not in refusal.value.message


def test_uses_allows_what_it_names_and_nothing_else() -> None:
    options = registered(uses=["orders::ship"])
    assert options.allows("orders::ship")
    assert not options.allows("queue:order-ship")
    assert registered().allows("anything")


def test_the_module_that_registers_a_function_is_known() -> None:
    worker = register_worker()
    worker.function("a::decorated")(lambda data: data)
    worker.register_function("a::plain", print)
    assert [function.module for function in worker.registry.functions()] == [__name__, __name__]
