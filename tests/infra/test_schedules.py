"""Cron jobs become schedules and rules, or are left to the tick."""

from __future__ import annotations

from iii_runtime.plan.names import Deployment
from tests.infra.synthesis import Synthesised

NAMES = Deployment(app="shop", stage="dev", region="eu-west-1", account="111122223333")


def test_a_job_in_a_time_zone_is_a_schedule_at_exactly_its_time(shop: Synthesised) -> None:
    schedule = shop.core.properties(shop.core.one("AWS::Scheduler::Schedule"))
    assert schedule["ScheduleExpression"] == "cron(30 2 * * ? *)"
    assert schedule["ScheduleExpressionTimezone"] == "Europe/Berlin"
    assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
    assert schedule["GroupName"] == "shop-dev"
    target = schedule["Target"]
    assert target["DeadLetterConfig"]["Arn"] == NAMES.queue_arn("shop-dev-x-cron-failures")
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 120, "MaximumRetryAttempts": 10}


def test_the_group_of_the_schedules_is_there_before_they_are(shop: Synthesised) -> None:
    group = next(iter(shop.core.of("AWS::Scheduler::ScheduleGroup", Name="shop-dev")))
    assert shop.core.one("AWS::Scheduler::Schedule")["DependsOn"] == [group]


def test_a_job_by_the_second_is_left_to_the_tick(shop: Synthesised) -> None:
    assert [each.kind for each in shop.app.plan.schedules] == ["schedule", "rule", "tick"]
    expressions = {each["Properties"]["ScheduleExpression"] for each in shop.core.of("AWS::Events::Rule").values()}
    assert expressions == {"cron(0 * * * ? *)", "cron(* * * * ? *)"}


def test_rules_may_put_what_they_cannot_hand_over_on_a_queue_and_only_those_of_the_stage(shop: Synthesised) -> None:
    core = shop.core
    failures = next(iter(core.of("AWS::SQS::Queue", QueueName="shop-dev-x-cron-failures")))
    policy = core.one("AWS::SQS::QueuePolicy", Queues=[{"Ref": failures}])
    (allowed,) = [each for each in policy["Properties"]["PolicyDocument"]["Statement"] if each["Effect"] == "Allow"]
    assert core.text(allowed["Condition"]) == {
        "ArnLike": {"aws:SourceArn": "arn:aws:events:eu-west-1:111122223333:rule/shop-dev-*"}
    }
    for rule in core.of("AWS::Events::Rule").values():
        target = core.properties(rule)["Targets"][0]
        assert target["DeadLetterConfig"]["Arn"] == NAMES.queue_arn("shop-dev-x-cron-failures")
