"""What every dead-letter store does."""

from __future__ import annotations

from datetime import timedelta

import pytest

from iii_runtime.core.message import ErrorRecord, decode_envelope, letter_member
from iii_runtime.core.queue import QueueSpec
from iii_runtime.engine.stores import Stores
from iii_runtime.ports.dead_letter import DeadLetter
from iii_runtime.ports.message_queue import Delivery, OutgoingMessage
from iii_runtime.testing.clock import SkipClock
from iii_runtime.testing.stores import outgoing_message

STANDARD = QueueSpec(name="orders")
FIFO = QueueSpec(name="orders", kind="fifo", group_field="customer")
OTHER = QueueSpec(name="other")
LEASE = timedelta(seconds=30)
NOW = timedelta(0)


async def receive_one(stores: Stores, queue: QueueSpec) -> Delivery:
    (delivery,) = await stores.queue.receive(queue, 1, LEASE)
    return delivery


async def die(stores: Stores, queue: QueueSpec, *receipts: str) -> None:
    for receipt in receipts:
        await stores.queue.send(queue, [outgoing_message(queue, receipt, {"customer": "a", "n": receipt})])
        await stores.queue.bury(await receive_one(stores, queue), "failed", _error("gone"), 1)


def without_token(letter: str) -> str:
    """Return a letter without what tells two redrives of it apart, where a store needs that."""
    token = str((letter_member(letter) or {})["tok"])
    assert letter.count(token) == 1
    return letter.replace(token, "")


async def listed(stores: Stores, queue_name: str = "orders") -> list[str]:
    return [letter.receipt for letter in await stores.letters.list_letters(queue_name, 0, 1000)]


async def test_a_letter_tells_what_died_when_and_why(stores: Stores, clock: SkipClock) -> None:
    message = outgoing_message(FIFO, "m1", {"customer": "é\0", "n": 1})
    start_ms = clock.now_ms()
    await stores.queue.send(FIFO, [message])
    for attempt in (1, 2):
        await stores.queue.fail(await receive_one(stores, FIFO), _error(f"no {attempt}"), NOW)
    clock.advance(timedelta(seconds=7))
    assert await stores.queue.bury(await receive_one(stores, FIFO), "failed", _error("no 3"), 3)
    (letter,) = await stores.letters.list_letters("orders", 0, 10)
    assert letter == DeadLetter(
        receipt="m1",
        queue="orders",
        function_id="test::handle",
        generation=0,
        cause="failed",
        error=_error("no 3"),
        errors=((1, _error("no 1")), (2, _error("no 2")), (3, _error("no 3"))),
        attempts=3,
        receives=3,
        first_ms=start_ms,
        failed_ms=start_ms + 7000,
        size_bytes=len('{"customer":"\\u00e9\\u0000","n":1}'),
        letter=letter.letter,
    )
    assert await stores.letters.get("m1") == letter


async def test_a_letter_is_the_enqueued_body_and_one_member_more(stores: Stores) -> None:
    message = outgoing_message(FIFO, "m1", {"customer": "漢字", "text": "\U0001f600 \0 }"})
    await stores.queue.send(FIFO, [message])
    await stores.queue.bury(await receive_one(stores, FIFO), "receives", _error("killed"), 0)
    letter = await _get(stores, "m1")
    assert letter.letter.startswith(message.body[:-1] + ',"dead_letter":')
    assert decode_envelope(letter.letter) == decode_envelope(message.body)
    member = letter_member(letter.letter)
    assert member is not None
    assert (member["g"], member["cause"], member["group"], member["queue"]) == (0, "receives", "漢字", "orders")
    assert (letter.attempts, letter.errors) == (0, ())


async def test_the_last_three_errors_are_kept_with_the_ends_of_their_stacks(stores: Stores) -> None:
    await stores.queue.send(STANDARD, [outgoing_message(STANDARD, "m1")])
    for attempt in range(1, 5):
        error = ErrorRecord(type="E", message=f"no {attempt}", stack="x" * 5000 + f"end {attempt}")
        await stores.queue.fail(await receive_one(stores, STANDARD), error, NOW)
    await stores.queue.bury(await receive_one(stores, STANDARD), "failed", _error("no 5"), 5)
    letter = await _get(stores, "m1")
    assert [(attempt, error.message) for attempt, error in letter.errors] == [(3, "no 3"), (4, "no 4"), (5, "no 5")]
    assert letter.errors[0][1].stack.endswith("xend 3")
    assert len(letter.errors[0][1].stack) == 2048


async def test_letters_are_listed_oldest_death_first_and_in_pages(stores: Stores) -> None:
    await die(stores, STANDARD, "m3", "m1", "m2")
    await die(stores, OTHER, "n1")
    assert await listed(stores) == ["m3", "m1", "m2"]
    pages = [await stores.letters.list_letters("orders", offset, 2) for offset in (0, 2, 4)]
    assert [[letter.receipt for letter in page] for page in pages] == [["m3", "m1"], ["m2"], []]
    assert await stores.letters.count("orders") == 3
    assert (await stores.queue.depth("orders")).dead == 3
    assert await listed(stores, "unknown") == []


async def test_listing_hides_nothing_and_locks_nobody_out(stores: Stores) -> None:
    await die(stores, STANDARD, "m1", "m2")
    assert await listed(stores) == await listed(stores) == ["m1", "m2"]
    assert await stores.letters.redrive(STANDARD, "m2")


