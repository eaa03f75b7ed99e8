"""The delivery protocol on SQS holds in every state it can reach, and the search notices when it does not."""

from __future__ import annotations

import pytest

from tests.protocol.search import explore
from tests.protocol.sqs_delivery import Scenario, SqsDeliveries
from tests.protocol.sqs_history import RULES
from tests.protocol.sqs_mistakes import MISTAKES, Mistake
from tests.protocol.sqs_model import Limits

ONE, TWO = Limits(1, 2), Limits(2, 3)

SCENARIOS = (
    Scenario("two messages, throttled receives", Limits(2, 5), messages=2, throttles=True),
    Scenario("two messages, kills", TWO, messages=2, kills=True),
    Scenario("every mishap", Limits(2, 4), kills=True, duplicates=True, throttles=True),
    Scenario("redrive, discard, kills", TWO, kills=True, redrives=True, discards=True, copies=1),
    Scenario("redrives of operators that die", ONE, kills=True, redrives=True, copies=2),
    Scenario("redrive, duplicates, kills", ONE, kills=True, duplicates=True, redrives=True, copies=1),
    Scenario("redrive, discard, duplicates", TWO, duplicates=True, redrives=True, discards=True, copies=1),
    Scenario("the console and native moves", TWO, throttles=True, console=True, copies=2),
    Scenario("the console and an operator", ONE, redrives=True, discards=True, console=True, copies=2),
    Scenario("the console and kills", ONE, kills=True, discards=True, console=True, copies=1),
    Scenario("a group, kills", TWO, messages=2, kills=True, fifo=True),
    Scenario("three of a group, kills", ONE, messages=3, kills=True, fifo=True),
    Scenario("a group, redrive, kills", ONE, messages=2, kills=True, fifo=True, redrives=True, copies=1),
    Scenario("a group, the console", ONE, messages=2, fifo=True, console=True, copies=2),
    Scenario("SQS moves later", Limits(1, 2, 2), kills=True, duplicates=True, throttles=True),
    Scenario("SQS moves later, the console", Limits(1, 2, 1), throttles=True, console=True, copies=2),
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_rule_holds_in_every_state(scenario: Scenario) -> None:
    outcome = explore(SqsDeliveries(scenario))
    assert outcome.rule is None, "\n".join(outcome.trace)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.made.__name__)
def test_every_mistake_is_caught_by_the_rule_it_breaks(mistake: Mistake) -> None:
    outcome = explore(mistake.deliveries())
    assert outcome.rule == mistake.rule, "\n".join(outcome.trace)


@pytest.mark.parametrize(
    "scenario", {mistake.scenario for mistake in MISTAKES} - set(SCENARIOS), ids=lambda scenario: scenario.name
)
def test_it_is_the_mistake_that_is_caught(scenario: Scenario) -> None:
    """Without the mistake the same scenario keeps every rule."""
    outcome = explore(SqsDeliveries(scenario))
    assert outcome.rule is None, "\n".join(outcome.trace)


def test_every_rule_catches_a_mistake() -> None:
    """A rule that no mistake breaks may be one that cannot be broken."""
    assert {mistake.rule for mistake in MISTAKES} == RULES | {"live"}


def test_duplicates_may_break_the_order_of_a_group() -> None:
    """SQS promises no more: nobody may rely on the order when a visibility ends before its function does."""
    scenario = Scenario("a group, duplicates", Limits(1, 3), messages=2, fifo=True, duplicates=True)
    assert explore(SqsDeliveries(scenario)).rule == "order"
