"""Lambdas: each with a role of its own, a log group, and no repetition of asynchronous invocations."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from iii_runtime.cdk.acknowledgements import acknowledge_patterns
from iii_runtime.core.config.values import StageConfig
from iii_runtime.core.errors import HostError
from iii_runtime.plan.app_plan import Permission, PlannedFunction
from iii_runtime.plan.aws_texts import VARIABLE
from iii_runtime.plan.limits import ENVIRONMENT_BYTES
from iii_runtime.plan.names import deployed_length

RETENTIONS = {
    1: logs.RetentionDays.ONE_DAY,
    3: logs.RetentionDays.THREE_DAYS,
    5: logs.RetentionDays.FIVE_DAYS,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    60: logs.RetentionDays.TWO_MONTHS,
    90: logs.RetentionDays.THREE_MONTHS,
    120: logs.RetentionDays.FOUR_MONTHS,
    150: logs.RetentionDays.FIVE_MONTHS,
    180: logs.RetentionDays.SIX_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
    400: logs.RetentionDays.THIRTEEN_MONTHS,
    545: logs.RetentionDays.EIGHTEEN_MONTHS,
    731: logs.RetentionDays.TWO_YEARS,
}


OLDEST_START_S = 3600
"""How long a start that nobody waits for may wait for a free sandbox, seconds; a throttled one is tried again."""

_DESCRIPTION = 256
"""Longest description of a Lambda."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSettings:
    """What all Lambdas of one stack have in common.

    Attributes:
        stage: Settings of the stage.
        code: The bundle.
        environment: Further variables of the registered functions.
    """

    stage: StageConfig
    code: lambda_.Code
    environment: Mapping[str, str]


def add_function(
    scope: Construct, planned: PlannedFunction, settings: FunctionSettings, *, extra: Sequence[Permission] = ()
) -> lambda_.Function:
    """Create a Lambda as it is planned.

    Args:
        scope: Where it is placed.
        planned: The Lambda.
        settings: What all have in common.
        extra: Permissions that follow from how it is wired here.

    Raises:
        HostError: Of the variables that were added at synthesis: `environment_invalid`, one has a name that Lambda does
            not take; `environment_too_large`, together they take too much.
    """
    stage = settings.stage
    label = planned.function_id or f"runtime's {planned.role}"
    within = place(scope, f"Function-{planned.function_id}" if planned.function_id else f"Runtime-{planned.role}")
    group = add_log_group(within, "Logs", stage)
    role = _role(within, "Role", [*planned.permissions, *extra], group)
    function = lambda_.Function(
        within,
        "Lambda",
        function_name=planned.name,
        description=(f"iii function {label}" if planned.function_id else f"iii: the {label}")[:_DESCRIPTION],
        runtime=lambda_.Runtime(f"python{stage.python}", lambda_.RuntimeFamily.PYTHON, supports_inline_code=True),
        architecture=lambda_.Architecture.ARM_64 if stage.architecture == "arm64" else lambda_.Architecture.X86_64,
        code=settings.code,
        handler=planned.handler,
        role=role,
        log_group=group,
        memory_size=planned.memory_mb,
        timeout=cdk.Duration.seconds(math.ceil(planned.timeout.total_seconds())),
        reserved_concurrent_executions=planned.reserved_concurrency,
        environment=_environment(planned, settings, label),
        # A cron tick or a Void call is carried out at most once. The minute tick may be repeated: what it has sent
        # before fires once all the same.
        retry_attempts=1 if planned.role == "tick" else 0,
        # A start that waits longer for a free sandbox than this is given up: late work is a surprise, not a service.
        max_event_age=cdk.Duration.seconds(OLDEST_START_S),
        # The chain of a queue may be longer than the 16 hops that Lambda allows; our own limit of hops ends it.
        recursive_loop=lambda_.RecursiveLoop.ALLOW if planned.consumes else None,
    )
    if stage.tracing:
        # Set here and not by `tracing=`, which would give the role a policy of its own.
        resource = function.node.default_child
        assert isinstance(resource, lambda_.CfnFunction)  # noqa: S101 - what the CDK makes
        resource.tracing_config = lambda_.CfnFunction.TracingConfigProperty(mode="Active")
    return function


def add_log_group(scope: Construct, identity: str, stage: StageConfig, *, name: str | None = None) -> logs.LogGroup:
    """Create a log group. Without a name it gets one of CloudFormation's, so a retained one is never in the way."""
    return logs.LogGroup(
        scope,
        identity,
        log_group_name=name,
        retention=RETENTIONS[stage.log_retention_days],
        removal_policy=kept(stage),
    )


def place(scope: Construct, identity: str) -> Construct:
    """Return a place of its own for the resources of one thing. Any text will do as its identity.

    Only resources two levels down get a logical id with a hash, so that ids which differ in signs alone stay apart.
    """
    return Construct(scope, identity.replace("/", "|"))


def kept(stage: StageConfig) -> cdk.RemovalPolicy:
    """Return what happens to data when its resource leaves the stack: in production it stays."""
    return cdk.RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if stage.production else cdk.RemovalPolicy.DESTROY


def _role(scope: Construct, identity: str, permissions: Sequence[Permission], group: logs.LogGroup) -> iam.Role:
    own = [
        Permission(actions=("logs:CreateLogStream", "logs:PutLogEvents"), resources=(group.log_group_arn,)),
        *permissions,
    ]
    role = iam.Role(
        scope,
        identity,
        assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        inline_policies={"iii": _policy(own)},
    )
    acknowledge_patterns(role, own)
    return role


def _policy(permissions: Sequence[Permission]) -> iam.PolicyDocument:
    """Return planned permissions as IAM takes them, in one step: each object of the CDK costs a call to its process."""
    statements = [
        {"Effect": "Allow", "Action": list(permission.actions), "Resource": list(permission.resources)}
        for permission in permissions
    ]
    return iam.PolicyDocument.from_json({"Version": "2012-10-17", "Statement": statements})


def _environment(planned: PlannedFunction, settings: FunctionSettings, label: str) -> dict[str, str]:
    added = {} if planned.function_id is None else settings.environment
    for name in added:
        if not VARIABLE.fullmatch(name):
            raise HostError(
                f"environment has '{name}': Lambda wants a letter, then letters, digits and '_', two at least. Rename "
                "it where it is given to IiiApp or IiiStacks.",
                code="environment_invalid",
            )
    environment = {**added, **planned.environment}
    # As the plan measures it, which did not know of what is added.
    size = deployed_length(json.dumps(environment, separators=(",", ":")))
    if size > ENVIRONMENT_BYTES:
        where = f"{planned.source}: " if planned.source else ""
        raise HostError(
            f"{where}{label}: its environment variables take {size:,} bytes as JSON, Lambda allows "
            f"{ENVIRONMENT_BYTES:,}. Pass fewer of them to IiiApp, or keep them as secrets.",
            code="environment_too_large",
        )
    return environment
