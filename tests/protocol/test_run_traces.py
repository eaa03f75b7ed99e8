"""A trace of operations is followed by the model of runs as far as the protocol allows it, and not one step further."""

from __future__ import annotations

import random

import pytest

from tests.protocol.run_clients import Runs
from tests.protocol.run_mistakes import MISTAKES, store_for
from tests.protocol.run_rules import Scenario
from tests.protocol.run_scenarios import SCENARIOS
from tests.protocol.run_traces import Operation, leaves_the_model
from tests.protocol.run_walk import Walk

A, B, CLIENT = "executor a", "executor b", "client"
BEGUN = [
    Operation(CLIENT, "send start", run="r1"),
    Operation(A, "receive", run="r1"),
    Operation(A, "create"),
    Operation(A, "start step"),
]
WAITS = [
    *BEGUN,
    Operation(A, "suspend", facts=("step charge=0", "wait 0"), wake="deadline"),
    Operation(A, "send wake"),
    Operation(A, "acknowledge"),
]
SIGNALLED = [*WAITS, Operation(CLIENT, "deliver", item="signal s"), Operation(CLIENT, "send wake")]
ACQUIRED = [*SIGNALLED, Operation(B, "receive"), Operation(B, "acquire")]
DONE = [
    *ACQUIRED,
    Operation(B, "append", facts=("signal s",), drained=1),
    Operation(B, "start step"),
    Operation(B, "close", facts=("step ship=0",)),
    Operation(B, "acknowledge"),
]


def test_a_run_that_waits_for_a_signal_is_a_path() -> None:
    assert leaves_the_model(DONE) is None


def test_a_crash_and_a_takeover_are_a_path() -> None:
    trace = [
        *BEGUN,
        Operation(A, "append", "lost", facts=("step charge=0",)),
        Operation(A, "crash"),
        Operation(B, "receive", run="r1"),
        Operation(B, "create", "refused"),
        Operation(B, "acquire"),
        Operation(B, "close"),
        Operation(B, "acknowledge"),
    ]
    assert leaves_the_model(trace) is None


def test_a_duplicate_must_guard_a_run_before_it_acknowledges() -> None:
    met = [
        *BEGUN,
        Operation(B, "receive", run="r1"),
        Operation(B, "create", "refused"),
        Operation(B, "acquire", "refused"),
    ]
    done = Operation(B, "acknowledge")
    assert leaves_the_model([*met, Operation(B, "guard"), done]) is None
    assert refused([*met, done]) == done


def test_a_duplicate_acknowledges_a_run_that_its_executor_has_guarded() -> None:
    taken = Operation(A, "acquire", wake="lease end")
    begun = [*BEGUN, Operation(A, "crash"), Operation(A, "receive", run="r1"), taken]
    met = [Operation(B, "receive", run="r1"), Operation(B, "acquire", "refused"), Operation(B, "acknowledge")]
    assert leaves_the_model([*begun, *met]) is None
    assert refused([*begun[:-1], taken._replace(wake=None), *met]) == met[-1]


def test_a_delivery_is_refused_by_a_closed_run_and_a_second_cancel_by_the_first() -> None:
    cancel = Operation(CLIENT, "deliver", item="cancel")
    assert refused([*DONE, cancel]) == cancel
    assert leaves_the_model([*DONE, cancel._replace(outcome="refused")]) is None
    assert leaves_the_model([*WAITS, cancel, cancel]) is None
    assert leaves_the_model([*WAITS, cancel, cancel._replace(outcome="refused")]) is None
    assert refused([*WAITS, cancel._replace(outcome="refused")]) == cancel._replace(outcome="refused")


def test_an_item_that_is_delivered_twice_may_be_stored_twice_but_is_one_fact() -> None:
    taken = [*SIGNALLED, SIGNALLED[-2], Operation(B, "receive"), Operation(B, "acquire")]
    append = Operation(B, "append", facts=("signal s",), drained=1)
    twice = append._replace(facts=("signal s", "signal s"), drained=2)
    assert leaves_the_model([*taken, append]) is None
    assert leaves_the_model([*taken, append._replace(drained=2)]) is None
    assert refused([*taken, twice]) == twice


def test_a_result_for_an_earlier_run_is_drained_and_forgotten() -> None:
    trace = [*BEGUN, Operation(CLIENT, "deliver", item="result x"), Operation(A, "append", facts=("step charge=0",))]
    assert leaves_the_model([*trace, Operation(A, "append", drained=1)]) is None


def test_the_only_host_voids_leases_when_it_starts() -> None:
    release, wake = Operation("host", "release"), Operation("host", "send wake")
    again = [Operation(B, "receive"), Operation(B, "acquire"), Operation(B, "close")]
    assert leaves_the_model([*BEGUN, Operation(A, "crash"), release, wake, *again]) is None
    assert refused([*DONE, release]) == release


def test_an_operation_that_nobody_knows_is_an_error_of_the_recorder() -> None:
    with pytest.raises(ValueError, match="no operation"):
        leaves_the_model([Operation(CLIENT, "delivers")])


def test_who_is_refused_by_a_fence_does_nothing_more() -> None:
    lost = [*BEGUN, Operation(B, "receive", run="r1"), Operation(B, "acquire")]
    late = Operation(A, "append", facts=("step charge=0",))
    stopped = [*lost, late._replace(outcome="refused")]
    done = Operation(A, "acknowledge")
    assert refused([*lost, late]) == late
    assert leaves_the_model(stopped) is None
    assert refused([*stopped, done]) == done


