"""What everything on AWS is planned from: the app, the stage, and what follows from them at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from iii_runtime.core.config import Config, StageConfig
from iii_runtime.core.queue import QueueSpec
from iii_runtime.core.registry import Catalog, FunctionSpec, TriggerSpec
from iii_runtime.core.trigger_request import DEFAULT_TIMEOUT_MS
from iii_runtime.plan.app_plan import CORE_STACK
from iii_runtime.plan.findings import located
from iii_runtime.plan.limits import DISPATCH_MARGIN, LAMBDA_TIMEOUT, OUTCOME_MARGIN
from iii_runtime.plan.names import Deployment
from iii_runtime.plan.queues import consumer_of, plan_consumers, plan_queues

_SECOND = timedelta(seconds=1)
_DEFAULT_TIMEOUT = timedelta(milliseconds=DEFAULT_TIMEOUT_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """An app in a stage.

    Attributes:
        config: The configuration.
        catalog: Everything registered.
        deployment: The names.
        stage: Settings of the stage.
        queues: The queues by name, as they are on AWS.
        consumers: The function that takes a queue's messages, by the queue's name; the dispatcher takes the others.
        stacks: Number of each function's stack; the core stack for one that is not in it.
        queue_stacks: Number of the stack of each queue that is deployed; any other is where its consumer is.
    """

    config: Config
    catalog: Catalog
    deployment: Deployment
    stage: StageConfig
    queues: Mapping[str, QueueSpec]
    consumers: Mapping[str, str]
    stacks: Mapping[str, int] = field(default_factory=dict)
    queue_stacks: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(
        config: Config, catalog: Catalog, deployment: Deployment, *, stacks: Mapping[str, int] | None = None
    ) -> Basis:
        """Return the basis of an app in the stage that `deployment` names."""
        catalog = located(catalog)
        queues = plan_queues(config, catalog, deployed=True)
        bound = plan_consumers(catalog)
        found = {name: consumer_of(queue, catalog, bound) for name, queue in queues.items()}
        return Basis(
            config=config,
            catalog=catalog,
            deployment=deployment,
            stage=config.aws.stage(deployment.stage),
            queues=queues,
            consumers={name: function_id for name, function_id in found.items() if function_id is not None},
            stacks=stacks or {},
        )

    def conditions(self, function_id: str) -> list[FunctionSpec]:
        """Return the functions that decide whether triggers of a function fire: they run in its Lambda."""
        named = dict.fromkeys(
            trigger.kind.condition for trigger in self.catalog.triggers if trigger.function_id == function_id
        )
        functions = self.catalog.functions
        return [functions[name] for name in named if name is not None and name in functions and name != function_id]

    def triggers(self, *kinds: type) -> list[TriggerSpec]:
        """Return the triggers of some kinds whose function is registered."""
        return [
            trigger
            for trigger in self.catalog.triggers
            if isinstance(trigger.kind, kinds) and trigger.function_id in self.catalog.functions
        ]

    def queues_of(self, function_id: str | None) -> list[QueueSpec]:
        """Return the queues whose messages the Lambda of a function takes; of the dispatcher for None."""
        return [queue for name, queue in self.queues.items() if self.consumers.get(name) == function_id]

    def lambda_timeout(self, function: FunctionSpec) -> timedelta:
        """Return how long the Lambda of a function may run: long enough for every message of a batch, as AWS allows."""
        return min(self.batch_time(function) + OUTCOME_MARGIN, LAMBDA_TIMEOUT)

    def batch_time(self, function: FunctionSpec) -> timedelta:
        """Return how long the largest batch of a function's queues may take: its messages run one after the other."""
        largest = max((queue.batch_size for queue in self.queues_of(function.id)), default=1)
        return whole_seconds(timeout_of(function)) * largest

    @property
    def dispatcher_timeout(self) -> timedelta:
        """How long the dispatcher may run: any function has to end before it."""
        timeouts = [timeout_of(function) for function in self.catalog.functions.values()]
        return whole_seconds(max(timeouts, default=_DEFAULT_TIMEOUT)) + DISPATCH_MARGIN

    def visibility(self, queue: QueueSpec) -> timedelta:
        """Return how long a received message of a queue stays hidden: longer than its consumer can run."""
        function_id = self.consumers.get(queue.name)
        if function_id is None:
            return self.dispatcher_timeout + DISPATCH_MARGIN
        return self.lambda_timeout(self.catalog.functions[function_id]) + DISPATCH_MARGIN

    def stack_of(self, function_id: str | None) -> int:
        """Return the number of a function's stack; the core stack for None."""
        return CORE_STACK if function_id is None else self.stacks.get(function_id, CORE_STACK)


def timeout_of(function: FunctionSpec) -> timedelta:
    """Return the longest run of one attempt; that of a worker without options if the function does not know it."""
    return function.timeout or _DEFAULT_TIMEOUT


def whole_seconds(duration: timedelta) -> timedelta:
    """Return the duration rounded up to whole seconds."""
    return timedelta(seconds=math.ceil(duration / _SECOND))
