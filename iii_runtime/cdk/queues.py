"""SQS queues, each with its dead-letter queue, and the mapping to the one Lambda that consumes it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from iii_runtime.cdk.acknowledgements import acknowledge
from iii_runtime.cdk.functions import kept, place
from iii_runtime.core.config.values import StageConfig
from iii_runtime.plan.app_plan import AppPlan, PlannedQueue
from iii_runtime.plan.names import Deployment

RETENTION = cdk.Duration.days(14)
TICK_LIFE = cdk.Duration.hours(1)
"""How long a planned tick waits for its Lambda: what is later than that is better left out."""

TICK_RECEIVES = 5
TICK_BATCH = 10
TICK_CONCURRENCY = 2

CRON_FAILURES = "cron-failures"
"""The runtime's own queue of ticks that could not be handed to a Lambda."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePair:
    """A queue and its dead-letter queue.

    Attributes:
        place: Where what belongs to them is placed.
        queue: The queue.
        letters: Its dead-letter queue.
        is_ordered: Whether both are FIFO queues.
    """

    place: Construct
    queue: sqs.Queue
    letters: sqs.Queue
    is_ordered: bool


def add_queue(scope: Construct, planned: PlannedQueue, deployment: Deployment, stage: StageConfig) -> QueuePair:
    """Create a queue and its dead-letter queue of the same type."""
    within = place(scope, f"Queue-{planned.spec.name}")
    letters = _queue(within, "Letters", planned.letter_name, stage, is_ordered=planned.spec.is_ordered)
    _allow_redrive_from(letters, [deployment.queue_arn(planned.name)])
    queue = _queue(
        within,
        "Queue",
        planned.name,
        stage,
        is_ordered=planned.spec.is_ordered,
        visibility=cdk.Duration.seconds(math.ceil(planned.visibility.total_seconds())),
        dead_letter_queue=sqs.DeadLetterQueue(queue=letters, max_receive_count=planned.max_receives),
    )
    return QueuePair(place=within, queue=queue, letters=letters, is_ordered=planned.spec.is_ordered)


def add_consumer(
    scope: Construct,
    planned: PlannedQueue,
    pair: QueuePair | None,
    consumer: lambda_.IFunction | None,
    deployment: Deployment,
) -> None:
    """Create the mapping of a queue to its consumer.

    Args:
        scope: Where it is placed, if the queue is not in this stack.
        planned: The queue.
        pair: The queue, if it is in this stack.
        consumer: The consumer, if it is in this stack.
        deployment: The names, for what is in another stack.
    """
    _map(
        place(scope, f"Queue-{planned.spec.name}") if pair is None else pair.place,
        deployment.queue_arn(planned.name) if pair is None else pair.queue.queue_arn,
        planned.consumer if consumer is None else consumer.function_name,
        batch=planned.batch_size,
        concurrency=planned.max_concurrency,
    )


def add_tick_queue(
    scope: Construct, name: str, failures: sqs.Queue, consumer: lambda_.Function, deployment: Deployment
) -> sqs.Queue:
    """Create the queue on which planned ticks wait for their second, and the mapping to its consumer."""
    run = consumer.timeout or cdk.Duration.minutes(1)
    within = place(scope, "Runtime-TickQueue")
    queue = sqs.Queue(
        within,
        "Queue",
        queue_name=name,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=TICK_LIFE,
        visibility_timeout=run.plus(cdk.Duration.seconds(30)),
        dead_letter_queue=sqs.DeadLetterQueue(queue=failures, max_receive_count=TICK_RECEIVES),
    )
    _allow_redrive_from(failures, [deployment.queue_arn(name)])
    _map(within, queue.queue_arn, consumer.function_name, batch=TICK_BATCH, concurrency=TICK_CONCURRENCY)
    return queue


def topic_failures_name(deployment: Deployment) -> str:
    """Return the name of the queue of messages that a FIFO topic could not hand to a standard queue.

    Such a subscription needs a FIFO queue for them, which the dead-letter queue of a standard queue is not.
    """
    return f"{deployment.own_queue_name('topic-failures')}.fifo"


