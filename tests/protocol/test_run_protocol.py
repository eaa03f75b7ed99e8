"""The protocol of durable runs holds in every state it can reach, and the search notices when it does not.

`III_FULL_MODEL=1` adds the large scenarios, and searches all the others a second time without the abstraction that
drops executors which are as good as crashed: some minutes, and less than 700 MB.
"""

from __future__ import annotations

import os

import pytest

from tests.protocol.run_clients import Runs
from tests.protocol.run_mistakes import MISTAKES, Mistake, store_for
from tests.protocol.run_model import Executor, Record, World
from tests.protocol.run_rules import RULES, Scenario
from tests.protocol.run_scenarios import CANCEL, CLIENT_START, LARGE, PARK, REUSE, SCENARIOS, TERMINATE
from tests.protocol.search import explore, need

IS_FULL = os.environ.get("III_FULL_MODEL") == "1"
SMALL = (CLIENT_START, CANCEL, REUSE)

pytestmark = pytest.mark.timeout(1800 if IS_FULL else 120)


class Undropped(Runs):
    """Runs whose executors go on when they have lost their epoch, though nobody would notice."""

    def is_spent(self, world: World, slot: int, executor: Executor, record: Record) -> bool:
        return False


@pytest.mark.parametrize("scenario", SCENARIOS + LARGE if IS_FULL else SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_rule_holds_in_every_state(scenario: Scenario) -> None:
    outcome = explore(Runs(scenario, store_for(scenario)))
    assert outcome.rule is None, "\n".join(outcome.trace)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake.made.__name__} in {mistake.scenario.name}")
def test_every_mistake_is_caught_by_the_rule_it_breaks(mistake: Mistake) -> None:
    outcome = explore(mistake.runs())
    assert outcome.rule == mistake.rule, "\n".join(outcome.trace)


def test_it_is_the_mistake_that_is_caught() -> None:
    """Without the mistake the same scenario keeps every rule, as the first test shows."""
    assert {mistake.scenario for mistake in MISTAKES} <= set(SCENARIOS)


def test_every_rule_catches_a_mistake() -> None:
    """A rule that no mistake breaks may be one that cannot be broken."""
    assert {mistake.rule for mistake in MISTAKES} == RULES | {"live"}


@pytest.mark.parametrize("scenario", SCENARIOS if IS_FULL else SMALL, ids=lambda scenario: scenario.name)
def test_executors_that_have_lost_their_epoch_break_no_rule(scenario: Scenario) -> None:
    """The search may drop them: they are refused whatever they do."""
    outcome = explore(Undropped(scenario, store_for(scenario)))
    assert outcome.rule is None, "\n".join(outcome.trace)


@pytest.mark.parametrize(
    ("scenario", "status"), [(CANCEL, "cancelled"), (CANCEL, "completed"), (TERMINATE, "terminated")]
)
def test_a_run_can_end_in_each_way(scenario: Scenario, status: str) -> None:
    """So the rules are not kept because nothing ever ends."""

    def never(world: World) -> None:
        need("wish", world.record is None or world.record.status != status, status)

    assert explore(Runs(scenario, store_for(scenario)), never).rule == "wish"


def test_a_run_can_be_parked_and_complete_later() -> None:
    def never(world: World) -> None:
        record = world.record
        resumed = any(client.stage == "done" for client in world.clients[1:])
        need("wish", record is None or record.status != "completed" or not resumed, f"{record}")

    assert explore(Runs(PARK, store_for(PARK)), never).rule == "wish"
