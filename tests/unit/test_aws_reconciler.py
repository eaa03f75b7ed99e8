"""The reconciler: what becomes of each message on a dead-letter queue, by what its item says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime.adapters.aws.letter_index import ListedLetter
from iii_runtime.adapters.aws.look_schedule import AGAIN
from iii_runtime.adapters.aws.reconciler import HOLD, LIMIT, Reconciled
from iii_runtime.core.letter import LettersLeftError
from iii_runtime.core.letter_transport import read_member, with_token
from iii_runtime.core.queue import QueueSpec
from iii_runtime.ports.message_queue import Delivery
from iii_runtime.testing.stores import outgoing_message
from tests.contract.sqs_stage import ERROR, FIFO, LEASE, STANDARD, KilledError, Stage, open_stage

RECEIVES = 3
KINDS = [STANDARD, FIFO]
NAMES = ["standard", "fifo"]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Where SQS gives a message up after three receives."""
    with open_stage(monkeypatch, specs=(STANDARD,), receives=RECEIVES) as opened:
        yield opened


async def move(stage: Stage, spec: QueueSpec) -> None:
    """Let SQS move the message that is visible, by receives that come to nothing: each time the host dies."""
    for _ in range(RECEIVES + 1):
        stage.records(stage.url(spec))
        stage.clock.advance(LEASE)
    assert stage.waiting(stage.url(spec)) == []


async def die(stage: Stage, spec: QueueSpec, receipt: str = "m1") -> str:
    """Let a message die, and return the letter that was put."""
    await stage.die(spec, receipt)
    return stage.waiting(stage.letter_url(spec))[-1]


async def die_beside_a_moved_copy(stage: Stage) -> None:
    """Let a message die that was sent twice because an answer was lost, and SQS move the other copy."""
    stage.mishaps.begin(lose_at=0)
    await stage.send(STANDARD, "m1")
    first, _ = await stage.queue.receive(STANDARD, 10, LEASE)
    assert await stage.queue.bury(first, "failed", ERROR, 1)
    stage.clock.advance(LEASE)
    await move(stage, STANDARD)


def letters_of(stage: Stage, spec: QueueSpec) -> int:
    """Return how many messages the dead-letter queue has."""
    return len(stage.waiting(stage.letter_url(spec)))


def lettered(envelope: dict[str, Any], member: dict[str, Any]) -> str:
    """Return the letter of an envelope and a `dead_letter` member, whatever is in them."""
    head = json.dumps(envelope)
    return f'{head[:-1]},"dead_letter":{json.dumps({**member, "cut": len(head) - 1})}}}'


def forget_source(parsed: dict[str, Any], **_: object) -> None:
    """Leave out of an answer where SQS has moved a message from."""
    for message in parsed.get("Messages", []):
        message["Attributes"].pop("DeadLetterQueueSourceArn", None)


