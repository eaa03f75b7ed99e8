"""What may be in a message: bodies that are no envelope, those of a later version, letters, and topics' messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import UUID, uuid5

import pytest

from iii_runtime.core.letter_transport import MAX_LETTER_BYTES, read_member
from iii_runtime.core.message import TOPIC_FUNCTION, Envelope, decode_envelope, encode_envelope
from iii_runtime.core.queue import QueueSpec
from iii_runtime.ports.message_queue import Delivery
from tests.contract.sqs_stage import ERROR, FIFO, LEASE, STANDARD, KilledError, Stage, open_stage

RECEIPT = "5b2f0d3e-8f3a-4c55-9b6d-0a4b8a1f7c11"
SUBSCRIPTION = QueueSpec(name="topic/paid/mail::send", topic="paid", function_id="mail::send")


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with open_stage(monkeypatch, specs=(STANDARD, FIFO, SUBSCRIPTION)) as opened:
        opened.queue.deployed.deploy(STANDARD)  # the two have one name, and the last one has it
        yield opened


@pytest.mark.parametrize("body", ["no json", "[1]", '{"v":0}', '"}', '{"dead_letter":1', '{"v":1,"id":"x"}'])
class TestNoEnvelope:
    async def test_it_has_the_id_of_its_message(self, stage: Stage, body: str) -> None:
        delivery = await self._arrived(stage, body)
        assert (delivery.body, delivery.generation, delivery.attempt) == (body, 0, 1)
        assert str(UUID(delivery.receipt)) == delivery.receipt

    async def test_it_survives_its_death_and_redrive(self, stage: Stage, body: str) -> None:
        delivery = await self._arrived(stage, body)
        for generation in range(2):
            assert (delivery.body, delivery.generation) == (body, generation)
            assert await stage.queue.bury(delivery, "unreadable", ERROR, 0)
            letter = await stage.letters.get(delivery.receipt)
            assert letter is not None
            assert (letter.function_id, letter.cause, letter.size_bytes) == (None, "unreadable", len(body))
            assert letter.generation == generation
            assert await stage.letters.redrive(STANDARD, delivery.receipt)
            delivery = await stage.receive_one(STANDARD)

    async def test_a_redrive_by_hand_keeps_it_as_it_was(self, stage: Stage, body: str) -> None:
        delivery = await self._arrived(stage, body)
        assert await stage.queue.bury(delivery, "unreadable", ERROR, 0)
        assert stage.console_redrive(STANDARD) == 1
        again = await stage.receive_one(STANDARD)
        assert (again.receipt, again.body, again.generation) == (delivery.receipt, body, 1)

    async def _arrived(self, stage: Stage, body: str) -> Delivery:
        stage.post(stage.url(STANDARD), body)
        return await stage.receive_one(STANDARD)


async def test_a_body_too_large_for_its_letter_travels_as_a_link(stage: Stage) -> None:
    """Somebody else's megabyte, which grows as JSON text: SQS would not take the letter."""
    body = "漢" * 300_000
    stage.post(stage.url(STANDARD), body)
    delivery = await stage.receive_one(STANDARD)
    assert await stage.queue.bury(delivery, "unreadable", ERROR, 0)
    (sent,) = stage.waiting(stage.letter_url(STANDARD))
    assert len(sent) < MAX_LETTER_BYTES
    assert (await stage.reconciler.reconcile(STANDARD)).kept == 1
    assert await stage.letters.redrive(STANDARD, delivery.receipt)
    again = await stage.receive_one(STANDARD)
    assert (again.receipt, again.body, again.generation) == (delivery.receipt, body, 1)
    assert await stage.queue.bury(again, "unreadable", ERROR, 0)
    letter = await stage.letters.get(delivery.receipt)
    assert letter is not None
    assert json.loads(letter.letter)["raw"] == body


