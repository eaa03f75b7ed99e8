"""Laws of the manifest: what is described comes back, and the plan knows no difference."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from iii_runtime import Cron, DurableSubscriber, Http, OnState, OnStream, Queue, Subscribe, register_worker
from iii_runtime.core.config import AwsConfig, Config, QueueConfig, StageConfig
from iii_runtime.core.triggers import TriggerKind
from iii_runtime.core.worker import Worker
from iii_runtime.plan.app import plan_app
from iii_runtime.plan.deployed import deployed_from_json, deployed_plan, deployed_to_json
from iii_runtime.plan.findings import AppInvalidError
from iii_runtime.plan.manifest import describe_app, read_manifest
from iii_runtime.plan.names import Deployment

names = st.from_regex(r"[a-z]{1,6}(::[a-z-]{1,8})?", fullmatch=True)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12).filter(str.strip)
conditions = st.none() | names
queue_names = st.sampled_from(("default", "mail", "bills"))
triggers: st.SearchStrategy[TriggerKind] = st.one_of(
    st.builds(
        Http,
        st.sampled_from(("GET", "post", "Delete")),
        st.from_regex(r"(/[a-z]{1,5}|/:[a-z]{1,5}x){1,2}", fullmatch=True).filter(
            lambda path: len(set(path.split("/"))) == path.count("/") + 1
        ),
        auth=st.sampled_from((None, "iam", "none")),
        condition=conditions,
    ),
    st.builds(
        Cron,
        st.sampled_from(("0 0 * * * *", "*/5 * * * * *", "0 30 9 * * MON-FRI", "@daily")),
        timezone=st.sampled_from(("UTC", "Europe/Berlin")),
        overlap=st.booleans(),
    ),
    st.builds(Queue, queue_names, batch_size=st.integers(1, 10), condition=conditions),
    st.builds(
        DurableSubscriber,
        texts,
        max_retries=st.none() | st.integers(0, 20),
        concurrency=st.none() | st.integers(1, 50),
        fifo=st.none() | st.booleans(),
        backoff_ms=st.none() | st.integers(0, 5000),
    ),
    st.builds(Subscribe, texts),
    st.builds(OnState, st.none() | texts, st.none() | texts),
    st.builds(OnStream, texts, st.none() | texts, st.none() | texts),
)
options = st.fixed_dictionaries(
    {},
    optional={
        "memory_mb": st.none() | st.integers(128, 10_240),
        "environment": st.dictionaries(st.from_regex(r"[B-H][A-Z]{0,5}", fullmatch=True), texts, max_size=3),
        "secrets": st.dictionaries(st.just("KEY"), st.sampled_from(("ssm:/a/{stage}", "secretsmanager:b")), max_size=1),
        "uses": st.none() | st.lists(st.sampled_from(("queue:default", "topic:t")), max_size=2),
        "timeout": st.none() | st.integers(1, 900_000).map(lambda ms: timedelta(milliseconds=ms)),
        "metadata": st.none() | st.dictionaries(texts, st.integers(-(2**63), 2**63 - 1) | texts, max_size=3),
    },
)
functions = st.dictionaries(names, st.tuples(st.lists(triggers, max_size=4), options), min_size=1, max_size=5)
configs = st.builds(
    Config,
    queues=st.fixed_dictionaries(
        {
            name: st.builds(
                QueueConfig, name=st.just(name), max_retries=st.integers(0, 9), concurrency=st.integers(1, 9)
            )
            for name in ("mail", "bills")
        }
    ),
    aws=st.builds(AwsConfig, stages=st.fixed_dictionaries({"dev": st.builds(StageConfig, stacks=st.integers(1, 4))})),
)
DEV = Deployment(app="iii", stage="dev", region="eu-west-1", account="123456789012")


def echo(data: Any) -> Any:
    return data


def worker_of(registered: dict[str, tuple[list[TriggerKind], dict[str, Any]]]) -> Worker:
    worker = register_worker()
    for function_id, (kinds, settings) in registered.items():
        worker.function(function_id, triggers=kinds, **settings)(echo)
    return worker


@given(configs, functions)
def test_what_is_described_comes_back(config: Config, registered: dict[str, Any]) -> None:
    worker = worker_of(registered)
    described = describe_app(config, [worker], ["shop"])
    manifest = read_manifest(json.loads(json.dumps(described)))
    assert manifest.config == config
    assert manifest.catalog.triggers == tuple(worker.registry.triggers())
    assert [spec.options for spec in manifest.catalog.functions.values()] == [
        spec.options for spec in worker.registry.functions()
    ]
    assert describe_app(config, [worker], ["shop"]) == described


@given(configs, functions)
def test_a_plan_is_whole_and_deploying_it_again_changes_nothing(config: Config, registered: dict[str, Any]) -> None:
    """Every consumer, subscriber and target is a Lambda of the plan, in a stack there is; or the app is refused."""
    manifest = read_manifest(describe_app(config, [worker_of(registered)], ["shop"]))
    try:
        plan = plan_app(manifest, DEV)
    except AppInvalidError as error:
        refusals = [finding for finding in error.findings if finding.level == "error"]
        event("refused")
        if not refusals or not all(finding.where and finding.message for finding in refusals):
            raise
        return
    event("planned")
    assert {queue.consumer for queue in plan.queues.values()} <= plan.functions.keys()
    assert {schedule.function for schedule in plan.schedules} <= plan.functions.keys()
    assert {route.function for route in plan.routes} <= plan.functions.keys()
    assert all(0 <= function.stack < plan.stack_count for function in plan.functions.values())
    for queue in plan.queues.values():
        assert queue.stack == plan.functions[queue.consumer].stack
        assert queue.visibility > plan.functions[queue.consumer].timeout
        assert queue.max_receives > queue.spec.max_attempts
    physical = {queue.name for queue in plan.queues.values()}
    assert {name for topic in plan.topics for name in topic.queues} <= physical
    previous = deployed_from_json(json.loads(json.dumps(deployed_to_json(deployed_plan(plan)))))
    assert plan_app(manifest, DEV, previous=previous) == plan
