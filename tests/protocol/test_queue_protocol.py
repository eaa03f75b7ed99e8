"""The delivery protocol holds in every state it can reach, and the search notices when it does not."""

from __future__ import annotations

from collections import Counter

import pytest

from iii_runtime.core.queue import QueueSpec
from tests.protocol.delivery import Deliveries, Scenario
from tests.protocol.history import RULES, Limits, World
from tests.protocol.mistakes import MISTAKES, Mistake
from tests.protocol.model import Received, State, Storage, replace_row
from tests.protocol.search import explore, need

TWO_ATTEMPTS = Limits(2, QueueSpec(name="any", max_attempts=2).max_receives)

SCENARIOS = (
    Scenario("nothing goes wrong", ("a", "a", "b"), TWO_ATTEMPTS, final_errors=True, sent_later=1),
    Scenario("kills, no order", (None, None), Limits(2, 3), kills=True),
    Scenario("every mishap", (None,), TWO_ATTEMPTS, kills=True, losses=True, final_errors=True),
    Scenario("every mishap, three places", (None,), Limits(2, 4), kills=True, losses=True, places=3),
    Scenario("a newer host", (None,), Limits(2, 3), kills=True, losses=True, hides=2),
    Scenario("redrives", (None,), Limits(2, 3), kills=True, losses=True, redrives=2, operator=True),
    Scenario("two groups, kills", ("a", "a", "b"), Limits(1, 2), kills=True, sent_later=1),
    Scenario("two groups, lost leases", ("a", "a", "b"), Limits(1, 2), losses=True),
    Scenario("one group, every mishap", ("a", "a"), Limits(2, 3), kills=True, losses=True),
    Scenario("three of a group, redrives", ("a", "a", "a"), Limits(1, 2), kills=True, redrives=1, operator=True),
    Scenario("one group, everything", ("a", "a"), Limits(1, 2), kills=True, losses=True, redrives=1, operator=True),
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_rule_holds_in_every_state(scenario: Scenario) -> None:
    outcome = explore(Deliveries(scenario, Storage()))
    assert outcome.rule is None, _told(scenario, outcome.states, outcome.moves, outcome.trace)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.made.__name__)
def test_every_mistake_is_caught_by_the_rule_it_breaks(mistake: Mistake) -> None:
    outcome = explore(mistake.deliveries())
    assert outcome.rule == mistake.rule, _told(mistake.scenario, outcome.states, outcome.moves, outcome.trace)


@pytest.mark.parametrize("scenario", {mistake.scenario for mistake in MISTAKES}, ids=lambda scenario: scenario.name)
def test_it_is_the_mistake_that_is_caught(scenario: Scenario) -> None:
    """Without the mistake the same scenario keeps every rule."""
    outcome = explore(Deliveries(scenario, Storage()))
    assert outcome.rule is None, _told(scenario, outcome.states, outcome.moves, outcome.trace)


def test_every_rule_catches_a_mistake() -> None:
    """A rule that no mistake breaks may be one that cannot be broken."""
    assert {mistake.rule for mistake in MISTAKES} == RULES | {"live"}


def test_the_fence_alone_keeps_the_count_true() -> None:
    """A receive ends once, so a store that adds 1 instead of writing the attempt's number keeps every rule too."""

    class AddsOne(Storage):
        def fail(self, state: State, received: Received, wait: int) -> tuple[State, bool]:
            row = self.holder(state, received)
            if row is None:
                return state, False
            return replace_row(state, row, row._replace(held=False, wait=wait, failed=row.failed + 1)), True

    scenario = Scenario("every mishap", (None,), kills=True, losses=True)
    assert explore(Deliveries(scenario, AddsOne())).rule is None


class TestWhatIsNotPromised:
    """Each of these can happen, so nobody may rely on the opposite; and only if something went wrong before."""

    ORDERED = Scenario("one group", ("a", "a"), Limits(1, 3))

    def test_a_run_that_lost_its_lease_may_go_on_beside_the_next_message_of_its_group(self) -> None:
        def never(world: World) -> None:
            running = Counter(run.stage for run in world.runs)
            need("wish", running["running"] < 2, f"{world.runs}")

        assert explore(Deliveries(self.ORDERED._replace(kills=True), Storage()), never).rule is None
        assert explore(Deliveries(self.ORDERED._replace(losses=True), Storage()), never).rule == "wish"

    @pytest.mark.parametrize("is_kill", [True, False], ids=["kill", "lost lease"])
    def test_a_message_may_die_although_its_function_has_returned_once(self, is_kill: bool) -> None:
        def never(world: World) -> None:
            dead = {letter.message for letter in world.store.letters}
            returned = [message for message in dead if world.past[message].succeeded]
            need("wish", not returned, f"{returned}")

        assert explore(Deliveries(self.ORDERED, Storage()), never).rule is None
        scenario = self.ORDERED._replace(kills=is_kill, losses=not is_kill)
        assert explore(Deliveries(scenario, Storage()), never).rule == "wish"

    def test_a_function_may_run_for_a_message_that_was_purged(self) -> None:
        def never(world: World) -> None:
            purged = [run for run in world.runs if world.past[run.received.message].end and run.stage == "running"]
            need("wish", not purged, f"{purged}")

        scenario = self.ORDERED._replace(operator=True)
        assert explore(Deliveries(scenario, Storage()), never).rule is None
        assert explore(Deliveries(scenario._replace(losses=True), Storage()), never).rule == "wish"


def _told(scenario: Scenario, states: int, moves: int, trace: tuple[str, ...]) -> str:
    lines = [f"{scenario.name}: {states} states, {moves} moves", *trace]
    return "\n".join(lines)
