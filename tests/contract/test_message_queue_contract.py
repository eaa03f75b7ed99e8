"""What every message queue does. Messages of ordered queues carry their group in `customer`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import pairwise, product
from pathlib import Path
from typing import Protocol

import pytest

from iii_runtime.adapters.embedded.database import Database
from iii_runtime.adapters.embedded.queue_store import SqliteMessageQueue
from iii_runtime.core.errors import StoreError
from iii_runtime.core.message import ErrorRecord, decode_envelope
from iii_runtime.core.payload import Json
from iii_runtime.core.queue import QueueSpec
from iii_runtime.engine.stores import Stores
from iii_runtime.ports.message_queue import Delivery, MessageQueue, QueueDepth
from iii_runtime.testing.clock import SequenceIds, SkipClock
from iii_runtime.testing.stores import outgoing_message

STANDARD = QueueSpec(name="orders")
FIFO = QueueSpec(name="orders", kind="fifo", group_field="customer")
SINGLE = QueueSpec(name="orders", concurrency=1)
KINDS = [STANDARD, FIFO, SINGLE]

LEASE = timedelta(seconds=30)
SOON = timedelta(seconds=5)
NOW = timedelta(0)
ERROR = ErrorRecord(type="ValueError", message="no")


class WokenQueues(Protocol):
    queues: list[str]


async def send(stores: Stores, queue: QueueSpec, *receipts: str, customer: str = "a", delay_ms: int = 0) -> None:
    messages = [
        outgoing_message(queue, receipt, {"customer": customer, "n": receipt}, delay_ms=delay_ms)
        for receipt in receipts
    ]
    await stores.queue.send(queue, messages)


async def receive(stores: Stores, queue: QueueSpec, limit: int = 100) -> list[Delivery]:
    return await stores.queue.receive(queue, limit, LEASE)


async def receive_one(stores: Stores, queue: QueueSpec) -> Delivery:
    (delivery,) = await receive(stores, queue)
    return delivery


def receipts_of(deliveries: list[Delivery]) -> list[str]:
    return [delivery.receipt for delivery in deliveries]


async def drain(stores: Stores, queue: QueueSpec) -> list[str]:
    order = []
    while deliveries := await receive(stores, queue):
        for delivery in deliveries:
            assert await stores.queue.acknowledge(delivery)
            order.append(delivery.receipt)
    return order


class TestLeases:
    async def test_a_received_message_is_nobody_elses_until_its_lease_ends(
        self, stores: Stores, clock: SkipClock
    ) -> None:
        await send(stores, STANDARD, "m1")
        first = await receive_one(stores, STANDARD)
        clock.advance(LEASE - timedelta(milliseconds=1))
        assert await receive(stores, STANDARD) == []
        clock.advance(timedelta(milliseconds=1))
        second = await receive_one(stores, STANDARD)
        assert (first.attempt, first.receives) == (1, 1)
        assert (second.attempt, second.receives) == (1, 2)

    async def test_a_delivery_carries_the_message_as_it_was_sent(self, stores: Stores) -> None:
        message = outgoing_message(FIFO, "m1", {"customer": "a", "text": 'nul \0, é, 漢字, \U0001f600, "quoted" \\'})
        assert await stores.queue.send(FIFO, [message]) == ["m1"]
        delivery = await receive_one(stores, FIFO)
        assert delivery == Delivery(
            receipt="m1",
            queue="orders",
            body=message.body,
            generation=0,
            attempt=1,
            receives=1,
            handle=delivery.handle,
            group=message.group,
        )

    @pytest.mark.parametrize("operation", ["acknowledge", "hide", "fail", "bury"])
    @pytest.mark.parametrize("queue", KINDS, ids=["standard", "fifo", "single"])
    async def test_an_older_receive_can_do_nothing_any_more(
        self, stores: Stores, clock: SkipClock, queue: QueueSpec, operation: str
    ) -> None:
        await send(stores, queue, "m1")
        stale = await receive_one(stores, queue)
        clock.advance(LEASE)
        current = await receive_one(stores, queue)
        assert not await _end(stores.queue, operation, stale)
        assert await stores.queue.depth("orders") == QueueDepth(visible=0, delayed=0, in_flight=1, dead=0)
        assert await stores.queue.acknowledge(current)

    @pytest.mark.parametrize("operation", ["acknowledge", "hide", "fail", "bury"])
    async def test_an_ended_receive_can_do_nothing_any_more(self, stores: Stores, operation: str) -> None:
        await send(stores, STANDARD, "m1")
        delivery = await receive_one(stores, STANDARD)
        assert await _end(stores.queue, operation, delivery)
        for later in ["acknowledge", "hide", "fail", "bury"]:
            assert not await _end(stores.queue, later, delivery)

    async def test_a_late_outcome_counts_while_nobody_else_has_received_the_message(
        self, stores: Stores, clock: SkipClock
    ) -> None:
        await send(stores, STANDARD, "m1")
        delivery = await receive_one(stores, STANDARD)
        clock.advance(LEASE * 2)
        assert await stores.queue.acknowledge(delivery)
        assert await receive(stores, STANDARD) == []

    async def test_extending_keeps_held_leases_and_no_others(self, stores: Stores, clock: SkipClock) -> None:
        await send(stores, STANDARD, "m1", "m2", "m3")
        lost, gone, held = await receive(stores, STANDARD)
        await stores.queue.acknowledge(gone)
        await stores.queue.hide(lost, SOON)
        clock.advance(timedelta(seconds=20))
        (again,) = await receive(stores, STANDARD)
        clock.advance(timedelta(seconds=5))
        await stores.queue.extend([lost, gone, held], LEASE)
        clock.advance(timedelta(seconds=25))
        assert receipts_of(await receive(stores, STANDARD)) == [again.receipt]

    async def test_simultaneous_receives_share_no_message(self, stores: Stores) -> None:
        await send(stores, STANDARD, *[f"m{number}" for number in range(30)])
        batches = await asyncio.gather(*[receive(stores, STANDARD, 2) for _ in range(20)])
        received = [receipt for batch in batches for receipt in receipts_of(batch)]
        assert sorted(received) == sorted(f"m{number}" for number in range(30))

    async def test_the_oldest_due_messages_come_first_and_no_more_than_asked_for(
        self, stores: Stores, clock: SkipClock
    ) -> None:
        await send(stores, STANDARD, "m1", "m2")
        clock.advance(SOON)
        await send(stores, STANDARD, "m3")
        assert receipts_of(await receive(stores, STANDARD, 2)) == ["m1", "m2"]
        assert receipts_of(await receive(stores, STANDARD, 2)) == ["m3"]

    async def test_queues_are_apart(self, stores: Stores) -> None:
        other = QueueSpec(name="orders2")
        await send(stores, STANDARD, "m1")
        assert await receive(stores, other) == []
        assert await stores.queue.next_due_ms(other) is None


class TestAttempts:
    STEPS = ("hide", "expire", "fail", "expire", "hide", "fail", "fail")

    async def test_only_failures_count_as_attempts(self, stores: Stores, clock: SkipClock) -> None:
        seen = [delivery.attempt for delivery in await self._received(stores, clock)]
        assert seen == [1, 1, 1, 2, 2, 2, 3]

    async def test_a_receive_that_ends_hidden_does_not_count(self, stores: Stores, clock: SkipClock) -> None:
        seen = [delivery.receives for delivery in await self._received(stores, clock)]
        assert seen == [1, 1, 2, 3, 4, 4, 5]

    async def _received(self, stores: Stores, clock: SkipClock) -> list[Delivery]:
        await send(stores, STANDARD, "m1")
        received = []
        for step in self.STEPS:
            delivery = await receive_one(stores, STANDARD)
            received.append(delivery)
            if step == "expire":
                clock.advance(LEASE)
            else:
                await _end(stores.queue, step, delivery)
        return received

    @pytest.mark.parametrize("queue", KINDS, ids=["standard", "fifo", "single"])
    async def test_a_message_that_was_hidden_ten_times_is_as_good_as_new(
        self, stores: Stores, clock: SkipClock, queue: QueueSpec
    ) -> None:
        await send(stores, queue, "m1")
        earlier = []
        for _ in range(10):
            delivery = await receive_one(stores, queue)
            assert (delivery.attempt, delivery.receives) == (1, 1)
            assert await stores.queue.hide(delivery, SOON)
            assert await receive(stores, queue) == []
            clock.advance(SOON)
            earlier.append(delivery)
        present = await receive_one(stores, queue)
        assert (present.attempt, present.receives) == (1, 1)
        for delivery in earlier:
            assert [await _end(stores.queue, step, delivery) for step in ["acknowledge", "hide", "fail", "bury"]] == [
                False
            ] * 4
        assert await stores.queue.bury(present, "failed", ERROR, 1)
        (letter,) = await stores.letters.list_letters("orders", 0, 10)
        assert (letter.attempts, letter.receives) == (1, 1)

    async def test_a_repeated_failure_counts_once(self, stores: Stores) -> None:
        await send(stores, STANDARD, "m1")
        delivery = await receive_one(stores, STANDARD)
        for _ in range(3):
            await stores.queue.fail(delivery, ERROR, NOW)
        assert (await receive_one(stores, STANDARD)).attempt == 2

    @pytest.mark.parametrize("queue", KINDS, ids=["standard", "fifo", "single"])
    async def test_a_failed_message_waits_for_its_back_off(
        self, stores: Stores, clock: SkipClock, queue: QueueSpec
    ) -> None:
        await send(stores, queue, "m1")
        await stores.queue.fail(await receive_one(stores, queue), ERROR, SOON)
        clock.advance(SOON - timedelta(milliseconds=1))
        assert await receive(stores, queue) == []
        clock.advance(timedelta(milliseconds=1))
        assert (await receive_one(stores, queue)).attempt == 2

    async def test_a_failed_message_is_due_when_its_back_off_ends(self, stores: Stores, clock: SkipClock) -> None:
        await send(stores, STANDARD, "m1")
        await stores.queue.fail(await receive_one(stores, STANDARD), ERROR, SOON)
        assert await stores.queue.next_due_ms(STANDARD) == clock.now_ms() + 5_000


class TestOrder:
    async def test_a_head_holds_back_its_own_group_only(self, stores: Stores) -> None:
        await send(stores, FIFO, "a1", "a2", customer="a")
        await send(stores, FIFO, "b1", "b2", customer="b")
        assert receipts_of(await receive(stores, FIFO)) == ["a1", "b1"]
        assert await receive(stores, FIFO) == []

    @pytest.mark.parametrize("steps", list(product(["acknowledge", "bury", "fail", "hide", "expire"], repeat=3)))
    async def test_a_group_keeps_its_order_under_every_outcome(
        self, stores: Stores, clock: SkipClock, steps: tuple[str, ...]
    ) -> None:
        """Whatever happens to a head, the next message waits until the head has ended."""
        waiting = ["m1", "m2", "m3", "m4"]
        await send(stores, FIFO, *waiting)
        for step in steps:
            delivery = await receive_one(stores, FIFO)
            assert delivery.receipt == waiting[0]
            if step == "expire":
                clock.advance(LEASE)
            else:
                assert await _end(stores.queue, step, delivery, SOON)
                if step in {"fail", "hide"}:
                    assert await receive(stores, FIFO) == []
                    clock.advance(SOON)
            if step in {"acknowledge", "bury"}:
                del waiting[0]
        assert await drain(stores, FIFO) == waiting

    async def test_one_at_a_time_means_the_whole_queue_waits_for_a_back_off(
        self, stores: Stores, clock: SkipClock
    ) -> None:
        await send(stores, SINGLE, "m1", customer="a")
        await send(stores, SINGLE, "m2", customer="b")
        await stores.queue.fail(await receive_one(stores, SINGLE), ERROR, SOON)
        assert await receive(stores, SINGLE) == []
        clock.advance(SOON)
        assert await drain(stores, SINGLE) == ["m1", "m2"]

    async def test_the_next_due_time_is_that_of_the_heads(self, stores: Stores, clock: SkipClock) -> None:
        await send(stores, FIFO, "m1", "m2")
        assert await stores.queue.next_due_ms(FIFO) == clock.now_ms()
        await receive_one(stores, FIFO)
        assert await stores.queue.next_due_ms(FIFO) == clock.now_ms() + 30_000

    async def test_a_message_behind_an_acknowledged_head_is_announced(self, stores: Stores, wakes: WokenQueues) -> None:
        await send(stores, FIFO, "m1", "m2")
        delivery = await receive_one(stores, FIFO)
        await asyncio.sleep(0)
        wakes.queues.clear()
        await stores.queue.acknowledge(delivery)
        await asyncio.sleep(0)
        assert wakes.queues == ["orders"]


class TestDelay:
    async def test_a_delayed_message_waits(self, stores: Stores, clock: SkipClock) -> None:
        await send(stores, STANDARD, "m1", delay_ms=2000)
        await send(stores, STANDARD, "m2")
        assert receipts_of(await receive(stores, STANDARD)) == ["m2"]
        clock.advance(timedelta(milliseconds=1999))
        assert await receive(stores, STANDARD) == []
        clock.advance(timedelta(milliseconds=1))
        assert receipts_of(await receive(stores, STANDARD)) == ["m1"]

    async def test_a_delayed_message_is_due_when_its_delay_ends(self, stores: Stores, clock: SkipClock) -> None:
        await send(stores, STANDARD, "m1", delay_ms=1500)
        assert await stores.queue.depth("orders") == QueueDepth(visible=0, delayed=1, in_flight=0, dead=0)
        assert await stores.queue.next_due_ms(STANDARD) == clock.now_ms() + 1500
        clock.advance(timedelta(milliseconds=1500))
        assert receipts_of(await receive(stores, STANDARD)) == ["m1"]

    async def test_a_delayed_head_holds_back_its_group(self, stores: Stores, clock: SkipClock) -> None:
        await send(stores, FIFO, "m1", delay_ms=1500)
        await send(stores, FIFO, "m2")
        assert await receive(stores, FIFO) == []
        clock.advance(timedelta(milliseconds=1500))
        assert await drain(stores, FIFO) == ["m1", "m2"]


class TestSeveralQueues:
    OTHER = QueueSpec(name="other", concurrency=1)

    async def test_messages_of_several_queues_are_stored_together_and_in_order(self, stores: Stores) -> None:
        places = [(self.OTHER, "b1"), (FIFO, "a1"), (self.OTHER, "b2"), (FIFO, "a2")]
        messages = [(queue, outgoing_message(queue, receipt, {"customer": "a"})) for queue, receipt in places]
        assert await stores.queue.send_all(messages) == ["b1", "a1", "b2", "a2"]
        assert await drain(stores, FIFO) == ["a1", "a2"]
        assert await drain(stores, self.OTHER) == ["b1", "b2"]

    async def test_each_queue_of_a_send_is_announced(self, stores: Stores, wakes: WokenQueues) -> None:
        places = [(self.OTHER, "b1"), (STANDARD, "a1"), (self.OTHER, "b2")]
        await stores.queue.send_all([(queue, outgoing_message(queue, receipt)) for queue, receipt in places])
        await asyncio.sleep(0)
        assert wakes.queues == ["other", "orders"]

    async def test_a_repeated_id_returns_the_first_receipt_on_its_own_queue(self, stores: Stores) -> None:
        for receipts in (["m1", "n1"], ["m2", "n2"]):
            messages = [
                (queue, outgoing_message(queue, receipt, dedupe_id="once"))
                for queue, receipt in zip([STANDARD, self.OTHER], receipts, strict=True)
            ]
            assert await stores.queue.send_all(messages) == ["m1", "n1"]
        assert [await drain(stores, queue) for queue in (STANDARD, self.OTHER)] == [["m1"], ["n1"]]

    async def test_nothing_to_send_is_no_error(self, stores: Stores) -> None:
        assert await stores.queue.send_all([]) == []

    async def test_a_store_that_has_no_room_for_one_of_them_keeps_none(self, tmp_path: Path, clock: SkipClock) -> None:
        """Not even the `dedupe_id` of those before it."""
        database = Database.open(tmp_path / "iii.db", synchronous="OFF", max_page_count=100)
        queue = SqliteMessageQueue(database, clock, SequenceIds())
        small = outgoing_message(STANDARD, "m1", dedupe_id="once")
        large = outgoing_message(self.OTHER, "m2", "x" * 1024 * 1024)
        with pytest.raises(StoreError) as caught:
            await queue.send_all([(STANDARD, small), (self.OTHER, large)])
        assert caught.value.code == "store_full"
        assert await queue.queue_names() == []
        assert await queue.send(STANDARD, [outgoing_message(STANDARD, "m3", dedupe_id="once")]) == ["m3"]
        await database.close()


class TestDedupe:
    async def test_a_repeated_id_returns_the_first_receipt_for_five_minutes(
        self, stores: Stores, clock: SkipClock
    ) -> None:
        assert await self._send(stores, "m1") == ["m1"]
        clock.advance(timedelta(minutes=5) - timedelta(milliseconds=1))
        assert await self._send(stores, "m2") == ["m1"]
        clock.advance(timedelta(milliseconds=1))
        assert await self._send(stores, "m3") == ["m3"]
        assert await drain(stores, STANDARD) == ["m1", "m3"]

    async def test_an_id_is_remembered_after_its_message_has_gone(self, stores: Stores) -> None:
        await self._send(stores, "m1")
        assert await drain(stores, STANDARD) == ["m1"]
        assert await self._send(stores, "m2") == ["m1"]
        assert await drain(stores, STANDARD) == []

    async def test_an_id_is_of_one_function_and_one_queue(self, stores: Stores) -> None:
        other_queue = QueueSpec(name="other")
        await self._send(stores, "m1")
        other_function = outgoing_message(STANDARD, "m2", dedupe_id="once", function_id="test::other")
        assert await stores.queue.send(STANDARD, [other_function]) == ["m2"]
        assert await stores.queue.send(other_queue, [outgoing_message(other_queue, "m3", dedupe_id="once")]) == ["m3"]

    async def test_an_id_counts_within_one_call(self, stores: Stores) -> None:
        messages = [outgoing_message(STANDARD, receipt, dedupe_id="once") for receipt in ("m1", "m2")]
        assert await stores.queue.send(STANDARD, messages) == ["m1", "m1"]
        assert await drain(stores, STANDARD) == ["m1"]

    async def _send(self, stores: Stores, receipt: str) -> list[str]:
        return await stores.queue.send(STANDARD, [outgoing_message(STANDARD, receipt, dedupe_id="once")])


class TestCounts:
    async def test_every_message_is_counted_once(self, stores: Stores, clock: SkipClock) -> None:
        await send(stores, STANDARD, "m1", "m2", "m3", "m4")
        acknowledged, buried, failed, _ = await receive(stores, STANDARD)
        await stores.queue.acknowledge(acknowledged)
        await stores.queue.bury(buried, "failed", ERROR, 1)
        await stores.queue.fail(failed, ERROR, SOON)
        await send(stores, STANDARD, "m5", "m6")
        assert await stores.queue.depth("orders") == QueueDepth(visible=2, delayed=1, in_flight=1, dead=1)
        clock.advance(LEASE)
        assert await stores.queue.depth("orders") == QueueDepth(visible=4, delayed=0, in_flight=0, dead=1)

    async def test_messages_waiting_behind_another_one_are_visible(self, stores: Stores) -> None:
        await send(stores, FIFO, "m1", "m2", "m3")
        await receive(stores, FIFO)
        assert await stores.queue.depth("orders") == QueueDepth(visible=2, delayed=0, in_flight=1, dead=0)

    async def test_an_unknown_queue_is_empty(self, stores: Stores) -> None:
        assert await stores.queue.depth("unknown") == QueueDepth(visible=0, delayed=0, in_flight=0, dead=0)
        assert await stores.queue.purge("unknown") == 0

    async def test_queues_with_messages_or_letters_are_known_by_name(self, stores: Stores, backend: str) -> None:
        for name in ["漢字", "b", "topic/t/f::g", "a", "b"]:
            queue = QueueSpec(name=name)
            await send(stores, queue, f"{name}.1", f"{name}.2")
        await drain(stores, QueueSpec(name="a"))
        for delivery in await receive(stores, QueueSpec(name="b")):
            await stores.queue.bury(delivery, "failed", ERROR, 1)
        empty = ["a"] if backend == "aws" else []  # a queue of SQS exists whether or not it holds something
        assert await stores.queue.queue_names() == [*empty, "b", "topic/t/f::g", "漢字"]

    @pytest.mark.parametrize("queue", KINDS, ids=["standard", "fifo", "single"])
    async def test_a_purge_leaves_what_is_in_flight_or_dead(
        self, stores: Stores, clock: SkipClock, queue: QueueSpec
    ) -> None:
        await send(stores, queue, "dead", "m1", "m2", "m3")
        await stores.queue.bury((await receive(stores, queue, 1))[0], "failed", ERROR, 1)
        (in_flight,) = await receive(stores, queue, 1)
        assert await stores.queue.purge("orders") == 2
        assert await stores.queue.depth("orders") == QueueDepth(visible=0, delayed=0, in_flight=1, dead=1)
        await send(stores, queue, "m4")
        assert await stores.queue.acknowledge(in_flight)
        assert await drain(stores, queue) == ["m4"]

    async def test_a_purge_takes_delayed_messages_and_those_whose_lease_has_ended(
        self, stores: Stores, clock: SkipClock
    ) -> None:
        await send(stores, STANDARD, "m1")
        await receive(stores, STANDARD)
        clock.advance(LEASE)
        await send(stores, STANDARD, "m2", delay_ms=60_000)
        assert await stores.queue.purge("orders") == 2
        assert await stores.queue.next_due_ms(STANDARD) is None


class TestRestart:
    @pytest.mark.parametrize("queue", KINDS, ids=["standard", "fifo", "single"])
    async def test_leases_of_a_dead_process_are_void(self, stores: Stores, queue: QueueSpec) -> None:
        await send(stores, queue, "m1", "m2")
        (held,) = await receive(stores, queue, 1)
        assert await stores.queue.release_all() == 1
        assert await stores.queue.release_all() == 0
        assert not await stores.queue.acknowledge(held)
        (again,) = await receive(stores, queue, 1)
        assert (again.receipt, again.attempt, again.receives) == ("m1", 1, 2)
        assert not await stores.queue.fail(held, ERROR, NOW)

    async def test_what_was_held_goes_behind_what_was_due(self, stores: Stores, clock: SkipClock) -> None:
        """Else the same messages would be interrupted at every start, and those behind them never run."""
        await send(stores, STANDARD, "m1", "m2", "m3")
        await receive(stores, STANDARD, 2)
        clock.advance(timedelta(milliseconds=1))
        await stores.queue.release_all()
        assert receipts_of(await receive(stores, STANDARD)) == ["m3", "m1", "m2"]

    async def test_an_often_interrupted_message_waits_longer_each_time(self, stores: Stores, clock: SkipClock) -> None:
        await send(stores, STANDARD, "m1")
        waits = []
        for _ in range(9):
            await receive_one(stores, STANDARD)
            await stores.queue.release_all()
            due_ms = await stores.queue.next_due_ms(STANDARD)
            assert due_ms is not None
            waits.append((due_ms - clock.now_ms()) / 1000)
            clock.advance(timedelta(milliseconds=due_ms - clock.now_ms()))
        assert waits == [0, 1, 2, 4, 8, 16, 32, 32, 32]

    async def test_a_hidden_receive_is_no_interruption(self, stores: Stores, clock: SkipClock) -> None:
        await send(stores, STANDARD, "m1")
        for _ in range(3):
            await stores.queue.hide(await receive_one(stores, STANDARD), NOW)
        await receive_one(stores, STANDARD)
        await stores.queue.release_all()
        assert (await receive_one(stores, STANDARD)).receives == 2

    async def test_a_recorded_failure_is_no_interruption(self, stores: Stores, clock: SkipClock) -> None:
        await send(stores, STANDARD, "m1")
        for _ in range(3):
            await stores.queue.fail(await receive_one(stores, STANDARD), ERROR, NOW)
        await receive_one(stores, STANDARD)
        await stores.queue.release_all()
        assert (await receive_one(stores, STANDARD)).attempt == 4

    async def test_delays_and_back_offs_outlive_the_process(self, stores: Stores, clock: SkipClock) -> None:
        await send(stores, STANDARD, "m1", "m2")
        failed, _ = await receive(stores, STANDARD)
        await stores.queue.fail(failed, ERROR, SOON)
        await send(stores, STANDARD, "m3", delay_ms=5_000)
        await stores.queue.release_all()
        assert receipts_of(await receive(stores, STANDARD)) == ["m2"]
        clock.advance(SOON)
        assert [(item.receipt, item.attempt) for item in await receive(stores, STANDARD)] == [("m1", 2), ("m3", 1)]

    @pytest.mark.parametrize(("before", "after"), list(product(KINDS, KINDS)))
    async def test_a_queue_that_changes_its_kind_keeps_all_messages(
        self, stores: Stores, clock: SkipClock, before: QueueSpec, after: QueueSpec
    ) -> None:
        """From then on the order of the new kind holds, for old and new messages together."""
        await stores.queue.prepare(before)
        for number in range(3):
            for customer in "ab":
                await send(stores, before, f"{customer}{number}", customer=customer)
        await receive(stores, before, 2)
        await stores.queue.release_all()
        await stores.queue.prepare(after)
        await send(stores, after, "a3", customer="a")
        assert (await stores.queue.depth("orders")).visible == 7
        at_once = receipts_of(await receive(stores, after))
        assert len(at_once) == {"standard": 7, "fifo": 2, "single": 1}[_kind(after)]
        await stores.queue.release_all()
        clock.advance(timedelta(seconds=1))  # some were interrupted for the second time
        order = await drain(stores, after)
        assert sorted(order) == ["a0", "a1", "a2", "a3", "b0", "b1", "b2"]
        if after.is_ordered:
            for customer in "ab":
                assert all(one < two for one, two in pairwise(item for item in order if item[0] == customer))

    async def test_a_message_without_the_group_field_waits_for_no_other(self, stores: Stores) -> None:
        """Sent while the queue was standard, it has no group; it must not block, or be blocked, for ever."""
        payloads: list[Json] = [{"n": 1}, "text", {"customer": None}]
        messages = [outgoing_message(STANDARD, f"m{number}", payload) for number, payload in enumerate(payloads)]
        await stores.queue.send(STANDARD, messages)
        await stores.queue.prepare(FIFO)
        assert receipts_of(await receive(stores, FIFO)) == ["m0", "m1", "m2"]

    async def test_a_back_off_outlives_a_change_of_kind(self, stores: Stores, clock: SkipClock) -> None:
        await send(stores, STANDARD, "m1", "m2")
        _, failed = await receive(stores, STANDARD)
        await stores.queue.fail(failed, ERROR, SOON)
        await stores.queue.release_all()
        await stores.queue.prepare(SINGLE)
        await stores.queue.acknowledge(await receive_one(stores, SINGLE))
        assert await receive(stores, SINGLE) == []
        clock.advance(SOON)
        assert (await receive_one(stores, SINGLE)).attempt == 2


async def test_a_body_of_a_quarter_megabyte_comes_back_as_it_was(stores: Stores) -> None:
    message = outgoing_message(STANDARD, "m1", "x" * 239 * 1024)
    await stores.queue.send(STANDARD, [message])
    delivery = await receive_one(stores, STANDARD)
    assert decode_envelope(delivery.body) == decode_envelope(message.body)


async def test_a_sent_message_is_announced(stores: Stores, wakes: WokenQueues) -> None:
    await send(stores, STANDARD, "m1")
    await asyncio.sleep(0)
    assert wakes.queues == ["orders"]


async def _end(queue: MessageQueue, operation: str, delivery: Delivery, delay: timedelta = NOW) -> bool:
    operations: dict[str, Callable[[], Awaitable[bool]]] = {
        "acknowledge": lambda: queue.acknowledge(delivery),
        "hide": lambda: queue.hide(delivery, delay),
        "fail": lambda: queue.fail(delivery, ERROR, delay),
        "bury": lambda: queue.bury(delivery, "failed", ERROR, delivery.attempt),
    }
    return await operations[operation]()


def _kind(queue: QueueSpec) -> str:
    return "single" if queue.concurrency == 1 else queue.kind
