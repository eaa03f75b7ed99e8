"""Apps to plan, and what the tests of the plan ask of it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime import Worker, register_worker
from iii_runtime.core.config import AwsConfig, Config, HttpConfig, QueueConfig, StageConfig, StreamConfig
from iii_runtime.core.triggers import TriggerKind
from iii_runtime.plan.app import plan_app
from iii_runtime.plan.app_plan import AppPlan, PlannedFunction
from iii_runtime.plan.findings import AppInvalidError, Finding
from iii_runtime.plan.manifest import Manifest, describe_app, read_manifest
from iii_runtime.plan.names import Deployment

DEV = Deployment(app="shop", stage="dev", region="eu-west-1", account="123456789012")
PROD = Deployment(app="shop", stage="prod", region="eu-west-1", account="123456789012")
AWS = AwsConfig(app="shop", line=3)
DECIDED = Config(
    http=HttpConfig(auth="iam", line=1),
    stream=StreamConfig(auth="iam", line=2),
    aws=AWS,
    source="iii-config.yaml",
)
"""A configuration that leaves nothing open, so that only what a test is about is found."""


def echo(data: Any) -> Any:
    return data


def config_with(*queues: QueueConfig, **settings: Any) -> Config:
    members = {"http": DECIDED.http, "stream": DECIDED.stream, "aws": AWS, "source": DECIDED.source, **settings}
    return Config(queues={queue.name: queue for queue in queues}, **members)


def staged(**settings: Any) -> AwsConfig:
    """The stage dev with settings."""
    return AwsConfig(app="shop", stages={"dev": StageConfig(**settings)}, line=3)


def worker_with(*triggers: TriggerKind, function_id: str = "shop::pay", **options: Any) -> Worker:
    worker = register_worker()
    add(worker, function_id, *triggers, **options)
    return worker


def add(worker: Worker, function_id: str, *triggers: TriggerKind, **options: Any) -> None:
    worker.function(function_id, triggers=triggers, **options)(echo)


def manifest_of(config: Config, *workers: Worker) -> Manifest:
    return read_manifest(describe_app(config, workers, ["shop"]))


def planned(worker: Worker, config: Config = DECIDED, deployment: Deployment = DEV, **more: Any) -> AppPlan:
    return plan_app(manifest_of(config, worker), deployment, **more)


def refused(worker: Worker, config: Config = DECIDED, deployment: Deployment = DEV, **more: Any) -> list[Finding]:
    """The errors, and nothing else, of an app that cannot be deployed."""
    with pytest.raises(AppInvalidError) as caught:
        planned(worker, config, deployment, **more)
    return [finding for finding in caught.value.findings if finding.level == "error"]


def function_of(plan: AppPlan, function_id: str = "shop::pay") -> PlannedFunction:
    return plan.functions[plan.deployment.function_name(function_id)]


def messages(findings: Iterable[Finding]) -> list[str]:
    return [finding.message for finding in findings]


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)