class TestLetters:
    """Letters that the runtime has put."""

    @pytest.mark.parametrize("spec", KINDS, ids=NAMES)
    async def test_one_of_a_dead_message_stays_and_is_visible(self, stage: Stage, spec: QueueSpec) -> None:
        await die(stage, spec)
        for _ in range(2):
            assert await stage.reconciler.reconcile(spec) == Reconciled(kept=1)
        assert len(stage.records(stage.letter_url(spec))) == 1

    @pytest.mark.parametrize("spec", KINDS, ids=NAMES)
    async def test_a_second_one_goes(self, stage: Stage, spec: QueueSpec) -> None:
        """Its host put the letter, died before it acknowledged, and the next one put it again."""
        letter = await die(stage, spec)
        more = {"MessageGroupId": "m1", "MessageDeduplicationId": "later"} if spec.is_ordered else {}
        stage.post(stage.letter_url(spec), with_token(letter, "another"), **more)
        assert await stage.reconciler.reconcile(spec) == Reconciled(kept=1, deleted=1)
        assert letters_of(stage, spec) == 1

    @pytest.mark.parametrize("end", ["redriven", "claimed", "discarded", "dead again"])
    @pytest.mark.parametrize("spec", KINDS, ids=NAMES)
    async def test_one_that_is_spent_goes(self, stage: Stage, spec: QueueSpec, end: str) -> None:
        await die(stage, spec)
        if end == "discarded":
            await stage.letters.discard("orders", "m1")
        else:
            await stage.letters.redrive(spec, "m1")
        if end in {"claimed", "dead again"}:
            delivery = await stage.receive_one(spec)
            if end == "dead again":
                await stage.queue.bury(delivery, "failed", ERROR, 1)
        is_dead = end == "dead again"
        assert await stage.reconciler.reconcile(spec) == Reconciled(kept=int(is_dead), deleted=1)
        assert letters_of(stage, spec) == int(is_dead)
        assert await stage.listed() == (["m1"] if is_dead else [])

    @pytest.mark.parametrize("spec", KINDS, ids=NAMES)
    async def test_one_without_an_item_is_listed_again(self, stage: Stage, spec: QueueSpec) -> None:
        await die(stage, spec)
        before = await stage.letters.get("m1")
        table = stage.services.deployment.table_name
        key = {"pk": {"S": "M#m1"}, "sk": {"S": "@"}}
        stage.services.clients.dynamodb.delete_item(TableName=table, Key=key)
        assert await stage.listed() == []
        assert await stage.reconciler.reconcile(spec) == Reconciled(kept=1, adopted=1)
        after = await stage.letters.get("m1")
        assert before is not None
        assert after is not None
        assert (after.cause, after.attempts, after.failed_ms) == (before.cause, before.attempts, before.failed_ms)
        assert await stage.letters.redrive(spec, "m1")
        assert (await stage.receive_one(spec)).generation == 1

    async def test_one_whose_message_is_redriven_by_hand_stays_until_that_is_over(self, stage: Stage) -> None:
        """A copy the console leaves behind looks like a message SQS has moved: nothing is deleted on a guess."""
        letter = await die(stage, STANDARD)
        stage.post(stage.url(STANDARD), letter)
        delivery = await stage.receive_one(STANDARD)
        assert await stage.reconciler.reconcile(STANDARD) == Reconciled(kept=1)
        assert await stage.queue.bury(delivery, "failed", ERROR, 1)
        assert await stage.reconciler.reconcile(STANDARD) == Reconciled(kept=1, deleted=1)


