"""Triggers as typed values and as iii's config dicts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from iii_runtime import Cron, DurableSubscriber, Http, OnState, OnStream, Queue, RegistrationError, Subscribe
from iii_runtime.core.trigger_config import parse_trigger, without_effect
from iii_runtime.core.triggers import TYPE_NAMES, TriggerKind, UnknownTrigger


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
    ("type_name", "config", "message"),
    [
        ("http", {"apiPath": "/a"}, "http trigger: unknown config key 'apiPath'; did you mean 'api_path'?"),
        ("http", {"api_path": "/a", "method": "POST"}, "unknown config key 'method'; did you mean 'http_method'?"),
        ("cron", {"expression": "0 0 * * * *", "tz": "UTC"}, "cron trigger: unknown config key 'tz'"),
        ("queue", {"queue": "mail", "max_retries": 3}, "queue trigger: unknown config key 'max_retries'"),
        ("durable:subscriber", {"queue": "mail"}, "unknown config key 'queue'"),
        ("subscribe", {"topic": "t", "queue_config": {}}, "subscribe trigger: unknown config key 'queue_config'"),
        ("state", {"scop": "orders"}, "state trigger: unknown config key 'scop'; did you mean 'scope'?"),
        ("state", {"x": 1}, "unknown config key 'x'; known are condition_function_id, key, scope"),
        ("stream", {"stream_name": "s", "grp_id": "g"}, "unknown config key 'grp_id'; did you mean 'group_id'?"),
        ("stream", {"stream_name": "s", 5: "g"}, "unknown config key 5"),
        (
            "durable:subscriber",
            {"topic": "t", "queue_config": {"maxRetires": 2}},
            "unknown key in queue_config 'maxRetires'; did you mean 'maxRetries'?",
        ),
        (
            "queue",
            {"topic": "t", "queue_config": {"max_retries": 2}},
            "unknown key in queue_config 'max_retries'; did you mean 'maxRetries'?",
        ),
    ],
)
def test_a_key_that_does_not_exist_is_a_registration_error_with_the_one_that_was_meant(
    type_name: str, config: dict[Any, Any], message: str
) -> None:
    with pytest.raises(RegistrationError, match=re.escape(message)):
        parse_trigger(type_name, config)


def test_a_queue_trigger_with_queue_and_topic_is_refused() -> None:
    with pytest.raises(RegistrationError, match="give one of them"):
        parse_trigger("queue", {"queue": "mail", "topic": "t"})
    assert parse_trigger("queue", {"queue": "mail", "topic": None}) == Queue("mail")


@pytest.mark.parametrize(
    ("type_name", "config", "keys"),
    [
        ("http", {"api_path": "/a"}, []),
        ("log", {"queue_config": {"maxPriority": 1}}, []),
        ("queue", {"queue": "mail"}, []),
        ("queue", {"queue": "mail", "queue_config": {"maxRetries": 3}}, ["queue_config"]),
        ("queue", {"topic": "t", "queue_config": {"maxRetries": 3}}, []),
        ("durable:subscriber", {"topic": "t", "queue_config": None}, []),
        (
            "durable:subscriber",
            {
                "topic": "t",
                "queue_config": {
                    "type": "fifo",
                    "visibilityTimeout": 30,
                    "delaySeconds": 1,
                    "backoffType": "fixed",
                    "maxPriority": 9,
                },
            },
            [
                "queue_config.visibilityTimeout",
                "queue_config.delaySeconds",
                "queue_config.backoffType",
                "queue_config.maxPriority",
            ],
        ),
    ],
)
def test_keys_that_iii_has_and_nothing_here_reads_are_known(
    type_name: str, config: dict[str, Any], keys: list[str]
) -> None:
    parse_trigger(type_name, config)
    assert without_effect(type_name, config) == keys


LONGEST = "x" * 256


@pytest.mark.parametrize(
    "make",
    [
        DurableSubscriber,
        Subscribe,
        OnState,
        lambda name: OnState("s", name),
        OnStream,
        lambda name: OnStream("s", name),
        lambda name: OnStream("s", "g", name),
    ],
)
def test_a_name_may_be_as_long_as_one_that_can_be_written_and_no_longer(make: Callable[[str], object]) -> None:
    make(LONGEST)
    with pytest.raises(RegistrationError, match="must have 1 to 256 characters, found 257"):
        make(LONGEST + "x")


def test_a_queue_trigger_takes_the_names_a_queue_may_have() -> None:
    Queue("a.B-c_9" + "x" * 73)
    for name in ("x" * 81, "topic/t", "-a", "a b", "ä"):
        with pytest.raises(RegistrationError, match="a queue trigger needs a queue name of 1 to 80"):
            Queue(name)


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
        lambda: OnStream(None),  # type: ignore[arg-type]
    ],
)
def test_a_typed_trigger_that_cannot_work_is_a_registration_error_and_a_value_error(make: Callable[[], object]) -> None:
    with pytest.raises(RegistrationError) as refusal:
        make()
    assert isinstance(refusal.value, ValueError)


def test_every_typed_trigger_has_the_name_of_iii() -> None:
    assert set(TYPE_NAMES.values()) == {"http", "cron", "queue", "durable:subscriber", "subscribe", "state", "stream"}
