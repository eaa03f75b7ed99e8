"""Apps that are synthesised once for all tests of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from iii_runtime import Cron, DurableSubscriber, Http, OnState, OnStream, Queue, Subscribe, Worker
from iii_runtime.core.config import Config, QueueConfig
from iii_runtime.core.config.values import AwsConfig, CorsConfig, HttpConfig, JwtConfig, StageConfig, StreamConfig
from tests.infra.synthesis import ROOT, Synthesised, manifest_of, synthesise

JWT = JwtConfig(issuer="https://issuer.example", audience=("shop",))
SHOP = Config(
    http=HttpConfig(
        auth="jwt", jwt=JWT, cors=CorsConfig(allowed_origins=("https://shop.example",), allowed_methods=("GET",))
    ),
    stream=StreamConfig(auth="ticket"),
    queues={
        "pay": QueueConfig(name="pay", type="fifo", message_group_field="order", max_retries=5, concurrency=4),
        "mail": QueueConfig(name="mail", concurrency=1),
        "shared": QueueConfig(name="shared"),
    },
    aws=AwsConfig(app="shop", defaults=StageConfig(tracing=True)),
)


def register_shop(worker: Worker) -> None:
    """Register a function for every kind of trigger."""

    def body(_data: object) -> None: ...

    def add(function_id: str, *triggers: object, **options: object) -> None:
        worker.function(function_id, triggers=list(triggers), **options)(body)  # type: ignore[arg-type]

    add("shop::order", Http("POST", "/orders"), Http("GET", "/orders/:id"), Http("GET", "/status", auth="none"))
    add("shop::admin", Http("DELETE", "/orders/:id", auth="iam"))
    add("shop::pay", Queue("pay"), secrets={"CARD": "ssm:/shop/{stage}/card"}, memory_mb=1024)
    add("shop::mail", Queue("mail"), uses=["queue:pay", "shop::order"])
    add("shop::nightly", Cron("0 30 2 * * *", timezone="Europe/Berlin"), Cron("0 0 * * * *"), Cron("*/10 * * * * *"))
    add("shop::audit", DurableSubscriber("order.paid"))
    add("shop::ledger", DurableSubscriber("order.paid", fifo=True), DurableSubscriber("refund"))
    add("shop::on-state", OnState(scope="orders"))
    add("shop::on-stream", OnStream("progress"))
    add("shop::heard", Subscribe("news"), reserved_concurrency=5, environment={"LANGUAGE": "en"})


@pytest.fixture(scope="session")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Synthesised:
    """The app of this repository, in stage dev."""
    return synthesise(
        tmp_path_factory.mktemp("pipeline"), project_root=ROOT, context={"alarm_email": "ops@example.com"}
    )


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Synthesised:
    """An app with a trigger of every kind, in stage dev, with tracing, tickets and tokens."""
    return synthesise(tmp_path_factory.mktemp("shop"), manifest=manifest_of(SHOP, register_shop))


@pytest.fixture(scope="session")
def production(tmp_path_factory: pytest.TempPathFactory) -> Synthesised:
    """The same app in stage prod, over several stacks and with every option: signed connections, which are logged."""
    stages = {"prod": StageConfig(production=True, stacks=2, log_retention_days=90, oldest_message_alarm_s=60)}
    config = replace(SHOP, stream=StreamConfig(auth="iam"), aws=AwsConfig(app="shop", stages=stages))
    return synthesise(
        tmp_path_factory.mktemp("production"),
        manifest=manifest_of(config, register_shop),
        context={"stage": "prod", "alarm_email": "ops@example.com"},
        websocket_access_logs=True,
    )


MANY, STACKS = 120, 4


def register_many(worker: Worker, count: int) -> None:
    """Register functions of which a quarter each has a queue, a route, a schedule, and a topic."""
    for number in range(count):
        trigger = (
            Queue(f"q{number}"),
            Http("GET", f"/f{number}"),
            Cron("0 0 3 * * *", timezone="Europe/Berlin"),
            DurableSubscriber(f"t{number % 8}"),
        )[number % 4]
        worker.function(f"many::f{number}", triggers=[trigger])(print)


def many_functions(count: int) -> dict[str, Any]:
    """Return the manifest of an app with so many functions, which are spread over stacks."""
    queues = {f"q{number}": QueueConfig(name=f"q{number}") for number in range(0, count, 4)}
    config = Config(
        http=HttpConfig(auth="jwt", jwt=JWT),
        stream=StreamConfig(auth="iam"),
        queues=queues,
        aws=AwsConfig(app="many", defaults=StageConfig(stacks=STACKS)),
    )
    return manifest_of(config, lambda worker: register_many(worker, count))


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> Synthesised:
    """An app with more functions than a stack holds."""
    return synthesise(tmp_path_factory.mktemp("many"), manifest=many_functions(MANY))