@pytest.mark.parametrize("position", [0, 2, 4])
@pytest.mark.parametrize("queue", [STANDARD, FIFO], ids=["standard", "fifo"])
async def test_a_redriven_message_is_a_new_generation_with_all_its_attempts(
    stores: Stores, position: int, queue: QueueSpec
) -> None:
    receipts = ["m0", "m1", "m2", "m3", "m4"]
    await die(stores, queue, *receipts)
    chosen = receipts.pop(position)
    before = await _get(stores, chosen)
    assert await stores.letters.redrive(queue, chosen)
    assert not await stores.letters.redrive(queue, chosen)
    assert await listed(stores) == receipts
    assert await stores.letters.get(chosen) is None
    delivery = await receive_one(stores, queue)
    assert (delivery.receipt, delivery.generation, delivery.attempt, delivery.receives) == (chosen, 1, 1, 1)
    assert without_token(delivery.body) == without_token(before.letter)
    assert await stores.queue.acknowledge(delivery)
    assert await stores.queue.receive(queue, 10, LEASE) == []


async def test_a_message_may_die_again_and_again(stores: Stores, clock: SkipClock) -> None:
    message = outgoing_message(STANDARD, "m1", {"n": 1})
    start_ms = clock.now_ms()
    await stores.queue.send(STANDARD, [message])
    tokens = set()
    for generation in range(3):
        clock.advance(timedelta(hours=1))
        await stores.queue.bury(await receive_one(stores, STANDARD), "failed", _error(f"g{generation}"), 1)
        letter = await _get(stores, "m1")
        assert (letter.generation, letter.first_ms, letter.failed_ms) == (generation, start_ms, clock.now_ms())
        assert letter.errors == ((1, _error(f"g{generation}")),)
        assert letter.letter.startswith(message.body[:-1] + ',"dead_letter":')
        tokens.add(str((letter_member(letter.letter) or {})["tok"]))
        assert await stores.letters.count("orders") == 1
        assert await stores.letters.redrive(STANDARD, "m1")
    assert len(tokens) == 3


async def test_a_redriven_message_goes_to_the_end_of_its_group(stores: Stores) -> None:
    await die(stores, FIFO, "m1")
    for receipt, customer in (("m2", "a"), ("m3", "b")):
        await stores.queue.send(FIFO, [outgoing_message(FIFO, receipt, {"customer": customer})])
    await stores.letters.redrive(FIFO, "m1")
    first = await stores.queue.receive(FIFO, 10, LEASE)
    assert [delivery.receipt for delivery in first] == ["m2", "m3"]
    await stores.queue.acknowledge(first[0])
    assert (await receive_one(stores, FIFO)).receipt == "m1"


async def test_redriving_all_keeps_the_order_of_the_deaths(stores: Stores) -> None:
    await die(stores, FIFO, "m2", "m1", "m3")
    await die(stores, OTHER, "n1")
    assert await stores.letters.redrive_all(FIFO) == 3
    assert await stores.letters.redrive_all(FIFO) == 0
    order = []
    for _ in range(3):
        delivery = await receive_one(stores, FIFO)
        await stores.queue.acknowledge(delivery)
        order.append(delivery.receipt)
    assert order == ["m2", "m1", "m3"]
    assert await listed(stores, "other") == ["n1"]


async def test_a_letter_follows_its_queue_to_another_kind(stores: Stores) -> None:
    await die(stores, STANDARD, "m1", "m2")
    await stores.queue.prepare(FIFO)
    assert await stores.letters.redrive_all(FIFO) == 2
    assert (await receive_one(stores, FIFO)).receipt == "m1"
    assert await stores.queue.receive(FIFO, 10, LEASE) == []


async def test_a_discarded_letter_is_gone_for_good(stores: Stores) -> None:
    await die(stores, STANDARD, "m1", "m2", "m3")
    assert await stores.letters.discard("orders", "m2")
    assert not await stores.letters.discard("orders", "m2")
    assert not await stores.letters.redrive(STANDARD, "m2")
    assert await listed(stores) == ["m1", "m3"]
    assert await stores.letters.discard_all("orders") == 2
    assert await stores.letters.count("orders") == 0
    assert await stores.queue.receive(STANDARD, 10, LEASE) == []


async def test_a_letter_of_another_queue_is_no_letter_of_this_one(stores: Stores) -> None:
    await die(stores, STANDARD, "m1")
    assert not await stores.letters.redrive(OTHER, "m1")
    assert not await stores.letters.discard("other", "m1")
    assert await stores.letters.discard_all("other") == 0
    assert await stores.letters.redrive_all(OTHER) == 0
    assert await listed(stores) == ["m1"]


async def test_what_never_died_is_no_letter(stores: Stores) -> None:
    await stores.queue.send(STANDARD, [outgoing_message(STANDARD, "m1")])
    assert await stores.letters.get("m1") is None
    assert not await stores.letters.redrive(STANDARD, "m1")
    assert not await stores.letters.discard("orders", "m1")
    assert (await receive_one(stores, STANDARD)).receipt == "m1"


@pytest.mark.parametrize("body", ["", "no json", "[1]", '{"v":99}', '"}', '{"dead_letter":1'])
async def test_an_unreadable_body_survives_its_death_and_redrive(stores: Stores, body: str) -> None:
    await stores.queue.send(STANDARD, [OutgoingMessage(receipt="m1", function_id="test::handle", body=body)])
    for generation in range(2):
        delivery = await receive_one(stores, STANDARD)
        assert (delivery.body, delivery.generation) == (body, generation)
        await stores.queue.bury(delivery, "unreadable", _error("no envelope"), 0)
        letter = await _get(stores, "m1")
        assert (letter.function_id, letter.cause, letter.size_bytes) == (None, "unreadable", len(body))
        assert letter.generation == generation
        await stores.letters.redrive(STANDARD, "m1")


async def _get(stores: Stores, receipt: str) -> DeadLetter:
    letter = await stores.letters.get(receipt)
    assert letter is not None
    return letter


def _error(message: str) -> ErrorRecord:
    return ErrorRecord(type="ValueError", message=message, stack="line 1")