class TestMoves:
    """Messages that SQS has moved by itself."""

    @pytest.mark.parametrize("spec", KINDS, ids=NAMES)
    async def test_a_message_no_item_knows_is_adopted(self, stage: Stage, spec: QueueSpec) -> None:
        await stage.send(spec, "m1")
        sent_ms = stage.clock.now_ms()
        await move(stage, spec)
        assert await stage.listed() == []
        assert await stage.reconciler.reconcile(spec) == Reconciled(adopted=1, kept=1)
        (letter,) = await stage.letters.list_letters("orders", 0, 10)
        assert (letter.cause, letter.attempts, letter.generation, letter.first_ms) == ("native", 0, 0, sent_ms)
        assert letter.receives >= RECEIVES
        assert letter.error.type == "Interrupted"
        (put,) = stage.waiting(stage.letter_url(spec))
        member = read_member(put)
        assert member is not None
        assert member.cause == "native"
        assert await stage.letters.redrive(spec, "m1")
        delivery = await stage.receive_one(spec)
        assert (delivery.receipt, delivery.generation, delivery.attempt) == ("m1", 1, 1)

    @pytest.mark.parametrize("spec", KINDS, ids=NAMES)
    async def test_its_counted_failures_stay(self, stage: Stage, spec: QueueSpec) -> None:
        await stage.send(spec, "m1")
        await stage.queue.fail(await stage.receive_one(spec), ERROR, timedelta(0))
        await move(stage, spec)
        await stage.reconciler.reconcile(spec)
        (letter,) = await stage.letters.list_letters("orders", 0, 10)
        assert (letter.cause, letter.attempts) == ("native", 1)
        assert [attempt for attempt, _ in letter.errors] == [1]

    @pytest.mark.parametrize("told", [True, False])
    @pytest.mark.parametrize("claimed", [True, False])
    @pytest.mark.parametrize("spec", KINDS, ids=NAMES)
    async def test_a_redriven_message_is_adopted_claimed_or_not(
        self, stage: Stage, spec: QueueSpec, *, claimed: bool, told: bool
    ) -> None:
        """Unclaimed it looks like a spent letter, and is the only copy there is. Not every SQS says who moved it."""
        if not told:
            stage.services.clients.sqs.meta.events.register_last("after-call.sqs.ReceiveMessage", forget_source)
        await die(stage, spec)
        await stage.reconciler.reconcile(spec)
        await stage.letters.redrive(spec, "m1")
        if claimed:
            await stage.receive_one(spec)
            stage.clock.advance(LEASE)
        await move(stage, spec)
        done = await stage.reconciler.reconcile(spec)
        assert (done.adopted, done.deleted) == (1, 1)
        (letter,) = await stage.letters.list_letters("orders", 0, 10)
        assert (letter.cause, letter.generation, letter.errors) == ("native", 1, ())
        assert letters_of(stage, spec) == 1

    async def test_one_redriven_by_hand_that_was_claimed_is_adopted(self, stage: Stage) -> None:
        await die(stage, STANDARD)
        stage.console_redrive(STANDARD)
        await stage.receive_one(STANDARD)
        stage.clock.advance(LEASE)
        await move(stage, STANDARD)
        assert (await stage.reconciler.reconcile(STANDARD)).adopted == 1
        (letter,) = await stage.letters.list_letters("orders", 0, 10)
        assert (letter.cause, letter.generation) == ("native", 1)

    @pytest.mark.parametrize("spec", KINDS, ids=NAMES)
    async def test_one_whose_death_is_written_is_replaced_by_its_letter(self, stage: Stage, spec: QueueSpec) -> None:
        """Its host wrote the death, and died before the letter each time."""
        await stage.send(spec, "m1")
        delivery = await stage.receive_one(spec)
        stage.mishaps.begin(kill_at=1)
        with pytest.raises(KilledError):
            await stage.queue.bury(delivery, "failed", ERROR, 1)
        stage.mishaps.begin()
        stage.clock.advance(LEASE)
        await move(stage, spec)
        await stage.reconciler.reconcile(spec)
        (letter,) = await stage.letters.list_letters("orders", 0, 10)
        assert letter.cause == "failed"
        (put,) = stage.waiting(stage.letter_url(spec))
        member = read_member(put)
        assert member is not None
        assert (member.cause, member.generation) == ("failed", 0)

    async def test_one_beside_its_letter_goes(self, stage: Stage) -> None:
        await die_beside_a_moved_copy(stage)
        await stage.reconciler.reconcile(STANDARD)
        assert letters_of(stage, STANDARD) == 1
        assert await stage.listed() == ["m1"]

    @pytest.mark.parametrize("end", ["redriven", "discarded"])
    async def test_a_stale_copy_goes(self, stage: Stage, end: str) -> None:
        await die_beside_a_moved_copy(stage)
        if end == "redriven":
            await stage.letters.redrive(STANDARD, "m1")
        else:
            await stage.letters.discard("orders", "m1")
        assert (await stage.reconciler.reconcile(STANDARD)).deleted == 2
        assert letters_of(stage, STANDARD) == 0
        assert len(await stage.queue.receive(STANDARD, 10, LEASE)) == int(end == "redriven")

    async def test_a_body_that_is_no_envelope_is_adopted_under_the_id_of_its_message(self, stage: Stage) -> None:
        stage.post(stage.url(STANDARD), "no json")
        await move(stage, STANDARD)
        await stage.reconciler.reconcile(STANDARD)
        (letter,) = await stage.letters.list_letters("orders", 0, 10)
        assert (letter.cause, letter.function_id) == ("native", None)

    async def test_a_body_of_a_later_version_is_left_for_a_newer_host(self, stage: Stage) -> None:
        stage.post(stage.url(STANDARD), '{"v":2}')
        await move(stage, STANDARD)
        assert await stage.reconciler.reconcile(STANDARD) == Reconciled(kept=1)
        assert await stage.listed() == []

    async def test_one_whose_item_changes_meanwhile_waits_for_the_next_time(self, stage: Stage) -> None:
        await stage.send(STANDARD, "m1")
        delivery = await stage.receive_one(STANDARD)
        await move(stage, STANDARD)
        stage.mishaps.between["UpdateItem"] = lambda: stage.queue.fail(delivery, ERROR, timedelta(0))
        assert await stage.reconciler.reconcile(STANDARD) == Reconciled(kept=1)
        assert (await stage.reconciler.reconcile(STANDARD)).adopted == 1
        (letter,) = await stage.letters.list_letters("orders", 0, 10)
        assert letter.attempts == 1


