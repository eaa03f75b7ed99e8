"""`IiiApp`, an app in a stack of yours, and `IiiStacks`, an app in as many stacks as it needs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Unpack

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigw
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from iii_runtime.cdk.core import CoreResources, add_core, add_outputs, wire_runtime
from iii_runtime.cdk.http_api import HttpReference
from iii_runtime.cdk.queues import CRON_FAILURES
from iii_runtime.cdk.settings import AppSettings, output_prefix, prepare
from iii_runtime.cdk.shard import CoreReference, Shard, add_shard
from iii_runtime.core.errors import HostError
from iii_runtime.hosts.aws_lambda.websocket_endpoint import WEBSOCKET_URL
from iii_runtime.plan.app_plan import CORE_STACK, AppPlan
from iii_runtime.plan.names import Deployment

_INSIDE = "App"
"""Id of the one construct in each stack, so that `IiiApp(stack, "App")` gives its resources the same logical ids."""

_API, _AUTHORIZER = "http-api", "http-authorizer"


class BuiltApp:
    """What was created, for what you add.

    Attributes:
        plan: What was to be created.
        functions: The Lambdas, by function id: `bucket.grant_read(app.functions["orders::pay"])`.
        queues: The SQS queues, by the runtime's names.
        dead_letter_queues: Their dead-letter queues.
        table: State, streams and messages' items.
        bucket: What is too large for the table or a message.
        http_api: The HTTP API.
        websocket_api: The WebSocket API.
        topics: SNS topics of the durable topics, by topic.
        progress_topic: The topic of every change of a stream.
        alarm_topic: Where alarms report to.
        dashboard: The dashboard.
    """

    plan: AppPlan
    functions: Mapping[str, lambda_.Function]
    queues: Mapping[str, sqs.Queue]
    dead_letter_queues: Mapping[str, sqs.Queue]
    table: dynamodb.TableV2
    bucket: s3.Bucket
    http_api: apigw.HttpApi
    websocket_api: apigw.WebSocketApi
    topics: Mapping[str, sns.Topic]
    progress_topic: sns.Topic
    alarm_topic: sns.Topic
    dashboard: cloudwatch.CfnDashboard

    def grant(self, function_id: str, statement: iam.PolicyStatement) -> None:
        """Allow a function something more.

        Raises:
            HostError: `function_not_registered`.
        """
        function = self.functions.get(function_id)
        if function is None:
            raise HostError(
                f"function '{function_id}' is not registered; there are {', '.join(sorted(self.functions))}.",
                code="function_not_registered",
            )
        function.add_to_role_policy(statement)

    def _hold(self, plan: AppPlan, core: CoreResources, shards: Sequence[Shard]) -> None:
        lambdas = {name: function for shard in shards for name, function in shard.functions.items()}
        pairs = {name: pair for shard in shards for name, pair in shard.queues.items()}
        self.plan = plan
        self.functions = {
            planned.function_id: lambdas[name]
            for name, planned in plan.functions.items()
            if planned.function_id is not None
        }
        self.queues = {name: pair.queue for name, pair in pairs.items()}
        self.dead_letter_queues = {name: pair.letters for name, pair in pairs.items()}
        self.table, self.bucket = core.table, core.bucket
        self.http_api, self.websocket_api = core.http.api, core.websocket.api
        self.topics = {topic.topic: core.topics[topic.name] for topic in plan.topics}
        self.progress_topic, self.alarm_topic = core.progress, core.alarm_topic
        self.dashboard = core.dashboard


class IiiApp(BuiltApp, Construct):
    """An app, in one stack of yours: `IiiApp(self, "App", functions="functions", config="iii-config.yaml")`."""

    def __init__(self, scope: Construct, construct_id: str, **settings: Unpack[AppSettings]) -> None:
        """Create everything the app needs.

        Args:
            scope: The stack.
            construct_id: Its id there.
            **settings: See `AppSettings`.

        Raises:
            AppInvalidError: Something cannot be, or would silently go wrong.
            HostError: See `prepare`; `stacks_needed`: the stage is to have several stacks.
        """
        super().__init__(scope, construct_id)
        synthesis = prepare(self, settings, inside=(cdk.Stack.of(self).stack_name, construct_id))
        plan = synthesis.plan
        if plan.stack_count > 1:
            raise HostError(
                f"`stacks` of stage {plan.deployment.stage} is {plan.stack_count - 1}, and IiiApp is in one stack of "
                "yours. Use IiiStacks, or leave `stacks` of iii-aws out.",
                code="stacks_needed",
            )
        core = add_core(self, synthesis)
        shard = add_shard(self, synthesis, CORE_STACK, _within(core))
        wire_runtime(self, plan, core, shard.functions)
        _tag(self, plan.deployment)
        _warn(self, plan)
        _warn_of_shared_name(self, plan.deployment.stage)
        add_outputs(self, plan, core, output_prefix(construct_id))
        self._hold(plan, core, [shard])


class IiiStacks(BuiltApp):
    """An app in stacks of its own: one, or as many as `stacks` of iii-aws says.

    Attributes:
        stacks: The stacks. The first is called `<app>-<stage>` and has what is there once; the others are called
            `<app>-<stage>-1` and so on, and have the functions.
    """

    def __init__(
        self, scope: Construct, *, env: cdk.Environment | None = None, **settings: Unpack[AppSettings]
    ) -> None:
        """Create the stacks.

        Args:
            scope: The CDK app, or a stage of it.
            env: Account and region; by default those of the credentials at deployment.
            **settings: See `AppSettings`. `code` may be inline code only, if there are several stacks.

        Raises:
            AppInvalidError: Something cannot be, or would silently go wrong.
            HostError: See `prepare`.
        """
        synthesis = prepare(scope, settings)
        plan = synthesis.plan
        prefix, production = plan.deployment.prefix, plan.stage.production
        first = cdk.Stack(scope, prefix, env=env, termination_protection=production, description=_about(plan, "core"))
        inside = Construct(first, _INSIDE)
        core = add_core(inside, synthesis)
        shards = [add_shard(inside, synthesis, CORE_STACK, _within(core))]
        wire_runtime(inside, plan, core, shards[0].functions)
        self.stacks = [first]
        if plan.stack_count > 1:
            _publish_references(inside, plan.deployment, core)
        for number in range(CORE_STACK + 1, plan.stack_count):
            stack = cdk.Stack(scope, f"{prefix}-{number}", env=env, description=_about(plan, f"functions {number}"))
            stack.add_stack_dependency(first)
            reference = _from_afar(stack, plan, core)
            shards.append(add_shard(Construct(stack, _INSIDE), synthesis, number, reference))
            self.stacks.append(stack)
        for stack in self.stacks:
            _tag(stack, plan.deployment)
        _warn(first, plan)
        add_outputs(first, plan, core, "")
        self._hold(plan, core, shards)


def _within(core: CoreResources) -> CoreReference:
    """Return how the first stack names what is in it."""
    writes = core.websocket.may_write()
    endpoint = {WEBSOCKET_URL: core.websocket.stage.callback_url}
    return CoreReference(
        http=lambda: HttpReference(api_id=core.http.api.api_id, authorizer_id=core.http.authorizer_id),
        topic_arns={name: topic.topic_arn for name, topic in core.topics.items()},
        cron_failures_arn=core.cron_failures.queue_arn,
        schedule_group=core.schedule_group,
        grants={"feed": writes, "websocket": writes},
        variables={"feed": endpoint, "websocket": endpoint},
    )


def _from_afar(stack: cdk.Stack, plan: AppPlan, core: CoreResources) -> CoreReference:
    """Return how another stack names what is in the first one: by names, and the ids that AWS chose by parameters.

    So nothing is exported, and the stacks do not hold each other.
    """
    names = plan.deployment

    def http() -> HttpReference:
        needs_authorizer = core.http.authorizer_id is not None
        return HttpReference(
            api_id=ssm.StringParameter.value_for_string_parameter(stack, _parameter(names, _API)),
            authorizer_id=ssm.StringParameter.value_for_string_parameter(stack, _parameter(names, _AUTHORIZER))
            if needs_authorizer
            else None,
        )

    return CoreReference(
        http=http,
        topic_arns={topic.name: names.arn("sns", topic.name) for topic in plan.topics},
        cron_failures_arn=names.queue_arn(names.own_queue_name(CRON_FAILURES)),
        schedule_group=None,
        grants={},
        variables={},
    )


def _publish_references(scope: Construct, names: Deployment, core: CoreResources) -> None:
    """Tell the other stacks the ids that AWS chose."""
    ids = {_API: core.http.api.api_id, _AUTHORIZER: core.http.authorizer_id}
    for name, value in ids.items():
        if value is not None:
            ssm.StringParameter(scope, f"Parameter-{name}", parameter_name=_parameter(names, name), string_value=value)


def _parameter(names: Deployment, name: str) -> str:
    return f"/iii/{names.app}/{names.stage}/{name}"


def _about(plan: AppPlan, part: str) -> str:
    return f"iii app {plan.deployment.app}, stage {plan.deployment.stage}: {part}"


def _tag(scope: Construct, names: Deployment) -> None:
    cdk.Tags.of(scope).add("iii:app", names.app)
    cdk.Tags.of(scope).add("iii:stage", names.stage)


def _warn_of_shared_name(scope: Construct, stage: str) -> None:
    name = cdk.Stack.of(scope).stack_name
    if not cdk.Token.is_unresolved(name) and stage not in name.lower():
        cdk.Annotations.of(scope).add_warning_v2(
            "iii:stack-name",
            f"stack '{name}' has the same name in every stage, so deploying one would replace another. Put the stage "
            f"into it, as in '{name}-{stage}'.",
        )


def _warn(scope: Construct, plan: AppPlan) -> None:
    for finding in plan.warnings:
        # By its text, so that who acknowledges one acknowledges that one.
        digest = hashlib.sha256(finding.message.encode()).hexdigest()[:8]
        cdk.Annotations.of(scope).add_warning_v2(f"iii:{digest}", str(finding))
