"""What the documents about AWS say is what is deployed."""

from __future__ import annotations

import re

import pytest

from iii_runtime.cdk.settings import AppSettings
from tests.infra.synthesis import ROOT, Synthesised

DEPLOY = (ROOT / "docs" / "deploy.md").read_text()
OPERATE = (ROOT / "docs" / "operate.md").read_text()
BUDGETS = (ROOT / "tests" / "budgets" / "test_call_budgets.py").read_text()
RESOURCES = (ROOT / "docs" / "reference" / "aws-resources.md").read_text()


def section(text: str, heading: str) -> str:
    """Return what is under a heading, up to the next one of its level."""
    level = heading.partition(" ")[0]
    return text.partition(f"{heading}\n")[2].partition(f"\n{level} ")[0]


def test_every_keyword_of_the_constructs_is_explained() -> None:
    named = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", section(DEPLOY, "## An app of your own"), re.MULTILINE)
    assert {name for names in named for name in re.findall(r"\w+", names)} == set(AppSettings.__annotations__)


def test_what_an_order_costs_is_what_was_counted() -> None:
    counted = re.search(r"^PRICE = (\d+\.\d\d)$", BUDGETS, re.MULTILINE)
    assert counted is not None
    table = section(DEPLOY, "## What it costs")
    prices = [float(price) for price in re.findall(r"\| (\d+\.\d\d) \|$", table, re.MULTILINE)]
    assert f"{sum(prices):.2f}" == counted[1]
    assert f"cost {counted[1]} USD" in table


def test_what_an_idle_stage_costs_counts_every_metric_that_an_alarm_watches(pipeline: Synthesised) -> None:
    alarms = [each["Properties"] for each in pipeline.core.of("AWS::CloudWatch::Alarm").values()]
    watched = sum(sum("MetricStat" in part for part in each["Metrics"]) if "Metrics" in each else 1 for each in alarms)
    assert f"{watched} in all for the pipeline" in section(DEPLOY, "## What it costs").replace("\n", " ")


def test_the_guide_for_operators_explains_every_alarm(shop: Synthesised) -> None:
    prefix = f"{shop.app.plan.deployment.prefix} "
    names = [each["Properties"]["AlarmName"] for each in shop.core.of("AWS::CloudWatch::Alarm").values()]
    told = {re.sub(r"(:.*| \d+)$", "", name.removeprefix(prefix)) for name in names}
    listed = set(re.findall(r"^\| \[([\w ]+)\]\(#", section(OPERATE, "## Alarms"), re.MULTILINE))
    assert told == listed
    assert told <= set(re.findall(r"^### (.+)$", OPERATE, re.MULTILINE))


def test_every_output_is_named(shop: Synthesised) -> None:
    named = set(re.findall(r"`(\w+)`", section(RESOURCES, "## Stacks")))
    assert {re.sub(r"\d+$", "", name) for name in shop.core.content["Outputs"]} <= named


@pytest.mark.parametrize("kind", ["AWS::Lambda::Function", "AWS::SQS::Queue", "AWS::SNS::Topic"])
def test_everything_of_the_runtimes_own_is_listed(shop: Synthesised, kind: str) -> None:
    key = {"AWS::Lambda::Function": "FunctionName", "AWS::SQS::Queue": "QueueName", "AWS::SNS::Topic": "TopicName"}
    names = [each["Properties"][key[kind]] for each in shop.core.of(kind).values()]
    own = {name.replace("shop-dev-x-", "P-x-") for name in names if name.startswith("shop-dev-x-")}
    assert own
    assert own <= set(re.findall(r"`(P-x-[\w.-]+)`", section(RESOURCES, "## Once for each app and stage")))


def test_every_variable_of_the_runtime_is_named(shop: Synthesised) -> None:
    names = {
        name
        for each in shop.core.of("AWS::Lambda::Function").values()
        for name in each["Properties"]["Environment"]["Variables"]
        if name.startswith("III_")
    }
    assert names <= set(re.findall(r"`(III_\w+)`", section(RESOURCES, "## Settings that matter")))
    assert len(names) == 8
