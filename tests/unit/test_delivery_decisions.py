"""What is decided from a body and an item, without a broker."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iii_runtime.core.delivery import (
    Attempt,
    Claim,
    Drop,
    FinishDeath,
    Incoming,
    MessageItem,
    NextStep,
    State,
    Wait,
    decide_letter,
    decide_standing,
    decide_step,
    read_incoming,
    subscription_receipt,
    visibility_s,
)
from iii_runtime.core.letter import Death, compose_letter
from iii_runtime.core.letter_transport import MAX_LETTER_BYTES, read_member, travelling, with_token
from iii_runtime.core.message import BlobLink, Envelope, ErrorRecord, decode_envelope, encode_envelope
from iii_runtime.core.payload import PayloadError, encode_json
from iii_runtime.core.queue import QueueSpec

QUEUE = QueueSpec(name="orders")
NOW = 1_000_000
_NAMES = st.sampled_from(["v", "id", "fn", "q", "at", "hops", "p", "pl", "raw", "lb", "dead_letter", "g", "tok", "cut"])


def incoming(generation: int = 0, token: str | None = None) -> Incoming:
    return Incoming(receipt="m1", body="", generation=generation, token=token)


def item(state: State = "alive", generation: int = 0, by: str | None = None, **more: Any) -> MessageItem:
    return MessageItem(state=state, generation=generation, token=by, **more)


def letter(body: str, *, generation: int = 0, by: str = "t1") -> str:
    error = ErrorRecord(type="E", message="no")
    death = Death(
        receipt="m1",
        queue="orders",
        generation=generation,
        token=by,
        cause="failed",
        error=error,
        attempts=3,
        receives=3,
        first_ms=1,
        failed_ms=2,
    )
    return compose_letter(body, death).text


def envelope(payload: str = "null", receipt: str = "m1") -> str:
    return encode_envelope(Envelope(receipt=receipt, function_id="f", queue="orders", accepted_ms=1, payload=payload))


@pytest.mark.parametrize(
    ("found", "received", "step"),
    [
        (None, incoming(), Attempt(1)),
        (None, incoming(1, "a"), Claim()),
        (item(failed=2), incoming(), Attempt(3)),
        (item("dead"), incoming(), FinishDeath()),
        (item("redriven"), incoming(), Drop()),
        (item("discarded"), incoming(), Drop()),
        (item(generation=1, by="a"), incoming(), Drop()),
        (item("dead"), incoming(1, "a"), Claim()),
        (item("redriven"), incoming(1, "a"), Claim()),
        (item(), incoming(1, "a"), Claim()),
        (item("discarded"), incoming(1, "a"), Drop()),
        (item(generation=1, by="a", failed=1), incoming(1, "a"), Attempt(2)),
        (item(generation=1, by="b"), incoming(1, "a"), Drop()),
        (item("dead", 1, by="a"), incoming(1, "a"), FinishDeath()),
        (item("dead", 1, by="b"), incoming(1, "a"), Drop()),
        (item(failed=1, not_before_ms=NOW + 2001), incoming(), Wait(NOW + 2001)),
        (item(failed=1, not_before_ms=NOW + 2000), incoming(), Attempt(2)),
        (item(failed=1, not_before_ms=0), incoming(), Attempt(2)),
    ],
)
def test_the_next_step_of_a_received_message(found: MessageItem | None, received: Incoming, step: NextStep) -> None:
    assert decide_step(found, received, NOW) == step


@pytest.mark.parametrize(
    ("found", "standing"),
    [
        (None, "unknown"),
        (item(), "unknown"),
        (item(generation=1), "recorded"),
        (item("dead", 1), "dead"),
        (item("redriven", 1), "over"),
        (item("discarded", 1), "over"),
        (item(generation=2), "over"),
        (item("dead", 2), "over"),
    ],
)
def test_why_a_write_was_refused(found: MessageItem | None, standing: str) -> None:
    assert decide_standing(found, 1) == standing


class TestFates:
    """`queue-protocol`, section 8, row by row."""

    @pytest.mark.parametrize(
        ("found", "fate"),
        [
            (item("dead", 1), "keep"),
            (item("redriven", 1), "delete"),
            (item("discarded", 1), "delete"),
            (item("discarded", 0), "delete"),
            (item(generation=2, by="b"), "delete"),
            (item("dead", 2, by="a"), "delete"),
            (None, "adopt"),
            (item("redriven", 0), "adopt"),
            (item(generation=1), "keep"),
            (item(generation=2, by="a"), "keep"),
        ],
    )
    def test_a_letter_of_generation_1(self, found: MessageItem | None, fate: str) -> None:
        assert decide_letter(found, incoming(2, "a"), is_native=False) == fate

    @pytest.mark.parametrize(
        ("found", "fate"),
        [
            (None, "adopt"),
            (item("redriven", 1), "adopt"),
            (item("dead", 1), "adopt"),
            (item("discarded", 1), "delete"),
            (item(generation=2, by="a"), "adopt"),
            (item(generation=2, by="b"), "delete"),
            (item("dead", 2, by="a"), "replace"),
            (item("dead", 2, by="b"), "replace"),
            (item("redriven", 2, by="a"), "delete"),
            (item("discarded", 2, by="a"), "delete"),
            (item(generation=3, by="c"), "delete"),
            (item("dead", 3, by="c"), "delete"),
        ],
    )
    def test_a_message_of_generation_2_that_was_moved(self, found: MessageItem | None, fate: str) -> None:
        assert decide_letter(found, incoming(2, "a"), is_native=True) == fate

    def test_a_message_that_never_died(self) -> None:
        assert decide_letter(item(failed=1), incoming(), is_native=True) == "adopt"


class TestBodies:
    @given(st.text())
    def test_no_text_breaks_the_reader(self, text: str) -> None:
        assert read_incoming(text, "id-1", QUEUE) == Incoming(receipt="id-1", body=text)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_NAMES, inner, max_size=8),
            max_leaves=20,
        )
    )
    def test_no_json_breaks_the_reader(self, value: Any) -> None:
        body = json.dumps(value)
        received = read_incoming(body, "id-1", QUEUE)
        assert received.receipt
        assert received.generation >= 0

    @given(st.text(), st.integers(0, 5), st.text(min_size=1, max_size=40))
    def test_any_body_comes_out_of_its_letter_as_it_was(self, text: str, generation: int, token: str) -> None:
        sent = letter(text, generation=generation, by=token)
        received = read_incoming(sent, "other", QUEUE)
        assert received == Incoming(receipt="m1", body=text, generation=generation + 1, token=token, first_ms=1)

    @given(st.recursive(st.text() | st.integers(-5, 5), st.lists, max_leaves=5), st.text(max_size=40))
    def test_an_envelope_keeps_its_bytes_under_any_token(self, payload: Any, token: str) -> None:
        body = envelope(encode_json(payload))
        sent = with_token(letter(body), token)
        assert sent.startswith(body[:-1] + ',"dead_letter":')
        assert decode_envelope(sent) == decode_envelope(body)
        received = read_incoming(sent, "other", QUEUE)
        assert (received.receipt, received.body, received.generation) == ("m1", sent, 1)
        assert received.token == token

    def test_another_token_changes_nothing_else(self) -> None:
        sent = letter(envelope("[1]"), by="t1")
        assert with_token(sent, "t2") == sent.replace('"tok":"t1"', '"tok":"t2"')

    def test_what_is_no_letter_has_no_token(self) -> None:
        with pytest.raises(PayloadError) as caught:
            with_token(envelope(), "t")
        assert caught.value.code == "letter_unreadable"

    def test_a_letter_within_a_payload_is_no_letter(self) -> None:
        body = envelope(encode_json({"dead_letter": {"g": 1, "cut": 3}, "text": letter(envelope())}))
        assert read_incoming(body, "id-1", QUEUE) == Incoming(receipt="m1", body=body)
        assert read_member(body) is None


class TestTravelling:
    LINK = BlobLink(key="k", size=9, sha256="h")

    def test_a_letter_goes_as_it_is_where_it_fits(self) -> None:
        sent = letter("x" * 1000)
        assert travelling(sent, self.LINK) == sent

    def test_a_large_one_goes_as_a_link_with_its_own_token(self) -> None:
        sent = travelling(letter("x" * MAX_LETTER_BYTES, generation=3, by="t9"), self.LINK)
        assert len(sent) < 2000
        received = read_incoming(sent, "other", QUEUE)
        assert (received.receipt, received.generation, received.token) == ("m1", 4, "t9")
        assert received.linked == self.LINK


def test_a_subscription_has_a_receipt_of_its_own_and_always_the_same() -> None:
    receipt = "5b2f0d3e-8f3a-4c55-9b6d-0a4b8a1f7c11"
    names = ["topic/a/f", "topic/a/g"]
    made = {subscription_receipt(base, name) for base in (receipt, "no uuid") for name in names}
    assert len(made) == 4
    assert made == {subscription_receipt(base, name) for base in (receipt, "no uuid") for name in names}


@pytest.mark.parametrize(
    ("delay_s", "age_s", "seconds"),
    [(0, 0, 0), (0.2, 0, 1), (1, 0, 1), (43_200, 0, 43_140), (43_200, 100, 43_040), (10, 43_135, 5), (10, 50_000, 0)],
)
def test_a_message_is_hidden_for_whole_seconds_within_what_sqs_grants(delay_s: float, age_s: int, seconds: int) -> None:
    assert visibility_s(timedelta(seconds=delay_s), timedelta(seconds=age_s)) == seconds


@pytest.mark.parametrize("receipt", ["", "i" * 257])
def test_the_letter_of_a_body_with_an_unusable_id_keeps_the_id_it_was_given(receipt: str) -> None:
    body = envelope(receipt=receipt)
    assert read_incoming(body, "m1", QUEUE).receipt == "m1"
    again = read_incoming(letter(body), "another message", QUEUE)
    assert (again.receipt, again.body, again.generation) == ("m1", body, 1)
