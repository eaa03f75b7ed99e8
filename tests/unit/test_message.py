"""Envelopes and letters: the enqueued body never changes, and what cannot be read is said to be so."""

from __future__ import annotations

import json

import pytest

from iii_runtime.core.message import (
    MAX_ERROR_BYTES,
    MAX_STACK_BYTES,
    BlobLink,
    DeadLetterMember,
    Envelope,
    ErrorRecord,
    bounded_error,
    decode_envelope,
    encode_envelope,
    encode_letter,
    letter_member,
)
from iii_runtime.core.payload import PayloadError

RECEIPT = "4f0c2e1e-7c53-4a0e-9d25-000000000001"
TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"

FULL = Envelope(
    receipt=RECEIPT,
    function_id="orders::ship",
    queue="order-ship",
    accepted_ms=1_700_000_000_000,
    hops=3,
    group={"id": "o1"},
    dedupe_id="once",
    traceparent=TRACE,
    baggage="tenant=1",
    metadata={"who": "me"},
    payload='{"order_id":"o1"}',
)


def member(generation: int = 0) -> DeadLetterMember:
    return DeadLetterMember(
        generation=generation,
        token="t",  # noqa: S106 - no secret
        cause="failed",
        error=ErrorRecord(type="ValueError", message="no", stack="line 1"),
        attempts=3,
        receives=4,
        first_ms=1,
        failed_ms=2,
        queue="order-ship",
        group=None,
        function_id="orders::ship",
        trace=None,
    )


def test_an_envelope_has_its_members_in_order_and_the_payload_last() -> None:
    body = encode_envelope(FULL)
    assert list(json.loads(body)) == ["v", "id", "fn", "q", "at", "hops", "grp", "dd", "tp", "bg", "md", "p"]
    assert body.endswith(',"p":{"order_id":"o1"}}')
    assert body.isascii()


def test_an_envelope_leaves_out_what_it_does_not_have() -> None:
    body = encode_envelope(Envelope(receipt="r", function_id="f", queue="q", accepted_ms=1))
    assert body == '{"v":1,"id":"r","fn":"f","q":"q","at":1,"hops":0,"p":null}'


@pytest.mark.parametrize("payload", ['{"order_id":"o1"}', "null", BlobLink(key="k", size=300_000, sha256="ab" * 32)])
def test_an_envelope_reads_back_as_it_was(payload: str | BlobLink) -> None:
    envelope = Envelope(receipt="r", function_id="f", queue="q", accepted_ms=1, payload=payload)
    assert decode_envelope(encode_envelope(envelope)) == envelope
    assert decode_envelope(encode_envelope(FULL)) == FULL


def test_a_payload_may_have_members_that_look_like_those_of_the_envelope() -> None:
    payload = '{"dead_letter":{"g":7,"cut":3},"p":1,"pl":{"k":1},"v":9,"id":null}'
    body = encode_envelope(Envelope(receipt="r", function_id="f", queue="q", accepted_ms=1, payload=payload))
    assert decode_envelope(body).payload == payload
    assert letter_member(body) is None
    assert encode_letter(body, member()).startswith(body[:-1] + ',"dead_letter":')


@pytest.mark.parametrize(
    "body",
    [
        "",
        "no json",
        "null",
        "[]",
        "5",
        "{}",
        '{"v":0,"id":"r","fn":"f","q":"q","at":1,"hops":0,"p":null}',
        '{"v":"2","id":"r","fn":"f","q":"q","at":1,"hops":0,"p":null}',
        '{"v":1,"id":"r","fn":"f","q":"q","at":1,"hops":0}',
        '{"v":1,"id":5,"fn":"f","q":"q","at":1,"hops":0,"p":1}',
        '{"v":1,"id":"r","fn":null,"q":"q","at":1,"hops":0,"p":1}',
        '{"v":1,"id":"r","fn":"f","q":"q","at":Infinity,"hops":0,"p":1}',
        '{"v":1,"id":"r","fn":"f","q":"q","at":"1","hops":0,"p":1}',
        '{"v":1,"id":"r","fn":"f","q":"q","at":1,"hops":null,"p":1}',
        '{"v":1,"id":"r","fn":"f","q":"q","at":1,"hops":0,"p":NaN}',
        '{"v":1,"id":"r","fn":"f","q":"q","at":1,"hops":0,"p":99999999999999999999}',
        '{"v":1,"id":"r","fn":"f","q":"q","at":1,"hops":0,"tp":5,"p":1}',
        '{"v":1,"id":"r","fn":"f","q":"q","at":1,"hops":0,"bg":[],"p":1}',
        '{"v":1,"id":"r","fn":"f","q":"q","at":1,"hops":0,"dd":5,"p":1}',
        '{"v":1,"id":"r","fn":"f","q":"q","at":1,"hops":0,"md":[],"p":1}',
        '{"v":1,"id":"r","fn":"f","q":"q","at":1,"hops":0,"pl":[]}',
        '{"v":1,"id":"\\ud800","fn":"f","q":"q","at":1,"hops":0,"p":1}',
        '{"v":1,"id":"r","fn":"\\ud800","q":"q","at":1,"hops":0,"p":1}',
        '{"v":1,"id":"r","fn":"f","q":"q","at":1,"hops":0,"grp":{"\\ud800":1},"p":1}',
        '{"v":1,"id":"r","fn":"f","q":"q","at":1,"hops":0,"pl":{"k":"\\ud800","n":5,"h":"h"}}',
        '{"v":1,"id":"r","fn":"f","q":"q","at":10000000000000000000000,"hops":0,"p":1}',
        '{"v":1,"id":"r","fn":"f","q":"q","at":1,"hops":0,"pl":{"k":"k","n":"5","h":"h"}}',
        "[" * 100_000,
        "9" * 5_000,
    ],
    ids=lambda body: body[-40:],
)
def test_a_body_that_is_no_envelope_is_said_to_be_unreadable(body: str) -> None:
    with pytest.raises(PayloadError, match="the message body") as refusal:
        decode_envelope(body)
    assert refusal.value.code == "envelope_unreadable"


