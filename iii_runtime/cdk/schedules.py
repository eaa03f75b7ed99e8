"""Cron jobs as EventBridge rules and EventBridge Scheduler schedules."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from iii_runtime.cdk.functions import place
from iii_runtime.plan.app_plan import PlannedSchedule
from iii_runtime.plan.names import Deployment

HAND_OVER_AGE_S = 120
"""How long AWS goes on trying to hand a tick to its Lambda, seconds: a later one would be skipped as late."""

HAND_OVER_ATTEMPTS = 10

_RULE_TIME = "<time>"
"""Without quotes: in a template of JSON, EventBridge puts a text in quotes itself."""

_SCHEDULER_TIME = '"<aws.scheduler.scheduled-time>"'


def add_tick_rule(
    scope: Construct, deployment: Deployment, tick: lambda_.IFunction, failures_arn: str
) -> events.CfnRule:
    """Create the rule that starts the tick each minute. One that is not handed over within its minute is given up."""
    within = place(scope, "Runtime-TickRule")
    rule = events.CfnRule(
        within,
        "Rule",
        name=f"{deployment.prefix}-x-tick",
        description="iii runtime: each minute",
        schedule_expression="cron(* * * * ? *)",
        state="ENABLED",
        targets=[
            events.CfnRule.TargetProperty(
                id="tick",
                arn=tick.function_arn,
                retry_policy=events.CfnRule.RetryPolicyProperty(
                    maximum_event_age_in_seconds=60, maximum_retry_attempts=1
                ),
                dead_letter_config=events.CfnRule.DeadLetterConfigProperty(arn=failures_arn),
            )
        ],
    )
    _permit(within, rule, tick)
    return rule


def add_schedules(
    scope: Construct,
    planned: Sequence[PlannedSchedule],
    functions: Mapping[str, lambda_.Function],
    deployment: Deployment,
    failures_arn: str,
    *,
    group: scheduler.CfnScheduleGroup | None,
) -> None:
    """Create rules and schedules.

    Args:
        scope: Where they are placed.
        planned: The jobs of this stack; those of the tick are left to it.
        functions: The Lambdas by their names.
        deployment: The names.
        failures_arn: The queue of ticks that could not be handed over.
        group: The group of schedules, if it is in the same stack.
    """
    for job in planned:
        if job.kind == "rule":
            _add_rule(scope, job, functions[job.function], failures_arn)
    timed = [job for job in planned if job.kind == "schedule"]
    if timed:
        targets = sorted({job.function for job in timed})
        role = _scheduler_role(scope, [functions[name].function_arn for name in targets], deployment, failures_arn)
        for job in timed:
            schedule = _add_schedule(scope, job, functions[job.function], role, failures_arn, deployment.prefix)
            if group is not None:
                schedule.node.add_dependency(group)


def add_schedule_group(scope: Construct, deployment: Deployment) -> scheduler.CfnScheduleGroup:
    """Create the group that all schedules of the stage are in."""
    return scheduler.CfnScheduleGroup(scope, "ScheduleGroup", name=deployment.prefix)


def allow_rules(queue_arn: str, deployment: Deployment) -> iam.PolicyStatement:
    """Return the statement that lets the rules of the stage put undeliverable ticks on the queue."""
    return iam.PolicyStatement(
        sid="RulesMaySend",
        principals=[iam.ServicePrincipal("events.amazonaws.com")],
        actions=["sqs:SendMessage"],
        resources=[queue_arn],
        conditions={"ArnLike": {"aws:SourceArn": deployment.arn("events", f"rule/{deployment.prefix}-*")}},
    )


def _add_rule(scope: Construct, job: PlannedSchedule, function: lambda_.Function, failures_arn: str) -> None:
    within = place(scope, f"Cron-{job.job_id}")
    rule = events.CfnRule(
        within,
        "Rule",
        name=job.name,
        description=f"iii cron of {job.function_id}",
        schedule_expression=job.expression,
        state="ENABLED",
        targets=[
            events.CfnRule.TargetProperty(
                id="function",
                arn=function.function_arn,
                input_transformer=events.CfnRule.InputTransformerProperty(
                    input_paths_map={"time": "$.time"},
                    input_template=_tick(job.job_id, _RULE_TIME),
                ),
                retry_policy=events.CfnRule.RetryPolicyProperty(
                    maximum_event_age_in_seconds=HAND_OVER_AGE_S, maximum_retry_attempts=HAND_OVER_ATTEMPTS
                ),
                dead_letter_config=events.CfnRule.DeadLetterConfigProperty(arn=failures_arn),
            )
        ],
    )
    _permit(within, rule, function)


def _add_schedule(
    scope: Construct,
    job: PlannedSchedule,
    function: lambda_.Function,
    role: iam.Role,
    failures_arn: str,
    group: str,
) -> scheduler.CfnSchedule:
    return scheduler.CfnSchedule(
        place(scope, f"Cron-{job.job_id}"),
        "Schedule",
        name=job.name,
        group_name=group,
        description=f"iii cron of {job.function_id}",
        schedule_expression=job.expression,
        schedule_expression_timezone=job.timezone,
        flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
        state="ENABLED",
        target=scheduler.CfnSchedule.TargetProperty(
            arn=function.function_arn,
            role_arn=role.role_arn,
            input=_tick(job.job_id, _SCHEDULER_TIME),
            retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                maximum_event_age_in_seconds=HAND_OVER_AGE_S, maximum_retry_attempts=HAND_OVER_ATTEMPTS
            ),
            dead_letter_config=scheduler.CfnSchedule.DeadLetterConfigProperty(arn=failures_arn),
        ),
    )


def _scheduler_role(
    scope: Construct, function_arns: Sequence[str], deployment: Deployment, failures_arn: str
) -> iam.Role:
    group = deployment.arn("scheduler", f"schedule-group/{deployment.prefix}")
    return iam.Role(
        place(scope, "Scheduler"),
        "Role",
        assumed_by=iam.ServicePrincipal(
            "scheduler.amazonaws.com",
            conditions={"StringEquals": {"aws:SourceAccount": deployment.account, "aws:SourceArn": group}},
        ),
        inline_policies={
            "iii": iam.PolicyDocument(
                statements=[
                    iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=list(function_arns)),
                    iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[failures_arn]),
                ]
            )
        },
    )


def _permit(within: Construct, rule: events.CfnRule, function: lambda_.IFunction) -> None:
    lambda_.CfnPermission(
        within,
        "Permission",
        action="lambda:InvokeFunction",
        function_name=function.function_arn,
        principal="events.amazonaws.com",
        source_arn=rule.attr_arn,
    )


def _tick(job_id: str, time: str) -> str:
    """Return what the Lambda of a job is invoked with, as JSON; `time` as it is."""
    job = json.dumps(job_id).replace("<", "\\u003c")  # a `<` would begin a placeholder
    return f'{{"iii":{{"v":1,"kind":"cron","job":{job},"time":{time}}}}}'