def test_a_repeated_append_knows_itself() -> None:
    append = Operation(A, "append", "lost", facts=("step charge=0",))
    again = append._replace(outcome="refused")
    assert leaves_the_model([*BEGUN, append, again, Operation(A, "start step")]) is None
    assert leaves_the_model([*BEGUN, append, append._replace(outcome="ok"), Operation(A, "start step")]) is None
    assert refused([*BEGUN, append, append]) == append


def test_a_close_is_refused_by_an_item_that_its_executor_has_not_seen() -> None:
    item, close = Operation(CLIENT, "deliver", item="signal s"), Operation(A, "close", facts=("step charge=0",))
    grown = [*BEGUN, item, close._replace(outcome="refused")]
    both = close._replace(facts=("step charge=0", "signal s"), drained=1)
    assert refused([*BEGUN, item, close]) == close
    assert leaves_the_model([*grown, both]) is None
    assert refused([*grown, both._replace(drained=0)]) == both._replace(drained=0)


def test_a_drained_item_must_become_a_fact() -> None:
    append = Operation(B, "append", facts=(), drained=1)
    difference = leaves_the_model([*ACQUIRED, append])
    assert difference is not None
    assert difference.why.startswith("no signal lost")


def test_a_step_does_not_start_from_what_is_not_stored() -> None:
    step = Operation(B, "start step", facts=("signal s",))
    difference = leaves_the_model([*ACQUIRED, step])
    assert difference is not None
    assert difference.why.startswith("stored first")


def test_a_run_must_not_wait_without_a_guard_for_what_is_in_its_inbox() -> None:
    early = [*SIGNALLED[:-1], Operation(B, "receive"), Operation(B, "acquire", "refused")]
    assert refused(early) == early[-1]


def test_nobody_closes_a_run_twice() -> None:
    close = Operation(CLIENT, "terminate")
    assert refused([*DONE, close]) == close
    assert leaves_the_model([*DONE, close._replace(outcome="refused")]) is None


def test_duties_come_before_the_acknowledgement() -> None:
    closed = [*BEGUN, Operation(A, "close", facts=("step charge=0",))]
    done = Operation(A, "acknowledge")
    assert refused([*closed, done], parent=True) == done
    told = [*closed, Operation(A, "tell"), Operation(A, "clear duties"), done]
    assert leaves_the_model(told, parent=True) is None


def test_a_chain_goes_on_under_the_lease_with_what_is_in_the_inbox() -> None:
    trace = [
        *BEGUN,
        Operation(CLIENT, "deliver", item="signal s"),
        Operation(A, "continue as new", run="r2", facts=("step charge=0",)),
        Operation(A, "close", facts=("signal s",), drained=1),
        Operation(A, "acknowledge"),
        Operation(CLIENT, "replace", run="r3", old="r2"),
    ]
    assert leaves_the_model(trace) is None


def test_a_closed_run_is_replaced_once() -> None:
    again = [
        *DONE,
        Operation(CLIENT, "create", "refused", run="r2"),
        Operation(CLIENT, "replace", run="r2", item="signal t"),
    ]
    late = Operation("another client", "replace", run="r3")
    assert leaves_the_model([*again, late._replace(outcome="refused")]) is None
    assert refused([*again, late]) == late


def test_a_run_without_progress_is_parked_and_resumed() -> None:
    trace = [*BEGUN, Operation(A, "crash"), Operation(B, "receive", run="r1"), Operation(B, "acquire")]
    step, park = Operation(B, "start step"), Operation(B, "park")
    parked = [*trace, park, Operation(B, "acknowledge"), Operation(CLIENT, "resume")]
    assert refused([*trace, step], limit=1) == step
    assert leaves_the_model(parked, limit=1) is None
    assert refused([*trace, park], limit=2) == park


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_walk_through_the_model_is_a_path_of_it(scenario: Scenario) -> None:
    for seed in range(30):
        trace = walked(Runs(scenario, store_for(scenario)), seed)
        difference = leaves_the_model(trace, limit=scenario.limit, parent=scenario.parent)
        assert difference is None, "\n".join(map(str, [*difference.before, difference.operation, difference.why]))


SEEN = {
    "AcknowledgesWithoutGuard",
    "ContinuesWithoutWake",
    "DeliversWithoutWake",
    "FeedsRepeatedItems",
    "FencesByNumberOnly",
    "ForgetsItemsOfEarlierRuns",
    "ReplacesARunWithDuties",
    "ReplacesWhateverIsThere",
    "ReplacesWithoutWake",
    "ResumesWithoutWake",
    "SignalsAClosedRun",
    "StartsWithoutWake",
    "SuspendsOverTheInbox",
    "SuspendsWithoutEpoch",
    "SuspendsWithoutLease",
    "SweepsWakesAway",
}
"""Mistakes that a few walks run into, and that a trace shows. The others need luck, or break a rule as they happen."""


@pytest.mark.parametrize("name", sorted(SEEN))
def test_a_walk_with_a_mistake_leaves_the_model(name: str) -> None:
    """Otherwise the agreement above would prove little."""
    mistake = next(mistake for mistake in MISTAKES if mistake.made.__name__ == name)
    scenario = mistake.scenario
    traces = (walked(mistake.runs(), seed) for seed in range(100))
    assert any(leaves_the_model(trace, limit=scenario.limit, parent=scenario.parent) for trace in traces)


def walked(runs: Runs, seed: int) -> list[Operation]:
    """Return the trace of one walk."""
    walk = Walk(runs, random.Random(seed))
    walk.go(60)
    return walk.trace


def refused(trace: list[Operation], *, limit: int = 0, parent: bool = False) -> Operation | None:
    """Return the operation that the model refuses, which must be the last one."""
    difference = leaves_the_model(trace, limit=limit, parent=parent)
    assert difference is None or difference.before[-1] is trace[-2]
    return None if difference is None else difference.operation
