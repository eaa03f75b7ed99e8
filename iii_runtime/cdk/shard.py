"""The part of an app that is spread over stacks: Lambdas with their queues, schedules, routes and subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from iii_runtime.cdk.alarms import add_alarm, queue_alarms
from iii_runtime.cdk.functions import FunctionSettings, add_function
from iii_runtime.cdk.http_api import HttpReference, add_routes
from iii_runtime.cdk.queues import QueuePair, add_consumer, add_queue, add_subscription, topic_failures_name
from iii_runtime.cdk.schedules import add_schedules
from iii_runtime.cdk.settings import Synthesis
from iii_runtime.plan.app_plan import AppPlan, Permission, PlannedFunction
from iii_runtime.plan.names import SystemRole


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreReference:
    """How a stack names what is in the first one.

    Attributes:
        http: Returns the HTTP API; asked where there are routes.
        topic_arns: ARNs of the durable topics, by their names on AWS.
        cron_failures_arn: The queue of ticks that could not be handed over.
        schedule_group: The group of the schedules, where it is in the same stack.
        grants: Further permissions of the runtime's own Lambdas.
        variables: Further variables of the runtime's own Lambdas.
    """

    http: Callable[[], HttpReference]
    topic_arns: Mapping[str, str]
    cron_failures_arn: str
    schedule_group: scheduler.CfnScheduleGroup | None
    grants: Mapping[SystemRole, Permission]
    variables: Mapping[SystemRole, Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """What is in one stack.

    Attributes:
        functions: The Lambdas, by their names on AWS.
        queues: The queues, by the runtime's names.
    """

    functions: Mapping[str, lambda_.Function]
    queues: Mapping[str, QueuePair]


def add_shard(scope: Construct, synthesis: Synthesis, number: int, core: CoreReference) -> Shard:
    """Create everything that the plan has put into stack `number`, but for what is there once."""
    plan, settings = synthesis.plan, synthesis.for_stack()
    functions = {
        planned.name: _add_lambda(scope, planned, settings, core)
        for planned in plan.functions.values()
        if planned.stack == number
    }
    queues: dict[str, QueuePair] = {}
    for name, queue in plan.queues.items():
        if queue.stack == number:
            queues[name] = add_queue(scope, queue, plan.deployment, plan.stage)
            for alarm in queue_alarms(queue, plan.stage) if synthesis.has_alarms else ():
                add_alarm(scope, plan.deployment, alarm)
        if queue.mapping_stack == number:
            add_consumer(scope, queue, queues.get(name), functions.get(queue.consumer), plan.deployment)
    _subscribe(plan, queues, core)
    schedules = [schedule for schedule in plan.schedules if schedule.stack == number]
    add_schedules(scope, schedules, functions, plan.deployment, core.cron_failures_arn, group=core.schedule_group)
    routes = [route for route in plan.routes if route.function in functions]
    if routes:
        add_routes(scope, routes, functions, core.http())
    return Shard(functions=functions, queues=queues)


def _add_lambda(
    scope: Construct, planned: PlannedFunction, settings: FunctionSettings, core: CoreReference
) -> lambda_.Function:
    if planned.role is None:
        return add_function(scope, planned, settings)
    extra = [core.grants[planned.role]] if planned.role in core.grants else []
    function = add_function(scope, planned, settings, extra=extra)
    for name, value in core.variables.get(planned.role, {}).items():
        function.add_environment(name, value)
    return function


def _subscribe(plan: AppPlan, queues: Mapping[str, QueuePair], core: CoreReference) -> None:
    here = {plan.queues[name].name: pair for name, pair in queues.items()}
    for topic in plan.topics:
        for name in topic.queues:
            if name in here:
                is_mixed = topic.ordered and not here[name].is_ordered
                failures = plan.deployment.queue_arn(topic_failures_name(plan.deployment)) if is_mixed else None
                add_subscription(core.topic_arns[topic.name], here[name], failures_arn=failures)