async def test_a_body_of_a_later_version_is_left_alone(stage: Stage) -> None:
    """A newer deployment has sent it: nothing is read, claimed or counted."""
    body = json.dumps({"v": 2, "id": RECEIPT, "fn": "f", "dead_letter": {"g": 1, "tok": "t", "cut": 5}})
    stage.post(stage.url(STANDARD), body)
    (record,) = stage.records(stage.url(STANDARD))
    stage.services.calls.clear()
    delivery = await stage.queue.take(STANDARD, record)
    assert delivery is not None
    assert (delivery.body, delivery.attempt) == (body, 1)
    assert stage.counted() == {}


@pytest.mark.parametrize(
    "member",
    ['{"g":-1}', '{"g":99999999999999999999}', '{"g":0,"cut":5}', '{"g":0,"tok":7,"cut":40}', "{}", "7"],
)
async def test_a_member_that_is_no_letters_is_no_part_of_the_message(stage: Stage, member: str) -> None:
    """Anybody may send anything; it must neither be believed nor get into a letter."""
    body = encode_envelope(Envelope(receipt=RECEIPT, function_id="f", queue="orders", accepted_ms=1, payload="[1]"))
    stage.post(stage.url(STANDARD), f'{body[:-1]},"dead_letter":{member}}}')
    delivery = await stage.receive_one(STANDARD)
    assert (delivery.receipt, delivery.generation) == (RECEIPT, 0)
    assert decode_envelope(delivery.body) == decode_envelope(body)
    assert await stage.queue.bury(delivery, "failed", ERROR, 1)
    letter = await stage.letters.get(RECEIPT)
    assert letter is not None
    assert decode_envelope(letter.letter) == decode_envelope(body)
    assert await stage.letters.redrive(STANDARD, RECEIPT)
    assert (await stage.receive_one(STANDARD)).generation == 1


@pytest.mark.parametrize("receipt", ["", "x" * 3000])
async def test_a_receipt_no_item_can_have_is_replaced(stage: Stage, receipt: str) -> None:
    stage.post(
        stage.url(STANDARD),
        encode_envelope(Envelope(receipt=receipt, function_id="f", queue="orders", accepted_ms=1)),
    )
    delivery = await stage.receive_one(STANDARD)
    assert str(UUID(delivery.receipt)) == delivery.receipt
    assert await stage.queue.bury(delivery, "failed", ERROR, 1)


class TestSubscriptions:
    """One envelope for all subscriptions of a topic; each queue has a receipt of its own."""

    async def test_the_receipt_is_derived_and_the_same_at_each_receive(self, stage: Stage) -> None:
        delivery = await self._arrived(stage)
        assert delivery.receipt == str(uuid5(UUID(RECEIPT), SUBSCRIPTION.name))
        stage.clock.advance(LEASE)
        assert (await stage.receive_one(SUBSCRIPTION)).receipt == delivery.receipt

    async def test_a_letter_names_the_function_of_the_subscription(self, stage: Stage) -> None:
        delivery = await self._arrived(stage)
        assert await stage.queue.bury(delivery, "failed", ERROR, 1)
        (letter,) = await stage.letters.list_letters(SUBSCRIPTION.name, 0, 10)
        assert (letter.receipt, letter.function_id) == (delivery.receipt, "mail::send")
        assert await stage.letters.redrive(SUBSCRIPTION, delivery.receipt)
        again = await stage.receive_one(SUBSCRIPTION)
        assert (again.receipt, again.generation, again.attempt) == (delivery.receipt, 1, 1)

    async def test_its_letter_is_recognised_on_the_dead_letter_queue(self, stage: Stage) -> None:
        assert await stage.queue.bury(await self._arrived(stage), "failed", ERROR, 1)
        done = await stage.reconciler.reconcile(SUBSCRIPTION)
        assert (done.kept, done.adopted, done.deleted) == (1, 0, 0)

    async def _arrived(self, stage: Stage) -> Delivery:
        envelope = Envelope(receipt=RECEIPT, function_id=TOPIC_FUNCTION, queue="paid", accepted_ms=1)
        stage.post(stage.url(SUBSCRIPTION), encode_envelope(envelope))
        return await stage.receive_one(SUBSCRIPTION)


