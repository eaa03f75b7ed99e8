"""Receives of SQS: what is read, counted and hidden, and what a late or repeated outcome does."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from iii_runtime.core.queue import QueueSpec
from iii_runtime.ports.message_queue import Delivery
from tests.contract.sqs_stage import ERROR, FIFO, LEASE, SINGLE, STANDARD, KilledError, Stage, open_stage

SOON = timedelta(seconds=5)
NOW = timedelta(0)
HOURS_12 = 12 * 3600


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with open_stage(monkeypatch) as opened:
        yield opened


@pytest.fixture
def lambda_stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Where Lambda deletes what was settled."""
    with open_stage(monkeypatch, specs=(STANDARD,), deletes=False) as opened:
        yield opened


class TestCalls:
    """Requests beside the receive and the delete that the event source mapping makes."""

    async def test_a_success_at_the_first_receive_asks_nobody(self, lambda_stage: Stage) -> None:
        delivery = await self._taken(lambda_stage)
        await lambda_stage.queue.acknowledge(delivery)
        assert lambda_stage.counted() == {}
        assert len(lambda_stage.queue.settled) == 1

    async def test_a_failed_attempt_is_one_write_and_one_request_to_sqs(self, lambda_stage: Stage) -> None:
        delivery = await self._taken(lambda_stage)
        await lambda_stage.queue.fail(delivery, ERROR, SOON)
        assert lambda_stage.counted() == {"dynamodb:UpdateItem": 1, "sqs:ChangeMessageVisibility": 1}
        assert lambda_stage.queue.settled == set()

    async def test_a_later_receive_is_one_read(self, lambda_stage: Stage) -> None:
        await lambda_stage.queue.fail(await self._taken(lambda_stage), ERROR, SOON)
        lambda_stage.clock.advance(SOON)
        (record,) = lambda_stage.records(lambda_stage.url(STANDARD))
        lambda_stage.services.calls.clear()
        delivery = await lambda_stage.queue.take(STANDARD, record)
        assert delivery is not None
        assert (delivery.attempt, delivery.receives) == (2, 2)
        assert lambda_stage.counted() == {"dynamodb:GetItem": 1}

    async def test_a_death_is_one_write_and_one_letter(self, lambda_stage: Stage) -> None:
        delivery = await self._taken(lambda_stage)
        assert await lambda_stage.queue.bury(delivery, "failed", ERROR, 1)
        assert lambda_stage.counted() == {"dynamodb:UpdateItem": 1, "sqs:SendMessage": 1}
        assert len(lambda_stage.queue.settled) == 1

    async def test_a_hidden_message_is_one_request_and_no_attempt(self, lambda_stage: Stage) -> None:
        delivery = await self._taken(lambda_stage)
        assert await lambda_stage.queue.hide(delivery, SOON)
        assert lambda_stage.counted() == {"sqs:ChangeMessageVisibility": 1}
        lambda_stage.clock.advance(SOON)
        (record,) = lambda_stage.records(lambda_stage.url(STANDARD))
        again = await lambda_stage.queue.take(STANDARD, record)
        assert again is not None
        assert (again.attempt, again.receives) == (1, 2)

    async def test_what_is_settled_is_named_by_the_handle_of_its_record(self, lambda_stage: Stage) -> None:
        await lambda_stage.send(STANDARD, "m1", "m2")
        first, second = lambda_stage.records(lambda_stage.url(STANDARD))
        deliveries = [await lambda_stage.queue.take(STANDARD, record) for record in (first, second)]
        assert deliveries[0] is not None
        await lambda_stage.queue.acknowledge(deliveries[0])
        assert lambda_stage.queue.settled == {first.handle}

    async def _taken(self, stage: Stage) -> Delivery:
        await stage.send(STANDARD, "m1")
        (record,) = stage.records(stage.url(STANDARD))
        stage.services.calls.clear()
        delivery = await stage.queue.take(STANDARD, record)
        assert delivery is not None
        return delivery


