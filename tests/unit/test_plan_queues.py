"""The queues of an app, from its config and its subscriptions."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from iii_runtime import DurableSubscriber, Queue, Worker, register_worker
from iii_runtime.core.config import Config, QueueConfig, TopicDefaults
from iii_runtime.core.queue import QueueSpec
from iii_runtime.core.registry import Catalog
from iii_runtime.core.triggers import TriggerKind
from iii_runtime.engine.app import App
from iii_runtime.plan.queues import (
    consumer_of,
    plan_consumers,
    plan_queues,
    queue_triggers,
    subscription_queue,
    sum_of_backoffs,
)


def catalog_of(*registered: tuple[str, TriggerKind]) -> Catalog:
    worker: Worker = register_worker()
    for function_id, kind in registered:
        worker.registry.add_trigger(kind, function_id)
    return Catalog.of([worker.registry])


def test_without_config_there_is_the_default_queue() -> None:
    assert plan_queues(Config(), catalog_of()) == {
        "default": QueueSpec(name="default", max_attempts=3, concurrency=10, backoff=timedelta(seconds=1))
    }


def test_a_declared_queue_has_what_its_config_says() -> None:
    declared = QueueConfig(
        name="pay", max_retries=5, concurrency=2, type="fifo", message_group_field="order_id", backoff_ms=2000
    )
    assert plan_queues(Config(queues={"pay": declared}), catalog_of())["pay"] == QueueSpec(
        name="pay", max_attempts=5, concurrency=2, kind="fifo", group_field="order_id", backoff=timedelta(seconds=2)
    )


@pytest.mark.parametrize(("max_retries", "attempts"), [(0, 1), (1, 1), (3, 3)])
def test_the_retries_of_a_named_queue_are_its_attempts(max_retries: int, attempts: int) -> None:
    config = Config(queues={"q": QueueConfig(name="q", max_retries=max_retries)})
    assert plan_queues(config, catalog_of())["q"].max_attempts == attempts


def test_a_group_field_of_a_standard_queue_has_no_effect() -> None:
    config = Config(queues={"q": QueueConfig(name="q", message_group_field="id")})
    assert plan_queues(config, catalog_of())["q"].group_field is None


def test_each_subscribed_function_has_a_queue_of_its_own_once() -> None:
    catalog = catalog_of(
        ("mail::send", DurableSubscriber("order.created", concurrency=2)),
        ("stats::count", DurableSubscriber("order.created")),
        ("mail::send", DurableSubscriber("order.created", concurrency=9)),
        ("mail::send", DurableSubscriber("order.paid")),
    )
    queues = plan_queues(Config(), catalog)
    assert list(queues) == [
        "default",
        "topic/order.created/mail::send",
        "topic/order.created/stats::count",
        "topic/order.paid/mail::send",
    ]
    first = queues["topic/order.created/mail::send"]
    assert (first.topic, first.function_id, first.concurrency) == ("order.created", "mail::send", 2)


@pytest.mark.parametrize(("max_retries", "attempts"), [(0, 1), (1, 2), (5, 6), (None, 4)])
def test_the_retries_of_a_subscription_come_after_the_first_attempt(max_retries: int | None, attempts: int) -> None:
    queue = subscription_queue(DurableSubscriber("t", max_retries=max_retries), "f", TopicDefaults(max_attempts=4))
    assert queue.max_attempts == attempts


def test_a_subscription_takes_what_it_does_not_say_from_the_config() -> None:
    defaults = TopicDefaults(max_attempts=0, backoff_ms=50, concurrency=7)
    assert subscription_queue(DurableSubscriber("t"), "f", defaults) == QueueSpec(
        name="topic/t/f",
        max_attempts=1,
        concurrency=7,
        backoff=timedelta(milliseconds=50),
        topic="t",
        function_id="f",
    )
    own = subscription_queue(DurableSubscriber("t", concurrency=1, backoff_ms=0), "f", defaults)
    assert (own.concurrency, own.backoff) == (1, timedelta(0))


@pytest.mark.parametrize(
    ("fifo", "mode", "is_ordered"),
    [(None, "concurrent", False), (None, "fifo", True), (True, "concurrent", True), (False, "fifo", False)],
)
def test_an_ordered_subscription_handles_one_message_at_a_time(fifo: bool | None, mode: str, is_ordered: bool) -> None:
    defaults = TopicDefaults(mode="fifo" if mode == "fifo" else "concurrent")
    queue = subscription_queue(DurableSubscriber("t", fifo=fifo), "f", defaults)
    assert queue.is_ordered == is_ordered
    assert queue.concurrency == (1 if is_ordered else 10)


def test_consumers_are_listed_once_in_the_order_of_registration() -> None:
    catalog = catalog_of(
        ("b::b", Queue("mail")), ("a::a", Queue("mail")), ("b::b", Queue("mail")), ("c::c", DurableSubscriber("mail"))
    )
    assert plan_consumers(catalog) == {"mail": ["b::b", "a::a"]}


def registered(*bound: tuple[str, TriggerKind], missing: tuple[str, ...] = ()) -> Catalog:
    worker: Worker = register_worker()
    for function_id, kind in bound:
        if function_id not in missing and function_id not in {spec.id for spec in worker.registry.functions()}:
            worker.register_function(function_id, print)
        worker.registry.add_trigger(kind, function_id)
    return Catalog.of([worker.registry])


MAIL = Config(queues={"mail": QueueConfig(name="mail")})


def consumer(catalog: Catalog, name: str) -> str | None:
    return consumer_of(plan_queues(MAIL, catalog)[name], catalog, plan_consumers(catalog))


def test_the_consumer_is_the_one_function_that_is_bound_and_registered() -> None:
    assert consumer(registered(("a::a", Queue("mail"))), "mail") == "a::a"
    assert consumer(registered(("a::a", Queue("mail")), ("b::b", Queue("mail"))), "mail") is None
    assert consumer(registered(("a::a", Queue("mail")), ("b::b", Queue("mail")), missing=("b::b",)), "mail") == "a::a"
    assert consumer(registered(("b::b", Queue("mail")), missing=("b::b",)), "mail") is None
    assert consumer(registered(), "default") is None


def test_the_consumer_of_a_subscription_is_its_function() -> None:
    catalog = registered(("a::a", DurableSubscriber("t")), ("b::b", DurableSubscriber("t")), missing=("b::b",))
    assert consumer(catalog, "topic/t/a::a") == "a::a"
    assert consumer(catalog, "topic/t/b::b") is None


def test_only_where_functions_have_hosts_of_their_own_a_queue_is_shared_or_read_in_batches() -> None:
    catalog = registered(("a::a", Queue("mail", batch_size=7)))
    here, deployed = plan_queues(MAIL, catalog), plan_queues(MAIL, catalog, deployed=True)
    assert [(queue.batch_size, queue.is_shared) for queue in here.values()] == [(1, False), (1, False)]
    assert {name: (queue.batch_size, queue.is_shared) for name, queue in deployed.items()} == {
        "mail": (7, False),
        "default": (1, True),
    }


def test_an_app_that_was_deployed_knows_its_queues_as_they_are_on_aws() -> None:
    catalog = registered(("a::a", Queue("mail", batch_size=7)))
    assert App(MAIL, [], deployed=catalog).queues == plan_queues(MAIL, catalog, deployed=True)
    assert not App(MAIL, []).queues["default"].is_shared


def test_of_several_triggers_for_one_queue_all_are_found_in_order() -> None:
    catalog = registered(("a::a", Queue("mail", batch_size=2)), ("a::a", Queue("mail")), ("a::a", Queue("default")))
    assert [kind.batch_size for kind in queue_triggers(catalog, "mail", "a::a")] == [2, 1]


@pytest.mark.parametrize(
    ("queue", "receives"),
    [
        (QueueSpec(name="q", max_attempts=1), 5),
        (QueueSpec(name="q", max_attempts=4), 7),
        (QueueSpec(name="q", max_attempts=4, batch_size=10), 43),
        (QueueSpec(name="q", max_attempts=4, consumer="a::a"), 34),
        (QueueSpec(name="q", max_attempts=4, batch_size=10, consumer="a::a"), 70),
        (QueueSpec(name="q", max_attempts=4, batch_size=10, kind="fifo"), 43),
        (QueueSpec(name="q", max_attempts=4, is_shared=True), 34),
        (QueueSpec(name="q", max_attempts=4, is_shared=True, kind="fifo"), 34),
    ],
)
def test_receives_beyond_the_attempts_are_granted_by_how_a_queue_is_read(queue: QueueSpec, receives: int) -> None:
    assert queue.max_receives == receives


def test_what_can_be_put_off_has_more_receives_than_what_can_only_kill_its_host() -> None:
    bound = QueueSpec(name="q", max_attempts=4, consumer="a::a")
    assert (bound.receives_for("a::a"), bound.receives_for("b::b")) == (7, 34)
    batched = replace(bound, batch_size=10)
    assert (batched.receives_for("a::a"), batched.receives_for("b::b")) == (43, 70)
    ordered = replace(batched, kind="fifo")
    assert (ordered.receives_for("a::a"), ordered.receives_for("b::b")) == (70, 70)
    shared = QueueSpec(name="q", max_attempts=4, is_shared=True)
    assert shared.receives_for("a::a") == 34
    embedded = QueueSpec(name="q", max_attempts=4)
    assert embedded.receives_for("a::a") == embedded.max_receives == 7


def test_only_a_deployed_queue_with_a_consumer_of_its_own_knows_it() -> None:
    config = Config(queues={"mail": QueueConfig(name="mail")})
    catalog = registered(("a::a", Queue("mail")), ("b::b", DurableSubscriber("news")))
    assert {queue.consumer for queue in plan_queues(config, catalog).values()} == {None}
    deployed = plan_queues(config, catalog, deployed=True)
    assert deployed["mail"].consumer == "a::a"
    assert deployed["topic/news/b::b"].consumer is None


@pytest.mark.parametrize(
    ("attempts", "backoff_ms", "total"),
    [(1, 1000, 0), (4, 1000, 7), (5, 2000, 30), (3, 0, 0), (2**32, 0, 0), (2**32, 1, 10_001)],
)
def test_the_waits_between_the_attempts_add_up_as_far_as_it_matters(attempts: int, backoff_ms: int, total: int) -> None:
    queue = QueueSpec(name="q", max_attempts=attempts, backoff=timedelta(milliseconds=backoff_ms))
    found = sum_of_backoffs(queue, up_to=timedelta(seconds=10_000)).total_seconds()
    assert found == total if total <= 10_000 else found > 10_000
