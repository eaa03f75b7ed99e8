"""Checkers of templates find nothing, but what has been looked at."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import aws_cdk as cdk
import cdk_nag
import cfnlint  # type: ignore[import-untyped]
import pytest
from aws_cdk import aws_sqs as sqs

from iii_runtime.cdk import IiiStacks
from iii_runtime.core.config.values import AwsConfig, StageConfig
from tests.infra.conftest import SHOP, register_shop
from tests.infra.synthesis import CDK_JSON, Synthesised, a_code, manifest_of, new_app

STAGES = AwsConfig(app="shop", stages={"traced": StageConfig(tracing=True)})
"""Of the stage that a user gets without a word about it, and of one with tracing."""

REVIEWED = {
    "Serverless-LambdaDLQ": "Asynchronous invocations (cron ticks, Void calls, publish) are at most once by promise; "
    "what must not be lost goes through a queue, which has a dead-letter queue.",
    "Serverless-LambdaAsyncFailureDestination": "As above: a failed run is counted, logged and alarmed.",
    "Serverless-LambdaEventSourceMappingDestination": "A mapping of SQS has none: the queue's redrive policy is it.",
    "Serverless-SQSRedrivePolicy": "These are dead-letter queues and queues of failures.",
    "Serverless-SNSRedrivePolicy": "The subscription of a mail address: an alarm is on the dashboard as well.",
    "Serverless-APIGWAccessLogging": "The WebSocket API: its logs need a role that is set for the whole account.",
}
"""What the Serverless rules report of every stage, and why each is as it should be."""

REVIEWED_BY_STAGE = {
    "shop-dev": {
        "Serverless-LambdaTracing": "X-Ray costs for each trace, and needs a library in each Lambda: `tracing: true` "
        "of the stage turns it on. Messages are followed by the `trace_id` of their log lines, which costs nothing.",
    },
    "shop-traced": {
        "Serverless-LambdaStarPermissions": "X-Ray, which knows no resources; only in stages that trace.",
    },
}
"""What they report of one of these stages: of the default, and of one with tracing."""


Violations: TypeAlias = list[dict[str, Any]]


@dataclass(frozen=True)
class Report:
    """What a checker found in the stacks of the app, and in one that has a mistake."""

    findings: Violations
    by_stack: dict[str, Violations]
    acknowledged: Violations
    in_mistakes: Violations


def add_mistake(stack: cdk.Stack) -> None:
    """Add a FIFO queue whose dead-letter queue is none, which AWS refuses, and two queues that take plain http."""
    letters = sqs.CfnQueue(stack, "Letters", queue_name="letters")
    redrive = {"deadLetterTargetArn": letters.attr_arn, "maxReceiveCount": 3}
    sqs.CfnQueue(stack, "Mistake", queue_name="mistake.fifo", fifo_queue=True, redrive_policy=redrive)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    """What every checker says, from one synthesis: the CDK's validator alone takes seconds."""
    out = tmp_path_factory.mktemp("checked")
    app = new_app(out, alarm_email="ops@example.com")
    manifest = manifest_of(replace(SHOP, aws=STAGES), register_shop)
    for stage in ("dev", "traced"):
        IiiStacks(app, manifest=manifest, code=a_code(), project_root=out, stage=stage)
    add_mistake(cdk.Stack(app, "Mistakes"))
    cdk.Validations.of(app).add_plugins(
        cdk_nag.AwsSolutionsChecks(app), cdk_nag.ServerlessChecks(app), cdk.CloudFormationValidatePlugin()
    )
    with contextlib.suppress(RuntimeError):  # raised if there is anything in the report
        app.synth()
    found = json.loads((out / "validation-report.json").read_text())["pluginReports"]
    return {each["pluginName"]: report_of(each) for each in found}


def report_of(plugin: dict[str, Any]) -> Report:
    violations = plugin["violations"]
    return Report(
        findings=within(violations, "shop-"),
        by_stack={stack: within(violations, f"{stack}/") for stack in REVIEWED_BY_STAGE},
        acknowledged=within(plugin.get("suppressedViolations", []), "shop-dev/"),
        in_mistakes=within(violations, "Mistakes/"),
    )


def within(violations: Violations, stack: str) -> Violations:
    """Return the violations that a stack has, each with its constructs there."""
    found = []
    for each in violations:
        paths = [place["constructPath"] for place in each["violatingConstructs"]]
        found.append({**each, "paths": [path for path in paths if path.startswith(stack)]})
    return [each for each in found if each["paths"]]


