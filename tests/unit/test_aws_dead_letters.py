"""Dead letters on DynamoDB: what a redrive and a discard cost, and what is left if they are interrupted or meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from botocore.exceptions import ConnectionClosedError

from iii_runtime.adapters.aws.dead_letter_store import RENEWED_AFTER
from iii_runtime.adapters.aws.failures import ATTEMPTS
from iii_runtime.core.errors import StoreError
from iii_runtime.core.letter import LettersLeftError
from iii_runtime.core.message import BlobLink, Envelope, encode_envelope
from iii_runtime.core.queue import QueueSpec
from iii_runtime.engine.builtins.queue import summary
from iii_runtime.ports.message_queue import OutgoingMessage
from tests.contract.sqs_stage import ERROR, FIFO, LEASE, STANDARD, Stage, open_stage

LARGE = "x" * 200 * 1024


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with open_stage(monkeypatch, specs=(STANDARD,)) as opened:
        yield opened


Lose = Callable[[Stage, str], None]


async def die_linked(stage: Stage, receipt: str, *, accepted_ms: int | None = None) -> None:
    """Let a message die whose payload is in the bucket, as if it were too large."""
    deployment = stage.services.deployment
    stage.services.clients.s3.put_object(Bucket=deployment.bucket_name, Key=f"payloads/{receipt}", Body=b"1")
    link = BlobLink(key=receipt, size=1, sha256="0")
    accepted = stage.clock.now_ms() if accepted_ms is None else accepted_ms
    envelope = Envelope(receipt=receipt, function_id="f", queue="orders", accepted_ms=accepted, payload=link)
    body = encode_envelope(envelope)
    await stage.queue.send(STANDARD, [OutgoingMessage(receipt=receipt, function_id="f", body=body)])
    assert await stage.queue.bury(await stage.receive_one(STANDARD), "failed", ERROR, 1)


def object_of(stage: Stage, receipt: str) -> str:
    bucket = stage.services.deployment.bucket_name
    found = stage.services.clients.s3.list_objects_v2(Bucket=bucket, Prefix=f"payloads/{receipt}-")["Contents"]
    return found[0]["Key"]


def lose_text(stage: Stage, receipt: str) -> None:
    bucket = stage.services.deployment.bucket_name
    stage.services.clients.s3.delete_object(Bucket=bucket, Key=object_of(stage, receipt))


def spoil_text(stage: Stage, receipt: str) -> None:
    bucket = stage.services.deployment.bucket_name
    stage.services.clients.s3.put_object(Bucket=bucket, Key=object_of(stage, receipt), Body=b"another text")


def spoil_bytes(stage: Stage, receipt: str) -> None:
    bucket = stage.services.deployment.bucket_name
    stage.services.clients.s3.put_object(Bucket=bucket, Key=object_of(stage, receipt), Body=b"\xff")


def lose_payload(stage: Stage, receipt: str) -> None:
    bucket = stage.services.deployment.bucket_name
    stage.services.clients.s3.delete_object(Bucket=bucket, Key=f"payloads/{receipt}")


def spoil_item(stage: Stage, receipt: str) -> None:
    stage.set_attribute(receipt, "g", {"N": "0.5"})


def spoil_state(stage: Stage, receipt: str) -> None:
    stage.set_attribute(receipt, "st", {"SS": ["dead"]})


class TestCalls:
    async def test_a_redrive_is_one_read_one_message_one_write(self, stage: Stage) -> None:
        await stage.die(STANDARD, "m1")
        stage.services.calls.clear()
        assert await stage.letters.redrive(STANDARD, "m1")
        assert stage.services.calls == ["dynamodb:GetItem", "sqs:SendMessage", "dynamodb:UpdateItem"]

    async def test_the_claim_of_a_redriven_message_is_one_read_and_one_write(self, stage: Stage) -> None:
        await stage.die(STANDARD, "m1")
        await stage.letters.redrive(STANDARD, "m1")
        (record,) = stage.records(stage.url(STANDARD))
        stage.services.calls.clear()
        assert await stage.queue.take(STANDARD, record) is not None
        assert stage.services.calls == ["dynamodb:GetItem", "dynamodb:UpdateItem"]

    async def test_a_discard_is_one_read_and_one_write(self, stage: Stage) -> None:
        await stage.die(STANDARD, "m1")
        stage.services.calls.clear()
        assert await stage.letters.discard("orders", "m1")
        assert stage.services.calls == ["dynamodb:GetItem", "dynamodb:UpdateItem"]

    async def test_a_page_is_four_queries_and_one_read_of_its_letters(self, stage: Stage) -> None:
        await stage.die(STANDARD, *[f"m{number}" for number in range(12)])
        stage.services.calls.clear()
        page = await stage.letters.list_letters("orders", 2, 5)
        assert [letter.receipt for letter in page] == ["m2", "m3", "m4", "m5", "m6"]
        assert stage.counted() == {"dynamodb:Query": 4, "dynamodb:BatchGetItem": 1}

    async def test_redriving_all_sends_ten_at_once(self, stage: Stage) -> None:
        await stage.die(STANDARD, *[f"m{number}" for number in range(11)])
        stage.services.calls.clear()
        assert await stage.letters.redrive_all(STANDARD) == 11
        counted = stage.counted()
        assert (counted["sqs:SendMessageBatch"], counted["sqs:SendMessage"]) == (1, 1)
        assert counted["dynamodb:UpdateItem"] == 11

    async def test_redriving_all_of_one_group_sends_them_one_by_one(self, stage: Stage) -> None:
        await stage.die(FIFO, "m1", "m2", "m3")
        stage.services.calls.clear()
        assert await stage.letters.redrive_all(FIFO) == 3
        assert stage.counted()["sqs:SendMessage"] == 3


class TestSizes:
    async def test_a_small_letter_is_in_its_item(self, stage: Stage) -> None:
        await stage.die(STANDARD, "m1")
        assert "s3:PutObject" not in stage.counted()

    async def test_a_large_letter_is_in_a_blob_and_the_same(self, stage: Stage) -> None:
        await stage.die(STANDARD, "m1", payload=LARGE)
        assert stage.counted()["s3:PutObject"] == 1
        letter = await stage.letters.get("m1")
        assert letter is not None
        assert letter.size_bytes == len(LARGE) + 2
        assert await stage.letters.redrive(STANDARD, "m1")
        delivery = await stage.receive_one(STANDARD)
        assert LARGE in delivery.body
        assert await stage.queue.bury(delivery, "failed", ERROR, 1)
        assert await stage.listed() == ["m1"]

    async def test_a_death_whose_blob_is_refused_leaves_the_message(self, stage: Stage) -> None:
        await stage.send(STANDARD, "m1", payload=LARGE)
        delivery = await stage.receive_one(STANDARD)
        stage.mishaps.refuse["PutObject"] = ["AccessDenied"]
        with pytest.raises(StoreError):
            await stage.queue.bury(delivery, "failed", ERROR, 1)
        stage.clock.advance(LEASE)
        assert (await stage.receive_one(STANDARD)).attempt == 1


class TestOldBlobs:
    """A redriven message may wait for two weeks and be a letter for a month: its payload must live as long."""

    async def test_an_old_payload_is_stored_again(self, stage: Stage) -> None:
        await die_linked(stage, "m1")
        stage.clock.advance(RENEWED_AFTER)
        stage.services.calls.clear()
        assert await stage.letters.redrive(STANDARD, "m1")
        assert stage.services.calls[:3] == ["dynamodb:GetItem", "s3:GetObject", "s3:PutObject"]

    async def test_a_young_payload_is_only_looked_at(self, stage: Stage) -> None:
        await die_linked(stage, "m1")
        stage.clock.advance(RENEWED_AFTER - timedelta(seconds=1))
        stage.services.calls.clear()
        assert await stage.letters.redrive(STANDARD, "m1")
        assert stage.services.calls == [
            "dynamodb:GetItem",
            "s3:GetObject",
            "sqs:SendMessage",
            "dynamodb:UpdateItem",
        ]

    async def test_the_age_of_a_payload_counts_from_its_enqueue_and_not_from_when_sqs_had_the_message(
        self, stage: Stage
    ) -> None:
        """SNS may hold a message for long before it comes to the queue of a subscription."""
        accepted_ms = stage.clock.now_ms()
        stage.clock.advance(RENEWED_AFTER)
        await die_linked(stage, "m1", accepted_ms=accepted_ms)
        assert await stage.letters.redrive(STANDARD, "m1")
        assert stage.counted()["s3:PutObject"] == 2


class TestLostLetters:
    """Of some letters a part is gone or spoilt: they are listed with the others, stop nobody, and say what to do."""

    @pytest.mark.parametrize("lose", [lose_text, spoil_text, spoil_bytes, spoil_item, spoil_state])
    async def test_it_is_listed_in_its_place_with_what_is_wrong(self, stage: Stage, lose: Lose) -> None:
        await stage.die(STANDARD, "m1", "m2", "m3", payload=LARGE)
        lose(stage, "m2")
        letters = await stage.letters.list_letters("orders", 0, 10)
        assert [letter.receipt for letter in letters] == ["m1", "m2", "m3"]
        assert await stage.letters.count("orders") == 3
        lost = letters[1]
        assert (lost.function_id, lost.cause, lost.letter) == (None, "unreadable", "")
        assert lost.error.type in {"blob_missing", "store_corrupt"}
        assert (lost.failed_ms, lost.queue) == (letters[0].failed_ms, "orders")
        shown = summary(lost)
        assert (shown["payload"], shown["payload_omitted"]) == (None, True)

    async def test_one_whose_place_in_the_order_is_spoilt_comes_first(self, stage: Stage) -> None:
        await stage.die(STANDARD, "m1", "m2")
        stage.set_attribute("m2", "dt", {"N": "1.5"})
        assert await stage.listed() == ["m2", "m1"]

    @pytest.mark.parametrize("lose", [lose_text, spoil_text, spoil_bytes, spoil_item, lose_payload])
    async def test_all_others_are_redriven_and_it_is_told(self, stage: Stage, lose: Lose) -> None:
        await stage.die(STANDARD, "m1", payload=LARGE)
        await (die_linked(stage, "m2") if lose is lose_payload else stage.die(STANDARD, "m2", payload=LARGE))
        await stage.die(STANDARD, "m3", payload=LARGE)
        lose(stage, "m2")
        with pytest.raises(LettersLeftError, match=r"queue 'orders': 2 redriven, 1 left: .*m2") as caught:
            await stage.letters.redrive_all(STANDARD)
        assert (caught.value.done, list(caught.value.left), caught.value.code) == (2, ["m2"], "letters_left")
        assert await stage.listed() == ["m2"]
        assert len(stage.waiting(stage.url(STANDARD))) == 2
        with pytest.raises(LettersLeftError, match="0 redriven, 1 left"):
            await stage.letters.redrive_all(STANDARD)

    @pytest.mark.parametrize("lose", [lose_text, spoil_text, lose_payload])
    async def test_it_cannot_be_redriven_and_says_so_and_can_be_discarded(self, stage: Stage, lose: Lose) -> None:
        await (die_linked(stage, "m1") if lose is lose_payload else stage.die(STANDARD, "m1", payload=LARGE))
        lose(stage, "m1")
        with pytest.raises(StoreError, match=r"m1 is not complete: .* iii-runtime dlq discard orders m1") as caught:
            await stage.letters.redrive(STANDARD, "m1")
        assert caught.value.code in {"blob_missing", "store_corrupt"}
        assert await stage.listed() == ["m1"]
        assert stage.waiting(stage.url(STANDARD)) == []
        assert await stage.letters.discard("orders", "m1")
        assert await stage.listed() == []

    @pytest.mark.parametrize("lose", [lose_text, spoil_text])
    async def test_it_cannot_be_shown_and_says_so(self, stage: Stage, lose: Lose) -> None:
        await stage.die(STANDARD, "m1", payload=LARGE)
        lose(stage, "m1")
        with pytest.raises(StoreError, match=r"m1 is not complete: .* iii-runtime dlq discard orders m1"):
            await stage.letters.get("m1")

    @pytest.mark.parametrize("spoil", [spoil_item, spoil_state])
    @pytest.mark.parametrize("operation", ["one", "all"])
    async def test_one_whose_item_is_spoilt_can_be_discarded(self, stage: Stage, spoil: Lose, operation: str) -> None:
        """It ends for good, whatever generation it was: its copy goes, and no redrive of it runs."""
        await stage.die(STANDARD, "m1", "m2", "m3")
        spoil(stage, "m2")
        assert not await stage.letters.discard("other", "m2")
        if operation == "one":
            assert await stage.letters.discard("orders", "m2")
            assert await stage.listed() == ["m1", "m3"]
        else:
            assert await stage.letters.discard_all("orders") == 3
            assert await stage.listed() == []
        assert not await stage.letters.discard("orders", "m2")
        stage.console_redrive(STANDARD)
        deliveries = await stage.queue.receive(STANDARD, 10, LEASE)
        assert "m2" not in [delivery.receipt for delivery in deliveries]

    async def test_the_discard_of_a_spoilt_one_whose_answer_is_lost_is_told_all_the_same(self, stage: Stage) -> None:
        await stage.die(STANDARD, "m1")
        spoil_item(stage, "m1")
        stage.mishaps.begin(lose_at=1)
        assert await stage.letters.discard("orders", "m1")
        assert await stage.listed() == []

    async def test_a_service_that_refuses_is_no_damage(self, stage: Stage) -> None:
        await stage.die(STANDARD, "m1", payload=LARGE)
        stage.mishaps.refuse["GetObject"] = ["AccessDenied"] * 2
        for operation in (stage.listed(), stage.letters.redrive_all(STANDARD)):
            with pytest.raises(StoreError) as caught:
                await operation
            assert caught.value.code == "store_denied"


async def test_a_queue_that_is_gone_from_the_app_still_gives_up_its_letters(stage: Stage) -> None:
    old = QueueSpec(name="old")
    await stage.die(old, "m1", "m2")
    del stage.queue.deployed["old"]
    assert await stage.listed("old") == ["m1", "m2"]
    assert await stage.letters.discard_all("old") == 2
    assert await stage.listed("old") == []


async def test_a_host_that_may_not_look_into_dead_letter_queues_moves_what_is_listed(stage: Stage) -> None:
    await stage.die(STANDARD, "m1", "m2")
    stage.letters._reconciler = None
    stage.services.calls.clear()
    assert await stage.letters.redrive_all(STANDARD) == 2
    assert "sqs:ReceiveMessage" not in stage.counted()


async def test_the_depth_is_an_estimate_and_the_letters_are_exact(stage: Stage) -> None:
    await stage.die(STANDARD, "m1", "m2")
    await stage.send(STANDARD, "m3", "m4", "m5")
    await stage.receive_one_of(STANDARD)
    depth = await stage.queue.depth("orders")
    assert (depth.visible, depth.delayed, depth.in_flight, depth.dead) == (2, 0, 1, 2)
    assert (depth.is_exact, depth.letters_visible) == (False, 2)


async def test_a_purge_takes_all_but_the_letters(stage: Stage) -> None:
    await stage.die(STANDARD, "m1")
    await stage.send(STANDARD, "m2", "m3", "m4")
    await stage.receive_one_of(STANDARD)
    assert await stage.queue.purge("orders") == 2
    assert stage.waiting(stage.url(STANDARD)) == []
    assert await stage.listed() == ["m1"]


async def test_a_second_purge_within_a_minute_is_told(stage: Stage) -> None:
    stage.mishaps.refuse["PurgeQueue"] = ["AWS.SimpleQueueService.PurgeQueueInProgress"]
    with pytest.raises(StoreError, match="PurgeQueueInProgress") as caught:
        await stage.queue.purge("orders")
    assert caught.value.code == "store_throttled"
    assert stage.clock.pauses == []


async def test_a_purge_whose_reply_was_lost_is_no_failure(stage: Stage) -> None:
    """Its repetition is told that a purge is in progress: this one."""
    events, sent = stage.services.clients.sqs.meta.events, []

    def lose_first(**_: object) -> None:
        sent.append("PurgeQueue")
        if len(sent) == 1:
            stage.mishaps.refuse["PurgeQueue"] = ["AWS.SimpleQueueService.PurgeQueueInProgress"]
            raise ConnectionClosedError(endpoint_url="https://sqs")

    events.register("after-call.sqs.PurgeQueue", lose_first)
    await stage.send(STANDARD, "m1")
    assert await stage.queue.purge("orders") == 1
    assert stage.mishaps.refuse["PurgeQueue"] == []


async def test_reads_that_dynamodb_puts_off_are_asked_again(stage: Stage) -> None:
    await stage.die(STANDARD, "m1", "m2")
    events = stage.services.clients.dynamodb.meta.events

    def put_off(parsed: dict[str, object], **_: object) -> None:
        events.unregister("after-call.dynamodb.BatchGetItem", put_off)
        table = stage.services.deployment.table_name
        keys = [{"pk": {"S": "M#m2"}, "sk": {"S": "@"}}]
        responses = parsed["Responses"]
        assert isinstance(responses, dict)
        responses[table] = [item for item in responses[table] if item["pk"]["S"] != "M#m2"]
        parsed["UnprocessedKeys"] = {table: {"Keys": keys, "ConsistentRead": True}}

    events.register("after-call.dynamodb.BatchGetItem", put_off)
    assert await stage.listed() == ["m1", "m2"]
    assert len(stage.clock.pauses) == 1


async def test_reads_that_dynamodb_never_carries_out_are_given_up(stage: Stage) -> None:
    await stage.die(STANDARD, "m1")

    def put_off(parsed: dict[str, object], **_: object) -> None:
        table = stage.services.deployment.table_name
        keys = [{"pk": {"S": "M#m1"}, "sk": {"S": "@"}}]
        parsed |= {"Responses": {}, "UnprocessedKeys": {table: {"Keys": keys, "ConsistentRead": True}}}

    stage.services.clients.dynamodb.meta.events.register("after-call.dynamodb.BatchGetItem", put_off)
    with pytest.raises(StoreError) as caught:
        await stage.listed()
    assert caught.value.code == "store_throttled"
    assert stage.counted()["dynamodb:BatchGetItem"] == ATTEMPTS
