"""Redrives and discards that are interrupted, or meet each other, a consumer, or a zombie."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from iii_runtime.core.errors import StoreError
from iii_runtime.ports.message_queue import Delivery
from tests.contract.sqs_stage import ERROR, FIFO, LEASE, STANDARD, KilledError, Stage, open_stage


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with open_stage(monkeypatch, specs=(STANDARD,)) as opened:
        yield opened


async def _redriven_by_an_operator_who_dies(stage: Stage) -> None:
    """Let a message die, and an operator send it again and be killed before its letter is marked."""
    await stage.die(STANDARD, "m1")
    stage.mishaps.begin(kill_at=2)
    with pytest.raises(KilledError):
        await stage.letters.redrive(STANDARD, "m1")
    stage.mishaps.begin()


async def test_a_discard_that_comes_first_wins_over_a_redriven_copy(stage: Stage) -> None:
    await _redriven_by_an_operator_who_dies(stage)
    assert await stage.letters.discard("orders", "m1")
    assert await stage.queue.receive(STANDARD, 10, LEASE) == []
    assert stage.waiting(stage.url(STANDARD)) == []


async def test_a_discard_wins_over_a_claim_that_has_begun(stage: Stage) -> None:
    await _redriven_by_an_operator_who_dies(stage)
    stage.mishaps.between["UpdateItem"] = lambda: stage.letters.discard("orders", "m1")
    assert await stage.queue.receive(STANDARD, 10, LEASE) == []
    assert stage.waiting(stage.url(STANDARD)) == []
    assert await stage.listed() == []


async def test_a_late_failure_counts_in_its_own_generation_only(stage: Stage) -> None:
    zombie = await _dead_beside_a_zombie(stage)
    assert await stage.letters.redrive(STANDARD, "m1")
    await stage.queue.hide(await stage.receive_one(STANDARD), timedelta(0))
    assert not await stage.queue.fail(zombie, ERROR, timedelta(0))
    assert not await stage.queue.bury(zombie, "failed", ERROR, 1)
    delivery = await stage.receive_one(STANDARD)
    assert (delivery.generation, delivery.attempt) == (1, 1)
    assert await stage.listed() == []


async def test_a_late_failure_changes_no_letter(stage: Stage) -> None:
    zombie = await _dead_beside_a_zombie(stage)
    assert not await stage.queue.fail(zombie, ERROR, timedelta(0))
    (letter,) = await stage.letters.list_letters("orders", 0, 10)
    assert (letter.cause, letter.attempts, letter.errors) == ("receives", 0, ())


async def _dead_beside_a_zombie(stage: Stage) -> Delivery:
    """Let a message die uncounted while another receive of it still runs."""
    await stage.send(STANDARD, "m1")
    zombie = await stage.receive_one(STANDARD)
    stage.clock.advance(LEASE)
    assert await stage.queue.bury(await stage.receive_one(STANDARD), "receives", ERROR, 0)
    return zombie


async def test_the_claim_takes_a_letter_off_the_list_whose_operator_died(stage: Stage) -> None:
    await _redriven_by_an_operator_who_dies(stage)
    assert await stage.letters.count("orders") == 1
    await stage.receive_one(STANDARD)
    assert await stage.letters.count("orders") == 0


async def test_a_redrive_after_its_operator_died_runs_once(stage: Stage) -> None:
    await _redriven_by_an_operator_who_dies(stage)
    assert await stage.listed() == ["m1"]
    assert await stage.letters.redrive(STANDARD, "m1")
    deliveries = await stage.queue.receive(STANDARD, 10, LEASE)
    assert [delivery.receipt for delivery in deliveries] == ["m1"]
    assert len(stage.waiting(stage.url(STANDARD))) == 1


async def test_a_message_received_before_its_letter_is_marked_counts_as_redriven(stage: Stage) -> None:
    await stage.die(STANDARD, "m1")
    stage.mishaps.between["UpdateItem"] = lambda: stage.receive_one(STANDARD)
    assert await stage.letters.redrive(STANDARD, "m1")
    assert await stage.listed() == []
    assert len(stage.waiting(stage.url(STANDARD))) == 1


async def test_of_two_operators_who_redrive_one_is_told_so(stage: Stage) -> None:
    """The other one's copy has the claim, so that this one is dropped when it comes."""
    await stage.die(STANDARD, "m1")

    async def other() -> None:
        assert await stage.letters.redrive(STANDARD, "m1")
        assert len(await stage.queue.receive(STANDARD, 1, LEASE)) == 1

    stage.mishaps.between["SendMessage"] = other
    assert not await stage.letters.redrive(STANDARD, "m1")
    assert await stage.queue.receive(STANDARD, 10, LEASE) == []


@pytest.mark.parametrize("operation", ["redrive", "discard"])
async def test_a_lost_reply_is_no_failure(stage: Stage, operation: str) -> None:
    await stage.die(STANDARD, "m1")
    stage.mishaps.begin(lose_at={"redrive": 2, "discard": 1}[operation])
    letters = stage.letters
    assert await (letters.redrive(STANDARD, "m1") if operation == "redrive" else letters.discard("orders", "m1"))
    assert await stage.listed() == []


async def test_a_refused_send_keeps_the_letter(stage: Stage) -> None:
    await stage.die(STANDARD, "m1")
    stage.mishaps.refuse["SendMessage"] = ["AWS.SimpleQueueService.NonExistentQueue"]
    with pytest.raises(StoreError) as caught:
        await stage.letters.redrive(STANDARD, "m1")
    assert caught.value.code == "store_missing"
    assert await stage.listed() == ["m1"]
    assert await stage.letters.redrive(STANDARD, "m1")


async def test_redriving_all_again_after_a_crash_redrives_the_rest(stage: Stage) -> None:
    receipts = [f"m{number}" for number in range(5)]
    await stage.die(FIFO, *receipts)
    before = len(stage.services.calls)
    stage.mishaps.begin(kill_at=_third_mark(stage))
    with pytest.raises(KilledError):
        await stage.letters.redrive_all(FIFO)
    assert len(stage.services.calls) > before
    stage.mishaps.begin()
    assert await stage.listed() == ["m2", "m3", "m4"]
    assert await stage.letters.redrive_all(FIFO) == 3
    order = []
    while deliveries := await stage.queue.receive(FIFO, 1, LEASE):
        for delivery in deliveries:
            order.append(delivery.receipt)
            await stage.queue.acknowledge(delivery)
    assert order == receipts


def _third_mark(stage: Stage) -> int:
    """Return the number of the request that marks the third letter, from the calls of a look at the queue."""
    reconcile = 1 + 5 + 1 + 5  # receive, an item each, receive again, give back
    read = 4 + 1
    return reconcile + read + 2 * 2 + 1


async def test_what_dies_during_a_redrive_of_all_is_left_for_the_next(stage: Stage) -> None:
    await stage.die(STANDARD, "m1")

    async def another() -> None:
        stage.clock.advance(timedelta(milliseconds=1))
        await stage.die(STANDARD, "m2")

    stage.mishaps.between["SendMessage"] = another
    assert await stage.letters.redrive_all(STANDARD) == 1
    assert await stage.listed() == ["m2"]
