"""A stage of production keeps its data, and is open to nobody by accident."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from iii_runtime import Http
from iii_runtime.core.config import Config
from iii_runtime.core.config.values import AwsConfig, StreamConfig
from iii_runtime.core.errors import HostError
from iii_runtime.plan.findings import AppInvalidError
from tests.infra.synthesis import Resource, Synthesised, manifest_of, prepared, synthesise

KEPT = {"AWS::DynamoDB::GlobalTable": "Retain", "AWS::S3::Bucket": "RetainExceptOnCreate"}
"""The bucket of a first deployment that fails goes again: its name would be taken. Protection keeps the table."""

KEPT_BUT_FOR_A_FAILED_CREATION = ("AWS::SQS::Queue", "AWS::Logs::LogGroup")


def resources(made: Synthesised, kind: str) -> list[Resource]:
    return [resource for template in made.templates.values() for resource in template.of(kind).values()]


def test_table_and_bucket_stay_and_the_table_cannot_be_deleted(production: Synthesised) -> None:
    for kind, policy in KEPT.items():
        resource = production.core.one(kind)
        assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == (policy, "Retain")
    table = production.core.one("AWS::DynamoDB::GlobalTable")["Properties"]
    assert table["Replicas"][0]["DeletionProtectionEnabled"] is True


def test_messages_and_log_lines_stay_as_well(production: Synthesised) -> None:
    for kind in KEPT_BUT_FOR_A_FAILED_CREATION:
        policies = {
            each["DeletionPolicy"]
            for each in resources(production, kind)
            if each["Properties"].get("QueueName") != "shop-prod-x-tick"
        }
        assert policies == {"RetainExceptOnCreate"}


def test_the_settings_of_the_stage_hold(production: Synthesised) -> None:
    groups = resources(production, "AWS::Logs::LogGroup")
    assert {each["Properties"]["RetentionInDays"] for each in groups} == {90}
    alarms = [each["Properties"] for each in resources(production, "AWS::CloudWatch::Alarm")]
    oldest = {each["Threshold"] for each in alarms if each["AlarmName"].startswith("shop-prod oldest message: ")}
    assert oldest == {60}


def test_the_stack_with_the_data_is_protected_from_termination(production: Synthesised) -> None:
    assert [stack.termination_protection for stack in production.app.stacks] == [True, False, False]


def test_connections_are_logged_where_the_account_allows_it(production: Synthesised, shop: Synthesised) -> None:
    stage = production.core.one("AWS::ApiGatewayV2::Stage", StageName="live")["Properties"]
    destination = production.core.text(stage["AccessLogSettings"]["DestinationArn"])
    assert destination.endswith("/aws/vendedlogs/shop-prod-streams")
    shown = json.loads(stage["AccessLogSettings"]["Format"])
    assert (shown["connection"], shown["event"]) == ("$context.connectionId", "$context.eventType")
    assert "AccessLogSettings" not in shop.core.one("AWS::ApiGatewayV2::Stage", StageName="live")["Properties"]


def test_a_route_that_does_not_say_who_may_call_it_is_refused(tmp_path: Path) -> None:
    config = Config(aws=AwsConfig(app="shop"), stream=StreamConfig(auth="iam"))
    manifest = manifest_of(config, lambda worker: worker.function("a::b", triggers=[Http("GET", "/b")])(print))
    with pytest.raises(AppInvalidError, match="GET /b does not say who may call it"):
        prepared(tmp_path, manifest=manifest, context={"stage": "prod"})


def test_the_same_route_in_another_stage_is_open_with_a_warning(tmp_path: Path) -> None:
    config = Config(aws=AwsConfig(app="shop"))
    manifest = manifest_of(config, lambda worker: worker.function("a::b", triggers=[Http("GET", "/b")])(print))
    made = synthesise(tmp_path, manifest=manifest)
    assert made.core.one("AWS::ApiGatewayV2::Route", RouteKey="GET /b")["Properties"]["AuthorizationType"] == "NONE"
    shown = json.dumps(json.loads((tmp_path / "cdk.out" / "validation-report.json").read_text()))
    assert "everybody may call GET /b in stage dev" in shown
    assert "everybody may open a WebSocket in stage dev" in shown


def test_a_stage_is_chosen_by_the_context_unless_it_is_given(tmp_path: Path) -> None:
    manifest = manifest_of(Config(), lambda worker: worker.function("a::b")(print))
    stages = [
        prepared(tmp_path, manifest=manifest).plan.deployment.stage,
        prepared(tmp_path, manifest=manifest, context={"stage": "test"}).plan.deployment.stage,
        prepared(tmp_path, manifest=manifest, context={"stage": "test"}, stage="qa").plan.deployment.stage,
    ]
    assert stages == ["dev", "test", "qa"]


def test_a_word_that_is_no_stage_is_refused(tmp_path: Path) -> None:
    manifest = manifest_of(Config(), lambda worker: worker.function("a::b")(print))
    with pytest.raises(HostError, match="'Production!' is no name of a stage") as refused:
        prepared(tmp_path, manifest=manifest, context={"stage": "Production!"})
    assert refused.value.code == "stage_invalid"


@pytest.mark.parametrize("app", ["shop", "production", "many"])
def test_a_template_fits_every_partition_of_aws(request: pytest.FixtureRequest, app: str) -> None:
    """Partition, region and domain are CloudFormation's to fill in."""
    made: Synthesised = request.getfixturevalue(app)
    for template in made.templates.values():
        text = json.dumps(template.content)
        assert '"Ref": "AWS::Partition"' in text
        assert not re.findall(r"arn:aws[^\"]*|[\w.]*\.amazonaws\.com[^\"]*/[^\"]*", text)
