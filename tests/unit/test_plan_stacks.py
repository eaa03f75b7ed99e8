"""Functions are spread over stacks by themselves alone, and a stack holds what CloudFormation takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from iii_runtime import Cron, Http, Queue, Worker, register_worker
from iii_runtime.core.config import Config, QueueConfig
from iii_runtime.plan.app_plan import CORE_STACK
from iii_runtime.plan.deployed import DeployedPlan, DeployedQueue, deployed_plan
from iii_runtime.plan.stacks import CORE, count_resources, place_functions
from tests.unit.planning import DEV, add, config_with, function_of, messages, planned, refused, staged, worker_with

IDS = [f"shop::function-{number}" for number in range(120)]


def many(count: int) -> Worker:
    worker = register_worker()
    for function_id in IDS[:count]:
        add(worker, function_id)
    return worker


def known(stacks: int, functions: dict[str, int]) -> DeployedPlan:
    return DeployedPlan(app="shop", stage="dev", stacks=stacks, queues={}, functions=functions)


def test_one_stack_is_the_core_stack() -> None:
    plan = planned(worker_with())
    assert (plan.stack_count, function_of(plan).stack) == (1, CORE_STACK)


def test_several_stacks_are_beside_the_core_stack_and_filled_evenly() -> None:
    plan = planned(many(120), config_with(aws=staged(stacks=3)))
    assert plan.stack_count == 4
    counts = Counter(function.stack for function in plan.functions.values() if function.function_id is not None)
    assert counts.keys() == {1, 2, 3}
    assert min(counts.values()) > 25
    assert {f.stack for f in plan.functions.values() if f.role is not None} == {CORE_STACK}


def test_a_new_function_moves_no_other_one() -> None:
    before = place_functions(IDS, 4)
    after = place_functions(["shop::a-new-one", *reversed(IDS)], 4)
    assert {function_id: after[function_id] for function_id in IDS} == before
    assert after["shop::a-new-one"] in {1, 2, 3, 4}


def test_the_place_of_a_function_never_changes() -> None:
    """Worked out once and written down: another hash would move what is deployed."""
    assert place_functions(IDS[:8], 3) == {
        "shop::function-0": 1,
        "shop::function-1": 3,
        "shop::function-2": 1,
        "shop::function-3": 3,
        "shop::function-4": 1,
        "shop::function-5": 3,
        "shop::function-6": 1,
        "shop::function-7": 1,
    }


def test_one_more_stack_only_takes_functions_over() -> None:
    three, four = place_functions(IDS, 3), place_functions(IDS, 4)
    moved = {function_id for function_id in IDS if three[function_id] != four[function_id]}
    assert {four[function_id] for function_id in moved} == {4}


def test_what_is_deployed_stays_where_it_is_when_the_number_of_stacks_changes() -> None:
    previous = deployed_plan(planned(many(60)))
    placed = place_functions(IDS, 3, previous)
    assert {placed[function_id] for function_id in IDS[:60]} == {CORE_STACK}
    assert {placed[function_id] for function_id in IDS[60:]} == {1, 2, 3}


def test_a_queue_a_job_and_a_route_are_where_their_function_is() -> None:
    config = config_with(QueueConfig(name="mail"), aws=staged(stacks=3))
    worker = worker_with(Queue("mail"), Cron("0 0 * * * *"), Http("GET", "/a"), function_id=IDS[4])
    plan = planned(worker, config)
    own = function_of(plan, IDS[4]).stack
    assert own != CORE_STACK
    assert [plan.queues[name].stack for name in ("mail", "default")] == [own, CORE_STACK]
    assert [schedule.stack for schedule in plan.schedules] == [own]
    # In the core: three alarms over all Lambdas, the API's id for the other stacks, queue `default`.
    assert count_resources(plan) == {
        CORE_STACK: 1 + CORE + 3 + 1 + 7,
        own: 1 + 4 + 7 + 2 + 2 + 2,
        **dict.fromkeys({1, 2, 3} - {own}, 1),
    }


def test_a_full_stack_is_refused_with_a_number_of_stacks_that_is_enough() -> None:
    (finding,) = refused(many(120))
    assert finding.where == "iii-config.yaml:3"
    assert finding.message == (
        "the core stack would have about 587 resources, and 450 are the most that leave room in CloudFormation's 500. "
        "Set `stacks: 2` for iii-aws."
    )
    plan = planned(many(120), config_with(aws=staged(stacks=2)))
    assert max(count_resources(plan).values()) <= 450


@pytest.mark.parametrize(("is_bound", "too_many"), [(True, 34), (False, 89)])
def test_the_guide_says_how_many_functions_are_too_many_for_one_stack(is_bound: bool, too_many: int) -> None:
    def app_with(count: int) -> tuple[Worker, Config]:
        worker = register_worker()
        for number in range(count):
            add(worker, IDS[number], *([Queue(f"q{number}")] if is_bound else []))
        return worker, config_with(*(QueueConfig(name=f"q{number}") for number in range(count) if is_bound))

    guide = " ".join((Path(__file__).parents[2] / "docs" / "deploy.md").read_text().split())
    assert planned(*app_with(too_many - 1)).stack_count == 1
    assert "Set `stacks: 2`" in refused(*app_with(too_many))[0].message
    assert f" {too_many - 1} {'functions' if is_bound else 'without'} " in guide


def test_a_grown_app_is_spread_further_without_a_move() -> None:
    previous = deployed_plan(planned(many(80)))
    (finding,) = refused(many(120), previous=previous)
    assert finding.message.endswith("Set `stacks: 2` for iii-aws.")
    plan = planned(many(120), config_with(aws=staged(stacks=2)), previous=previous)
    assert {function_of(plan, function_id).stack for function_id in IDS[:80]} == {CORE_STACK}
    assert {function_of(plan, function_id).stack for function_id in IDS[80:]} == {1, 2}


def test_more_stacks_are_not_recommended_where_they_do_not_help() -> None:
    queues = [QueueConfig(name=f"q{number}") for number in range(60)]
    (message,) = [text for text in messages(refused(worker_with(), config_with(*queues))) if "CloudFormation" in text]
    assert message.endswith("More stacks do not help here: bind functions to queues, or split the app in two.")


def test_fewer_stacks_than_are_deployed_are_refused() -> None:
    previous = known(3, {IDS[0]: 1, IDS[4]: 3})
    (finding,) = refused(many(5), config_with(aws=staged(stacks=2)), previous=previous)
    assert finding.where == "deployed/shop.dev.json"
    assert finding.message == (
        f"`stacks: 2` no longer has the stacks of function '{IDS[4]}'. Set `stacks` of iii-aws to 3 or more."
    )
    assert planned(many(5), config_with(aws=staged(stacks=3)), previous=previous).deployment == DEV


def test_a_queue_keeps_its_stack_from_being_taken_away() -> None:
    queues = {"mail": DeployedQueue(type="standard", stack=3)}
    previous = replace(known(3, {IDS[0]: 1}), queues=queues)
    two = config_with(QueueConfig(name="mail"), aws=staged(stacks=2))
    (finding,) = refused(many(1), two, previous=previous)
    assert finding.message == (
        "`stacks: 2` no longer has the stacks of queue 'mail'. Set `stacks` of iii-aws to 3 or more."
    )


def test_a_mapping_is_counted_in_the_stack_of_the_function_that_a_deployed_queue_is_bound_to() -> None:
    config = config_with(QueueConfig(name="mail"), aws=staged(stacks=2))
    before = planned(worker_with(function_id=IDS[0]), config)
    after = planned(worker_with(Queue("mail"), function_id=IDS[0]), config, previous=deployed_plan(before))
    own, counts = function_of(after, IDS[0]).stack, count_resources(before)
    assert count_resources(after) == {**counts, own: counts[own] + 1}