def test_an_envelope_of_a_later_version_is_told_apart() -> None:
    """A newer host has sent it: it is left to that one, and not buried."""
    with pytest.raises(PayloadError, match="has version 2; this runtime reads version 1") as refusal:
        decode_envelope('{"v":2,"something":"new"}')
    assert refusal.value.code == "envelope_newer"


@pytest.mark.parametrize(
    "body",
    [
        '{"v":"secret"}',
        '{"v":20261130123456789}',
        '{"v":["secret"]}',
        '"secret"',
        '{"secret":1}',
        '{"v":1,"id":{"a":"secret"}}',
        '{"v":1,"id":"r","fn":"f","q":"q","at":"secret","hops":0,"p":1}',
    ],
)
def test_the_error_of_a_foreign_body_quotes_nothing_of_it(body: str) -> None:
    with pytest.raises(PayloadError) as refusal:
        decode_envelope(body)
    assert "secret" not in refusal.value.message
    assert "2026" not in refusal.value.message


def test_a_letter_is_the_body_with_one_more_member() -> None:
    body = encode_envelope(FULL)
    letter = encode_letter(body, member())
    assert letter.startswith(body[:-1] + ',"dead_letter":{"g":0,"tok":"t","cut":')
    assert decode_envelope(letter) == FULL
    assert (letter_member(letter) or {})["error"] == {"type": "ValueError", "message": "no", "stack": "line 1"}


def test_a_letter_of_a_redriven_message_replaces_the_member() -> None:
    body = encode_envelope(FULL)
    second = encode_letter(encode_letter(body, member()), member(1))
    assert second == encode_letter(body, member(1))
    assert second.startswith(body[:-1] + ',"dead_letter":{"g":1,')


@pytest.mark.parametrize(
    "forged", ["5", "{}", '{"g":1}', '{"g":"1","cut":3}', '{"g":1,"cut":-1}', '{"g":1,"cut":999}', '{"g":1,"cut":"x"}']
)
def test_a_forged_letter_is_a_plain_message(forged: str) -> None:
    body = encode_envelope(FULL)[:-1] + f',"dead_letter":{forged}}}'
    assert letter_member(body) is None
    assert decode_envelope(encode_letter(body, member())) == FULL


@pytest.mark.parametrize("character", ["x", "ü", "語", "\0", "😀", "\ud800", '"'])
def test_an_error_is_cut_to_its_bounds_as_json(character: str) -> None:
    record = bounded_error("E" * 1000, character * 100_000, character * 100_000)
    assert len(json.dumps(record.message)) - 2 <= MAX_ERROR_BYTES
    assert len(json.dumps(record.stack)) - 2 <= MAX_STACK_BYTES
    assert len(record.type) == 256
    assert len(json.dumps(record.message)) > MAX_ERROR_BYTES - 20


def test_of_a_message_the_beginning_is_kept_and_of_a_stack_the_end() -> None:
    record = bounded_error("E", "first " + "x" * 10_000, "x" * 10_000 + " last")
    assert record.message.startswith("first ")
    assert record.stack.endswith(" last")


def test_a_short_error_is_kept_whole() -> None:
    assert bounded_error("ValueError", "nö\n", "stack") == ErrorRecord(type="ValueError", message="nö\n", stack="stack")
