"""What every store of durable runs does: each write with its condition, and what a repeated request is told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime.core.errors import StoreError
from iii_runtime.core.message import INLINE_LIMIT
from iii_runtime.core.runs.fact_codec import encode_fact
from iii_runtime.core.runs.facts import Key, StepCompleted
from iii_runtime.core.runs.record import MAX_INBOX, InboxItem, RunRecord
from iii_runtime.engine.stores import Stores
from iii_runtime.ports.run_store import Closing, Done, Held, Lease, Refused, RunQuery, RunStore, Written
from iii_runtime.testing.clock import SkipClock
from tests.contract.conftest import Wakes

CLOSING = Closing(status="completed", outcome='"fine"', at_ms=900)
KILL = Closing(status="terminated", outcome='{"reason":"enough"}', at_ms=950)
NOW = 1000
LATER = 5000
LEASE_END = 2000


@pytest.fixture
def runs(backend: str, request: pytest.FixtureRequest) -> RunStore:
    stores: Stores = request.getfixturevalue("stores")
    assert stores.runs is not None
    return stores.runs


def fact(number: int = 0) -> str:
    return encode_fact(StepCompleted(key=Key("step", "s", number), at_ms=number, value=number))


def signal(name: str) -> InboxItem:
    return InboxItem(id=name, kind="signal", at_ms=7, name=name, payload='{"a":1}')


def cancel(name: str) -> InboxItem:
    return InboxItem(id=name, kind="cancel", at_ms=7, name="no longer needed")


def leased(workflow_id: str = "w", **fields: Any) -> RunRecord:
    """A run as a start message makes it: held by its executor, and guarded by nothing but the message."""
    record = RunRecord(
        workflow_id=workflow_id,
        run_id=f"{workflow_id}.1",
        first_run_id=f"{workflow_id}.1",
        workflow="orders::process",
        version="v1",
        input='{"order":17}',
        created_ms=500,
        epoch=1,
        owner="first",
        lease_until_ms=LEASE_END,
        deadline_ms=90_000,
        traceparent="00-1-2-01",
    )
    return replace(record, **fields)


def waiting(workflow_id: str = "w", **fields: Any) -> RunRecord:
    """A run as a client makes it: nobody holds it, and its wake is due."""
    return leased(workflow_id, **{"epoch": 0, "owner": None, "lease_until_ms": None, "wake_at_ms": NOW, **fields})


def held_of(record: RunRecord, *, taken: int = 0) -> Held:
    return Held(
        workflow_id=record.workflow_id,
        run_id=record.run_id,
        epoch=record.epoch,
        sequence=record.sequence,
        taken=taken,
    )


def lease(owner: str, until_ms: int = LEASE_END) -> Lease:
    return Lease(owner=owner, until_ms=until_ms)


def done(written: Written) -> RunRecord:
    assert isinstance(written, Done), written
    return written.record


def refused(written: Written) -> RunRecord | None:
    assert isinstance(written, Refused), written
    return written.record


async def untouched(runs: RunStore, before: RunRecord, written: Written) -> None:
    """Check that a request was refused with what is there, and that this is as it was."""
    answer = refused(written)
    stored = await runs.read(before.workflow_id)
    assert answer is not None
    assert stored is not None
    for record in (answer, stored):
        assert replace(record, tail=()) == replace(before, tail=())
    assert await runs.journal(stored) == await runs.journal(before)


class TestCreate:
    async def test_what_is_created_is_what_is_read(self, runs: RunStore) -> None:
        record = waiting(start_at_ms=NOW, inbox=(signal("a"), cancel("b")), duties=())
        assert done(await runs.create(record)) == record
        assert await runs.read("w") == record
        assert await runs.read("w", "w.1") == record

    async def test_what_was_never_created_is_not_there(self, runs: RunStore) -> None:
        await runs.create(leased())
        assert await runs.read("other") is None
        assert await runs.read("w", "other") is None

    @pytest.mark.parametrize("record", [leased(), waiting(), waiting(inbox=(signal("a"),))])
    async def test_a_repeated_request_is_recognised(self, runs: RunStore, record: RunRecord) -> None:
        await runs.create(record)
        assert done(await runs.create(record)) == record
        assert await runs.list_runs(RunQuery()) == [record]

    async def test_the_same_start_of_another_executor_is_refused(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        await untouched(runs, first, await runs.create(leased(owner="second")))

    async def test_another_run_is_refused_with_what_is_there(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        await untouched(runs, first, await runs.create(waiting(run_id="w.2")))

    async def test_a_run_that_somebody_has_acquired_is_not_told_to_be_new(self, runs: RunStore) -> None:
        """Who is told `Done` executes what is in the answer: it must not be what somebody else holds."""
        await runs.create(waiting())
        taken = done(await runs.acquire("w", lease("x"), NOW))
        await untouched(runs, taken, await runs.create(waiting()))

    async def test_a_start_whose_signal_is_not_there_is_refused(self, runs: RunStore) -> None:
        first = done(await runs.create(waiting()))
        await untouched(runs, first, await runs.create(waiting(inbox=(signal("a"),))))

    async def test_one_of_simultaneous_starts_makes_the_run(self, runs: RunStore) -> None:
        answers = await asyncio.gather(*[runs.create(leased(run_id=f"r{n}", owner=f"o{n}")) for n in range(10)])
        winners = [answer.record for answer in answers if isinstance(answer, Done)]
        assert winners == [await runs.read("w")]


class TestAcquire:
    async def test_a_due_run_is_taken_with_a_new_epoch(self, runs: RunStore) -> None:
        await runs.create(waiting())
        taken = done(await runs.acquire("w", lease("x"), NOW))
        assert (taken.epoch, taken.owner, taken.lease_until_ms, taken.acquisitions) == (1, "x", LEASE_END, 1)
        assert taken.wake_at_ms == NOW
        assert await runs.read("w") == taken

    async def test_nobody_takes_what_is_not_there(self, runs: RunStore) -> None:
        assert refused(await runs.acquire("w", lease("x"), NOW)) is None

    async def test_a_repeated_request_is_recognised(self, runs: RunStore) -> None:
        await runs.create(waiting())
        taken = done(await runs.acquire("w", lease("x"), NOW))
        assert done(await runs.acquire("w", lease("x"), NOW)) == taken

    async def test_a_run_is_free_once_its_lease_has_ended_and_not_before(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        await untouched(runs, first, await runs.acquire("w", lease("x", LATER), LEASE_END))
        taken = done(await runs.acquire("w", lease("x", LATER), LEASE_END + 1))
        assert (taken.epoch, taken.wake_at_ms) == (2, None)

    async def test_a_lease_protects_a_run_whose_wake_is_due(self, runs: RunStore) -> None:
        await runs.create(waiting())
        taken = done(await runs.acquire("w", lease("x"), NOW))
        await untouched(runs, taken, await runs.acquire("w", lease("y"), NOW + 1))

    async def test_a_waiting_run_is_free_at_its_wake_and_not_before(self, runs: RunStore) -> None:
        record = done(await runs.create(waiting(wake_at_ms=NOW)))
        await untouched(runs, record, await runs.acquire("w", lease("x"), NOW - 1))
        done(await runs.acquire("w", lease("x"), NOW))

    async def test_a_run_that_waits_for_a_delivery_alone_is_not_free(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        idle = done(await runs.suspend(held_of(first), [fact()], wake_at_ms=None))
        await untouched(runs, idle, await runs.acquire("w", lease("x"), 10**12))

    async def test_a_closed_run_is_not_free(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        closed = done(await runs.close(held_of(first), [], replace(CLOSING, duties=("tell",))))
        await untouched(runs, closed, await runs.acquire("w", lease("x"), 10**12))

    async def test_a_redelivery_gives_the_run_a_wake_where_it_has_none(self, runs: RunStore) -> None:
        await runs.create(leased())
        taken = done(await runs.acquire("w", lease("x", LATER), LEASE_END + 1, is_redelivery=True))
        assert taken.wake_at_ms == LATER

    async def test_a_redelivery_keeps_the_wake_that_is_there(self, runs: RunStore) -> None:
        await runs.create(waiting())
        assert done(await runs.acquire("w", lease("x"), NOW, is_redelivery=True)).wake_at_ms == NOW

    async def test_each_acquisition_without_progress_counts(self, runs: RunStore) -> None:
        taken = done(await runs.create(waiting()))
        for number in range(1, 5):
            taken = done(await runs.acquire("w", lease(f"x{number}", number * NOW), number * NOW + 1))
            assert (taken.acquisitions, taken.epoch) == (number, number)
        assert done(await runs.append(held_of(taken), [fact()], lease_until_ms=LATER)).acquisitions == 0

    async def test_one_of_simultaneous_executors_takes_the_run(self, runs: RunStore) -> None:
        await runs.create(waiting())
        answers = await asyncio.gather(*[runs.acquire("w", lease(f"x{n}"), NOW) for n in range(10)])
        (winner,) = [answer.record for answer in answers if isinstance(answer, Done)]
        assert await runs.read("w") == winner
        assert winner.epoch == 1


class TestGuard:
    async def test_the_end_of_the_lease_becomes_the_wake(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        guarded = done(await runs.guard(first))
        assert guarded == replace(first, wake_at_ms=LEASE_END)
        assert [workflow_id for workflow_id, _ in await runs.due(LEASE_END + 1, 10)] == ["w"]

    async def test_a_repeated_request_is_recognised(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        guarded = done(await runs.guard(first))
        assert done(await runs.guard(first)) == guarded

    async def test_a_guard_is_that_of_the_lease_as_it_is_now(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        await runs.append(held_of(first), [], lease_until_ms=LATER)
        assert done(await runs.guard(first)).wake_at_ms == LATER

    async def test_a_run_that_nobody_holds_cannot_be_guarded(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        idle = done(await runs.suspend(held_of(first), [fact()], wake_at_ms=None))
        await untouched(runs, idle, await runs.guard(first))
        assert refused(await runs.guard(leased("other"))) is None

    async def test_a_closed_run_cannot_be_guarded(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        closed = done(await runs.close(held_of(first), [], CLOSING))
        await untouched(runs, closed, await runs.guard(first))


class TestAppend:
    async def test_facts_are_added_and_the_lease_is_renewed(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        second = done(await runs.append(held_of(first), [fact(0), fact(1)], lease_until_ms=LATER))
        third = done(await runs.append(held_of(second), [fact(2)], lease_until_ms=LATER + 1))
        assert (third.sequence, third.lease_until_ms, third.wake_at_ms, third.owner) == (3, LATER + 1, None, "first")
        assert await runs.journal(third) == [fact(0), fact(1), fact(2)]

    async def test_a_repeated_request_adds_nothing(self, runs: RunStore) -> None:
        held = held_of(done(await runs.create(leased())))
        stored = done(await runs.append(held, [fact()], lease_until_ms=LATER))
        again = done(await runs.append(held, [fact()], lease_until_ms=LATER))
        assert replace(again, tail=()) == replace(stored, tail=())
        assert await runs.journal(again) == [fact()]

    async def test_who_does_not_know_the_journal_adds_nothing(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        await runs.append(held_of(first), [fact()], lease_until_ms=LATER)
        stored = done(await runs.append(replace(held_of(first), sequence=1), [fact(1)], lease_until_ms=LATER))
        for sequence in (0, 3):
            held = replace(held_of(first), sequence=sequence)
            await untouched(runs, stored, await runs.append(held, [fact(9)], lease_until_ms=9))

    async def test_an_executor_that_has_lost_the_run_can_write_nothing(self, runs: RunStore) -> None:
        zombie = held_of(done(await runs.create(leased())))
        taken = done(await runs.acquire("w", lease("x", LATER), LEASE_END + 1))
        await untouched(runs, taken, await runs.append(zombie, [fact()], lease_until_ms=9999))
        await untouched(runs, taken, await runs.append(zombie, [], lease_until_ms=9999))
        await untouched(runs, taken, await runs.suspend(zombie, [fact()], wake_at_ms=1))
        await untouched(runs, taken, await runs.close(zombie, [fact()], CLOSING))
        await untouched(runs, taken, await runs.park(zombie, "lost"))
        stored = done(await runs.append(held_of(taken), [fact()], lease_until_ms=LATER))
        await untouched(runs, stored, await runs.append(zombie, [fact()], lease_until_ms=9999))

    async def test_an_ended_lease_alone_stops_nobody(self, runs: RunStore) -> None:
        held = held_of(done(await runs.create(leased(lease_until_ms=1))))
        assert done(await runs.append(held, [fact()], lease_until_ms=LATER)).sequence == 1

    async def test_facts_of_another_run_are_refused(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        held = replace(held_of(first), run_id="w.0")
        await untouched(runs, first, await runs.append(held, [fact()], lease_until_ms=LATER))
        gone = replace(held_of(first), workflow_id="gone")
        assert refused(await runs.append(gone, [fact()], lease_until_ms=LATER)) is None

    async def test_taken_items_leave_the_inbox_with_their_facts(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        for name in ("a", "b", "c"):
            await runs.deliver("w", signal(name), NOW)
        stored = done(await runs.append(held_of(first, taken=2), [fact(0), fact(1)], lease_until_ms=LATER))
        assert stored.inbox == (signal("c"),)
        assert (await runs.read("w")) == replace(stored, tail=(await runs.read("w") or stored).tail)

    async def test_a_renewal_takes_nothing_and_is_no_progress(self, runs: RunStore) -> None:
        await runs.create(waiting())
        await runs.deliver("w", signal("a"), NOW)
        taken = done(await runs.acquire("w", lease("x"), NOW))
        for _ in range(2):
            renewed = done(await runs.append(held_of(taken, taken=1), [], lease_until_ms=LATER))
            assert renewed == replace(taken, lease_until_ms=LATER)

    async def test_a_renewal_does_not_take_back_what_was_given_back(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        idle = done(await runs.suspend(held_of(first), [], wake_at_ms=LATER))
        await untouched(runs, idle, await runs.append(held_of(first), [], lease_until_ms=9999))

    async def test_a_guard_is_made_where_there_is_no_wake(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        guarded = done(await runs.append(held_of(first), [], lease_until_ms=LATER, guard=True))
        assert guarded.wake_at_ms == LATER
        renewed = done(await runs.append(held_of(first), [], lease_until_ms=LATER + 1, guard=True))
        assert (renewed.wake_at_ms, renewed.lease_until_ms) == (LATER, LATER + 1)

    async def test_a_journal_of_ten_thousand_facts_keeps_its_order(self, runs: RunStore) -> None:
        record = done(await runs.create(leased()))
        for begin in range(0, 10_000, 500):
            texts = [fact(number) for number in range(begin, begin + 500)]
            record = done(await runs.append(held_of(record), texts, lease_until_ms=LATER))
        for number in range(10_000, 10_020):
            record = done(await runs.append(held_of(record), [fact(number)], lease_until_ms=LATER))
        assert record.sequence == 10_020
        assert await runs.journal(record) == [fact(number) for number in range(10_020)]


class TestSuspend:
    async def test_a_run_is_given_back_until_its_wake(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        idle = done(await runs.suspend(held_of(first), [fact()], wake_at_ms=LATER))
        assert (idle.owner, idle.lease_until_ms, idle.wake_at_ms, idle.epoch) == (None, None, LATER, 1)
        assert await runs.journal(idle) == [fact()]
        assert await runs.due(LATER, 10) == [("w", LATER)]

    async def test_a_repeated_request_is_recognised(self, runs: RunStore) -> None:
        held = held_of(done(await runs.create(leased())))
        for facts in ([fact()], [fact()]):
            assert done(await runs.suspend(held, facts, wake_at_ms=LATER)).sequence == 1

    async def test_a_repeated_request_without_facts_takes_no_later_item(self, runs: RunStore) -> None:
        """The number of facts is as it was, so that alone would let it take what came in between."""
        await runs.create(leased(inbox=(signal("a"),)))
        held = Held(workflow_id="w", run_id="w.1", epoch=1, sequence=0, taken=1)
        await runs.suspend(held, [], wake_at_ms=LATER)
        delivered = done(await runs.deliver("w", signal("b"), NOW))
        assert done(await runs.suspend(held, [], wake_at_ms=LATER)) == delivered
        assert (await runs.read("w")) == delivered

    async def test_an_item_that_the_holder_does_not_know_keeps_the_run_going(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        grown = done(await runs.deliver("w", signal("a"), NOW))
        await untouched(runs, grown, await runs.suspend(held_of(first), [fact()], wake_at_ms=LATER))
        idle = done(await runs.suspend(held_of(first, taken=1), [fact()], wake_at_ms=LATER))
        assert (idle.inbox, idle.wake_at_ms) == ((), LATER)

    async def test_who_has_given_a_run_back_cannot_do_it_otherwise(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        idle = done(await runs.suspend(held_of(first), [fact()], wake_at_ms=LATER))
        await untouched(runs, idle, await runs.suspend(held_of(first), [fact(), fact(1)], wake_at_ms=LATER))

    async def test_a_signal_and_a_suspension_at_once_lose_nothing(self, runs: RunStore) -> None:
        for number in range(20):
            first = done(await runs.create(leased(f"w{number}")))
            suspended, delivered = await asyncio.gather(
                runs.suspend(held_of(first), [fact()], wake_at_ms=None),
                runs.deliver(f"w{number}", signal("a"), NOW),
            )
            stored = await runs.read(f"w{number}")
            assert isinstance(delivered, Done)
            assert stored is not None
            assert stored.inbox == (signal("a"),)
            assert stored.wake_at_ms == NOW
            assert (stored.lease_until_ms is None) == isinstance(suspended, Done)


class TestClose:
    async def test_a_run_ends_with_its_last_facts(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        closed = done(await runs.close(held_of(first), [fact()], CLOSING))
        assert (closed.status, closed.outcome, closed.closed_ms, closed.sequence) == ("completed", '"fine"', 900, 1)
        assert (closed.owner, closed.lease_until_ms, closed.wake_at_ms, closed.epoch) == (None, None, None, 1)
        assert await runs.journal(closed) == [fact()]
        assert await runs.due(10**12, 10) == []

    async def test_a_repeated_request_is_recognised(self, runs: RunStore) -> None:
        held = held_of(done(await runs.create(leased())))
        closed = done(await runs.close(held, [fact()], CLOSING))
        again = done(await runs.close(held, [fact()], CLOSING))
        assert replace(again, tail=()) == replace(closed, tail=())
        assert (closed.status, closed.sequence) == ("completed", 1)
        assert await runs.journal(closed) == [fact()]

    async def test_a_run_does_not_close_over_an_item(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        grown = done(await runs.deliver("w", signal("a"), NOW))
        await untouched(runs, grown, await runs.close(held_of(first), [fact()], CLOSING))
        closed = done(await runs.close(held_of(first, taken=1), [fact()], CLOSING))
        assert closed.inbox == ()

    async def test_duties_keep_a_closed_run_due_until_they_are_done(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        closed = done(await runs.close(held_of(first), [], replace(CLOSING, duties=("tell", "free"))))
        assert (closed.duties, closed.wake_at_ms) == (("tell", "free"), 900)
        assert await runs.due(900, 10) == [("w", 900)]
        for _ in range(2):
            finished = done(await runs.finish_duties(closed))
            assert finished == replace(closed, duties=(), wake_at_ms=None)
        assert await runs.due(10**12, 10) == []

    async def test_duties_of_another_run_are_not_forgotten(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        assert refused(await runs.finish_duties(leased("gone"))) is None
        await untouched(runs, first, await runs.finish_duties(first))
        closed = done(await runs.close(held_of(first), [], replace(CLOSING, duties=("tell",))))
        await untouched(runs, closed, await runs.finish_duties(replace(closed, run_id="w.0")))

    async def test_a_signal_and_a_close_at_once_lose_nothing(self, runs: RunStore) -> None:
        for number in range(20):
            workflow_id = f"w{number}"
            first = done(await runs.create(leased(workflow_id)))
            delivered, closed = await asyncio.gather(
                runs.deliver(workflow_id, signal("a"), NOW), runs.close(held_of(first), [fact()], CLOSING)
            )
            assert isinstance(delivered, Done) != isinstance(closed, Done)
            stored = await runs.read(workflow_id)
            assert stored is not None
            assert stored.is_open == isinstance(delivered, Done)

    async def test_a_closed_run_stays_as_it_is(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        closed = done(await runs.close(held_of(first), [fact()], CLOSING))
        held = replace(held_of(first), sequence=1)
        await untouched(runs, closed, await runs.append(held, [fact(1)], lease_until_ms=LATER))
        await untouched(runs, closed, await runs.append(held, [], lease_until_ms=LATER))
        await untouched(runs, closed, await runs.suspend(held, [fact(1)], wake_at_ms=1))
        await untouched(runs, closed, await runs.deliver("w", signal("a"), NOW))
        await untouched(runs, closed, await runs.deliver("w", cancel("a"), NOW))
        await untouched(runs, closed, await runs.terminate("w", KILL))
        await untouched(runs, closed, await runs.park(held, "no"))
        await untouched(runs, closed, await runs.resume("w", NOW))
        assert await runs.release_all(NOW) == 0


class TestDeliver:
    async def test_items_wait_in_the_order_of_their_delivery(self, runs: RunStore) -> None:
        await runs.create(waiting(wake_at_ms=LATER))
        await runs.deliver("w", signal("b"), NOW)
        stored = done(await runs.deliver("w", signal("a"), NOW + 1))
        assert stored.inbox == (signal("b"), signal("a"))
        assert stored.wake_at_ms == NOW + 1
        assert await runs.read("w") == stored

    async def test_a_delivery_makes_a_run_due_that_waited_for_nothing_else(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        await runs.suspend(held_of(first), [fact()], wake_at_ms=None)
        await runs.deliver("w", signal("a"), NOW)
        assert done(await runs.acquire("w", lease("x"), NOW)).inbox == (signal("a"),)

    async def test_a_delivery_leaves_the_lease_alone(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        assert done(await runs.deliver("w", signal("a"), NOW)) == replace(first, inbox=(signal("a"),), wake_at_ms=NOW)

    async def test_a_repeated_item_is_accepted_and_known_by_its_id(self, runs: RunStore) -> None:
        await runs.create(waiting())
        await runs.deliver("w", signal("a"), NOW)
        stored = done(await runs.deliver("w", signal("a"), NOW))
        assert {item.id for item in stored.inbox} == {"a"}

    async def test_a_full_inbox_takes_no_more(self, runs: RunStore) -> None:
        first = full = done(await runs.create(leased()))
        for number in range(MAX_INBOX):
            full = done(await runs.deliver("w", signal(f"{number}"), NOW))
        await untouched(runs, full, await runs.deliver("w", signal("more"), NOW))
        await untouched(runs, full, await runs.deliver("w", cancel("c"), NOW))
        await runs.append(held_of(first, taken=1), [fact()], lease_until_ms=LATER)
        done(await runs.deliver("w", signal("more"), NOW))

    async def test_a_cancellation_is_noted_once(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        noted = done(await runs.deliver("w", cancel("c1"), NOW))
        assert (noted.cancel_requested_ms, noted.inbox) == (NOW, (cancel("c1"),))
        assert done(await runs.deliver("w", cancel("c2"), NOW + 5)) == noted
        taken = done(await runs.append(held_of(first, taken=1), [fact()], lease_until_ms=LATER))
        assert done(await runs.deliver("w", cancel("c3"), NOW + 9)).inbox == taken.inbox == ()

    async def test_an_item_for_another_run_is_refused(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        await untouched(runs, first, await runs.deliver("w", signal("a"), NOW, run_id="w.0"))
        assert done(await runs.deliver("w", signal("a"), NOW, run_id="w.1")).inbox == (signal("a"),)
        assert refused(await runs.deliver("gone", signal("a"), NOW)) is None

    async def test_simultaneous_items_are_all_kept(self, runs: RunStore) -> None:
        await runs.create(leased())
        await asyncio.gather(*[runs.deliver("w", signal(f"{number}"), NOW) for number in range(50)])
        stored = await runs.read("w")
        assert stored is not None
        assert sorted(item.id for item in stored.inbox) == sorted(f"{number}" for number in range(50))


class TestTerminate:
    async def test_a_run_ends_at_once_and_its_holder_can_write_nothing(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        ended = done(await runs.terminate("w", replace(KILL, duties=("tell",))))
        assert (ended.status, ended.closed_ms, ended.epoch, ended.owner) == ("terminated", 950, 2, None)
        assert (ended.lease_until_ms, ended.wake_at_ms, ended.duties) == (None, 950, ("tell",))
        await untouched(runs, ended, await runs.append(held_of(first), [fact()], lease_until_ms=LATER))
        await untouched(runs, ended, await runs.suspend(held_of(first), [fact()], wake_at_ms=1))
        await untouched(runs, ended, await runs.close(held_of(first), [fact()], CLOSING))

    async def test_what_was_not_taken_stays_for_who_looks(self, runs: RunStore) -> None:
        await runs.create(leased())
        await runs.deliver("w", signal("a"), NOW)
        assert done(await runs.terminate("w", KILL)).inbox == (signal("a"),)

    async def test_a_repeated_request_is_recognised_and_another_one_is_not(self, runs: RunStore) -> None:
        await runs.create(leased())
        ended = done(await runs.terminate("w", KILL))
        assert done(await runs.terminate("w", KILL)) == ended
        await untouched(runs, ended, await runs.terminate("w", replace(KILL, at_ms=951)))

    async def test_another_run_is_not_terminated(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        await untouched(runs, first, await runs.terminate("w", KILL, run_id="w.0"))
        assert not done(await runs.terminate("w", KILL, run_id="w.1")).is_open
        assert refused(await runs.terminate("gone", KILL)) is None

    async def test_a_termination_and_an_append_at_once_agree(self, runs: RunStore) -> None:
        for number in range(20):
            first = done(await runs.create(leased(f"w{number}")))
            ended, appended = await asyncio.gather(
                runs.terminate(f"w{number}", KILL),
                runs.append(held_of(first), [fact()], lease_until_ms=LATER),
            )
            stored = await runs.read(f"w{number}")
            assert stored is not None
            assert stored.status == "terminated"
            assert isinstance(ended, Done)
            assert stored.sequence == len(await runs.journal(stored)) == (1 if isinstance(appended, Done) else 0)


class TestPark:
    async def test_a_parked_run_is_nobodys_until_it_is_resumed(self, runs: RunStore) -> None:
        await runs.create(waiting())
        taken = done(await runs.acquire("w", lease("x"), NOW))
        parked = done(await runs.park(held_of(taken), "diverged"))
        assert (parked.parked, parked.owner, parked.lease_until_ms) == ("diverged", None, None)
        assert (parked.wake_at_ms, parked.acquisitions, parked.is_open) == (None, 0, True)
        assert await runs.due(10**12, 10) == []
        await untouched(runs, parked, await runs.acquire("w", lease("y"), 10**12))
        resumed = done(await runs.resume("w", LATER))
        assert (resumed.parked, resumed.wake_at_ms) == (None, LATER)
        assert done(await runs.acquire("w", lease("y", LATER + 1), LATER)).epoch == 2

    async def test_a_repeated_request_is_recognised(self, runs: RunStore) -> None:
        held = held_of(done(await runs.create(leased())))
        parked = done(await runs.park(held, "diverged"))
        assert done(await runs.park(held, "diverged")) == parked
        await untouched(runs, parked, await runs.park(held, "another reason"))

    async def test_a_delivery_gives_a_parked_run_another_chance(self, runs: RunStore) -> None:
        held = held_of(done(await runs.create(leased())))
        await runs.park(held, "diverged")
        assert done(await runs.deliver("w", signal("a"), NOW)).parked == "diverged"
        taken = done(await runs.acquire("w", lease("x"), NOW))
        assert (taken.parked, taken.acquisitions, taken.inbox) == (None, 1, (signal("a"),))

    async def test_who_does_not_know_the_inbox_parks_nothing(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        grown = done(await runs.deliver("w", signal("a"), NOW))
        await untouched(runs, grown, await runs.park(held_of(first), "diverged"))
        assert done(await runs.park(held_of(first, taken=1), "diverged")).inbox == (signal("a"),)

    async def test_a_resumption_makes_a_parked_run_due_and_touches_no_other(self, runs: RunStore) -> None:
        held = held_of(done(await runs.create(leased())))
        await runs.park(held, "diverged")
        resumed = done(await runs.resume("w", NOW))
        assert (resumed.wake_at_ms, resumed.parked, resumed.acquisitions) == (NOW, None, 0)
        taken = done(await runs.acquire("w", lease("x"), NOW))
        assert done(await runs.resume("w", NOW + 1)) == taken
        assert refused(await runs.resume("gone", NOW)) is None


class TestReplace:
    async def closed(self, runs: RunStore) -> RunRecord:
        first = done(await runs.create(leased()))
        return done(await runs.close(held_of(first), [fact()], CLOSING))

    def successor(self, old: RunRecord, number: int = 2, **fields: Any) -> RunRecord:
        return leased(run_id=f"w.{number}", epoch=old.epoch + 1, wake_at_ms=LEASE_END, created_ms=600, **fields)

    async def test_a_closed_run_becomes_history(self, runs: RunStore) -> None:
        old = await self.closed(runs)
        new = self.successor(old)
        assert done(await runs.replace(old, new)) == new
        assert await runs.read("w") == new
        earlier = await runs.read("w", "w.1")
        assert earlier is not None
        assert replace(earlier, tail=()) == replace(old, tail=())
        assert await runs.journal(earlier) == [fact()]
        assert await runs.journal(new) == []

    async def test_a_repeated_request_is_recognised(self, runs: RunStore) -> None:
        old = await self.closed(runs)
        new = self.successor(old, inbox=(signal("a"),))
        await runs.replace(old, new)
        assert done(await runs.replace(old, new)) == new
        assert await runs.list_runs(RunQuery(workflow_id="w")) == [new, await runs.read("w", "w.1")]

    async def test_the_same_start_of_another_executor_is_refused(self, runs: RunStore) -> None:
        old = await self.closed(runs)
        new = done(await runs.replace(old, self.successor(old)))
        await untouched(runs, new, await runs.replace(old, self.successor(old, owner="second")))

    async def test_an_open_run_is_not_replaced(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        await untouched(runs, first, await runs.replace(first, self.successor(first)))
        assert refused(await runs.replace(leased("gone"), self.successor(first, workflow_id="gone"))) is None

    async def test_a_run_with_duties_is_not_replaced(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        old = done(await runs.close(held_of(first), [], replace(CLOSING, duties=("tell",))))
        await untouched(runs, old, await runs.replace(old, self.successor(old)))
        done(await runs.replace(done(await runs.finish_duties(old)), self.successor(old)))

    async def test_only_what_was_read_is_replaced(self, runs: RunStore) -> None:
        old = await self.closed(runs)
        second = done(await runs.replace(old, self.successor(old)))
        closed = done(await runs.close(held_of(second), [], CLOSING))
        await untouched(runs, closed, await runs.replace(old, self.successor(closed, 3)))

    async def test_a_late_duplicate_does_not_start_a_run_again(self, runs: RunStore) -> None:
        old = await self.closed(runs)
        second = done(await runs.replace(old, self.successor(old)))
        closed = done(await runs.close(held_of(second), [], CLOSING))
        await untouched(runs, closed, await runs.replace(closed, self.successor(closed, 1)))
        await untouched(runs, closed, await runs.replace(closed, self.successor(closed, 2)))

    async def test_the_epoch_of_a_workflow_id_never_goes_down(self, runs: RunStore) -> None:
        first = done(await runs.create(leased()))
        zombie = held_of(first)
        old = done(await runs.terminate("w", KILL))
        with pytest.raises(ValueError, match="epoch"):
            await runs.replace(old, replace(self.successor(old), epoch=old.epoch))
        with pytest.raises(ValueError, match="wake"):
            await runs.replace(old, replace(self.successor(old), wake_at_ms=None))
        await untouched(runs, old, await runs.create(leased(run_id="w.9")))
        new = done(await runs.replace(old, self.successor(old)))
        assert new.epoch > old.epoch > first.epoch
        await untouched(runs, new, await runs.append(zombie, [fact()], lease_until_ms=LATER))
        same_epoch = replace(held_of(new), run_id="w.1")
        await untouched(runs, new, await runs.append(same_epoch, [fact()], lease_until_ms=LATER))

    async def test_one_of_simultaneous_starts_replaces_the_run(self, runs: RunStore) -> None:
        old = await self.closed(runs)
        answers = await asyncio.gather(
            *[runs.replace(old, self.successor(old, number, owner=f"o{number}")) for number in range(2, 12)]
        )
        winners = [answer.record for answer in answers if isinstance(answer, Done)]
        assert winners == [await runs.read("w")]


class TestWakes:
    async def test_runs_are_due_in_the_order_of_their_wakes(self, runs: RunStore) -> None:
        for workflow_id, wake in (("c", 30), ("a", 20), ("d", 40), ("b", 10)):
            await runs.create(waiting(workflow_id, wake_at_ms=wake))
        assert await runs.due(30, 10) == [("b", 10), ("a", 20), ("c", 30)]
        assert await runs.due(30, 2) == [("b", 10), ("a", 20)]
        assert await runs.next_due_ms() == 10

    async def test_nothing_is_due_where_nothing_waits(self, runs: RunStore) -> None:
        assert await runs.next_due_ms() is None
        assert await runs.due(10**12, 10) == []

    async def test_a_guarded_run_whose_executor_died_is_due(self, runs: RunStore) -> None:
        await runs.create(waiting())
        await runs.acquire("w", lease("x"), NOW)
        assert [workflow_id for workflow_id, _ in await runs.due(LEASE_END + 1, 10)] == ["w"]

    async def test_leases_of_a_dead_process_are_void(self, runs: RunStore) -> None:
        await runs.create(leased("a"))
        await runs.create(waiting("b", wake_at_ms=LATER))
        await runs.create(waiting("c"))
        taken = done(await runs.acquire("c", lease("x"), NOW))
        assert await runs.release_all(NOW + 1) == 2
        assert await runs.due(NOW + 1, 10) == [("a", NOW + 1), ("c", NOW + 1)]
        again = done(await runs.acquire("c", lease("y"), NOW + 1))
        assert (again.epoch, again.acquisitions) == (2, 2)
        await untouched(runs, again, await runs.append(held_of(taken), [fact()], lease_until_ms=LATER))
        assert await runs.release_all(NOW + 2) == 1

    async def test_a_change_of_a_run_is_announced_and_a_refusal_is_not(self, runs: RunStore, wakes: Wakes) -> None:
        first = done(await runs.create(leased()))
        await runs.suspend(held_of(first), [fact()], wake_at_ms=None)
        await runs.deliver("w", signal("a"), NOW)
        await asyncio.sleep(0)
        assert wakes.runs == ["w", "w", "w"]
        assert wakes.changes == 3
        await runs.create(leased(run_id="w.2"))
        await runs.deliver("w", signal("a"), NOW)
        await asyncio.sleep(0)
        assert wakes.runs == ["w", "w", "w"]
        assert wakes.changes == 3

    async def test_viewers_are_told_what_has_become_of_a_run(
        self, runs: RunStore, stores: Stores, clock: SkipClock
    ) -> None:
        first = done(await runs.create(leased()))
        await runs.append(held_of(first), [], lease_until_ms=LATER)
        clock.advance(timedelta(seconds=1))
        await runs.close(held_of(first), [fact(3)], CLOSING)
        created, closed = [entry.change for entry in await stores.feed.read(0, 10)]
        for change, kind in ((created, "create"), (closed, "update")):
            payload = change.to_payload()
            assert (payload["streamName"], payload["groupId"], payload["id"]) == ("runs", "w", "w.1")
            assert isinstance(payload["event"], dict)
            assert payload["event"]["type"] == kind
        assert closed.at_ms == created.at_ms + 1000 == clock.now_ms()
        data = closed.to_payload()["event"]["data"]  # type: ignore[call-overload, index]
        assert data["status"] == "completed"  # type: ignore[call-overload, index]
        assert data["last_fact"] == {  # type: ignore[call-overload, index]
            "kind": "step_completed",
            "at_ms": 3,
            "name": "s",
            "occurrence": 3,
            "attempts": 1,
            "elapsed_ms": 0,
        }


class TestLists:
    async def filled(self, runs: RunStore) -> None:
        for number in range(6):
            workflow = "a::one" if number % 2 else "b::two"
            await runs.create(leased(f"w{number}", workflow=workflow, created_ms=number * 10))
        for number in (1, 2, 3):
            held = Held(workflow_id=f"w{number}", run_id=f"w{number}.1", epoch=1, sequence=0)
            await runs.close(held, [], replace(CLOSING, status="failed" if number == 3 else "completed"))
        old = await runs.read("w1")
        assert old is not None
        await runs.replace(old, leased("w1", run_id="w1.2", epoch=2, wake_at_ms=1, created_ms=100, workflow="a::one"))

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            (RunQuery(), ["w1.2", "w5.1", "w4.1", "w3.1", "w2.1", "w1.1", "w0.1"]),
            (RunQuery(limit=2), ["w1.2", "w5.1"]),
            (RunQuery(before_ms=30), ["w2.1", "w1.1", "w0.1"]),
            (RunQuery(workflow="a::one"), ["w1.2", "w5.1", "w3.1", "w1.1"]),
            (RunQuery(status="running"), ["w1.2", "w5.1", "w4.1", "w0.1"]),
            (RunQuery(status="completed"), ["w2.1", "w1.1"]),
            (RunQuery(workflow="a::one", status="failed"), ["w3.1"]),
            (RunQuery(workflow_id="w1"), ["w1.2", "w1.1"]),
            (RunQuery(workflow_id="w1", before_ms=100), ["w1.1"]),
            (RunQuery(workflow_id="gone"), []),
        ],
    )
    async def test_the_newest_matching_runs_are_listed(
        self, runs: RunStore, query: RunQuery, expected: list[str]
    ) -> None:
        await self.filled(runs)
        assert [record.run_id for record in await runs.list_runs(query)] == expected


class TestPayloads:
    @pytest.mark.parametrize("size", [10, INLINE_LIMIT + 1])
    async def test_a_payload_comes_back_as_it_was(self, runs: RunStore, size: int) -> None:
        text = '"' + "x" * size + '"'
        for _ in range(2):
            await runs.put_payload("w", "r.input", text)
        assert await runs.get_payload("w", "r.input") == text

    async def test_payloads_of_workflow_ids_are_apart(self, runs: RunStore) -> None:
        await runs.put_payload("w 1", "input", "1")
        await runs.put_payload("w", "1 input", "2")
        assert await runs.get_payload("w 1", "input") == "1"
        assert await runs.get_payload("w", "1 input") == "2"

    async def test_a_missing_payload_is_an_error(self, runs: RunStore) -> None:
        await runs.put_payload("w", "a", "1")
        with pytest.raises(StoreError) as caught:
            await runs.get_payload("w", "b")
        assert caught.value.code == "blob_missing"
