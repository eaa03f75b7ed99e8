"""The app a host runs is up to date with its workers, whoever registers and when."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from iii_runtime import (
    DurableSubscriber,
    InitOptions,
    InvocationError,
    Queue,
    RegistrationError,
    Worker,
    register_worker,
)
from iii_runtime.core.config import Config, QueueConfig
from iii_runtime.core.registry import FunctionSpec
from iii_runtime.core.triggers import OnState
from iii_runtime.engine.app import App

CONFIG = Config(queues={"mail": QueueConfig(name="mail")})


@pytest.fixture
def worker() -> Worker:
    return register_worker()


def echo(data: Any) -> Any:
    return data


def test_a_registration_is_seen_at_the_next_look(worker: Worker) -> None:
    app = App(CONFIG, [worker])
    heard: list[int] = []
    app.on_change(lambda: heard.append(len(app.catalog.functions)))
    assert app.queues.keys() == {"default", "mail"}
    worker.function("a::b", triggers=[Queue("mail"), DurableSubscriber("paid"), OnState("s")])(echo)
    assert heard == [1] * 4
    assert app.consumers("mail") == ["a::b"]
    assert app.consumers("default") == []
    assert "topic/paid/a::b" in app.queues
    assert app.triggers(OnState) == [("a::b", OnState("s"))]
    assert app.function("a::b").id == "a::b"


def test_what_is_registered_while_the_app_looks_is_not_lost(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread registers after the functions were listed and before the list is kept."""
    app = App(CONFIG, [worker])
    list_functions = worker.registry.functions
    late = iter(["late::one"])

    def functions() -> list[FunctionSpec]:
        listed = list_functions()
        for function_id in late:
            worker.register_function(function_id, echo)
        return listed

    monkeypatch.setattr(worker.registry, "functions", functions)
    assert app.catalog.functions.keys() <= {"late::one"}
    assert app.catalog.functions.keys() == {"late::one"}


def test_a_look_without_a_change_is_the_same_catalog(worker: Worker) -> None:
    app = App(CONFIG, [worker])
    assert app.catalog is app.catalog


def test_an_id_of_another_worker_is_refused_where_it_is_registered(worker: Worker) -> None:
    other = register_worker()
    app = App(CONFIG, [worker, other])
    worker.register_function("a::b", echo)
    with pytest.raises(RegistrationError, match="registered by two workers"):
        other.register_function("a::b", echo)
    assert app.function("a::b") is worker.registry.functions()[0]


def test_the_timeout_of_a_function_is_its_own_or_that_of_its_worker(worker: Worker) -> None:
    hasty = register_worker(options=InitOptions(invocation_timeout_ms=50))
    app = App(CONFIG, [worker, hasty])
    worker.register_function("a::plain", echo)
    hasty.register_function("b::plain", echo)
    hasty.register_function("b::own", echo, timeout=timedelta(minutes=2))
    timeouts = {name: app.timeout_of(app.function(name)) for name in ("a::plain", "b::plain", "b::own")}
    assert timeouts == {
        "a::plain": timedelta(seconds=30),
        "b::plain": timedelta(milliseconds=50),
        "b::own": timedelta(minutes=2),
    }


def test_an_unknown_function_is_not_found(worker: Worker) -> None:
    worker.register_function("orders::create", echo)
    app = App(CONFIG, [worker])
    with pytest.raises(InvocationError, match="Did you mean 'orders::create'") as refusal:
        app.function("order::create")
    assert refusal.value.code == "function_not_found"


def test_a_closed_app_hears_nothing_and_does_not_go_stale(worker: Worker) -> None:
    app = App(CONFIG, [worker])
    heard: list[int] = []
    app.on_change(lambda: heard.append(1))
    app.close()
    app.close()
    worker.register_function("a::b", echo)
    assert heard == []
    assert "a::b" in app.catalog.functions
