"""Alarms watch every queue and the stage as a whole, and the dashboard shows what they watch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iii_runtime.cdk.alarms import stage_alarms
from iii_runtime.cdk.dashboard import MOST_METRICS, MOST_WIDGETS, _fitted
from iii_runtime.core.config import Config
from iii_runtime.core.config.values import AwsConfig
from iii_runtime.core.errors import HostError
from tests.infra.synthesis import Resource, Synthesised, manifest_of, prepared, synthesise

TOPIC = "arn:aws:sns:eu-west-1:111122223333:shop-dev-x-alarms"


def alarms(made: Synthesised) -> dict[str, dict[str, Any]]:
    """Return the alarms by what their names say after the stage."""
    prefix = made.app.plan.deployment.prefix
    return {
        str(resource["Properties"]["AlarmName"]).removeprefix(f"{prefix} "): template.properties(resource)
        for template in made.templates.values()
        for resource in template.of("AWS::CloudWatch::Alarm").values()
    }


def watched(alarm: dict[str, Any]) -> tuple[str, str, dict[str, str]]:
    dimensions = {each["Name"]: each["Value"] for each in alarm["Dimensions"]}
    return alarm["Namespace"], alarm["MetricName"], dimensions


def test_every_queue_has_an_alarm_for_dead_letters_and_one_for_the_age_of_its_oldest_message(
    shop: Synthesised,
) -> None:
    for name, queue in shop.app.plan.queues.items():
        letters, oldest = alarms(shop)[f"dead letters: {name}"], alarms(shop)[f"oldest message: {name}"]
        depth = ("AWS/SQS", "ApproximateNumberOfMessagesVisible", {"QueueName": queue.letter_name})
        assert watched(letters) == depth
        assert letters["Threshold"] == 1
        assert watched(oldest) == ("AWS/SQS", "ApproximateAgeOfOldestMessage", {"QueueName": queue.name})
        assert oldest["Threshold"] == 900


def test_the_stage_has_alarms_of_its_own(shop: Synthesised) -> None:
    of_queues = ("dead letters: ", "oldest message: ")
    assert {title for title in alarms(shop) if not title.startswith(of_queues)} == {
        "failed runs",
        "crashes 1",
        "crashes 2",
        "throttles 1",
        "throttles 2",
        "starts lost 1",
        "starts lost 2",
        "change feed late",
        "change feed lost",
        "cron lost",
        "topic lost",
        "too many hops",
        "http 5xx",
        "table throttles",
    }


def test_totals_of_the_runtime_are_of_app_and_stage(shop: Synthesised) -> None:
    total = {"App": "shop", "Stage": "dev"}
    assert watched(alarms(shop)["failed runs"]) == ("iii", "FunctionErrors", total)
    assert watched(alarms(shop)["too many hops"]) == ("iii", "TooManyHops", total)


def lambdas_of(made: Synthesised) -> set[str]:
    return {each["Properties"]["FunctionName"] for each in made.core.of("AWS::Lambda::Function").values()}


def added_up(made: Synthesised, title: str) -> list[tuple[str, str]]:
    """Return metric and Lambda of each part of the numbered alarms of a title."""
    seen: list[tuple[str, str]] = []
    for name, alarm in alarms(made).items():
        if name.startswith(f"{title} "):
            assert len(alarm["Metrics"]) <= 10
            (total,) = [each for each in alarm["Metrics"] if each["ReturnData"]]
            parts = [each for each in alarm["Metrics"] if not each["ReturnData"]]
            assert all(f"FILL({each['Id']}, 0)" in total["Expression"] for each in parts)
            metrics = [each["MetricStat"]["Metric"] for each in parts]
            seen += [(each["MetricName"], each["Dimensions"][0]["Value"]) for each in metrics]
            assert (alarm["Threshold"], {each["MetricStat"]["Stat"] for each in parts}) == (1, {"Sum"})
    return sorted(seen)


@pytest.mark.parametrize(("title", "metric"), [("crashes", "Errors"), ("throttles", "Throttles")])
def test_every_lambda_is_watched_for_crashes_and_throttles_by_alarms_of_at_most_ten_entries(
    shop: Synthesised, title: str, metric: str
) -> None:
    assert added_up(shop, title) == sorted((metric, name) for name in lambdas_of(shop))


def test_what_nobody_waits_for_is_watched_wherever_it_could_be_dropped(shop: Synthesised) -> None:
    awaited = {f"shop-dev-x-{role}" for role in ("control", "dispatcher", "feed", "websocket")}
    dropped = [("AsyncEventsDropped", name) for name in lambdas_of(shop) - awaited]
    assert added_up(shop, "starts lost") == sorted(dropped)
    assert len(dropped) == 10 + 1


def test_what_was_given_up_raises_an_alarm_at_once(shop: Synthesised) -> None:
    ended = {"change feed lost": "feed-failures", "cron lost": "cron-failures", "topic lost": "topic-failures.fifo"}
    for title, queue in ended.items():
        assert watched(alarms(shop)[title])[2] == {"QueueName": f"shop-dev-x-{queue}"}
        assert alarms(shop)[title]["Threshold"] == 1


def test_the_change_feed_is_late_when_messages_would_be(shop: Synthesised) -> None:
    late = alarms(shop)["change feed late"]
    assert watched(late) == ("AWS/Lambda", "IteratorAge", {"FunctionName": "shop-dev-x-feed"})
    assert late["Threshold"] == 900_000


@pytest.mark.parametrize(("age", "raised"), [(60, 60), (1800, 1800), (1801, 1800), (1_209_600, 1800)])
def test_the_change_feed_is_late_before_changes_are_given_up(shop: Synthesised, age: int, raised: int) -> None:
    plan = shop.app.plan
    late = replace(plan, stage=replace(plan.stage, oldest_message_alarm_s=age))
    (alarm,) = [each for each in stage_alarms(late, "api") if each.title == "change feed late"]
    assert (alarm.threshold, f" {raised} s late" in alarm.description) == (raised * 1000, True)
    given_up = shop.core.one("AWS::Lambda::EventSourceMapping", StartingPosition="TRIM_HORIZON")["Properties"]
    assert raised + alarm.periods * alarm.period_s < given_up["MaximumRecordAgeInSeconds"]


def test_every_alarm_reports_both_ways_ignores_silence_and_says_where_to_read_on(shop: Synthesised) -> None:
    for title, alarm in alarms(shop).items():
        assert (alarm["AlarmActions"], alarm["OKActions"]) == ([TOPIC], [TOPIC])
        assert alarm["TreatMissingData"] == "notBreaching"
        kind = title.partition(":")[0].rstrip(" 0123456789")
        assert alarm["AlarmDescription"].endswith(f"See docs/operate.md, '{kind}'."), title


def test_alarms_may_publish_and_the_address_of_the_context_hears_them(pipeline: Synthesised) -> None:
    core = pipeline.core
    topic = next(iter(core.of("AWS::SNS::Topic", TopicName="orders-dev-x-alarms")))
    policy = core.one("AWS::SNS::TopicPolicy", Topics=[{"Ref": topic}])["Properties"]["PolicyDocument"]
    allowed = [each for each in policy["Statement"] if each["Effect"] == "Allow"]
    may = [(each["Principal"], each["Action"]) for each in allowed]
    assert may == [({"Service": "cloudwatch.amazonaws.com"}, "sns:Publish")]
    mail = core.one("AWS::SNS::Subscription", Protocol="email")["Properties"]
    assert (mail["Endpoint"], mail["TopicArn"]) == ("ops@example.com", {"Ref": topic})


def test_without_an_address_nobody_is_written_to(shop: Synthesised) -> None:
    assert shop.core.of("AWS::SNS::Subscription", Protocol="email") == {}


@pytest.mark.parametrize("address", ["ops", "ops@example", "ops@example.com, dev@example.com", "Ops <ops@example.com>"])
def test_an_address_that_would_be_refused_at_deployment_is_refused_before(tmp_path: Path, address: str) -> None:
    manifest = manifest_of(Config(aws=AwsConfig(app="shop")), lambda worker: worker.function("a::b")(print))
    with pytest.raises(HostError, match="is no mail address") as refused:
        synthesise(tmp_path, manifest=manifest, alarms=False, alarm_email=address)
    assert refused.value.code == "alarm_email_invalid"


def test_alarms_can_be_left_out(tmp_path: Path) -> None:
    manifest = manifest_of(Config(aws=AwsConfig(app="shop")), lambda worker: worker.function("a::b")(print))
    off = synthesise(tmp_path, manifest=manifest, context={"alarms": "off"}).core
    assert off.of("AWS::CloudWatch::Alarm") == {}
    assert prepared(tmp_path, manifest=manifest, context={"alarms": "off"}, alarms=True).has_alarms


def widgets(made: Synthesised) -> list[Resource]:
    body = made.core.text(made.core.one("AWS::CloudWatch::Dashboard")["Properties"]["DashboardBody"])
    found: list[Resource] = json.loads(body)["widgets"]
    return found


def test_there_is_one_dashboard_with_a_row_for_each_queue_and_each_function(shop: Synthesised) -> None:
    rows: dict[int, list[str]] = {}
    for widget in widgets(shop):
        rows.setdefault(widget["y"], []).append(widget["properties"]["title"].rpartition(": ")[0])
    subjects = [titles[0] for titles in rows.values()]
    plan = shop.app.plan
    assert all(len(set(titles)) == 1 for titles in list(rows.values())[1:])
    for name in plan.queues:
        assert subjects.count(name) == 1
    for planned in plan.functions.values():
        assert subjects.count(planned.function_id or f"runtime: {planned.role}") == 1


def test_the_dashboard_shows_what_the_alarms_of_lambdas_add_up(shop: Synthesised) -> None:
    shown = {tuple(metric[:4]) for widget in widgets(shop) for metric in widget["properties"]["metrics"]}
    for title in ("crashes", "throttles", "starts lost"):
        for metric, name in added_up(shop, title):
            assert ("AWS/Lambda", metric, "FunctionName", name) in shown


def test_no_two_widgets_overlap(shop: Synthesised) -> None:
    taken: set[tuple[int, int]] = set()
    for each in widgets(shop):
        cells = {
            (x, y)
            for x in range(each["x"], each["x"] + each["width"])
            for y in range(each["y"], each["y"] + each["height"])
        }
        assert not cells & taken
        assert each["x"] + each["width"] <= 24
        taken |= cells


def row(width: int, metrics: int) -> list[Resource]:
    return [{"properties": {"metrics": [["m"]] * metrics}} for _ in range(width)]


@pytest.mark.parametrize(
    ("rows", "metrics", "count", "width"),
    [(100, 1, 100, 4), (150, 1, 150, 3), (240, 1, 240, 2), (400, 1, 400, 1), (700, 1, 500, 1), (100, 9, 100, 2)],
)
def test_a_dashboard_has_as_much_of_each_row_as_there_is_room_for(
    rows: int, metrics: int, count: int, width: int
) -> None:
    fitted = _fitted([row(4, metrics) for _ in range(rows)])
    assert (len(fitted), {len(each) for each in fitted}) == (count, {width})
    shown = [widget for each in fitted for widget in each]
    assert len(shown) <= MOST_WIDGETS
    assert sum(len(widget["properties"]["metrics"]) for widget in shown) <= MOST_METRICS
