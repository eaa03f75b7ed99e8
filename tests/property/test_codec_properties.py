"""Laws of the codec: JSON comes back the same, bodies never change, and everything else is one typed refusal."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from iii_runtime.core.letter import Death, body_of_redriven, compose_letter
from iii_runtime.core.message import (
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
from iii_runtime.core.payload import MAX_INTEGER, MIN_INTEGER, Json, PayloadError, decode_json, encode_json, to_json
from iii_runtime.core.queue import MAX_BACKOFF, backoff_after

texts = st.text(st.characters(exclude_categories=["Cs"]))
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(MIN_INTEGER, MAX_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5), max_leaves=20
)
strange = (
    st.integers(min_value=MAX_INTEGER + 1, max_value=10**60)
    | st.integers(min_value=-(10**60), max_value=MIN_INTEGER - 1)
    | st.sampled_from([float("nan"), float("inf"), float("-inf")])
    | st.binary()
    | st.sets(st.integers(), max_size=3)
    | st.complex_numbers()
    | st.dates()
    | st.decimals()
    | st.builds(object)
    | st.text(st.characters(categories=["Cs"]), min_size=1, max_size=3)
    | st.dictionaries(st.integers() | st.none() | st.floats() | st.binary(), st.none(), min_size=1, max_size=2)
)
envelopes = st.builds(
    Envelope,
    receipt=st.uuids(version=4).map(str),
    function_id=names,
    queue=names,
    accepted_ms=st.integers(0, 2**53),
    hops=st.integers(0, 100),
    group=values,
    dedupe_id=st.none() | names,
    traceparent=st.none() | names,
    baggage=st.none() | names,
    metadata=st.none() | st.dictionaries(texts, values, max_size=3),
    payload=values.map(encode_json) | st.builds(BlobLink, key=names, size=st.integers(0, 2**40), sha256=names),
)
members = st.builds(
    DeadLetterMember,
    generation=st.integers(0, 5),
    token=names,
    cause=st.sampled_from(["failed", "receives", "unreadable"]),
    error=st.builds(bounded_error, names, texts, texts),
    attempts=st.integers(0, 1000),
    receives=st.integers(0, 1000),
    first_ms=st.integers(0, 2**53),
    failed_ms=st.integers(0, 2**53),
    queue=names,
    group=values,
    function_id=st.none() | names,
    trace=st.none() | names,
)


def nest(value: object, levels: int) -> object:
    for level in range(levels):
        value = [value] if level % 2 else {"k": value}
    return value


def read(body: str) -> tuple[Envelope | None, str]:
    try:
        return decode_envelope(body), ""
    except PayloadError as error:
        return None, error.code


@given(values)
def test_any_json_comes_back_the_same(value: Json) -> None:
    text = encode_json(value)
    assert text.isascii()
    back = decode_json(text)
    assert back == value
    assert encode_json(back) == text
    assert decode_json(text.encode("ascii")) == value


@given(values)
def test_the_types_of_numbers_come_back_too(value: Json) -> None:
    """1, 1.0 and True are equal in Python and must not be exchanged."""
    assert repr(decode_json(encode_json(value))) == repr(value)


@given(values)
def test_foreign_json_text_is_read_as_the_standard_library_reads_it(value: Json) -> None:
    for text in (json.dumps(value, ensure_ascii=False), json.dumps(value, indent=1)):
        assert decode_json(text.encode("utf-8")) == value


@given(strange, st.integers(0, 70))
@example([], 100_000)
def test_what_is_not_json_is_refused_with_one_error_at_any_depth(value: object, depth: int) -> None:
    wrapped = nest(value, depth)
    for refuse in (encode_json, to_json):
        with pytest.raises(PayloadError, match=r"^(a key of )?payload"):
            refuse(wrapped)


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_any_bytes_are_json_or_refused(raw: bytes | str) -> None:
    try:
        value = decode_json(raw)
    except PayloadError:
        return
    assert decode_json(encode_json(value)) == value


@given(st.text(max_size=200))
def test_any_body_is_an_envelope_or_refused(body: str) -> None:
    envelope, code = read(body)
    assert envelope is not None or code in {"envelope_unreadable", "envelope_newer"}


@given(st.dictionaries(st.sampled_from(["v", "id", "fn", "q", "at", "hops", "p", "pl", "tp", "md"]), values))
def test_any_object_is_an_envelope_or_refused(fields: dict[str, Any]) -> None:
    envelope, code = read(json.dumps({"v": 1, **fields}))
    if envelope is None:
        assert code in {"envelope_unreadable", "envelope_newer"}
    else:
        assert decode_envelope(encode_envelope(envelope)) == envelope


@given(envelopes)
def test_an_envelope_comes_back_the_same(envelope: Envelope) -> None:
    body = encode_envelope(envelope)
    assert body.isascii()
    assert decode_envelope(body) == envelope
    assert encode_envelope(decode_envelope(body)) == body


@given(envelopes, st.lists(members, min_size=1, max_size=5))
def test_a_body_stays_byte_for_byte_through_any_number_of_redrives(
    envelope: Envelope, deaths: list[DeadLetterMember]
) -> None:
    body = encode_envelope(envelope)
    message = body
    for member in deaths:
        message = encode_letter(message, member)
        assert message.startswith(body[:-1])
        assert decode_envelope(message) == envelope
        assert letter_member(message) == member.to_json(cut=len(body) - 1)
        assert message == encode_letter(body, member)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=100), st.integers(1, 3))
def test_a_body_that_is_no_envelope_survives_its_redrives(body: str, deaths: int) -> None:
    message = body
    for generation in range(deaths):
        death = Death(
            receipt="r",
            queue="q",
            generation=generation,
            token="t",  # noqa: S106 - no secret
            cause="unreadable",
            error=ErrorRecord(type="PayloadError", message="no"),
            attempts=0,
            receives=1,
            first_ms=0,
            failed_ms=1,
        )
        message = body_of_redriven(compose_letter(message, death).text)
        assert message == body


@given(texts, texts, st.text())
def test_an_error_is_kept_within_its_bounds(name: str, message: str, stack: str) -> None:
    record = bounded_error(name, message * 50, stack * 50)
    assert len(encode_json(record.to_json())) < 13 * 1024
    assert (message * 50).startswith(record.message)


@given(st.integers(1, 10_000), st.integers(0, 2**40))
@example(31, 86_400_000)
def test_the_back_off_grows_in_whole_seconds_up_to_its_cap(attempt: int, base_ms: int) -> None:
    base = timedelta(milliseconds=base_ms)
    wait = backoff_after(attempt, base)
    assert wait % timedelta(seconds=1) == timedelta(0)
    assert min(base, MAX_BACKOFF) <= wait <= MAX_BACKOFF
    assert wait <= backoff_after(attempt + 1, base)
    assert wait <= backoff_after(attempt, base * 2)


@settings(max_examples=50)
@given(st.integers(1, 10), st.integers(1, 5000))
def test_the_back_off_is_the_power_of_two_of_iii(attempt: int, base_ms: int) -> None:
    exact = timedelta(milliseconds=base_ms * 2 ** (attempt - 1))
    assert exact <= backoff_after(attempt, timedelta(milliseconds=base_ms)) < exact + timedelta(seconds=1)
