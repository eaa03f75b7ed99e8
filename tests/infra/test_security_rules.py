"""Checkers of templates find nothing, but what has been looked at."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import cdk_nag
import cfnlint  # type: ignore[import-untyped]
import pytest
from aws_cdk import aws_sqs as sqs

from iii_runtime.cdk import IiiStacks
from iii_runtime.core.config.values import AwsConfig, StageConfig
from tests.infra.conftest import SHOP, register_shop
from tests.infra.synthesis import CDK_JSON, Synthesised, a_code, manifest_of, new_app, synthesise

REVIEWED = {
    "Serverless-LambdaDLQ": "Asynchronous invocations (cron ticks, Void calls, publish) are at most once by promise; "
    "what must not be lost goes through a queue, which has a dead-letter queue.",
    "Serverless-LambdaAsyncFailureDestination": "As above: a failed run is counted, logged and alarmed.",
    "Serverless-LambdaEventSourceMappingDestination": "A mapping of SQS has none: the queue's redrive policy is it.",
    "Serverless-SQSRedrivePolicy": "These are dead-letter queues and queues of failures.",
    "Serverless-SNSRedrivePolicy": "The subscription of a mail address: an alarm is on the dashboard as well.",
    "Serverless-LambdaStarPermissions": "X-Ray, which knows no resources; only in stages that trace.",
    "Serverless-APIGWAccessLogging": "The WebSocket API: its logs need a role that is set for the whole account.",
}
"""What the Serverless rules report, and why each is as it should be."""


def shop_app(out: Path) -> tuple[cdk.App, cdk.Stack]:
    """Return an app with everything, open and closed, and its stack."""
    app = new_app(out, alarm_email="ops@example.com")
    stacks = IiiStacks(app, manifest=manifest_of(SHOP, register_shop), code=a_code(), project_root=out)
    return app, stacks.stacks[0]


def reported(app: cdk.App, out: Path, plugin: str) -> dict[str, Any]:
    """Synthesise and return what a plugin reports."""
    with contextlib.suppress(RuntimeError):  # raised if there is anything in the report
        app.synth()
    reports = json.loads((out / "validation-report.json").read_text())["pluginReports"]
    found: list[dict[str, Any]] = [each for each in reports if plugin in each["pluginName"]]
    assert len(found) == 1, [each["pluginName"] for each in reports]
    return found[0]


def checked(out: Path, rules: type[Any], plugin: str) -> dict[str, Any]:
    app, _ = shop_app(out)
    cdk.Validations.of(app).add_plugins(rules(app))
    return reported(app, out, plugin)


def constructs(violations: list[dict[str, Any]], rule: str) -> list[str]:
    return [
        place["constructPath"]
        for each in violations
        if each["ruleName"] == rule
        for place in each["violatingConstructs"]
    ]


@pytest.fixture(scope="module")
def solutions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return checked(tmp_path_factory.mktemp("solutions"), cdk_nag.AwsSolutionsChecks, "AwsSolutions")


@pytest.fixture(scope="module")
def serverless(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return checked(tmp_path_factory.mktemp("serverless"), cdk_nag.ServerlessChecks, "Serverless")


def test_aws_solutions_finds_nothing_that_is_not_acknowledged(solutions: dict[str, Any]) -> None:
    assert [(each["ruleName"], each["violatingConstructs"]) for each in solutions["violations"]] == []


def test_each_acknowledgement_is_of_a_known_kind_and_has_a_reason(solutions: dict[str, Any]) -> None:
    kinds = Counter(re.sub(r"\[.*", "", each["ruleName"]) for each in solutions["suppressedViolations"])
    assert set(kinds) == {
        "AwsSolutions-IAM5",
        "AwsSolutions-APIG1",
        "AwsSolutions-APIG4",
        "AwsSolutions-S1",
        "AwsSolutions-SQS3",
    }
    assert all(len(each["reason"]) > 20 for each in solutions["suppressedViolations"])


def test_only_open_routes_are_acknowledged_as_open(solutions: dict[str, Any]) -> None:
    open_routes = constructs(solutions["suppressedViolations"], "AwsSolutions-APIG4")
    assert sorted(open_routes) == [
        "shop-dev/App/Route-GET |status/Route",
        "shop-dev/App/WebSocket/Route-connect",
        "shop-dev/App/WebSocket/Route-default",
        "shop-dev/App/WebSocket/Route-disconnect",
    ]


def test_only_queues_of_failures_are_without_a_dead_letter_queue(solutions: dict[str, Any]) -> None:
    assert sorted(constructs(solutions["suppressedViolations"], "AwsSolutions-SQS3")) == [
        "shop-dev/App/Runtime-FeedFailures/Queue/Resource",
        "shop-dev/App/Runtime-TopicFailures/Queue/Resource",
    ]


def test_the_serverless_rules_find_what_was_reviewed_and_nothing_else(serverless: dict[str, Any]) -> None:
    found = {each["ruleName"] for each in serverless["violations"]}
    assert found == set(REVIEWED)


def test_what_was_reviewed_is_still_about_what_the_review_says(serverless: dict[str, Any]) -> None:
    violations = serverless["violations"]
    for path in constructs(violations, "Serverless-SQSRedrivePolicy"):
        assert re.search(r"/(Letters|Runtime-(Feed|Cron|Topic)Failures/Queue)/Resource$", path), path
    for path in constructs(violations, "Serverless-LambdaEventSourceMappingDestination"):
        assert re.search(r"/(Queue-[^/]+|Runtime-TickQueue)/Mapping$", path), path
    assert constructs(violations, "Serverless-SNSRedrivePolicy") == ["shop-dev/App/AlarmEmail"]
    assert constructs(violations, "Serverless-APIGWAccessLogging") == ["shop-dev/App/WebSocketStage/Resource"]


def test_the_validator_of_the_cdk_finds_a_mistake_that_is_put_in_and_nothing_else(tmp_path: Path) -> None:
    """It runs in the command line too, where the flags in cdk.json make its findings errors."""
    assert CDK_JSON["context"]["@aws-cdk/core:validateAgainstDefaultRules"] is True
    app, stack = shop_app(tmp_path)
    letters = sqs.CfnQueue(stack, "Letters", queue_name="letters")
    redrive = {"deadLetterTargetArn": letters.attr_arn, "maxReceiveCount": 3}
    sqs.CfnQueue(stack, "Mistake", queue_name="mistake.fifo", fifo_queue=True, redrive_policy=redrive)
    cdk.Validations.of(app).add_plugins(cdk.CloudFormationValidatePlugin())
    found = reported(app, tmp_path, "CloudFormation")["violations"]
    assert [place["constructPath"] for each in found for place in each["violatingConstructs"]] == ["shop-dev/Mistake"]


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> Synthesised:
    """The same app in production, over several stacks."""
    stages = {"prod": StageConfig(production=True, stacks=2)}
    config = replace(SHOP, aws=AwsConfig(app="shop", stages=stages))
    out = tmp_path_factory.mktemp("spread")
    return synthesise(out, manifest=manifest_of(config, register_shop), context={"stage": "prod"})


def test_cfn_lint_finds_nothing(spread: Synthesised) -> None:
    # W3005: the CDK says what a function depends on although a reference says it as well.
    settings = cfnlint.ManualArgs(regions=["eu-west-1"], ignore_checks=["W3005"])
    for template in spread.templates.values():
        findings = cfnlint.lint(json.dumps(template.content), config=settings)
        assert [str(each) for each in findings] == []
