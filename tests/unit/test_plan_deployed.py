"""What the last deployment has made is not destroyed unawares."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from iii_runtime import DurableSubscriber, Queue
from iii_runtime.core.config import QueueConfig
from iii_runtime.core.errors import HostError
from iii_runtime.plan.deployed import (
    DeployedPlan,
    DeployedQueue,
    deployed_file,
    deployed_from_json,
    deployed_plan,
    deployed_to_json,
)
from iii_runtime.plan.names import Deployment
from tests.unit.planning import DEV, PROD, add, config_with, planned, refused, staged, worker_with

PAY = QueueConfig(name="pay", type="fifo", message_group_field="id", line=5)
MAIL = QueueConfig(name="mail", line=6)


def deployed(*queues: QueueConfig) -> DeployedPlan:
    return deployed_plan(planned(worker_with(Queue("pay"), DurableSubscriber("sent")), config_with(*queues)))


def test_the_file_of_a_stage_is_for_people_to_read_and_commit() -> None:
    assert str(deployed_file("prod")) == "deployed/prod.json"
    assert deployed_to_json(deployed(MAIL, PAY)) == {
        "format": 1,
        "app": "shop",
        "stage": "dev",
        "stacks": 1,
        "queues": {
            "default": {"type": "standard", "stack": 0},
            "mail": {"type": "standard", "stack": 0},
            "pay": {"type": "fifo", "stack": 0},
            "topic/sent/shop::pay": {"type": "standard", "stack": 0},
        },
        "functions": {"shop::pay": 0},
    }


def test_what_is_stored_comes_back_as_it_was() -> None:
    plan = deployed(MAIL, PAY)
    assert deployed_from_json(json.loads(json.dumps(deployed_to_json(plan)))) == plan


@pytest.mark.parametrize(
    "damage",
    [
        {"format": 2},
        {"queues": {"pay": {"type": "lifo", "stack": 0}}},
        {"queues": {"pay": {"type": "fifo"}}},
        {"queues": []},
        {"functions": {"shop::pay": -1}},
        {"stacks": True},
        {"stage": None},
        {"stage": "../../elsewhere"},
    ],
)
def test_a_damaged_file_is_no_reason_to_forget_what_is_deployed(damage: dict[str, Any]) -> None:
    with pytest.raises(HostError) as caught:
        deployed_from_json({**deployed_to_json(deployed(PAY)), **damage})
    assert caught.value.code == "deployed_unreadable"
    assert "Restore it from version control" in caught.value.message


def test_the_same_app_again_is_fine_whatever_else_changes() -> None:
    previous = deployed(MAIL, PAY)
    worker = worker_with(Queue("pay"), DurableSubscriber("sent"), memory_mb=1024)
    add(worker, "shop::new", Queue("new"))
    more = config_with(MAIL, replace(PAY, max_retries=9, concurrency=4), QueueConfig(name="new"))
    assert planned(worker, more, previous=previous).warnings == ()


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (MAIL, replace(MAIL, type="fifo", message_group_field="id"), "a standard queue and would become a fifo queue:"),
        (replace(PAY, name="mail"), MAIL, "a fifo queue and would become a standard queue:"),
        (
            MAIL,
            replace(MAIL, concurrency=1),
            "a standard queue and would become a fifo queue (its `concurrency` of 1 makes it one):",
        ),
    ],
)
def test_a_queue_cannot_change_between_standard_and_fifo(before: QueueConfig, after: QueueConfig, what: str) -> None:
    worker = worker_with(Queue("mail"))
    previous = deployed_plan(planned(worker, config_with(before)))
    (finding,) = refused(worker, config_with(after), previous=previous)
    assert finding.where == "iii-config.yaml:6"
    assert finding.message == (
        f"queue 'mail' was deployed as {what} it would be replaced, and the messages it has would be lost. Declare a "
        "queue with another name, deploy, and remove this one when it has run empty."
    )


@pytest.mark.parametrize(
    ("deployment", "what"),
    [
        (DEV, "AWS deletes it, with its messages and dead letters."),
        (PROD, "in production AWS keeps it, with what it still has and without a consumer, until you delete it"),
    ],
)
def test_a_removed_queue_is_told_with_what_becomes_of_its_messages(deployment: Deployment, what: str) -> None:
    previous = deployed_plan(planned(worker_with(), config_with(MAIL), deployment))
    (finding,) = planned(worker_with(), config_with(), deployment, previous=previous).warnings
    assert (finding.level, finding.where) == ("warning", f"deployed/{deployment.stage}.json")
    assert finding.message.startswith("queue 'mail' of the last deployment is gone from the app.")
    assert what in finding.message


def test_a_queue_does_not_move_between_stacks() -> None:
    config = config_with(MAIL, aws=staged(stacks=2))
    bound = planned(worker_with(Queue("mail")), config)
    shared = worker_with(Queue("mail"))
    add(shared, "shop::other", Queue("mail"))
    (finding,) = refused(shared, config, previous=deployed_plan(bound))
    assert finding.message.startswith(f"queue 'mail' would move from stack {bound.queues['mail'].stack} to stack 0")


def test_with_one_stack_a_queue_may_change_its_consumer() -> None:
    shared = worker_with(Queue("mail"))
    add(shared, "shop::other", Queue("mail"))
    previous = deployed_plan(planned(worker_with(Queue("mail")), config_with(MAIL)))
    assert planned(shared, config_with(MAIL), previous=previous).queues["mail"].consumer == "shop-dev-x-dispatcher"


def test_another_app_under_the_file_of_this_one_is_refused() -> None:
    previous = replace(deployed(MAIL, PAY), app="store", queues={"gone": DeployedQueue(type="fifo", stack=4)})
    (finding,) = refused(worker_with(), config_with(MAIL), previous=previous)
    assert finding.where == "deployed/dev.json"
    assert finding.message.startswith("it tells of app 'store' in stage dev, and this is app 'shop' in stage dev")
