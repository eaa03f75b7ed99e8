"""The queues of an app: the named ones of its config, and one for each topic subscription."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from iii_runtime.core.config import Config, TopicDefaults
from iii_runtime.core.queue import QueueSpec
from iii_runtime.core.registry import Catalog
from iii_runtime.core.triggers import DurableSubscriber, Queue

TOPIC_PREFIX = "topic/"


def plan_queues(config: Config, catalog: Catalog) -> dict[str, QueueSpec]:
    """Return every queue by name: those of `queue_configs`, the built-in `default`, and the subscriptions'."""
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
