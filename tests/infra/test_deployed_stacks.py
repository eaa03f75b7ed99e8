"""A deployment leaves what is deployed in its stack, and takes no other one's place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest

from iii_runtime import Queue, Worker
from iii_runtime.adapters.deployed_files import remember_last_deploy
from iii_runtime.cdk import IiiApp
from iii_runtime.core.config import Config, QueueConfig
from iii_runtime.core.config.values import AwsConfig, StageConfig, StreamConfig
from iii_runtime.core.errors import HostError
from iii_runtime.plan.app_plan import AppPlan
from iii_runtime.plan.deployed import DEPLOYED_OUTPUT, deployed_plan, deployed_to_text
from tests.infra.synthesis import a_code, manifest_of, new_app, synthesise
from tests.infra.test_deployed_files import app_with, deploy, leave


def bound_in_stacks(queue: str | None) -> dict[str, Any]:
    """Return the manifest of an app over several stacks, whose one function is bound to one of two queues."""

    def register(worker: Worker) -> None:
        worker.function("shop::pay", triggers=[] if queue is None else [Queue(queue)])(print)

    config = Config(
        queues={name: QueueConfig(name=name) for name in ("early", "late")},
        stream=StreamConfig(auth="iam"),
        aws=AwsConfig(app="shop", defaults=StageConfig(stacks=2)),
    )
    return manifest_of(config, register)


def test_a_deployed_queue_stays_in_its_stack_and_its_mapping_is_where_both_ends_are_there(tmp_path: Path) -> None:
    deploy(tmp_path, bound_in_stacks("early"))
    made = synthesise(tmp_path, manifest=bound_in_stacks("late"), alarms=False)
    core, _, own = made.templates.values()
    assert core.of("AWS::SQS::Queue", QueueName="shop-dev-q-late")
    assert own.of("AWS::SQS::Queue", QueueName="shop-dev-q-early")
    consumers = {
        (template.name, properties["EventSourceArn"].rpartition(":")[2]): properties["FunctionName"]
        for template in made.templates.values()
        for each in template.of("AWS::Lambda::EventSourceMapping").values()
        for properties in [template.properties(each)]
    }
    assert consumers[own.name, "shop-dev-q-late"] == "shop-dev-f-shop--pay"
    assert consumers[own.name, "shop-dev-q-early"] == "shop-dev-x-dispatcher"
    assert not {(core.name, "shop-dev-q-late"), (core.name, "shop-dev-q-early")} & consumers.keys()
    assert [stack.dependencies for stack in made.app.stacks] == [[], [made.app.stacks[0]], [made.app.stacks[0]]]


def in_a_stack_of_mine(root: Path, app: str, stage: str, construct: str = "App") -> AppPlan:
    """Synthesise an app inside stack `Mine`."""
    stack = cdk.Stack(new_app(root / "cdk.out"), "Mine")
    made = IiiApp(
        stack, construct, project_root=root, manifest=app_with(app=app), stage=stage, code=a_code(), alarms=False
    )
    return made.plan


@pytest.mark.parametrize(("app", "stage"), [("store", "dev"), ("shop", "test")], ids=["renamed", "another stage"])
@pytest.mark.parametrize("is_taken", [False, True], ids=["since the last synthesis", "taken over"])
def test_what_is_deployed_in_a_stack_is_not_replaced_by_another_app_or_stage(
    tmp_path: Path, app: str, stage: str, is_taken: bool
) -> None:
    text = deployed_to_text(deployed_plan(in_a_stack_of_mine(tmp_path, "shop", "dev")))
    leave(tmp_path, {"Mine": {f"App{DEPLOYED_OUTPUT}": text}})
    if is_taken:
        remember_last_deploy(tmp_path)
    with pytest.raises(HostError) as refused:
        in_a_stack_of_mine(tmp_path, app, stage)
    assert refused.value.code == "stack_taken"
    assert refused.value.message.startswith(
        f"construct 'App' of stack 'Mine' has app 'shop' in stage dev, and would get app '{app}' in stage {stage}"
    )
    assert "remove deployed/shop.dev.json" in refused.value.message
    assert in_a_stack_of_mine(tmp_path, app, stage, construct="Other").deployment.app == app
    assert in_a_stack_of_mine(tmp_path, "shop", "dev").deployment.stage == "dev"