def report(reports: dict[str, Report], plugin: str) -> Report:
    (name,) = [name for name in reports if plugin in name]
    return reports[name]


def constructs(violations: Violations, rule: str) -> list[str]:
    return [path for each in violations if each["ruleName"] == rule for path in each["paths"]]


@pytest.fixture(scope="module")
def solutions(reports: dict[str, Report]) -> Report:
    return report(reports, "AwsSolutions")


@pytest.fixture(scope="module")
def serverless(reports: dict[str, Report]) -> Report:
    return report(reports, "Serverless")


def test_aws_solutions_finds_nothing_that_is_not_acknowledged(solutions: Report) -> None:
    assert [(each["ruleName"], each["paths"]) for each in solutions.findings] == []


def test_each_acknowledgement_is_of_a_known_kind_and_has_a_reason(solutions: Report) -> None:
    kinds = {re.sub(r"\[.*", "", each["ruleName"]) for each in solutions.acknowledged}
    assert kinds == {
        "AwsSolutions-IAM5",
        "AwsSolutions-APIG1",
        "AwsSolutions-APIG4",
        "AwsSolutions-S1",
        "AwsSolutions-SQS3",
    }
    assert all(len(each["reason"]) > 20 for each in solutions.acknowledged)


def test_only_open_routes_are_acknowledged_as_open(solutions: Report) -> None:
    assert sorted(constructs(solutions.acknowledged, "AwsSolutions-APIG4")) == [
        "shop-dev/App/Route-GET |status/Route",
        "shop-dev/App/Route-HEAD |status/Route",
        "shop-dev/App/WebSocket/Route-connect",
        "shop-dev/App/WebSocket/Route-default",
        "shop-dev/App/WebSocket/Route-disconnect",
    ]


def test_only_queues_of_failures_are_without_a_dead_letter_queue(solutions: Report) -> None:
    assert sorted(constructs(solutions.acknowledged, "AwsSolutions-SQS3")) == [
        "shop-dev/App/Runtime-FeedFailures/Queue/Resource",
        "shop-dev/App/Runtime-TopicFailures/Queue/Resource",
    ]


@pytest.mark.parametrize("stack", REVIEWED_BY_STAGE)
def test_the_serverless_rules_find_what_was_reviewed_and_nothing_else(serverless: Report, stack: str) -> None:
    assert {each["ruleName"] for each in serverless.by_stack[stack]} == {**REVIEWED, **REVIEWED_BY_STAGE[stack]}.keys()


def test_what_was_reviewed_is_still_about_what_the_review_says(serverless: Report) -> None:
    found = serverless.by_stack["shop-dev"]
    for path in constructs(found, "Serverless-SQSRedrivePolicy"):
        assert re.search(r"/(Letters|Runtime-(Feed|Cron|Topic)Failures/Queue)/Resource$", path), path
    for path in constructs(found, "Serverless-LambdaEventSourceMappingDestination"):
        assert re.search(r"/(Queue-[^/]+|Runtime-TickQueue)/Mapping$", path), path
    assert constructs(found, "Serverless-SNSRedrivePolicy") == ["shop-dev/App/AlarmEmail"]
    assert constructs(found, "Serverless-APIGWAccessLogging") == ["shop-dev/App/WebSocketStage/Resource"]


def test_the_validator_of_the_cdk_finds_nothing(reports: dict[str, Report]) -> None:
    """It runs in the command line too, where the flags in cdk.json make its findings errors."""
    assert CDK_JSON["context"]["@aws-cdk/core:validateAgainstDefaultRules"] is True
    assert report(reports, "CloudFormation").findings == []


@pytest.mark.parametrize(
    ("plugin", "path"),
    [
        ("AwsSolutions", "Mistakes/Mistake"),
        ("Serverless", "Mistakes/Letters"),
        ("CloudFormation", "Mistakes/Mistake"),
    ],
)
def test_every_checker_finds_a_mistake_that_is_put_in(reports: dict[str, Report], plugin: str, path: str) -> None:
    assert path in [found for each in report(reports, plugin).in_mistakes for found in each["paths"]]


def test_cfn_lint_finds_nothing(production: Synthesised) -> None:
    # W3005: the CDK says what a function depends on although a reference says it as well.
    settings = cfnlint.ManualArgs(regions=["eu-west-1"], ignore_checks=["W3005"])
    for template in production.templates.values():
        findings = cfnlint.lint(json.dumps(template.content), config=settings)
        assert [str(each) for each in findings] == []