class TestAttempts:
    async def test_an_attempt_is_counted_once_whoever_reports_it(self, stage: Stage) -> None:
        """A duplicate that ran beside it, a late zombie, a repetition after a lost reply."""
        await stage.send(STANDARD, "m1")
        first = await stage.receive_one(STANDARD)
        stage.clock.advance(LEASE)
        second = await stage.receive_one(STANDARD)
        assert (first.attempt, second.attempt) == (1, 1)
        assert await stage.queue.fail(second, ERROR, NOW)
        assert await stage.queue.fail(first, ERROR, NOW)
        assert (await stage.receive_one(STANDARD)).attempt == 2

    async def test_a_late_failure_of_an_earlier_attempt_changes_nothing(self, stage: Stage) -> None:
        await stage.send(STANDARD, "m1")
        zombie = await stage.receive_one(STANDARD)
        stage.clock.advance(LEASE)
        for attempt in (1, 2):
            delivery = await stage.receive_one(STANDARD)
            assert delivery.attempt == attempt
            await stage.queue.fail(delivery, ERROR, NOW)
        await stage.queue.fail(zombie, ERROR, NOW)
        assert (await stage.receive_one(STANDARD)).attempt == 3

    async def test_a_lost_reply_of_the_failure_write_counts_once(self, stage: Stage) -> None:
        await stage.send(STANDARD, "m1")
        delivery = await stage.receive_one(STANDARD)
        stage.mishaps.begin(lose_at=0)
        assert await stage.queue.fail(delivery, ERROR, NOW)
        assert (await stage.receive_one(STANDARD)).attempt == 2

    async def test_a_killed_host_is_no_attempt(self, stage: Stage) -> None:
        await stage.send(STANDARD, "m1")
        for receives in range(1, 4):
            delivery = await stage.receive_one(STANDARD)
            assert (delivery.attempt, delivery.receives) == (1, receives)
            stage.clock.advance(LEASE)

    async def test_a_first_receive_shown_twice_is_refused_by_the_item(self, stage: Stage) -> None:
        """`ApproximateReceiveCount` is approximate: 1 may be shown again after attempt 1 has failed."""
        await stage.send(STANDARD, "m1")
        first = await stage.receive_one(STANDARD)
        await stage.queue.fail(first, ERROR, NOW)
        (record,) = stage.records(stage.url(STANDARD))
        again = await stage.queue.take(STANDARD, replace(record, receives=1))
        assert again is not None
        assert again.attempt == 1
        assert await stage.queue.fail(again, ERROR, NOW)
        assert (await stage.receive_one(STANDARD)).attempt == 2

    async def test_a_failure_of_a_message_that_is_over_acknowledges_it(self, stage: Stage) -> None:
        await stage.send(STANDARD, "m1")
        zombie = await stage.receive_one(STANDARD)
        stage.clock.advance(LEASE)
        assert await stage.queue.bury(await stage.receive_one(STANDARD), "failed", ERROR, 1)
        assert await stage.letters.discard("orders", "m1")
        assert not await stage.queue.fail(zombie, ERROR, SOON)
        assert not await stage.queue.bury(zombie, "failed", ERROR, 1)
        assert await stage.listed() == []
        assert stage.waiting(stage.url(STANDARD)) == []

    async def test_a_failure_beside_a_death_completes_the_death(self, stage: Stage) -> None:
        """The duplicate that wrote the death may have died before its letter."""
        await stage.send(STANDARD, "m1")
        first = await stage.receive_one(STANDARD)
        stage.clock.advance(LEASE)
        second = await stage.receive_one(STANDARD)
        stage.mishaps.begin(kill_at=1)
        with pytest.raises(KilledError):
            await stage.queue.bury(second, "failed", ERROR, 1)
        stage.mishaps.begin()
        assert not await stage.queue.fail(first, ERROR, SOON)
        assert await stage.listed() == ["m1"]
        assert len(stage.waiting(stage.letter_url(STANDARD))) == 1
        assert stage.waiting(stage.url(STANDARD)) == []

    async def test_a_death_whose_attempt_a_duplicate_has_counted_is_a_death(self, stage: Stage) -> None:
        await stage.send(STANDARD, "m1")
        delivery = await stage.receive_one(STANDARD)
        await stage.queue.fail(delivery, ERROR, SOON)
        assert await stage.queue.bury(delivery, "failed", ERROR, 1)
        (letter,) = await stage.letters.list_letters("orders", 0, 10)
        assert (letter.attempts, [attempt for attempt, _ in letter.errors]) == (1, [1])

    async def test_a_death_for_too_many_receives_keeps_the_counted_failures(self, stage: Stage) -> None:
        await stage.send(STANDARD, "m1")
        await stage.queue.fail(await stage.receive_one(STANDARD), ERROR, NOW)
        delivery = await stage.receive_one(STANDARD)
        assert await stage.queue.bury(delivery, "receives", ERROR, delivery.attempt - 1)
        (letter,) = await stage.letters.list_letters("orders", 0, 10)
        assert (letter.cause, letter.attempts, letter.receives) == ("receives", 1, 2)
        assert [attempt for attempt, _ in letter.errors] == [1]


