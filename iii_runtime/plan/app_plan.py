"""Everything there is to create on AWS for one app in one stage, as values. `plan_app` works it out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, TypeAlias

from iii_runtime.core.config.values import CorsConfig, JwtConfig, StageConfig, StreamAuth
from iii_runtime.core.queue import QueueSpec
from iii_runtime.core.triggers import HttpAuth
from iii_runtime.plan.findings import Finding
from iii_runtime.plan.names import Deployment, SystemRole

_PARAMETER = re.compile(r"\{[^}]*\}")

CORE_STACK = 0
"""The stack of what is there once: table, bucket, topics, the runtime's own Lambdas, shared queues. Functions are
spread over the stacks from 1 on, or are in it too if the stage has one stack, or had one when they were deployed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """A statement of a Lambda's role.

    Attributes:
        actions: IAM actions.
        resources: ARNs, which may hold CloudFormation tokens.
        why: Why a resource is a pattern; None if all are exact.
    """

    actions: tuple[str, ...]
    resources: tuple[str, ...]
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFunction:
    """A Lambda.

    Attributes:
        function_id: The registered function it runs; None for the runtime's own.
        role: Which of the runtime's own it is; None for a registered function.
        name: Its name on AWS.
        handler: Dotted path of its entry point.
        memory_mb: Memory.
        timeout: Of one invocation.
        reserved_concurrency: None reserves nothing.
        environment: Variables; every value is known at synthesis, or a CloudFormation token.
        secrets: Sources by name, `{stage}` filled in.
        permissions: All its role may do, the log group aside.
        consumes: Whether a chain of messages may come by it any number of times, so that the recursion guard of Lambda
            gives way to our own limit of hops. So it is for every registered function: it may be enqueued to a queue of
            the dispatcher, if it has none of its own.
        stack: Number of its stack.
        source: Where it is registered.
    """

    function_id: str | None
    role: SystemRole | None
    name: str
    handler: str
    memory_mb: int
    timeout: timedelta
    reserved_concurrency: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    permissions: tuple[Permission, ...] = ()
    consumes: bool = False
    stack: int = CORE_STACK
    source: str = ""

    @property
    def takes_events(self) -> bool:
        """Whether it is started by events that Lambda keeps until then: cron, Void calls and `publish`, and the tick.

        Everything else that starts a Lambda waits for its answer.
        """
        return self.function_id is not None or self.role == "tick"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedQueue:
    """An SQS queue, its dead-letter queue and its event source mapping.

    Attributes:
        spec: The queue as the runtime knows it.
        name: Name on AWS; a FIFO queue if `spec.is_ordered`.
        letter_name: Name of its dead-letter queue on AWS, of the same type.
        visibility: Visibility timeout.
        max_receives: Of the redrive policy.
        consumer: Name of the Lambda that is its one consumer.
        consumer_stack: Number of the consumer's stack.
        batch_size: Messages of one invocation.
        max_concurrency: Of the event source mapping.
        stack: Number of its stack: the consumer's, but that of the last deployment for one that is deployed.
        source: Where it is declared.
    """

    spec: QueueSpec
    name: str
    letter_name: str
    visibility: timedelta
    max_receives: int
    consumer: str
    batch_size: int
    max_concurrency: int
    consumer_stack: int = CORE_STACK
    stack: int = CORE_STACK
    source: str = ""

    @property
    def mapping_stack(self) -> int:
        """Number of the stack of its event source mapping: the later one, for AWS wants both ends of it to be there.

        The core stack is deployed before the others, so one of the two has to be in it where they differ.
        """
        return max(self.stack, self.consumer_stack)


ScheduleKind: TypeAlias = Literal["rule", "schedule", "tick"]
"""An EventBridge rule (UTC), an EventBridge Scheduler schedule (with a time zone), or the minute tick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSchedule:
    """A cron job.

    Attributes:
        job_id: Its identity.
        kind: What fires it.
        name: Name of the rule or schedule; the job's for the tick.
        expression: `cron(...)` as EventBridge takes it; the job's own expression for the tick.
        timezone: IANA name.
        function: Name of the Lambda it starts.
        function_id: The function it starts.
        stack: Number of its stack.
        source: Where it is registered.
    """

    job_id: str
    kind: ScheduleKind
    name: str
    expression: str
    timezone: str
    function: str
    function_id: str
    stack: int = CORE_STACK
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRoute:
    """A route of the HTTP API.

    Attributes:
        method: `GET`, ...
        path: As API Gateway writes it, `/orders/{order_id}`.
        function: Name of the Lambda that answers.
        auth: Who may call it.
        source: Where it is registered.
    """

    method: str
    path: str
    function: str
    auth: HttpAuth
    source: str = ""

    @property
    def shape(self) -> str:
        """What requests it takes, whatever its parameters are called: `GET /orders/{}`."""
        return f"{self.method} {_PARAMETER.sub('{}', self.path)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTopic:
    """An SNS topic with its subscriptions.

    Attributes:
        topic: The durable topic.
        name: Name on AWS; a FIFO topic if one of its subscriptions keeps an order.
        ordered: Whether it is a FIFO topic.
        queues: Names of the SQS queues that subscribe.
    """

    topic: str
    name: str
    ordered: bool
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppPlan:
    """Everything to create.

    Attributes:
        deployment: The names.
        stage: Settings of the stage.
        functions: All Lambdas by their name on AWS, the runtime's own included.
        queues: All queues with messages, by the runtime's name.
        schedules: All cron jobs.
        routes: All http routes.
        topics: All durable topics with a subscription.
        cors: Of the HTTP API.
        jwt: Whose tokens routes with `jwt` take.
        stream_auth: Who may open a WebSocket.
        stack_count: Number of stacks, the core stack included; 1 if the stage has one.
        warnings: What to tell at synthesis; errors are raised.
    """

    deployment: Deployment
    stage: StageConfig
    functions: Mapping[str, PlannedFunction]
    queues: Mapping[str, PlannedQueue]
    schedules: tuple[PlannedSchedule, ...]
    routes: tuple[PlannedRoute, ...]
    topics: tuple[PlannedTopic, ...]
    cors: CorsConfig | None
    jwt: JwtConfig | None
    stream_auth: StreamAuth
    stack_count: int
    warnings: tuple[Finding, ...] = ()
