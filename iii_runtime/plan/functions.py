"""The Lambdas of an app: one for each registered function, and the runtime's own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta

from iii_runtime.core.registry import FunctionSpec
from iii_runtime.core.triggers import OnState, OnStream
from iii_runtime.plan.app_plan import Permission, PlannedFunction, PlannedSchedule
from iii_runtime.plan.basis import Basis, timeout_of, whole_seconds
from iii_runtime.plan.findings import Finding, error, place_in_config, place_of_function
from iii_runtime.plan.limits import ENVIRONMENT_BYTES, LAMBDA_TIMEOUT, OUTCOME_MARGIN, POLICY_CHARACTERS
from iii_runtime.plan.names import SystemRole, deployed_length
from iii_runtime.plan.permissions import (
    control_permissions,
    dispatcher_permissions,
    feed_permissions,
    filled,
    function_permissions,
    policy_characters,
    tick_permissions,
    websocket_permissions,
)

HANDLERS = "iii_runtime.hosts.aws_lambda"
LOG_LEVEL = "INFO"

_TICK_TIMEOUT = timedelta(seconds=300)
_FEED_MARGIN = timedelta(seconds=60)
"""What the change feed does besides waiting for the functions that a change starts."""

_WEBSOCKET_TIMEOUT = timedelta(seconds=29)
"""An API waits no longer for the answer to a message of a WebSocket."""


def plan_functions(basis: Basis, schedules: Iterable[PlannedSchedule]) -> dict[str, PlannedFunction]:
    """Return all Lambdas by their name on AWS.

    Args:
        basis: The app.
        schedules: Its cron jobs; the minute tick starts some of them.
    """
    planned = [_plan_function(basis, function) for function in basis.catalog.functions.values()]
    return {each.name: each for each in [*planned, *_plan_system(basis, schedules)]}


def check_functions(basis: Basis, planned: Iterable[PlannedFunction]) -> Iterator[Finding]:
    """Yield what AWS would refuse of these Lambdas."""
    for function in basis.catalog.functions.values():
        yield from _check_shared_settings(function, basis.conditions(function.id))
        yield from _check_batch(basis, function)
    for each in planned:
        where = each.source or place_in_config(basis.config, basis.config.aws.line)
        # What Lambda measures: the variables as JSON, each quote in a value with its backslash.
        size = deployed_length(json.dumps(dict(each.environment), separators=(",", ":")))
        if size > ENVIRONMENT_BYTES:
            yield error(
                where,
                f"function '{each.function_id}': its environment has {size} bytes as JSON, and a Lambda takes "
                f"{ENVIRONMENT_BYTES}. Put large values into a parameter, and read it with `secrets`; each secret has "
                "its name and its source in the environment, so give them short names, or keep several in one.",
            )
        if policy_characters(each.permissions) > POLICY_CHARACTERS:
            yield error(where, _too_many_permissions(each))


def _plan_function(basis: Basis, function: FunctionSpec) -> PlannedFunction:
    members = [*basis.conditions(function.id), function]  # the function's own settings count
    stage = basis.deployment.stage
    secrets = {name: filled(source, stage) for member in members for name, source in member.options.secrets.items()}
    environment = {name: value for member in members for name, value in member.options.environment.items()}
    if secrets:
        environment["III_SECRETS"] = json.dumps(secrets, separators=(",", ":"), sort_keys=True)
    return PlannedFunction(
        function_id=function.id,
        role=None,
        name=basis.deployment.function_name(function.id),
        handler=f"{HANDLERS}.function.handler",
        memory_mb=function.options.memory_mb or basis.stage.memory_mb,
        timeout=basis.lambda_timeout(function),
        reserved_concurrency=function.options.reserved_concurrency,
        environment={**_environment(basis), "III_FUNCTION": function.id, **environment},
        secrets=secrets,
        permissions=function_permissions(basis, function),
        # Any function may be enqueued to a queue of the dispatcher, so a chain of messages may come by any of them.
        consumes=True,
        stack=basis.stack_of(function.id),
        source=function.source,
    )


def _plan_system(basis: Basis, schedules: Iterable[PlannedSchedule]) -> Iterator[PlannedFunction]:
    ticked = [each.function_id for each in schedules if each.kind == "tick"]
    kinds: Mapping[SystemRole, tuple[timedelta, tuple[Permission, ...]]] = {
        "dispatcher": (basis.dispatcher_timeout, dispatcher_permissions(basis)),
        "control": (LAMBDA_TIMEOUT, control_permissions(basis)),
        "tick": (_TICK_TIMEOUT, tick_permissions(basis, ticked)),
        "feed": (_feed_timeout(basis), feed_permissions(basis)),
        "websocket": (_WEBSOCKET_TIMEOUT, websocket_permissions(basis)),
    }
    for role, (timeout, permissions) in kinds.items():
        yield PlannedFunction(
            function_id=None,
            role=role,
            name=basis.deployment.system_name(role),
            handler=f"{HANDLERS}.{role}.handler",
            memory_mb=basis.stage.memory_mb,
            timeout=timeout,
            environment=_environment(basis),
            permissions=permissions,
            consumes=role == "dispatcher",
        )


def _feed_timeout(basis: Basis) -> timedelta:
    """Return how long the change feed may run: it waits for each function it starts, to keep the order of changes."""
    functions = basis.catalog.functions
    fired = [whole_seconds(timeout_of(functions[each.function_id])) for each in basis.triggers(OnState, OnStream)]
    slowest = max(fired) + OUTCOME_MARGIN if fired else timedelta(0)
    return min(slowest + _FEED_MARGIN, LAMBDA_TIMEOUT)


def _environment(basis: Basis) -> dict[str, str]:
    names = basis.deployment
    tracing = {"III_TRACING": "1"} if basis.stage.tracing else {}
    return {
        "III_APP": names.app,
        "III_STAGE": names.stage,
        "III_ACCOUNT": names.account,
        "III_LOG_LEVEL": LOG_LEVEL,
        **tracing,
    }


def _check_batch(basis: Basis, function: FunctionSpec) -> Iterator[Finding]:
    """Yield that a batch may not fit: what finds no time is returned, and could use up its receives without a run."""
    needed = basis.batch_time(function) + OUTCOME_MARGIN
    if needed > LAMBDA_TIMEOUT and basis.batch_time(function) > whole_seconds(timeout_of(function)):
        largest = max(basis.queues_of(function.id), key=lambda queue: queue.batch_size)
        yield error(
            place_of_function(function),
            f"function '{function.id}' takes {largest.batch_size} messages of queue '{largest.name}' at a time, each "
            f"for up to {timeout_of(function).total_seconds():g} s: with {OUTCOME_MARGIN.seconds} s for their outcomes "
            f"that may take {needed.total_seconds():g} s, and a Lambda runs for {LAMBDA_TIMEOUT.seconds} s at most. "
            "Lower `batch_size`, or the function's `timeout`.",
        )


def _check_shared_settings(function: FunctionSpec, conditions: Iterable[FunctionSpec]) -> Iterator[Finding]:
    """Yield what a function and a condition, which run in one Lambda, each want to be something else there."""
    for condition in conditions:
        for kind in ("environment", "secrets"):
            own, other = getattr(function.options, kind), getattr(condition.options, kind)
            for name in sorted(own.keys() & other.keys()):
                if own[name] != other[name]:
                    yield error(
                        place_of_function(function),
                        f"function '{function.id}' and its condition '{condition.id}' run in one Lambda, and their "
                        f"`{kind}` give {name} different values. Use two names.",
                    )


def _too_many_permissions(planned: PlannedFunction) -> str:
    if planned.role == "dispatcher":
        return (
            "the role of the dispatcher would be longer than AWS allows: too many queues have no consumer of their "
            "own. Bind a function to more of them, with a `Queue` trigger."
        )
    return (
        f"the role of '{planned.function_id or planned.role}' would be longer than AWS allows: it names too many "
        "resources. Shorten the function's `uses`, or leave it out."
    )
