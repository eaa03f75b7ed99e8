"""An app as data: what a Lambda and synthesis know of it without importing its code."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime import (
    Cron,
    DurableSubscriber,
    Http,
    OnState,
    OnStream,
    Queue,
    RegistrationError,
    Subscribe,
    register_worker,
)
from iii_runtime.core.config import CorsConfig, HttpConfig, JwtConfig, QueueConfig, StageConfig, StreamConfig
from iii_runtime.core.config.values import AwsConfig
from iii_runtime.core.errors import HostError
from iii_runtime.core.payload import PayloadError
from iii_runtime.plan.manifest import Manifest, describe_app, read_manifest
from tests.unit.planning import add, config_with, echo

CONFIG = config_with(
    QueueConfig(name="mail", max_retries=7, type="fifo", message_group_field="id", line=4),
    http=HttpConfig(
        cors=CorsConfig(allowed_origins=("https://a.example",), allowed_methods=("GET",)),
        auth="jwt",
        jwt=JwtConfig(issuer="https://login.example.com", audience=("a", "b")),
        line=1,
    ),
    stream=StreamConfig(auth="ticket", line=2),
    aws=AwsConfig(app="shop", stages={"prod": StageConfig(production=True, stacks=3)}, line=9),
)
EVERY_TRIGGER = (
    Http("post", "/orders/:id", auth="iam", condition="shop::open"),
    Cron("0 0 9 * * MON", timezone="Europe/Berlin", overlap=True),
    Queue("mail", batch_size=5),
    DurableSubscriber("paid", max_retries=2, concurrency=3, fifo=False, backoff_ms=50),
    DurableSubscriber("sent"),
    Subscribe("news"),
    OnState("orders", "one"),
    OnState(),
    OnStream("orders", "group", "item"),
)


def stored(worker: Any, *more: Any) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(json.dumps(describe_app(CONFIG, [worker, *more], ["shop", "shop.pay"])))
    return manifest


def there_and_back(worker: Any) -> Manifest:
    return read_manifest(stored(worker))


def test_functions_come_back_without_their_code() -> None:
    worker = register_worker()
    add(
        worker,
        "shop::pay",
        description="Takes the money.",
        metadata={"team": "billing"},
        timeout=timedelta(seconds=1.5),
        memory_mb=256,
        secrets={"KEY": "ssm:/key"},
        environment={"MODE": "fast"},
        uses=["queue:mail"],
        reserved_concurrency=3,
    )
    (before,), after = worker.registry.functions(), there_and_back(worker).catalog.functions["shop::pay"]
    assert after.plan is None
    for name in ("id", "description", "metadata", "timeout", "source", "options", "module"):
        assert getattr(after, name) == getattr(before, name)
    assert after.module == "tests.unit.planning"


def test_a_workflow_comes_back_as_one() -> None:
    worker = register_worker()

    @worker.workflow("t::w", workflow_id="order.id", run_timeout=timedelta(days=3), on_failure="t::f", max_steps=7)
    async def workflow(ctx: object) -> None: ...

    found = there_and_back(worker).catalog.functions["t::w"]
    assert found.workflow == worker.registry.functions()[0].workflow
    assert found.workflow is not None


def test_every_kind_of_trigger_comes_back_as_it_was() -> None:
    worker = register_worker()
    add(worker, "shop::pay", *EVERY_TRIGGER)
    triggers = there_and_back(worker).catalog.triggers
    assert [trigger.kind for trigger in triggers] == list(EVERY_TRIGGER)
    assert triggers == tuple(worker.registry.triggers())


def test_an_unknown_trigger_comes_back_as_one() -> None:
    worker = register_worker()
    worker.register_trigger({"type": "log", "function_id": "shop::pay", "config": {"level": 3}})
    assert [trigger.type_name for trigger in there_and_back(worker).catalog.triggers] == ["log"]


def test_the_configuration_comes_back_with_its_places() -> None:
    config = there_and_back(register_worker()).config
    assert config == CONFIG
    assert (config.http.line, config.stream.line, config.aws.line, config.queues["mail"].line) == (1, 2, 9, 4)


def test_a_function_that_says_nothing_has_the_timeout_of_its_own_worker() -> None:
    quick, slow = register_worker(options={"invocation_timeout_ms": 500}), register_worker()
    add(quick, "shop::quick")
    add(slow, "shop::slow")
    functions = read_manifest(stored(quick, slow)).catalog.functions
    assert [function.timeout for function in functions.values()] == [timedelta(seconds=0.5), timedelta(seconds=30)]


def test_two_workers_cannot_both_register_a_function() -> None:
    first, second = register_worker(), register_worker()
    add(first, "shop::pay")
    add(second, "shop::pay")
    with pytest.raises(RegistrationError, match="registered by two workers"):
        stored(first, second)


def test_metadata_that_is_no_json_is_refused_with_its_function() -> None:
    worker = register_worker()
    worker.register_function("shop::pay", echo, metadata={"when": timedelta(1)})
    with pytest.raises(PayloadError, match="function 'shop::pay': what is registered with it is not JSON"):
        stored(worker)


@pytest.mark.parametrize(
    "damage",
    [
        {"format": 2},
        {"format": None},
        {"functions": [{}]},
        {"functions": None},
        {"triggers": [{"id": "t", "type": "http", "function_id": "a", "config": {}, "metadata": None, "source": ""}]},
        {"config": {}},
        {"targets": None},
    ],
)
def test_a_manifest_of_another_version_or_a_damaged_one_is_not_read(damage: dict[str, Any]) -> None:
    with pytest.raises(HostError) as caught:
        read_manifest({**stored(register_worker()), **damage})
    assert caught.value.code == "manifest_unreadable"
    assert "Build the bundle again" in caught.value.message


def test_a_manifest_with_a_part_missing_is_not_read() -> None:
    whole = stored(register_worker())
    for name in whole:
        with pytest.raises(HostError):
            read_manifest({key: value for key, value in whole.items() if key != name})
