"""The writes of a run as pure decisions. The contract suite of the stores goes through the same conditions in full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from iii_runtime.core.runs import transitions
from iii_runtime.core.runs.record import MAX_INBOX, InboxItem, RunRecord
from iii_runtime.core.runs.writes import Closing, Done, Held, Lease, Refused, Written

HELD = Held(workflow_id="w", run_id="r", epoch=3, sequence=2)
LEASED = RunRecord(
    workflow_id="w",
    run_id="r",
    first_run_id="r",
    workflow="f",
    epoch=3,
    owner="me",
    lease_until_ms=100,
    tail=("a", "b"),
    sequence=2,
    acquisitions=4,
)
IDLE = replace(LEASED, owner=None, lease_until_ms=None, wake_at_ms=50)
CLOSED = replace(IDLE, status="completed", wake_at_ms=None, outcome="1", closed_ms=40)
LEASE = Lease(owner="you", until_ms=900)
END = Closing(status="failed", outcome="2", at_ms=60)
NEW = replace(LEASED, run_id="new", epoch=4, tail=(), sequence=0, wake_at_ms=70)
NOW = 60

ITEM = InboxItem(id="i", kind="signal", at_ms=1)
CANCEL = InboxItem(id="c", kind="cancel", at_ms=1)

Ask = Callable[[RunRecord | None], Written]

WRITES: dict[str, tuple[RunRecord | None, Ask]] = {
    "create": (None, lambda stored: transitions.create(stored, LEASED)),
    "replace": (CLOSED, lambda stored: transitions.replace(stored, CLOSED, NEW, was_there=False)),
    "acquire": (IDLE, lambda stored: transitions.acquire(stored, LEASE, NOW)),
    "guard": (LEASED, lambda stored: transitions.guard(stored, LEASED)),
    "append": (LEASED, lambda stored: transitions.append(stored, HELD, ["c"], lease_until_ms=200)),
    "suspend": (LEASED, lambda stored: transitions.suspend(stored, HELD, ["c"], wake_at_ms=500)),
    "suspend without facts": (LEASED, lambda stored: transitions.suspend(stored, HELD, [], wake_at_ms=500)),
    "close": (LEASED, lambda stored: transitions.close(stored, HELD, ["c"], END)),
    "finish_duties": (
        replace(CLOSED, duties=("d",), wake_at_ms=40),
        lambda stored: transitions.finish_duties(stored, CLOSED),
    ),
    "deliver": (IDLE, lambda stored: transitions.deliver(stored, ITEM, NOW)),
    "deliver a cancellation": (IDLE, lambda stored: transitions.deliver(stored, CANCEL, NOW)),
    "terminate": (LEASED, lambda stored: transitions.terminate(stored, END)),
    "park": (LEASED, lambda stored: transitions.park(stored, HELD, "why")),
}
"""Each write with a record on which it is carried out."""

HOLDERS: dict[str, Ask] = {name: WRITES[name][1] for name in ("append", "suspend", "close", "park")}


def done(written: Written) -> RunRecord:
    assert isinstance(written, Done), written
    return written.record


@pytest.mark.parametrize("name", WRITES)
def test_a_repeated_request_is_answered_with_what_is_there(name: str) -> None:
    before, ask = WRITES[name]
    after = done(ask(before))
    assert after is not before
    assert after != before
    assert done(ask(after)) is after


@pytest.mark.parametrize("name", [name for name in WRITES if name != "create"])
def test_nothing_is_written_where_there_is_nothing(name: str) -> None:
    assert WRITES[name][1](None) == Refused(None)


def test_nothing_is_resumed_where_there_is_nothing() -> None:
    assert transitions.resume(None, NOW) == Refused(None)
    assert transitions.resume(CLOSED, NOW) == Refused(CLOSED)


@pytest.mark.parametrize("name", HOLDERS)
@pytest.mark.parametrize(
    "stored",
    [
        replace(LEASED, epoch=4),
        replace(LEASED, run_id="other"),
        replace(LEASED, sequence=4, tail=("a", "b", "x", "y")),
        replace(CLOSED, epoch=4),
        IDLE,
    ],
    ids=["a newer epoch", "another run", "an unknown journal", "terminated", "given back"],
)
def test_only_the_holder_that_knows_the_journal_writes(name: str, stored: RunRecord) -> None:
    assert HOLDERS[name](stored) == Refused(stored)


@pytest.mark.parametrize("name", ["suspend", "close", "park"])
def test_an_unknown_item_stops_what_would_leave_it_lying(name: str) -> None:
    grown = replace(LEASED, inbox=(ITEM,))
    assert HOLDERS[name](grown) == Refused(grown)
    done(HOLDERS["append"](grown))


def test_facts_and_the_items_they_come_from_change_together() -> None:
    stored = replace(LEASED, inbox=(ITEM, CANCEL))
    after = done(transitions.append(stored, replace(HELD, taken=1), ["c", "d"], lease_until_ms=200))
    assert after == replace(
        stored, tail=("a", "b", "c", "d"), sequence=4, inbox=(CANCEL,), acquisitions=0, lease_until_ms=200
    )


def test_a_renewal_is_no_progress_and_takes_nothing() -> None:
    stored = replace(LEASED, inbox=(ITEM,))
    after = done(transitions.append(stored, replace(HELD, taken=1), [], lease_until_ms=200))
    assert after == replace(stored, lease_until_ms=200)


def test_a_lost_append_is_not_mistaken_for_a_renewal() -> None:
    assert transitions.append(IDLE, HELD, [], lease_until_ms=200) == Refused(IDLE)


def test_an_owner_is_recognised_only_while_it_owns() -> None:
    taken = done(transitions.acquire(IDLE, LEASE, NOW))
    given_back = replace(taken, owner=None, lease_until_ms=None, wake_at_ms=None)
    assert transitions.acquire(given_back, LEASE, NOW) == Refused(given_back)


def test_a_start_is_not_new_once_its_run_is_closed() -> None:
    closed = replace(LEASED, status="completed")
    assert transitions.create(closed, LEASED) == Refused(closed)


def test_a_run_does_not_replace_itself() -> None:
    assert transitions.replace(CLOSED, CLOSED, replace(NEW, run_id="r"), was_there=False) == Refused(CLOSED)


def test_history_keeps_a_run_from_starting_again() -> None:
    assert transitions.replace(CLOSED, CLOSED, NEW, was_there=True) == Refused(CLOSED)


def test_a_full_inbox_still_knows_what_it_holds() -> None:
    full = replace(IDLE, inbox=tuple(replace(ITEM, id=f"{number}") for number in range(MAX_INBOX)))
    assert transitions.deliver(full, replace(ITEM, id="7"), NOW) == Done(full)
    assert transitions.deliver(full, ITEM, NOW) == Refused(full)


def test_the_end_of_a_run_leaves_nothing_of_its_execution() -> None:
    for ask in (WRITES["close"][1], WRITES["terminate"][1]):
        ended = done(ask(replace(LEASED, parked="why", wake_at_ms=30)))
        assert (ended.owner, ended.lease_until_ms, ended.wake_at_ms, ended.parked) == (None, None, None, None)


def test_a_released_run_is_due_at_once_and_its_acquisition_counts() -> None:
    released = done(transitions.release(LEASED, NOW))
    assert released == replace(LEASED, owner=None, lease_until_ms=None, wake_at_ms=NOW)
    for stored in (IDLE, CLOSED):
        assert transitions.release(stored, NOW) == Refused(stored)


def test_a_lease_puts_a_wake_off_until_it_has_ended() -> None:
    assert transitions.due_ms(LEASED) == 101
    assert transitions.due_ms(replace(LEASED, wake_at_ms=1)) == 101
    assert not replace(LEASED, wake_at_ms=1).is_free(100)
    assert replace(LEASED, wake_at_ms=1).is_free(101)
    assert transitions.due_ms(IDLE) == 50
    assert transitions.due_ms(CLOSED) is None
    assert transitions.due_ms(replace(CLOSED, duties=("d",), wake_at_ms=40)) == 40
