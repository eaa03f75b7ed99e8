"""Sending to SQS: what one enqueue costs, how many become requests, and what a refusal or a crash leaves behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime.adapters.aws.message_sender import MAX_BATCH_BYTES, Post, deduplication_id, parts, sqs_word
from iii_runtime.core.errors import StoreError
from iii_runtime.core.message import decode_envelope
from iii_runtime.core.queue import QueueSpec
from iii_runtime.ports.message_queue import OutgoingMessage
from iii_runtime.testing.stores import outgoing_message
from tests.contract.sqs_stage import FIFO, LEASE, SINGLE, STANDARD, KilledError, Stage, open_stage


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with open_stage(monkeypatch, specs=(STANDARD,)) as opened:
        yield opened


class Batches:
    """Stands for SQS where a batch is refused in part: each answer names the entries to refuse, by receipt."""

    def __init__(self, stage: Stage, *refusals: set[str], sender_fault: bool = False) -> None:
        self.requests: list[list[str]] = []
        self._refusals = list(refusals)
        self._sender_fault = sender_fault
        stage.services.clients.sqs.meta.events.register("before-parameter-build.sqs.SendMessageBatch", self._note)
        stage.services.clients.sqs.meta.events.register("before-call.sqs.SendMessageBatch", self._answer)
        self._entries: list[dict[str, Any]] = []

    def _note(self, params: dict[str, Any], **_: object) -> None:
        self._entries = params["Entries"]
        self.requests.append([json.loads(entry["MessageBody"])["id"] for entry in self._entries])

    def _answer(self, **_: object) -> Any:
        refused = self._refusals.pop(0) if self._refusals else set()
        failed = [
            {"Id": entry["Id"], "SenderFault": self._sender_fault, "Code": "InternalError", "Message": "again"}
            for entry, receipt in zip(self._entries, self.requests[-1], strict=True)
            if receipt in refused
        ]
        return _Response(), {"Successful": [], "Failed": failed}


class _Response:
    status_code = 200


async def test_an_enqueue_is_one_request(stage: Stage) -> None:
    await stage.send(STANDARD, "m1")
    assert stage.counted() == {"sqs:SendMessage": 1}


@pytest.mark.parametrize("spec", [FIFO, SINGLE], ids=["fifo", "single"])
async def test_an_enqueue_to_an_ordered_queue_is_one_request(stage: Stage, spec: QueueSpec) -> None:
    stage.queue.deployed.deploy(spec)
    stage.services.calls.clear()
    await stage.send(spec, "m1")
    assert stage.counted() == {"sqs:SendMessage": 1}


async def test_a_dedupe_id_costs_two_writes(stage: Stage) -> None:
    await stage.queue.send(STANDARD, [_named("m1")])
    assert stage.counted() == {"dynamodb:PutItem": 1, "sqs:SendMessage": 1, "dynamodb:UpdateItem": 1}
    stage.services.calls.clear()
    assert await stage.queue.send(STANDARD, [_named("m2")]) == ["m1"]
    assert stage.counted() == {"dynamodb:PutItem": 1}


async def test_eleven_messages_are_two_requests(stage: Stage) -> None:
    await stage.send(STANDARD, *[f"m{number}" for number in range(11)])
    assert stage.counted() == {"sqs:SendMessageBatch": 1, "sqs:SendMessage": 1}
    assert len(stage.waiting(stage.url(STANDARD))) == 11


async def test_large_messages_share_a_request_up_to_its_limit(stage: Stage) -> None:
    """Five of 240 KiB are more than a batch takes."""
    await stage.send(STANDARD, *[f"m{number}" for number in range(5)], payload="x" * 239 * 1024)
    assert stage.counted() == {"sqs:SendMessageBatch": 1, "sqs:SendMessage": 1}
    assert [decode_envelope(body).receipt for body in stage.waiting(stage.url(STANDARD))] == [
        f"m{number}" for number in range(5)
    ]


async def test_messages_of_one_group_never_share_a_request(stage: Stage) -> None:
    """SQS may take the second of a batch and refuse the first."""
    messages = [outgoing_message(FIFO, f"{group}{n}", {"customer": group}) for n in range(2) for group in "abc"]
    await stage.queue.send(FIFO, messages)
    assert stage.counted()["sqs:SendMessageBatch"] == 2
    order = [decode_envelope(body).receipt for body in stage.waiting(stage.url(FIFO))]
    assert order == ["a0", "b0", "c0", "a1", "b1", "c1"]


async def test_entries_refused_through_no_fault_of_theirs_are_sent_again(stage: Stage) -> None:
    batches = Batches(stage, {"m1", "m2"}, {"m2"})
    await stage.send(STANDARD, "m0", "m1", "m2")
    assert batches.requests == [["m0", "m1", "m2"], ["m1", "m2"], ["m2"]]
    assert len(stage.clock.pauses) == 2


async def test_entries_that_stay_refused_are_an_error_that_does_not_promise_too_much(stage: Stage) -> None:
    batches = Batches(stage, *[{"m1"}] * 4)
    with pytest.raises(StoreError, match="may have been accepted") as caught:
        await stage.send(STANDARD, "m0", "m1")
    assert caught.value.code == "store_throttled"
    assert len(batches.requests) == 4


async def test_entries_refused_for_what_they_are_are_not_sent_again(stage: Stage) -> None:
    batches = Batches(stage, {"m1"}, sender_fault=True)
    with pytest.raises(StoreError) as caught:
        await stage.send(STANDARD, "m0", "m1")
    assert caught.value.code == "store_unavailable"
    assert len(batches.requests) == 1


async def test_after_a_refused_message_none_of_its_group_is_sent(stage: Stage) -> None:
    stage.queue.deployed.deploy(FIFO)
    stage.mishaps.refuse["SendMessage"] = ["AccessDenied"]
    with pytest.raises(StoreError):
        await stage.send(FIFO, "m1", "m2")
    assert stage.waiting(stage.url(FIFO)) == []


async def test_a_lost_reply_is_answered_with_the_same_body(stage: Stage) -> None:
    """A standard queue then has the message twice, with one receipt; both are one message to the item."""
    stage.mishaps.begin(lose_at=0)
    await stage.send(STANDARD, "m1")
    bodies = stage.waiting(stage.url(STANDARD))
    assert len(bodies) == 2
    assert len(set(bodies)) == 1
    first, second = await stage.queue.receive(STANDARD, 10, LEASE)
    assert first.receipt == second.receipt == "m1"


async def test_a_fifo_queue_swallows_the_repetition(stage: Stage) -> None:
    stage.queue.deployed.deploy(FIFO)
    stage.mishaps.begin(lose_at=0)
    await stage.send(FIFO, "m1")
    assert len(stage.waiting(stage.url(FIFO))) == 1


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("AWS.SimpleQueueService.NonExistentQueue", "store_missing"),
        ("ExpiredToken", "store_denied"),
        ("AccessDenied", "store_denied"),
        ("InvalidMessageContents", "store_unavailable"),
    ],
)
async def test_a_final_refusal_is_typed_and_not_repeated(stage: Stage, code: str, told: str) -> None:
    stage.mishaps.refuse["SendMessage"] = [code]
    with pytest.raises(StoreError) as caught:
        await stage.send(STANDARD, "m1")
    assert caught.value.code == told
    assert stage.clock.pauses == []


async def test_a_missing_queue_is_told(stage: Stage) -> None:
    stage.services.clients.sqs.delete_queue(QueueUrl=stage.url(STANDARD))
    with pytest.raises(StoreError, match="shop-test-q-orders") as caught:
        await stage.send(STANDARD, "m1")
    assert caught.value.code == "store_missing"


async def test_a_message_is_ascii_whatever_its_payload_holds(stage: Stage) -> None:
    """SQS refuses control characters, and counts bytes."""
    await stage.send(STANDARD, "m1", payload="\0\x01\x0b￾￿ é 漢字 \U0001f600")
    (body,) = stage.waiting(stage.url(STANDARD))
    assert body.isascii()
    assert body.isprintable()


class TestDedupe:
    @pytest.mark.parametrize("spec", [STANDARD, FIFO], ids=["standard", "fifo"])
    @pytest.mark.parametrize("kill_at", [0, 1, 2])
    async def test_a_sender_that_dies_loses_no_message_and_no_receipt(
        self, stage: Stage, spec: QueueSpec, kill_at: int
    ) -> None:
        """Before it reserves, before it sends, before it confirms: the caller repeats with a message of its own."""
        stage.queue.deployed.deploy(spec)
        stage.mishaps.begin(kill_at=kill_at)
        with pytest.raises(KilledError):
            await stage.queue.send(spec, [_named("m1", spec)])
        stage.mishaps.begin()
        expected = "m2" if kill_at == 0 else "m1"
        assert await stage.queue.send(spec, [_named("m2", spec)]) == [expected]
        assert await stage.queue.send(spec, [_named("m3", spec)]) == [expected]
        receipts = {decode_envelope(body).receipt for body in stage.waiting(stage.url(spec))}
        assert receipts == {expected}
        count = len(stage.waiting(stage.url(spec)))
        assert count == (2 if kill_at == 2 and spec is STANDARD else 1)

    async def test_a_lost_reply_of_the_reservation_is_its_own(self, stage: Stage) -> None:
        stage.mishaps.begin(lose_at=0)
        assert await stage.queue.send(STANDARD, [_named("m1")]) == ["m1"]
        assert len(stage.waiting(stage.url(STANDARD))) == 1

    async def test_a_confirmation_that_is_refused_is_no_failure(self, stage: Stage) -> None:
        stage.mishaps.refuse["UpdateItem"] = ["AccessDeniedException"]
        assert await stage.queue.send(STANDARD, [_named("m1")]) == ["m1"]
        assert await stage.queue.send(STANDARD, [_named("m2")]) == ["m1"]

    async def test_a_confirmation_that_comes_after_the_window_changes_nothing(self, stage: Stage) -> None:
        events = stage.services.clients.sqs.meta.events

        def late(**_: object) -> None:
            events.unregister("after-call.sqs.SendMessage", late)
            stage.clock.advance(timedelta(minutes=6))

        events.register("after-call.sqs.SendMessage", late)
        assert await stage.queue.send(STANDARD, [_named("m1")]) == ["m1"]
        assert await stage.queue.send(STANDARD, [_named("m2")]) == ["m2"]

    async def test_the_payload_stays_under_the_first_receipt(self, stage: Stage) -> None:
        stage.mishaps.begin(kill_at=1)
        with pytest.raises(KilledError):
            await stage.queue.send(STANDARD, [_named("m1")])
        stage.mishaps.begin()
        second = _named("m2")
        await stage.queue.send(STANDARD, [second])
        (body,) = stage.waiting(stage.url(STANDARD))
        assert decode_envelope(body).payload == decode_envelope(second.body).payload
        assert decode_envelope(body).receipt == "m1"


def test_a_part_holds_ten_messages_and_a_mebibyte() -> None:
    posts = [Post(body="x") for _ in range(25)]
    assert [len(part) for part in parts(posts)] == [10, 10, 5]
    half = Post(body="x" * (MAX_BATCH_BYTES // 2))
    assert [len(part) for part in parts([half, half, half])] == [2, 1]
    over = Post(body="é" * (MAX_BATCH_BYTES // 2))
    assert [len(part) for part in parts([over, Post(body="x")])] == [1, 1]


def test_ids_are_of_the_letters_and_length_that_sqs_takes() -> None:
    assert deduplication_id("m1", 3, "d") == "m1.3.d"
    assert sqs_word("a b") != sqs_word("a c")
    for name in ("漢字", "x" * 300, "a b"):
        word = deduplication_id(name, 1_000_000, sqs_word(name))
        assert word.isascii()
        assert len(word) <= 128


async def test_a_mistake_in_the_request_is_final(stage: Stage) -> None:
    """A delay that SQS does not know: an enqueue would have refused it."""
    with pytest.raises(StoreError):
        await stage.queue.send(STANDARD, [OutgoingMessage(receipt="m1", function_id="f", body="x", delay_ms=2_000_000)])


def _named(receipt: str, spec: QueueSpec = STANDARD) -> OutgoingMessage:
    return outgoing_message(spec, receipt, {"customer": "a", "n": receipt}, dedupe_id="once")