class TestRedrivesByHand:
    """The AWS console moves a letter to its source queue as it is: same body, another message."""

    async def test_it_is_a_new_generation(self, stage: Stage) -> None:
        await stage.die(STANDARD, RECEIPT)
        assert stage.console_redrive(STANDARD) == 1
        delivery = await stage.receive_one(STANDARD)
        assert (delivery.receipt, delivery.generation, delivery.attempt) == (RECEIPT, 1, 1)
        assert await stage.listed() == []

    async def test_of_two_copies_one_runs(self, stage: Stage) -> None:
        """A copy the console has left behind has the same token, so it is the same redrive; a second letter has not."""
        await stage.die(STANDARD, RECEIPT)
        stage.console_redrive(STANDARD)
        assert await stage.letters.redrive(STANDARD, RECEIPT)
        first, second = stage.records(stage.url(STANDARD))
        assert await stage.queue.take(STANDARD, first) is not None
        assert await stage.queue.take(STANDARD, second) is None
        assert len(stage.waiting(stage.url(STANDARD))) == 1

    async def test_of_two_letters_of_one_death_one_runs(self, stage: Stage) -> None:
        """The host that put the first was killed before it acknowledged; the next put one more, under its own token."""
        await stage.send(STANDARD, RECEIPT)
        delivery = await stage.receive_one(STANDARD)
        stage.mishaps.begin(kill_at=2)
        with pytest.raises(KilledError):
            await stage.queue.bury(delivery, "failed", ERROR, 1)
        stage.mishaps.begin()
        stage.clock.advance(LEASE)
        assert await stage.queue.receive(STANDARD, 10, LEASE) == []
        assert stage.console_redrive(STANDARD) == 2
        ran = await stage.queue.receive(STANDARD, 10, LEASE)
        assert [delivery.receipt for delivery in ran] == [RECEIPT]
        assert len(stage.waiting(stage.url(STANDARD))) == 1

    async def test_in_fifo_it_goes_back_into_its_own_group(self, stage: Stage) -> None:
        """It comes under the group of its letter; run there it would overtake its own group."""
        await stage.die(FIFO, RECEIPT)
        assert stage.console_redrive(FIFO) == 1
        (moved,) = stage.records(stage.url(FIFO))
        assert await stage.queue.take(FIFO, moved) is None
        delivery = await stage.receive_one(FIFO)
        assert moved.group == RECEIPT
        assert (delivery.receipt, delivery.generation, delivery.attempt) == (RECEIPT, 1, 1)
        assert delivery.group == read_group(delivery)

    async def test_a_crash_on_the_way_to_the_own_group_loses_nothing(self, stage: Stage) -> None:
        await stage.die(FIFO, RECEIPT)
        stage.console_redrive(FIFO)
        (record,) = stage.records(stage.url(FIFO))
        stage.mishaps.refuse["DeleteMessage"] = ["AccessDenied"]
        with pytest.raises(Exception, match="AccessDenied"):
            await stage.queue.take(FIFO, record)
        stage.clock.advance(LEASE)
        ran = []
        for _ in range(3):
            for delivery in await stage.queue.receive(FIFO, 1, LEASE):
                ran.append(delivery.receipt)
                await stage.queue.acknowledge(delivery)
        assert ran == [RECEIPT]
        assert stage.waiting(stage.url(FIFO)) == []

    async def test_a_letter_on_the_queue_carries_a_token_of_its_own(self, stage: Stage) -> None:
        await stage.die(STANDARD, RECEIPT)
        (delivery,) = [await stage.letters.get(RECEIPT)]
        (letter,) = stage.waiting(stage.letter_url(STANDARD))
        member = read_member(letter)
        assert delivery is not None
        assert member is not None
        assert member.generation == delivery.generation == 0


def read_group(delivery: Delivery) -> str:
    """Return the group of customer `a`."""
    from iii_runtime.core.queue import group_key

    group = group_key(decode_envelope(delivery.body).group, FIFO)
    assert group is not None
    return group
