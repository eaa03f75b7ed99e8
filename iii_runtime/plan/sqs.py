"""The SQS queues of an app: who takes their messages, how many at a time, and how long those stay hidden."""

from __future__ import annotations

from iii_runtime.core.queue import QueueSpec
from iii_runtime.plan.app_plan import PlannedQueue, PlannedTopic
from iii_runtime.plan.basis import Basis
from iii_runtime.plan.findings import place_of_queue
from iii_runtime.plan.limits import MIN_CONCURRENCY


def plan_sqs_queues(basis: Basis) -> dict[str, PlannedQueue]:
    """Return all queues with messages, by the runtime's name."""
    return {name: _plan_queue(basis, queue) for name, queue in basis.queues.items()}


def plan_topics(basis: Basis) -> tuple[PlannedTopic, ...]:
    """Return all durable topics that have a subscription."""
    return tuple(
        PlannedTopic(
            topic=topic,
            name=basis.deployment.topic_name(topic, ordered=is_ordered_topic(basis, topic)),
            ordered=is_ordered_topic(basis, topic),
            queues=tuple(basis.deployment.queue_name(queue) for queue in basis.queues.values() if queue.topic == topic),
        )
        for topic in dict.fromkeys(queue.topic for queue in basis.queues.values())
        if topic is not None
    )


def is_ordered_topic(basis: Basis, topic: str) -> bool:
    """Return whether a durable topic is a FIFO topic: one of its subscriptions keeps an order."""
    return any(queue.is_ordered for queue in basis.queues.values() if queue.topic == topic)


def mapping_concurrency(queue: QueueSpec) -> int:
    """Return how many invocations an event source mapping may start at once; AWS takes 2 at least.

    A queue with `concurrency: 1` has one group, of which one message at a time is taken all the same.
    """
    return max(queue.concurrency, MIN_CONCURRENCY)


def _plan_queue(basis: Basis, queue: QueueSpec) -> PlannedQueue:
    names, consumer = basis.deployment, basis.consumers.get(queue.name)
    return PlannedQueue(
        spec=queue,
        name=names.queue_name(queue),
        letter_name=names.letter_queue_name(queue),
        visibility=basis.visibility(queue),
        max_receives=queue.max_receives,
        consumer=names.system_name("dispatcher") if consumer is None else names.function_name(consumer),
        batch_size=queue.batch_size,
        max_concurrency=mapping_concurrency(queue),
        consumer_stack=basis.stack_of(consumer),
        stack=basis.queue_stacks.get(queue.name, basis.stack_of(consumer)),
        source=place_of_queue(basis.config, basis.catalog, queue),
    )
