"""What cannot work in an app, found before it runs."""

from __future__ import annotations

from collections.abc import Iterator

from iii_runtime.core.config import DEFAULT_STAGE, Config
from iii_runtime.core.http import Route, RouteConflictError, RouteTable, parse_route
from iii_runtime.core.registry import Catalog, TriggerSpec
from iii_runtime.core.triggers import Http, Queue, UnknownTrigger
from iii_runtime.plan.aws_checks import check_on_aws
from iii_runtime.plan.basis import Basis
from iii_runtime.plan.findings import (
    Finding,
    as_warning,
    error,
    errors_first,
    located,
    place_of_function,
    place_of_queue,
    place_of_trigger,
    suggestion,
    warning,
)
from iii_runtime.plan.limits import HELD_QUEUE
from iii_runtime.plan.names import Deployment
from iii_runtime.plan.queues import plan_queues, sum_of_backoffs

_OWN_SEGMENT = "_iii"
__all__ = ["Finding", "check_anywhere", "check_app"]


def check_app(config: Config, catalog: Catalog) -> list[Finding]:
    """Return everything that cannot work, errors first.

    With an `iii-aws` section in the configuration, what only AWS cannot do is among the warnings. For a host on this
    machine and for `config check`; `plan_app` checks for a stage.
    """
    findings = check_anywhere(config, catalog)
    if config.aws.line is not None:
        # No finding depends on where it is deployed.
        deployment = Deployment(app=config.aws.app, stage=DEFAULT_STAGE, region="us-east-1", account="000000000000")
        findings += map(as_warning, check_on_aws(Basis.of(config, catalog, deployment)))
    return list(errors_first(findings))


def check_anywhere(config: Config, catalog: Catalog) -> list[Finding]:
    """Return what cannot work on any host, in the order in which it was found."""
    catalog = located(catalog)
    findings: list[Finding] = []
    routes: list[Route[TriggerSpec]] = []
    for trigger in catalog.triggers:
        findings.extend(_check_function(trigger, catalog))
        if isinstance(trigger.kind, UnknownTrigger):
            findings.append(_warning(trigger, f"trigger type '{trigger.kind.type}' is unknown; it never fires."))
        if isinstance(trigger.kind, Queue) and trigger.kind.name not in config.queues:
            findings.append(
                _error(
                    trigger,
                    f"queue '{trigger.kind.name}' is not in queue_configs"
                    f"{suggestion(trigger.kind.name, config.queues)}. Declare it in iii-config.yaml.",
                )
            )
        if isinstance(trigger.kind, Http):
            route = parse_route(trigger.kind.method, trigger.kind.path, trigger)
            if route.segments[:1] == (_OWN_SEGMENT,):
                message = (
                    f"{route.method} {route.pattern}: paths under /{_OWN_SEGMENT} are the runtime's. Take another."
                )
                findings.append(_error(trigger, message))
            other = next((known for known in routes if _is_same(known, route)), None)
            if other is None:
                routes.append(route)
            else:
                findings.append(_error(trigger, _taken(route, other)))
    return [*findings, *_check_workflows(catalog), *_check_held_queues(config, catalog)]


def _is_same(first: Route[TriggerSpec], second: Route[TriggerSpec]) -> bool:
    try:
        RouteTable([first, second])
    except RouteConflictError:
        return True
    return False


def _taken(route: Route[TriggerSpec], other: Route[TriggerSpec]) -> str:
    return (
        f"{route.method} {route.pattern} takes the same requests as {other.method} {other.pattern} of "
        f"'{other.target.function_id}', {place_of_trigger(other.target)}. Change the path or the method of one."
    )


def _check_function(trigger: TriggerSpec, catalog: Catalog) -> list[Finding]:
    named = [(trigger.function_id, "its function"), (trigger.kind.condition, "its condition")]
    return [
        _warning(
            trigger,
            f"{what} '{function_id}' is not registered{suggestion(function_id, catalog.functions)}; it cannot run.",
        )
        for function_id, what in named
        if function_id is not None and function_id not in catalog.functions
    ]


def _check_workflows(catalog: Catalog) -> Iterator[Finding]:
    for function in catalog.functions.values():
        told = None if function.workflow is None else function.workflow.on_failure
        if told is not None and told not in catalog.functions:
            yield error(
                place_of_function(function),
                f"workflow '{function.id}' tells '{told}' of a failure, which is not registered"
                f"{suggestion(told, catalog.functions)}.",
            )


def _check_held_queues(config: Config, catalog: Catalog) -> Iterator[Finding]:
    for queue in plan_queues(config, catalog).values():
        if queue.concurrency == 1 and sum_of_backoffs(queue, up_to=HELD_QUEUE) > HELD_QUEUE:
            yield warning(
                place_of_queue(config, catalog, queue),
                f"queue '{queue.name}' handles one message after the other, and one that fails holds up all others "
                f"while it waits for its next attempt, here for more than {HELD_QUEUE.seconds // 60} minutes. Lower "
                "its back-off or its attempts, or raise its concurrency.",
            )


def _error(trigger: TriggerSpec, message: str) -> Finding:
    return error(place_of_trigger(trigger), _about(trigger, message))


def _warning(trigger: TriggerSpec, message: str) -> Finding:
    return warning(place_of_trigger(trigger), _about(trigger, message))


def _about(trigger: TriggerSpec, message: str) -> str:
    return f"{trigger.type_name} trigger of '{trigger.function_id}': {message}"