class TestBackOff:
    @pytest.mark.parametrize("spec", [STANDARD, FIFO, SINGLE], ids=["standard", "fifo", "single"])
    async def test_a_message_that_comes_before_its_back_off_is_hidden_until_then(
        self, stage: Stage, spec: QueueSpec
    ) -> None:
        """Its visibility was not changed in time, or a duplicate came."""
        await stage.send(spec, "m1")
        delivery = await stage.receive_one(spec)
        stage.mishaps.refuse["ChangeMessageVisibility"] = ["RequestThrottled"] * 3
        assert await stage.queue.fail(delivery, ERROR, timedelta(seconds=100))
        stage.clock.advance(LEASE)
        assert await stage.queue.receive(spec, 10, LEASE) == []
        stage.clock.advance(timedelta(seconds=39))
        assert await stage.queue.receive(spec, 10, LEASE) == []
        stage.clock.advance(timedelta(seconds=1))
        assert (await stage.receive_one(spec)).attempt == 2

    async def test_an_early_message_is_left_to_the_next_receive_and_not_settled(self, lambda_stage: Stage) -> None:
        await lambda_stage.send(STANDARD, "m1")
        (record,) = lambda_stage.records(lambda_stage.url(STANDARD))
        delivery = await lambda_stage.queue.take(STANDARD, record)
        assert delivery is not None
        await lambda_stage.queue.fail(delivery, ERROR, timedelta(seconds=100))
        assert await lambda_stage.queue.take(STANDARD, replace(record, receives=2)) is None
        assert lambda_stage.queue.settled == set()

    async def test_two_seconds_too_early_is_not_early(self, stage: Stage) -> None:
        """Clocks differ; a message is not hidden again for that."""
        await stage.send(STANDARD, "m1")
        (record,) = stage.records(stage.url(STANDARD))
        delivery = await stage.queue.take(STANDARD, record)
        assert delivery is not None
        await stage.queue.fail(delivery, ERROR, timedelta(seconds=10))
        stage.clock.advance(timedelta(seconds=8))
        assert await stage.queue.take(STANDARD, replace(record, receives=2)) is not None

    async def test_no_back_off_is_longer_than_sqs_hides_a_message(self, stage: Stage) -> None:
        """Else the change is refused, and the message comes back at once."""
        await stage.send(STANDARD, "m1")
        delivery = await stage.receive_one(STANDARD)
        stage.clock.advance(timedelta(seconds=30))
        assert await stage.queue.fail(delivery, ERROR, timedelta(seconds=HOURS_12))
        stage.clock.advance(timedelta(seconds=HOURS_12 - 30 - 60 - 1))
        assert stage.records(stage.url(STANDARD)) == []
        stage.clock.advance(timedelta(seconds=1))
        assert await stage.queue.receive(STANDARD, 10, LEASE) == []  # hidden again until its back-off ends
        stage.clock.advance(timedelta(seconds=90))
        assert (await stage.receive_one(STANDARD)).attempt == 2

    async def test_a_failure_whose_handle_is_lost_is_counted(self, stage: Stage) -> None:
        await stage.send(STANDARD, "m1")
        delivery = await stage.receive_one(STANDARD)
        stage.mishaps.refuse["ChangeMessageVisibility"] = ["AWS.SimpleQueueService.MessageNotInflight"]
        assert not await stage.queue.fail(delivery, ERROR, SOON)
        stage.clock.advance(LEASE)
        assert (await stage.receive_one(STANDARD)).attempt == 2

    async def test_a_back_off_that_cannot_be_set_is_told(self, stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
        await stage.send(STANDARD, "m1")
        delivery = await stage.receive_one(STANDARD)
        stage.mishaps.refuse["ChangeMessageVisibility"] = ["RequestThrottled"] * 3
        with caplog.at_level(logging.WARNING):
            assert await stage.queue.fail(delivery, ERROR, SOON)
        assert [record.getMessage() for record in caplog.records] == [
            "recorded a failed attempt, could not set its back-off"
        ]
        assert stage.mishaps.refuse["ChangeMessageVisibility"] == []


class TestWhatSqsDoesByItself:
    async def test_extending_hides_a_message_for_longer_but_not_beyond_twelve_hours(self, stage: Stage) -> None:
        await stage.send(STANDARD, "m1")
        delivery = await stage.receive_one(STANDARD)
        for _ in range(3):
            stage.clock.advance(timedelta(seconds=50))
            await stage.queue.extend([delivery], LEASE)
            assert stage.records(stage.url(STANDARD)) == []
        await stage.queue.extend([delivery], timedelta(hours=24))
        stage.clock.advance(timedelta(seconds=HOURS_12 - 60 - 150))
        assert (await stage.receive_one(STANDARD)).receives == 2

    async def test_nothing_is_to_be_done_at_a_start(self, stage: Stage) -> None:
        await stage.send(STANDARD, "m1")
        await stage.receive_one(STANDARD)
        stage.services.calls.clear()
        await stage.queue.prepare(STANDARD)
        assert await stage.queue.release_all() == 0
        assert await stage.queue.next_due_ms(STANDARD) is None
        assert await stage.queue.queue_names() == ["orders"]
        assert stage.counted() == {}
