"""Alarms: of each queue, and of the stage as a whole. `docs/operate.md` says what to do about each."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct

from iii_runtime.cdk.functions import place
from iii_runtime.cdk.queues import CRON_FAILURES, has_mixed_topics, topic_failures_name
from iii_runtime.core.config.values import StageConfig
from iii_runtime.core.errors import HostError
from iii_runtime.plan.app_plan import AppPlan, PlannedQueue
from iii_runtime.plan.limits import ALARM_METRICS, CHANGE_ALARM_AGE
from iii_runtime.plan.names import FEED_FAILURES, Deployment

FUNCTION_ERRORS = 10
"""Failed runs within 5 minutes that raise an alarm. A few are what retries are for; the last one is a dead letter."""

SERVER_ERRORS = 5
TABLE_THROTTLES = 10

_ADDRESS = re.compile(r"[!-?A-~]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
_NAME_LENGTH = 255
_MINUTE = 60
_WHILE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What an alarm looks at."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]
    statistic: str = "Sum"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmSpec:
    """An alarm.

    Attributes:
        title: Its name after the name of the stage.
        description: What has happened, and where to read on.
        metrics: What it looks at; of several the sum.
        threshold: It is raised from this value on.
        period_s: How long a value is collected.
        periods: How many values in a row have to reach the threshold.
    """

    title: str
    description: str
    metrics: tuple[Metric, ...]
    threshold: float
    period_s: int = _WHILE
    periods: int = 1


def alarm_topic_arn(deployment: Deployment) -> str:
    """Return the ARN of the topic that all alarms of the stage report to."""
    return deployment.arn("sns", f"{deployment.prefix}-x-alarms")


def add_alarm_topic(scope: Construct, deployment: Deployment, email: str | None) -> sns.Topic:
    """Create the topic of the alarms, with a subscription if an address is given; its owner has to confirm it.

    It carries names of alarms and nothing of the app; under the account's key for SNS, CloudWatch could not publish.

    Raises:
        HostError: `alarm_email_invalid`: SNS would refuse the address in the middle of the deployment.
    """
    if email is not None and not cdk.Token.is_unresolved(email) and not _ADDRESS.fullmatch(email):
        raise HostError(
            f"alarm_email {email!a} is no mail address. Give one, such as 'ops@example.com', or leave it out.",
            code="alarm_email_invalid",
        )
    topic = sns.Topic(scope, "AlarmTopic", topic_name=f"{deployment.prefix}-x-alarms", enforce_ssl=True)
    topic.add_to_resource_policy(
        iam.PolicyStatement(
            sid="AlarmsMayPublish",
            principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
            actions=["sns:Publish"],
            resources=[topic.topic_arn],
            conditions={"StringEquals": {"aws:SourceAccount": deployment.account}},
        )
    )
    if email is not None:
        sns.CfnSubscription(scope, "AlarmEmail", topic_arn=topic.topic_arn, protocol="email", endpoint=email)
    return topic


def add_alarm(scope: Construct, deployment: Deployment, alarm: AlarmSpec) -> cloudwatch.CfnAlarm:
    """Create an alarm that reports to the topic of the stage."""
    only = alarm.metrics[0] if len(alarm.metrics) == 1 else None
    # All in one step: each member that is set later costs a call to the process of the CDK.
    return cloudwatch.CfnAlarm(
        place(scope, f"Alarm-{alarm.title}"),
        "Alarm",
        alarm_name=_fitted(f"{deployment.prefix} {alarm.title}"),
        alarm_description=alarm.description,
        comparison_operator="GreaterThanOrEqualToThreshold",
        threshold=alarm.threshold,
        evaluation_periods=alarm.periods,
        treat_missing_data="notBreaching",
        alarm_actions=[alarm_topic_arn(deployment)],
        ok_actions=[alarm_topic_arn(deployment)],
        namespace=None if only is None else only.namespace,
        metric_name=None if only is None else only.name,
        dimensions=None if only is None else _dimensions(only),
        statistic=None if only is None else only.statistic,
        period=None if only is None else alarm.period_s,
        metrics=_sum_of(alarm) if only is None else None,
    )


def _fitted(name: str) -> str:
    """Return a name that CloudWatch takes; a long one is cut, and ends with a hash."""
    if len(name) <= _NAME_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _NAME_LENGTH - len(digest) - 1]}-{digest}"


def queue_alarms(queue: PlannedQueue, stage: StageConfig) -> list[AlarmSpec]:
    """Return the two alarms of a queue."""
    name = queue.spec.name
    return [
        AlarmSpec(
            title=f"dead letters: {name}",
            description=f"Queue '{name}' has dead letters. See docs/operate.md, 'dead letters'.",
            metrics=(_depth_of(queue.letter_name),),
            threshold=1,
            period_s=_MINUTE,
        ),
        AlarmSpec(
            title=f"oldest message: {name}",
            description=f"A message of queue '{name}' waits for {stage.oldest_message_alarm_s} s or longer. "
            "See docs/operate.md, 'oldest message'.",
            metrics=(_queue_metric(queue.name, "ApproximateAgeOfOldestMessage"),),
            threshold=stage.oldest_message_alarm_s,
            period_s=_MINUTE,
            periods=3,
        ),
    ]


def stage_alarms(plan: AppPlan, api_id: str) -> list[AlarmSpec]:
    """Return the alarms of the stage as a whole."""
    names = plan.deployment
    # At a later age the changes would be given up before anybody is told.
    age = min(plan.stage.oldest_message_alarm_s, CHANGE_ALARM_AGE.seconds)
    functions = sorted(plan.functions)
    taking_events = sorted(name for name, function in plan.functions.items() if function.takes_events)
    return [
        AlarmSpec(
            title="failed runs",
            description=f"{FUNCTION_ERRORS} or more runs of functions failed within 5 minutes. "
            "See docs/operate.md, 'failed runs'.",
            metrics=(_own_metric(names, "FunctionErrors"),),
            threshold=FUNCTION_ERRORS,
        ),
        *_per_lambda(
            "crashes", "Errors", "ended without an answer: killed, out of memory, or not importable", functions
        ),
        *_per_lambda(
            "throttles", "Throttles", "were not started, because the account's concurrency is used up", functions
        ),
        *_per_lambda(
            "starts lost", "AsyncEventsDropped", "that nobody waits for were dropped and will not run", taking_events
        ),
        AlarmSpec(
            title="change feed late",
            description=f"Changes are delivered {age} s late or later. See docs/operate.md, 'change feed late'.",
            metrics=(
                Metric(
                    namespace="AWS/Lambda",
                    name="IteratorAge",
                    dimensions=(("FunctionName", names.system_name("feed")),),
                    statistic="Maximum",
                ),
            ),
            threshold=age * 1000,
            period_s=_MINUTE,
            periods=5,
        ),
        AlarmSpec(
            title="too many hops",
            description="A chain of calls and messages without end was stopped. See docs/operate.md, 'too many hops'.",
            metrics=(_own_metric(names, "TooManyHops"),),
            threshold=1,
        ),
        *_lost(plan),
        AlarmSpec(
            title="http 5xx",
            description=f"{SERVER_ERRORS} or more requests failed within 5 minutes. See docs/operate.md, 'http 5xx'.",
            metrics=(Metric(namespace="AWS/ApiGateway", name="5xx", dimensions=(("ApiId", api_id),)),),
            threshold=SERVER_ERRORS,
        ),
        AlarmSpec(
            title="table throttles",
            description="DynamoDB refuses requests. See docs/operate.md, 'table throttles'.",
            metrics=tuple(
                Metric(namespace="AWS/DynamoDB", name=name, dimensions=(("TableName", names.table_name),))
                for name in ("ReadThrottleEvents", "WriteThrottleEvents")
            ),
            threshold=TABLE_THROTTLES,
        ),
    ]


def _per_lambda(title: str, metric: str, what: str, functions: Sequence[str]) -> list[AlarmSpec]:
    """Return as few alarms as can watch a metric of these Lambdas."""
    parts = [functions[at : at + ALARM_METRICS] for at in range(0, len(functions), ALARM_METRICS)]
    return [
        AlarmSpec(
            title=f"{title} {number}",
            description=f"Invocations {what}. One of: {', '.join(part)}. See docs/operate.md, '{title}'.",
            metrics=tuple(
                Metric(namespace="AWS/Lambda", name=metric, dimensions=(("FunctionName", name),)) for name in part
            ),
            threshold=1,
        )
        for number, part in enumerate(parts, start=1)
    ]


def _lost(plan: AppPlan) -> list[AlarmSpec]:
    names = plan.deployment
    watched = [
        ("change feed lost", names.own_queue_name(FEED_FAILURES), "Changes could not be delivered and were given up."),
        (
            "cron lost",
            names.own_queue_name(CRON_FAILURES),
            "Ticks of cron jobs could not be handed to their functions.",
        ),
    ]
    if has_mixed_topics(plan):
        what = "Messages of a topic could not be handed to the queue of a subscription."
        watched.append(("topic lost", topic_failures_name(names), what))
    return [
        AlarmSpec(
            title=title,
            description=f"{what} See docs/operate.md, '{title}'.",
            metrics=(_depth_of(queue),),
            threshold=1,
            period_s=_MINUTE,
        )
        for title, queue, what in watched
    ]


def _own_metric(names: Deployment, name: str) -> Metric:
    return Metric(namespace="iii", name=name, dimensions=(("App", names.app), ("Stage", names.stage)))


def _depth_of(queue: str) -> Metric:
    return _queue_metric(queue, "ApproximateNumberOfMessagesVisible")


def _queue_metric(queue: str, name: str) -> Metric:
    return Metric(namespace="AWS/SQS", name=name, dimensions=(("QueueName", queue),), statistic="Maximum")


def _dimensions(metric: Metric) -> list[cloudwatch.CfnAlarm.DimensionProperty | cdk.IResolvable]:
    return [cloudwatch.CfnAlarm.DimensionProperty(name=name, value=value) for name, value in metric.dimensions]


def _sum_of(alarm: AlarmSpec) -> list[cloudwatch.CfnAlarm.MetricDataQueryProperty | cdk.IResolvable]:
    query, stat = cloudwatch.CfnAlarm.MetricDataQueryProperty, cloudwatch.CfnAlarm.MetricStatProperty
    parts = [
        query(
            id=f"m{number}",
            return_data=False,
            metric_stat=stat(
                metric=cloudwatch.CfnAlarm.MetricProperty(
                    namespace=metric.namespace, metric_name=metric.name, dimensions=_dimensions(metric)
                ),
                period=alarm.period_s,
                stat=metric.statistic,
            ),
        )
        for number, metric in enumerate(alarm.metrics)
    ]
    # A metric without a value counts as none.
    total = " + ".join(f"FILL(m{number}, 0)" for number in range(len(parts)))
    return [*parts, query(id="total", expression=total, label="total", return_data=True)]
