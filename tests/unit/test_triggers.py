"""Triggers as typed values and as iii's config dicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from iii_runtime import Cron, DurableSubscriber, Http, OnState, OnStream, Queue, RegistrationError, Subscribe
from iii_runtime.core.triggers import TYPE_NAMES, TriggerKind, UnknownTrigger, parse_trigger


@pytest.mark.parametrize(
    ("type_name", "config", "kind"),
    [
        ("http", {"api_path": "/a/:id", "http_method": "POST"}, Http("POST", "/a/:id")),
        ("http", {"api_path": "a"}, Http("GET", "a")),
        ("http", {"api_path": "/a", "http_method": None}, Http("GET", "/a")),
        ("cron", {"expression": "0 0 * * * *"}, Cron("0 0 * * * *")),
        (
            "cron",
            {"expression": "0 0 9 * * MON *", "timezone": "Europe/Berlin", "overlap": True},
            Cron("0 0 9 * * MON *", timezone="Europe/Berlin", overlap=True),
        ),
        ("queue", {"queue": "mail"}, Queue("mail")),
        ("queue", {"topic": "order.created"}, DurableSubscriber("order.created")),
        ("durable:subscriber", {"topic": "t"}, DurableSubscriber("t")),
        (
            "durable:subscriber",
            {
                "topic": "t",
                "queue_config": {
                    "type": "fifo",
                    "maxRetries": 2,
                    "concurrency": 4,
                    "backoffDelayMs": 50,
                    "maxPriority": 9,
                },
            },
            DurableSubscriber("t", max_retries=2, concurrency=4, fifo=True, backoff_ms=50),
        ),
        (
            "durable:subscriber",
            {"topic": "t", "queue_config": {"type": "standard"}},
            DurableSubscriber("t", fifo=False),
        ),
        ("durable:subscriber", {"topic": "t", "queue_config": None}, DurableSubscriber("t")),
        ("subscribe", {"topic": "t"}, Subscribe("t")),
        ("state", {}, OnState()),
        ("state", {"scope": "orders", "key": None}, OnState("orders")),
        ("state", {"scope": "orders", "key": "o1"}, OnState("orders", "o1")),
        ("stream", {"stream_name": "s"}, OnStream("s")),
        ("stream", {"stream_name": "s", "group_id": "g", "item_id": "i"}, OnStream("s", "g", "i")),
    ],
)
def test_the_config_of_a_type_is_its_typed_value(type_name: str, config: dict[str, Any], kind: TriggerKind) -> None:
    assert parse_trigger(type_name, config) == kind


@pytest.mark.parametrize(
    ("type_name", "config"),
    [
        ("http", {"api_path": "/a"}),
        ("cron", {"expression": "0 0 * * * *"}),
        ("queue", {"queue": "q"}),
        ("queue", {"topic": "q"}),
        ("durable:subscriber", {"topic": "t"}),
        ("subscribe", {"topic": "t"}),
        ("state", {}),
        ("stream", {"stream_name": "s"}),
    ],
)
def test_every_type_has_a_condition(type_name: str, config: dict[str, Any]) -> None:
    assert parse_trigger(type_name, config).condition is None
    assert parse_trigger(type_name, {**config, "condition_function_id": "a::ok"}).condition == "a::ok"
    with pytest.raises(RegistrationError, match="condition_function_id must be a function id, found 5"):
        parse_trigger(type_name, {**config, "condition_function_id": 5})


@pytest.mark.parametrize("type_name", ["stream:join", "stream:leave", "log", "trace", "worker", "", "HTTP"])
def test_an_unknown_type_is_kept_and_no_error(type_name: str) -> None:
    assert parse_trigger(type_name, {"anything": object()}) == UnknownTrigger(type_name)


@pytest.mark.parametrize(
    ("type_name", "config", "message"),
    [
        ("http", {}, "config key 'api_path' must be a non-empty string, found None"),
        ("http", {"api_path": 5}, "config key 'api_path'"),
        ("http", {"api_path": "/a", "http_method": "FETCH"}, "FETCH"),
        ("http", {"api_path": "/a/*"}, "/a/"),
        ("http", {"api_path": "/a", "middleware_function_ids": ["m"]}, "middleware_function_ids is not supported yet"),
        ("cron", {}, "config key 'expression'"),
        ("cron", {"expression": "0 9 * * *"}, "found 5 fields"),
        ("cron", {"expression": "0 0 * * * *", "timezone": "Mars/Olympus"}, "Mars/Olympus"),
        ("cron", {"expression": "0 0 * * * *", "overlap": "yes"}, "config key 'overlap' must be true or false"),
        ("queue", {}, "config key 'queue'"),
        ("queue", {"topic": ""}, "config key 'topic'"),
        ("durable:subscriber", {}, "config key 'topic'"),
        ("durable:subscriber", {"topic": "t", "queue_config": 5}, "queue_config must be an object"),
        ("durable:subscriber", {"topic": "t", "queue_config": {"type": "lifo"}}, "must be standard or fifo"),
        ("durable:subscriber", {"topic": "t", "queue_config": {"maxRetries": -1}}, "queue_config.maxRetries"),
        ("durable:subscriber", {"topic": "t", "queue_config": {"maxRetries": True}}, "queue_config.maxRetries"),
        ("durable:subscriber", {"topic": "t", "queue_config": {"concurrency": 0}}, "queue_config.concurrency"),
        ("durable:subscriber", {"topic": "t", "queue_config": {"backoffDelayMs": 1.5}}, "queue_config.backoffDelayMs"),
        ("subscribe", {}, "config key 'topic'"),
        ("state", {"scope": 5}, "config key 'scope'"),
        ("state", {"key": ""}, "config key 'key'"),
        ("stream", {}, "config key 'stream_name'"),
        ("stream", {"stream_name": "s", "group_id": 5}, "config key 'group_id'"),
    ],
)
def test_a_config_that_cannot_work_is_a_registration_error(
    type_name: str, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(RegistrationError, match=message):
        parse_trigger(type_name, config)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Http("FETCH", "/a"),
        lambda: Cron("0 9 * * *"),
        lambda: Cron("0 0 * * * *", timezone="Mars/Olympus"),
        lambda: Queue(""),
        lambda: Queue(5),  # type: ignore[arg-type]
        lambda: DurableSubscriber("a\0"),
        lambda: DurableSubscriber("t", max_retries=-1),
        lambda: Subscribe(""),
        lambda: OnState(""),
        lambda: OnState("s", 5),  # type: ignore[arg-type]
        lambda: OnStream("s", ""),
        lambda: OnStream(""),
    ],
)
def test_a_typed_trigger_that_cannot_work_is_a_registration_error_and_a_value_error(make: Callable[[], object]) -> None:
    with pytest.raises(RegistrationError) as refusal:
        make()
    assert isinstance(refusal.value, ValueError)


def test_every_typed_trigger_has_the_name_of_iii() -> None:
    assert set(TYPE_NAMES.values()) == {"http", "cron", "queue", "durable:subscriber", "subscribe", "state", "stream"}
