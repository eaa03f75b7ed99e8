"""Which CloudFormation stack a function is in, and whether the stacks hold what is to be created."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from iii_runtime.plan.app_plan import CORE_STACK, AppPlan
from iii_runtime.plan.deployed import DeployedPlan
from iii_runtime.plan.findings import Finding, error
from iii_runtime.plan.limits import ALARM_METRICS, STACK_RESOURCES

MOST_STACKS = 50

PER_STACK = 1
"""What the CDK's command line says about itself."""
PER_FUNCTION = 4
"""Lambda, role, log group, settings of asynchronous calls."""
PER_QUEUE = 7
"""Queue, dead-letter queue, a policy of each, event source mapping, two alarms."""
PER_MAPPING = 1
"""The event source mapping of a queue that is in another stack."""
PER_RULE = 2
PER_SCHEDULE = 1
SCHEDULER = 1
"""The role of a stack's schedules."""
PER_ROUTE = 1
PER_ENTRY = 2
"""Integration and permission of a function with routes."""
PER_TOPIC = 2
PER_SUBSCRIPTION = 1
CORE = 57
"""Table, bucket, both APIs with their logs, the runtime's own Lambdas and queues, nine alarms with the topic and the
mail address they report to, dashboard."""
AUTHORIZER = 1
SCHEDULE_GROUP = 1
API_PARAMETER = 1
"""An id of the API that stacks of functions look up; with an authorizer there are two."""
TOPIC_FAILURES = 3
"""Queue of what a FIFO topic could not hand to a standard queue, its policy, its alarm."""


def place_functions(function_ids: Iterable[str], stacks: int, previous: DeployedPlan | None = None) -> dict[str, int]:
    """Return the number of each function's stack.

    It depends on the function alone, so a new function moves no other one. What is deployed stays where it is.

    Args:
        function_ids: The functions.
        stacks: Over how many stacks they are spread: 1 puts them into the core stack, N into the stacks 1 to N.
        previous: The last deployment; None if there was none.
    """
    known = {} if previous is None else previous.functions
    return {
        function_id: known[function_id] if function_id in known else _stack_for(function_id, stacks)
        for function_id in function_ids
    }


def count_stacks(stacks: int) -> int:
    """Return how many stacks there are with `stacks` of the functions, the core stack included."""
    return 1 if stacks == 1 else stacks + 1


def count_resources(plan: AppPlan) -> Mapping[int, int]:
    """Return how many resources each stack has at most; a few more than there are, if options are left out."""
    counts: Counter[int] = Counter(dict.fromkeys(range(plan.stack_count), PER_STACK))
    counts[CORE_STACK] += _count_core(plan)
    for function in plan.functions.values():
        if function.function_id is not None:
            counts[function.stack] += PER_FUNCTION
    for queue in plan.queues.values():
        counts[queue.stack] += PER_QUEUE + (0 if queue.spec.topic is None else PER_SUBSCRIPTION)
        counts[queue.mapping_stack] += 0 if queue.mapping_stack == queue.stack else PER_MAPPING
    for stack in {schedule.stack for schedule in plan.schedules if schedule.kind == "schedule"}:
        counts[stack] += SCHEDULER
    for schedule in plan.schedules:
        counts[schedule.stack] += {"rule": PER_RULE, "schedule": PER_SCHEDULE, "tick": 0}[schedule.kind]
    routes = Counter(route.function for route in plan.routes)
    for name, count in routes.items():
        counts[plan.functions[name].stack] += PER_ENTRY + PER_ROUTE * count
    return counts


def _count_core(plan: AppPlan) -> int:
    """Return how many resources there are once, beside those of functions and queues that are in the core stack."""
    taking_events = sum(function.takes_events for function in plan.functions.values())
    alarms = 2 * math.ceil(len(plan.functions) / ALARM_METRICS) + math.ceil(taking_events / ALARM_METRICS)
    authorizer = 0 if plan.jwt is None else AUTHORIZER
    parameters = 0 if plan.stack_count == 1 else API_PARAMETER * (1 + authorizer)
    group = SCHEDULE_GROUP if any(schedule.kind == "schedule" for schedule in plan.schedules) else 0
    failures = TOPIC_FAILURES if any(topic.ordered for topic in plan.topics) else 0
    return CORE + alarms + authorizer + parameters + group + failures + PER_TOPIC * len(plan.topics)


def check_stacks(plan: AppPlan, source: str, replan: Callable[[int], AppPlan]) -> Iterator[Finding]:
    """Yield what does not fit into its stack.

    Args:
        plan: The plan.
        source: Where `stacks` is set.
        replan: Makes the plan with another number of stacks, to find one that is enough.
    """
    for stack, count in sorted(count_resources(plan).items()):
        if count > STACK_RESOURCES:
            name = "the core stack" if stack == CORE_STACK else f"stack {stack}"
            yield error(
                source,
                f"{name} would have about {count} resources, and {STACK_RESOURCES} are the most that leave room in "
                f"CloudFormation's 500. {_remedy(plan, replan)}",
            )


def _remedy(plan: AppPlan, replan: Callable[[int], AppPlan]) -> str:
    for stacks in range(plan.stage.stacks + 1, MOST_STACKS + 1):
        if all(count <= STACK_RESOURCES for count in count_resources(replan(stacks)).values()):
            return f"Set `stacks: {stacks}` for iii-aws."
    return "More stacks do not help here: bind functions to queues, or split the app in two."


def _stack_for(function_id: str, stacks: int) -> int:
    """Choose by the highest random weight: it depends on the function alone."""
    return CORE_STACK if stacks == 1 else max(range(1, stacks + 1), key=lambda stack: _weight(function_id, stack))


def _weight(function_id: str, stack: int) -> bytes:
    return hashlib.sha256(f"{stack}:{function_id}".encode()).digest()