def has_mixed_topics(plan: AppPlan) -> bool:
    """Return whether a standard queue subscribes to a FIFO topic."""
    standard = {queue.name for queue in plan.queues.values() if not queue.spec.is_ordered}
    return any(topic.ordered and not standard.isdisjoint(topic.queues) for topic in plan.topics)


def add_failure_queue(
    scope: Construct, identity: str, name: str, stage: StageConfig, *, is_ordered: bool = False
) -> sqs.Queue:
    """Create a queue for what a service of AWS could not deliver; people read it."""
    queue = _queue(place(scope, identity), "Queue", name, stage, is_ordered=is_ordered)
    acknowledge(
        queue,
        {"AwsSolutions-SQS3": "It is itself where failures end: people read it, an alarm watches it."},
    )
    return queue


def add_subscription(topic_arn: str, pair: QueuePair, *, failures_arn: str | None) -> sns.CfnSubscription:
    """Subscribe a queue to an SNS topic, which hands it each message as it was published.

    Args:
        topic_arn: The topic.
        pair: The queue and its dead-letter queue.
        failures_arn: Where undeliverable messages go; None takes the dead-letter queue.
    """
    for queue in (pair.queue, pair.letters):
        queue.add_to_resource_policy(allow_topics(queue.queue_arn, topic_arn))
    subscription = sns.CfnSubscription(
        pair.place,
        "Subscription",
        topic_arn=topic_arn,
        protocol="sqs",
        endpoint=pair.queue.queue_arn,
        raw_message_delivery=True,
        redrive_policy={"deadLetterTargetArn": failures_arn or pair.letters.queue_arn},
    )
    # Before that SNS may not send, and would not say so.
    for queue in (pair.queue, pair.letters):
        policy = queue.node.find_child("Policy")
        subscription.node.add_dependency(policy)
    return subscription


def allow_topics(queue_arn: str, topic_arn: str) -> iam.PolicyStatement:
    """Return the statement that lets a topic, or those that a pattern names, send to a queue."""
    return iam.PolicyStatement(
        sid="TopicMaySend",
        principals=[iam.ServicePrincipal("sns.amazonaws.com")],
        actions=["sqs:SendMessage"],
        resources=[queue_arn],
        conditions={"ArnLike": {"aws:SourceArn": topic_arn}},
    )


def _queue(
    scope: Construct,
    identity: str,
    name: str,
    stage: StageConfig,
    *,
    is_ordered: bool,
    visibility: cdk.Duration | None = None,
    dead_letter_queue: sqs.DeadLetterQueue | None = None,
) -> sqs.Queue:
    return sqs.Queue(
        scope,
        identity,
        queue_name=name,
        fifo=True if is_ordered else None,
        # Every message has an id of its own, so the window may be that of a group; then groups do not share a limit.
        deduplication_scope=sqs.DeduplicationScope.MESSAGE_GROUP if is_ordered else None,
        fifo_throughput_limit=sqs.FifoThroughputLimit.PER_MESSAGE_GROUP_ID if is_ordered else None,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=RETENTION,
        visibility_timeout=visibility,
        dead_letter_queue=dead_letter_queue,
        removal_policy=kept(stage),
    )


def _allow_redrive_from(letters: sqs.Queue, sources: Sequence[str]) -> None:
    resource = letters.node.default_child
    assert isinstance(resource, sqs.CfnQueue)  # noqa: S101 - what the CDK makes
    # By name, since the two queues would otherwise wait for each other.
    resource.redrive_allow_policy = {"redrivePermission": "byQueue", "sourceQueueArns": list(sources)}


def _map(within: Construct, queue_arn: str, function_name: str, *, batch: int, concurrency: int) -> None:
    lambda_.CfnEventSourceMapping(
        within,
        "Mapping",
        event_source_arn=queue_arn,
        function_name=function_name,
        batch_size=batch,
        function_response_types=["ReportBatchItemFailures"],
        scaling_config=lambda_.CfnEventSourceMapping.ScalingConfigProperty(maximum_concurrency=concurrency),
    )
