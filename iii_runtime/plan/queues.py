"""The queues of an app: the named ones of its config, and one for each topic subscription."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from iii_runtime.core.config import Config, TopicDefaults
from iii_runtime.core.queue import QueueSpec, backoff_after
from iii_runtime.core.registry import Catalog
from iii_runtime.core.triggers import DurableSubscriber, Queue

TOPIC_PREFIX = "topic/"


def plan_queues(config: Config, catalog: Catalog, *, deployed: bool = False) -> dict[str, QueueSpec]:
    """Return every queue by name: those of `queue_configs`, the built-in `default`, and the subscriptions'.

    Args:
        config: The configuration.
        catalog: What is registered.
        deployed: Whether each function has a host of its own, as on AWS. Then a queue also knows who consumes it and
            how many messages that one is given.
    """
    queues = {
        name: QueueSpec(
            name=name,
            max_attempts=queue.max_attempts,
            concurrency=queue.concurrency,
            kind=queue.type,
            group_field=queue.message_group_field if queue.type == "fifo" else None,
            backoff=timedelta(milliseconds=queue.backoff_ms),
        )
        for name, queue in config.queues.items()
    }
    for trigger in catalog.triggers:
        if isinstance(trigger.kind, DurableSubscriber):
            queue = subscription_queue(trigger.kind, trigger.function_id, config.topics)
            # Two subscriptions of one function to one topic are one: it hears each message once.
            queues.setdefault(queue.name, queue)
    if deployed:
        consumers = plan_consumers(catalog)
        return {name: _as_deployed(queue, catalog, consumers) for name, queue in queues.items()}
    return queues


def subscription_queue(kind: DurableSubscriber, function_id: str, defaults: TopicDefaults) -> QueueSpec:
    """Return the queue that keeps a topic's messages for one function; N retries are N + 1 attempts, as in iii."""
    fifo = defaults.mode == "fifo" if kind.fifo is None else kind.fifo
    concurrency = defaults.concurrency if kind.concurrency is None else kind.concurrency
    backoff_ms = defaults.backoff_ms if kind.backoff_ms is None else kind.backoff_ms
    return QueueSpec(
        name=f"{TOPIC_PREFIX}{kind.topic}/{function_id}",
        max_attempts=max(defaults.max_attempts, 1) if kind.max_retries is None else kind.max_retries + 1,
        concurrency=1 if fifo else concurrency,
        backoff=timedelta(milliseconds=backoff_ms),
        topic=kind.topic,
        function_id=function_id,
    )


def plan_consumers(catalog: Catalog) -> Mapping[str, list[str]]:
    """Return the functions bound to each queue with a `Queue` trigger, in the order of their registration."""
    consumers: dict[str, list[str]] = {}
    for trigger in catalog.triggers:
        if isinstance(trigger.kind, Queue) and trigger.function_id not in consumers.setdefault(trigger.kind.name, []):
            consumers[trigger.kind.name].append(trigger.function_id)
    return consumers


def consumer_of(queue: QueueSpec, catalog: Catalog, consumers: Mapping[str, list[str]]) -> str | None:
    """Return the one function whose host takes the messages of a queue; None if the dispatcher does.

    Args:
        queue: The queue.
        catalog: What is registered; a function that is not can consume nothing.
        consumers: See `plan_consumers`.
    """
    named = [queue.function_id] if queue.topic is not None else consumers.get(queue.name, [])
    bound = [function_id for function_id in named if function_id in catalog.functions]
    return bound[0] if len(bound) == 1 else None


def queue_triggers(catalog: Catalog, queue_name: str, function_id: str) -> list[Queue]:
    """Return the `Queue` triggers that bind a function to a queue; the first one counts."""
    return [
        trigger.kind
        for trigger in catalog.triggers
        if isinstance(trigger.kind, Queue) and (trigger.kind.name, trigger.function_id) == (queue_name, function_id)
    ]


def sum_of_backoffs(queue: QueueSpec, *, up_to: timedelta) -> timedelta:
    """Return how long a message waits between all its attempts; more than `up_to` is only known to be more."""
    total = timedelta(0)
    if not queue.backoff:
        return total
    for attempt in range(1, queue.max_attempts):
        total += backoff_after(attempt, queue.backoff)
        if total > up_to:
            break
    return total


def _as_deployed(queue: QueueSpec, catalog: Catalog, consumers: Mapping[str, list[str]]) -> QueueSpec:
    function_id = consumer_of(queue, catalog, consumers)
    if function_id is None:
        return replace(queue, is_shared=True)
    binding = queue_triggers(catalog, queue.name, function_id)
    return replace(queue, batch_size=binding[0].batch_size, consumer=function_id) if binding else queue
