"""What the last deployment has made is not destroyed unawares."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from iii_runtime import DurableSubscriber, Http, Queue, Worker, register_worker
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
from tests.unit.planning import DEV, PROD, add, config_with, function_of, planned, refused, staged, worker_with

PAY = QueueConfig(name="pay", type="fifo", message_group_field="id", line=5)
MAIL = QueueConfig(name="mail", line=6)


def deployed(*queues: QueueConfig) -> DeployedPlan:
    return deployed_plan(planned(worker_with(Queue("pay"), DurableSubscriber("sent")), config_with(*queues)))


def test_the_file_of_a_stage_is_for_people_to_read_and_commit() -> None:
    assert str(deployed_file("shop", "prod")) == "deployed/shop.prod.json"
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
        "routes": {},
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
        {"routes": {"GET /": "1"}},
        {"stacks": True},
        {"stage": None},
        {"stage": "../../elsewhere"},
        {"app": "../../elsewhere"},
        {"app": "shop.dev"},
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
    assert (finding.level, finding.where) == ("warning", f"deployed/shop.{deployment.stage}.json")
    assert finding.message.startswith("queue 'mail' of the last deployment is gone from the app.")
    assert what in finding.message


TWO_STACKS = config_with(MAIL, aws=staged(stacks=2))
FIRST, SECOND = "shop::pay", "shop::refund"
"""Functions in stacks of their own, where there are two."""


def bound_to(*function_ids: str) -> Worker:
    worker = register_worker()
    for function_id in (FIRST, SECOND):
        add(worker, function_id, *([Queue("mail")] if function_id in function_ids else []))
    return worker


def test_the_two_functions_are_in_two_stacks() -> None:
    plan = planned(bound_to(), TWO_STACKS)
    assert [function_of(plan, function_id).stack for function_id in (FIRST, SECOND)] == [2, 1]


@pytest.mark.parametrize(
    ("before", "after", "stack", "mapping"),
    [
        pytest.param([], [FIRST], 0, 2, id="bound"),
        pytest.param([FIRST], [], 2, 2, id="let go"),
        pytest.param([FIRST], [FIRST, SECOND], 2, 2, id="shared"),
        pytest.param([FIRST], [FIRST], 2, 2, id="as it was"),
    ],
)
def test_a_deployed_queue_stays_in_its_stack_whoever_takes_its_messages(
    before: list[str], after: list[str], stack: int, mapping: int
) -> None:
    previous = deployed_plan(planned(bound_to(*before), TWO_STACKS))
    plan = planned(bound_to(*after), TWO_STACKS, previous=previous)
    assert (plan.queues["mail"].stack, plan.queues["mail"].mapping_stack) == (stack, mapping)
    assert deployed_plan(plan).queues == previous.queues


def test_a_queue_that_was_bound_later_may_be_bound_to_any_function() -> None:
    previous = deployed_plan(planned(bound_to(), TWO_STACKS))
    for function_id, stack in ((FIRST, 2), (SECOND, 1)):
        plan = planned(bound_to(function_id), TWO_STACKS, previous=previous)
        previous = deployed_plan(plan)
        assert (plan.queues["mail"].stack, plan.queues["mail"].mapping_stack) == (0, stack)


def test_a_queue_in_the_stack_of_one_function_is_not_bound_to_one_in_another_stack() -> None:
    previous = deployed_plan(planned(bound_to(FIRST), TWO_STACKS))
    (finding,) = refused(bound_to(SECOND), TWO_STACKS, previous=previous)
    assert finding.where == "iii-config.yaml:6"
    assert finding.message == (
        "queue 'mail' is in stack 2, and the function that takes its messages now is in stack 1: neither stack could "
        "be deployed before the other. Bind it to the function it was bound to, or to none; or declare a queue with "
        "another name, and remove this one when it has run empty."
    )


def answering(function_id: str | None, path: str = "/orders/:id") -> Worker:
    worker = register_worker()
    for each in (FIRST, SECOND, "shop::third"):
        add(worker, each, *([Http("GET", path)] if each == function_id else []))
    return worker


def test_a_route_does_not_move_to_a_stack_while_another_one_has_it() -> None:
    previous = deployed_plan(planned(answering(FIRST), TWO_STACKS))
    assert previous.routes == {"GET /orders/{}": 2, "HEAD /orders/{}": 2}
    (finding,) = refused(answering(SECOND, "/orders/:other"), TWO_STACKS, previous=previous)
    assert finding.message == (
        "GET /orders/{other} and HEAD /orders/{other}: its function is in stack 1 now, and stack 2 has what takes "
        "these requests, which API Gateway lets nobody create a second time. Deploy once without the trigger, and then "
        "with it; or let the function that has it answer."
    )


def test_what_is_told_of_a_route_that_moves_can_be_followed() -> None:
    previous = deployed_plan(planned(answering(FIRST), TWO_STACKS))
    between = deployed_plan(planned(answering(None), TWO_STACKS, previous=previous))
    assert deployed_plan(planned(answering(SECOND), TWO_STACKS, previous=between)).routes["GET /orders/{}"] == 1


def test_a_route_may_leave_the_core_stack_which_is_deployed_first() -> None:
    previous = deployed_plan(planned(worker_with(Http("GET", "/a"), function_id=FIRST), config_with(MAIL)))
    assert previous.routes == {}
    worker = worker_with(function_id=FIRST)
    add(worker, SECOND, Http("GET", "/a"))
    plan = planned(worker, TWO_STACKS, previous=previous)
    assert [function_of(plan, each).stack for each in (FIRST, SECOND)] == [0, 1]


def test_a_file_of_an_earlier_version_knows_of_no_routes() -> None:
    stored = deployed_to_json(deployed_plan(planned(answering(FIRST), TWO_STACKS)))
    del stored["routes"]
    assert planned(answering(SECOND), TWO_STACKS, previous=deployed_from_json(stored)).stack_count == 3


def test_with_one_stack_a_queue_may_change_its_consumer() -> None:
    shared = worker_with(Queue("mail"))
    add(shared, "shop::other", Queue("mail"))
    previous = deployed_plan(planned(worker_with(Queue("mail")), config_with(MAIL)))
    assert planned(shared, config_with(MAIL), previous=previous).queues["mail"].consumer == "shop-dev-x-dispatcher"


def test_the_file_of_another_app_is_refused_under_the_name_it_was_read_from() -> None:
    queues = {"gone": DeployedQueue(type="fifo", stack=4)}
    previous = replace(deployed(MAIL, PAY), app="store", queues=queues, source="deployed/shop.dev.json")
    (finding,) = refused(worker_with(), config_with(MAIL), previous=previous)
    assert finding.where == "deployed/shop.dev.json"
    assert finding.message.startswith("it tells of app 'store' in stage dev, and by its name it is that of app 'shop'")