class TestSweep:
    async def test_a_difference_is_looked_into_when_it_is_there_twice(self, stage: Stage) -> None:
        await stage.send(STANDARD, "m1")
        await move(stage, STANDARD)
        assert await stage.reconciler.sweep([STANDARD]) == {}
        assert await stage.reconciler.sweep([STANDARD]) == {"orders": Reconciled(adopted=1, kept=1)}
        assert await stage.reconciler.sweep([STANDARD]) == {}

    async def test_a_difference_that_stays_is_looked_into_now_and_then(self, stage: Stage) -> None:
        """SQS keeps a letter for 14 days, its item is kept longer."""
        await die(stage, STANDARD)
        stage.services.clients.sqs.purge_queue(QueueUrl=stage.letter_url(STANDARD))
        looks = [await stage.reconciler.sweep([STANDARD]) for _ in range(4)]
        assert looks == [{}, {"orders": Reconciled()}, {}, {}]
        stage.clock.advance(AGAIN)
        assert await stage.reconciler.sweep([STANDARD]) == {"orders": Reconciled()}
        await stage.send(STANDARD, "m2")
        await move(stage, STANDARD)
        await stage.send(STANDARD, "m3")
        await move(stage, STANDARD)
        assert await stage.reconciler.sweep([STANDARD]) == {"orders": Reconciled(adopted=2, kept=2)}

    async def test_a_native_letter_is_adopted_beside_one_that_sqs_has_forgotten(self, stage: Stage) -> None:
        """One listed and one on the dead-letter queue: the counts agree, and are of different letters."""
        await die(stage, STANDARD)
        stage.services.clients.sqs.purge_queue(QueueUrl=stage.letter_url(STANDARD))
        await stage.send(STANDARD, "m2")
        await move(stage, STANDARD)
        assert await stage.reconciler.sweep([STANDARD]) == {}
        stage.clock.advance(AGAIN)
        assert await stage.reconciler.sweep([STANDARD]) == {"orders": Reconciled(adopted=1, kept=1)}
        assert await stage.listed() == ["m1", "m2"]

    async def test_queues_in_line_are_looked_through_one_by_one(self, stage: Stage) -> None:
        """Each look takes its time, and one sweep has to end within a minute."""
        other = QueueSpec(name="other")
        for spec in (STANDARD, other):
            await die(stage, spec, f"m-{spec.name}")
        queues = [STANDARD, other]
        assert await stage.reconciler.sweep(queues) == {}
        stage.clock.advance(AGAIN)
        looks = [list(await stage.reconciler.sweep(queues)) for _ in range(3)]
        assert looks == [["orders"], ["other"], []]

    async def test_an_empty_queue_is_never_looked_through(self, stage: Stage) -> None:
        for _ in range(3):
            assert await stage.reconciler.sweep([STANDARD]) == {}
            stage.clock.advance(AGAIN)
        assert "sqs:ReceiveMessage" not in stage.counted()

    async def test_a_queue_in_line_costs_one_request_and_four_queries(self, stage: Stage) -> None:
        await die(stage, STANDARD)
        stage.services.calls.clear()
        assert await stage.reconciler.sweep([STANDARD]) == {}
        assert stage.counted() == {"sqs:GetQueueAttributes": 1, "dynamodb:Query": 4}

    async def test_a_look_ends_in_time_and_gives_back_what_it_held(self, stage: Stage) -> None:
        await stage.die(STANDARD, *[f"m{number}" for number in range(12)])
        stage.services.clients.sqs.meta.events.register(
            "after-call.sqs.ReceiveMessage", lambda **_: stage.clock.advance(LIMIT)
        )
        assert (await stage.reconciler.reconcile(STANDARD)).kept == 10
        assert timedelta(seconds=1) < LIMIT < HOLD
        assert len(stage.records(stage.letter_url(STANDARD))) == 10

    async def test_redriving_all_takes_what_sqs_has_moved_along(self, stage: Stage) -> None:
        await stage.send(STANDARD, "m1")
        await move(stage, STANDARD)
        await stage.die(STANDARD, "m2")
        assert await stage.letters.redrive_all(STANDARD) == 2
        redriven: list[Delivery] = await stage.queue.receive(STANDARD, 10, LEASE)
        assert sorted(delivery.receipt for delivery in redriven) == ["m1", "m2"]
        assert (await stage.reconciler.reconcile(STANDARD)).kept == 0
        assert letters_of(stage, STANDARD) == 0

    @pytest.mark.parametrize("operation", ["redrive", "discard"])
    async def test_moving_all_does_not_wait_for_the_index(
        self, stage: Stage, operation: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The index lags behind: what was adopted a moment ago is not in it yet."""
        await stage.die(STANDARD, "m1")
        index = stage.letters._index
        before = await index.list("orders")
        await stage.send(STANDARD, "m2")
        await move(stage, STANDARD)

        async def lag(_: str) -> list[ListedLetter]:
            return list(before)

        monkeypatch.setattr(index, "list", lag)
        letters = stage.letters
        moved = letters.redrive_all(STANDARD) if operation == "redrive" else letters.discard_all("orders")
        assert await moved == 2
        monkeypatch.undo()
        assert await stage.listed() == []

    async def test_discarding_all_takes_what_sqs_has_moved_along(self, stage: Stage) -> None:
        await stage.send(STANDARD, "m1")
        await move(stage, STANDARD)
        assert await stage.letters.discard_all("orders") == 1
        assert (await stage.reconciler.reconcile(STANDARD)).deleted == 1


@pytest.mark.parametrize("damage", ["text", "item"])
async def test_a_letter_that_is_damaged_stays_and_holds_up_no_other(
    stage: Stage, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    await stage.die(STANDARD, "m1", payload="x" * 200 * 1024)
    clients, deployment = stage.services.clients, stage.services.deployment
    if damage == "item":
        stage.set_attribute("m1", "g", {"N": "0.5"})
    else:
        (text,) = clients.s3.list_objects_v2(Bucket=deployment.bucket_name)["Contents"]
        clients.s3.delete_object(Bucket=deployment.bucket_name, Key=text["Key"])
    clients.sqs.purge_queue(QueueUrl=stage.letter_url(STANDARD))
    for receipt in ("m1", "m2"):  # as if SQS had moved them; the first one is to be replaced by its letter
        stage.post(stage.letter_url(STANDARD), outgoing_message(STANDARD, receipt).body)
    result = await stage.reconciler.reconcile(STANDARD)
    assert result.receipts == ["m2"]
    assert "a dead letter cannot be reconciled" in caplog.text
    assert sum('"id":"m1"' in body for body in stage.waiting(stage.letter_url(STANDARD))) == 1


SURROGATE, HUGE = "\ud800", 10**40
_LINK = {"n": 3, "h": "0", "k": SURROGATE}


@pytest.mark.parametrize(
    ("envelope", "member"),
    [
        ({"id": SURROGATE}, None),
        ({"fn": SURROGATE}, None),
        ({"pl": _LINK, "p": None}, None),
        ({"at": HUGE}, None),
        ({"id": SURROGATE}, {}),
        ({"fn": None, "raw": SURROGATE}, {}),
        ({"fn": None, "lb": _LINK}, {}),
        ({"pl": _LINK, "p": None}, {}),
        ({}, {"tok": SURROGATE}),
        ({}, {"error": {"type": "E", "message": SURROGATE, "stack": ""}}),
        *[({}, {name: HUGE}) for name in ("first_at", "failed_at", "attempts", "receives")],
    ],
    ids=lambda changes: ascii(changes)[:60],
)
async def test_a_body_that_no_store_can_keep_is_listed_and_holds_up_no_other(
    stage: Stage, envelope: dict[str, Any], member: dict[str, Any] | None
) -> None:
    """Somebody has sent it by hand, to the queue or to the dead-letter queue."""
    letter = json.loads(await die(stage, STANDARD, "m0"))
    died = letter.pop("dead_letter")
    for receipt, url in (("x", stage.url(STANDARD)), ("y", stage.letter_url(STANDARD))):
        sent = {**letter, "id": receipt, **envelope}
        stage.post(url, json.dumps(sent) if member is None else lettered(sent, {**died, **member}))
    delivery = await stage.receive_one(STANDARD)
    assert await stage.queue.bury(delivery, "unreadable", ERROR, 0)
    assert (await stage.reconciler.reconcile(STANDARD)).adopted == 1
    listed = await stage.letters.list_letters("orders", 0, 10)
    assert len(listed) == 3
    assert await stage.letters.redrive_all(STANDARD) == 3
    assert '"id":"m0"' in "".join(stage.waiting(stage.url(STANDARD)))


async def test_a_letter_that_links_to_no_letter_stays_and_holds_up_no_other(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    body = await die(stage, STANDARD, "m0")
    member = json.loads(body)["dead_letter"]
    text = b"no letter"
    stage.services.clients.s3.put_object(Bucket=stage.services.deployment.bucket_name, Key="payloads/other", Body=text)
    link = {"k": "other", "n": len(text), "h": hashlib.sha256(text).hexdigest()}
    stage.post(stage.letter_url(STANDARD), lettered({"v": 1, "id": "x", "fn": None, "lb": link}, member))
    stage.post(stage.letter_url(STANDARD), outgoing_message(STANDARD, "m2").body)
    assert (await stage.reconciler.reconcile(STANDARD)).receipts == ["m2"]
    assert "a dead letter cannot be reconciled" in caplog.text
    assert await stage.letters.redrive_all(STANDARD) == 2


@pytest.mark.parametrize("value", [{"S": "text"}, {"SS": ["text"]}], ids=["text", "set"])
async def test_a_message_whose_item_was_spoilt_while_it_lived_is_listed_once_sqs_has_moved_it(
    stage: Stage, value: Any
) -> None:
    await stage.send(STANDARD, "m1")
    assert await stage.queue.fail(await stage.receive_one(STANDARD), ERROR, timedelta(0))
    stage.set_attribute("m1", "n", value)
    stage.records(stage.url(STANDARD))
    for _ in range(RECEIVES):
        stage.clock.advance(LEASE)
        stage.records(stage.url(STANDARD))
    await stage.reconciler.reconcile(STANDARD)
    (listed,) = await stage.letters.list_letters("orders", 0, 10)
    assert (listed.receipt, listed.cause, listed.error.type) == ("m1", "unreadable", "store_corrupt")
    with pytest.raises(LettersLeftError, match="0 redriven, 1 left"):
        await stage.letters.redrive_all(STANDARD)
    assert await stage.letters.discard("orders", "m1")
    assert (await stage.reconciler.reconcile(STANDARD)).deleted == 1
    assert (await stage.listed(), letters_of(stage, STANDARD)) == ([], 0)


async def test_a_listed_message_whose_item_is_mended_becomes_a_letter(stage: Stage) -> None:
    await stage.send(STANDARD, "m1")
    assert await stage.queue.fail(await stage.receive_one(STANDARD), ERROR, timedelta(0))
    stage.set_attribute("m1", "n", {"S": "text"})
    await move(stage, STANDARD)
    await stage.reconciler.reconcile(STANDARD)
    stage.set_attribute("m1", "n", {"N": "1"})
    stage.clock.advance(HOLD)
    assert (await stage.reconciler.reconcile(STANDARD)).adopted == 1
    (listed,) = await stage.letters.list_letters("orders", 0, 10)
    assert (listed.receipt, listed.cause, listed.attempts) == ("m1", "native", 1)


@pytest.mark.parametrize("state", ["redriven", "discarded"])
async def test_a_spent_letter_whose_item_is_spoilt_is_not_listed_again(stage: Stage, state: str) -> None:
    await die_beside_a_moved_copy(stage)
    await (stage.letters.redrive(STANDARD, "m1") if state == "redriven" else stage.letters.discard("orders", "m1"))
    stage.set_attribute("m1", "n", {"S": "text"})
    await stage.reconciler.reconcile(STANDARD)
    assert await stage.listed() == []
