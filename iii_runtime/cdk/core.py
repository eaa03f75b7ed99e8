"""What an app has once, in its first stack: table, bucket, topics, both APIs, alarms of the stage, the dashboard."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from iii_runtime.cdk.alarms import add_alarm, add_alarm_topic, stage_alarms
from iii_runtime.cdk.change_feed import add_feed_mapping
from iii_runtime.cdk.dashboard import add_dashboard, dashboard_url
from iii_runtime.cdk.functions import place
from iii_runtime.cdk.http_api import HttpEntry, add_http_api
from iii_runtime.cdk.queues import (
    CRON_FAILURES,
    add_failure_queue,
    add_tick_queue,
    allow_topics,
    has_mixed_topics,
    topic_failures_name,
)
from iii_runtime.cdk.schedules import add_schedule_group, add_tick_rule, allow_rules
from iii_runtime.cdk.settings import Synthesis
from iii_runtime.cdk.storage import add_bucket, add_table, add_topic
from iii_runtime.cdk.websocket_api import WebSocketEntry, add_websocket_api, add_websocket_routes
from iii_runtime.plan.app_plan import AppPlan
from iii_runtime.plan.deployed import DEPLOYED_OUTPUT, deployed_plan, deployed_to_text
from iii_runtime.plan.names import FEED_FAILURES, TICK_QUEUE, SystemRole

_OUTPUT_LENGTH = 1000
"""Characters of one output; longer texts are given in parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreResources:
    """What an app has once.

    Attributes:
        table: State, streams, messages' items.
        bucket: What is too large for the table or a message.
        http: The HTTP API.
        websocket: The WebSocket API.
        topics: Of the durable topics, by their names on AWS.
        progress: The topic of every change of a stream.
        feed_failures: Changes that were given up.
        cron_failures: Ticks that could not be handed over.
        alarm_topic: Where alarms report to.
        dashboard: The dashboard.
        schedule_group: Of the schedules, if there are any.
    """

    table: dynamodb.TableV2
    bucket: s3.Bucket
    http: HttpEntry
    websocket: WebSocketEntry
    topics: Mapping[str, sns.Topic]
    progress: sns.Topic
    feed_failures: sqs.Queue
    cron_failures: sqs.Queue
    alarm_topic: sns.Topic
    dashboard: cloudwatch.CfnDashboard
    schedule_group: scheduler.CfnScheduleGroup | None


def add_core(scope: Construct, synthesis: Synthesis) -> CoreResources:
    """Create everything that an app has once, but for the runtime's own Lambdas."""
    plan = synthesis.plan
    names, stage = plan.deployment, plan.stage
    http = add_http_api(scope, plan)
    alarm_topic = add_alarm_topic(scope, names, synthesis.alarm_email)
    for alarm in stage_alarms(plan, http.api.api_id) if synthesis.has_alarms else ():
        add_alarm(scope, names, alarm)
    cron_failures = add_failure_queue(scope, "Runtime-CronFailures", names.own_queue_name(CRON_FAILURES), stage)
    cron_failures.add_to_resource_policy(allow_rules(cron_failures.queue_arn, names))
    if has_mixed_topics(plan):
        failures = add_failure_queue(scope, "Runtime-TopicFailures", topic_failures_name(names), stage, is_ordered=True)
        failures.add_to_resource_policy(allow_topics(failures.queue_arn, names.topic_pattern))
    has_schedules = any(schedule.kind == "schedule" for schedule in plan.schedules)
    return CoreResources(
        table=add_table(scope, names, stage),
        bucket=add_bucket(scope, names, stage),
        http=http,
        websocket=add_websocket_api(scope, plan, access_logs=synthesis.websocket_access_logs),
        topics={
            topic.name: add_topic(place(scope, f"Topic-{topic.topic}"), "Topic", topic.name, ordered=topic.ordered)
            for topic in plan.topics
        },
        progress=add_topic(scope, "ProgressTopic", names.progress_topic_arn.rpartition(":")[2]),
        feed_failures=add_failure_queue(scope, "Runtime-FeedFailures", names.own_queue_name(FEED_FAILURES), stage),
        cron_failures=cron_failures,
        alarm_topic=alarm_topic,
        dashboard=add_dashboard(scope, plan, http.api.api_id),
        schedule_group=add_schedule_group(scope, names) if has_schedules else None,
    )


def wire_runtime(
    scope: Construct, plan: AppPlan, core: CoreResources, functions: Mapping[str, lambda_.Function]
) -> None:
    """Connect the runtime's own Lambdas to what starts them."""

    def own(role: SystemRole) -> lambda_.Function:
        return functions[plan.deployment.system_name(role)]

    names = plan.deployment
    add_tick_rule(scope, names, own("tick"), core.cron_failures.queue_arn)
    add_tick_queue(scope, names.own_queue_name(TICK_QUEUE), core.cron_failures, own("tick"), names)
    add_feed_mapping(scope, core.table, core.feed_failures, own("feed"))
    add_websocket_routes(scope, core.websocket, plan, own("websocket"))


def add_outputs(scope: Construct, plan: AppPlan, core: CoreResources, prefix: str) -> None:
    """Tell what people need to know of a deployment, and what the next one needs to know.

    Args:
        scope: Where the outputs are placed.
        plan: The plan.
        core: What the app has once.
        prefix: What the names of the outputs start with.
    """
    texts = {
        "HttpUrl": core.http.stage.url,
        "WebSocketUrl": core.websocket.stage.url,
        "TableName": core.table.table_name,
        "BucketName": core.bucket.bucket_name,
        "ProgressTopicArn": core.progress.topic_arn,
        "AlarmTopicArn": core.alarm_topic.topic_arn,
        "DashboardUrl": dashboard_url(plan.deployment),
    }
    for name, text in texts.items():
        _add_output(scope, f"{prefix}{name}", text)
    queues = {name: queue.name for name, queue in sorted(plan.queues.items())}
    _add_parts(scope, f"{prefix}Queues", json.dumps(queues, separators=(",", ":")))
    _add_parts(scope, f"{prefix}{DEPLOYED_OUTPUT}", deployed_to_text(deployed_plan(plan)))


def _add_parts(scope: Construct, name: str, text: str) -> None:
    for number, start in enumerate(range(0, len(text), _OUTPUT_LENGTH), start=1):
        _add_output(scope, name if number == 1 else f"{name}{number}", text[start : start + _OUTPUT_LENGTH])


def _add_output(scope: Construct, name: str, text: str) -> None:
    cdk.CfnOutput(scope, f"Output-{name}", value=text).override_logical_id(name)
