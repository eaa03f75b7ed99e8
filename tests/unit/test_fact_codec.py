"""Facts as text: short, whole, and readable by what comes later."""

from __future__ import annotations

import json
from typing import Any

import pytest

from iii_runtime.core.payload import MAX_PAYLOAD_BYTES
from iii_runtime.core.runs.errors import LimitError
from iii_runtime.core.runs.fact_codec import (
    FactUnreadableError,
    Link,
    decode_fact,
    decode_link,
    encode_fact,
    encode_link,
    fact_link,
    link_to,
    split_value,
)
from iii_runtime.core.runs.facts import (
    AttemptFailed,
    AttemptStarted,
    CancelRequested,
    Fact,
    Key,
    Patched,
    SignalReceived,
    StepCompleted,
    StepFailed,
    Suspended,
    TimerFired,
)
from iii_runtime.core.runs.failure import Failure

NOW = 1_796_070_531_000
KEY = Key("step", "charge ☃", 2)
FAILURE = Failure(type="E", message="é", stack="at", non_retryable=True, cause=Failure(type="F", message=""))
FACTS: list[Fact] = [
    StepCompleted(key=KEY, at_ms=NOW, value={"l": 1, '"l":': ["\0", None]}, attempts=3, elapsed_ms=9),
    StepCompleted(key=Key("step", "a"), at_ms=NOW),
    StepFailed(key=KEY, at_ms=NOW, failure=FAILURE, attempts=4, elapsed_ms=8),
    AttemptFailed(key=KEY, at_ms=NOW, attempt=1, failure=FAILURE, next_at_ms=NOW + 1000, elapsed_ms=7),
    AttemptStarted(key=KEY, at_ms=NOW, attempt=1),
    TimerFired(number=0, deadline_ms=NOW, at_ms=NOW),
    TimerFired(number=7, deadline_ms=NOW, at_ms=NOW + 5),
    SignalReceived(id="s1", name="paid", at_ms=NOW, value=[1, 2]),
    CancelRequested(id="c1", at_ms=NOW),
    CancelRequested(id="c1", at_ms=NOW, reason="no need"),
    Patched(patch_id="tax", at_ms=NOW),
    Suspended(at_ms=NOW),
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_a_fact_comes_back_as_it_was(fact: Fact) -> None:
    text = encode_fact(fact)
    assert text.isascii()
    assert "\n" not in text
    assert decode_fact(text) == fact
    assert fact_link(text) is None


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_members_of_a_later_writer_are_passed_over(fact: Fact) -> None:
    assert decode_fact(json.dumps(json.loads(encode_fact(fact)) | {"later": [1]})) == fact


def test_three_small_steps_leave_a_record_far_below_a_kibibyte() -> None:
    value = {"order_id": "o-1234", "total": 129.5, "currency": "EUR", "items": [{"sku": "A-1", "count": 2}], "ok": True}
    facts = [StepCompleted(key=Key("step", f"step-number-{n}"), at_ms=NOW, value=value) for n in range(3)]  # type: ignore[arg-type]
    assert sum(len(encode_fact(fact)) for fact in facts) + 250 < 800
    assert len(encode_fact(StepCompleted(key=Key("step", "charge"), at_ms=NOW))) <= 40


def test_a_small_value_stays_in_place() -> None:
    fact = StepCompleted(key=KEY, at_ms=NOW, value="x" * 98)
    assert split_value(fact, 100, "r1/") == (encode_fact(fact), None, None)


@pytest.mark.parametrize("fact", FACTS[:1] + FACTS[2:4] + FACTS[7:8], ids=lambda fact: type(fact).__name__)
def test_a_large_value_is_stored_elsewhere_and_linked(fact: Fact) -> None:
    text, link, value_text = split_value(fact, 3, "r1/")
    assert link is not None
    assert value_text is not None
    assert link.key.startswith("r1/")
    assert fact_link(text) == link
    assert decode_fact(text, value_text) == fact
    assert split_value(fact, 3, "r1/") == (text, link, value_text)
    with pytest.raises(FactUnreadableError, match="stored elsewhere"):
        decode_fact(text)
    with pytest.raises(FactUnreadableError, match="not the one"):
        decode_fact(text, value_text[:-1] + " ")


def test_facts_without_a_value_are_never_split() -> None:
    assert split_value(Suspended(at_ms=NOW), 0, "r1/") == (encode_fact(Suspended(at_ms=NOW)), None, None)


def test_a_value_that_is_linked_already_is_not_stored_again() -> None:
    link = link_to('"hello"', "P/")
    fact = SignalReceived(id="s", name="n", at_ms=NOW, value="hello")
    assert decode_fact(encode_fact(fact, link), '"hello"') == fact


def test_a_link_stands_in_place_of_a_payload() -> None:
    link = Link("r1/abc", 12, "00ff")
    assert decode_link(encode_link(link)) == link
    assert decode_link('{"@":1}') is None
    with pytest.raises(FactUnreadableError):
        decode_link("@{}")
    with pytest.raises(FactUnreadableError):
        decode_link("@")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "nothing",
        "{}",
        '{"t":"of a later kind","a":1}',
        '{"t":"c","a":"soon","k":"x"}',
        '{"t":"c","a":1}',
        '{"t":"c","a":1,"k":"x","kd":"child"}',
        '{"t":"f","a":1,"k":"x","n":1}',
        '{"t":"f","a":1,"k":"x","n":1,"v":3}',
        '{"t":"c","a":1,"k":"x","l":[1]}',
        "[" * 100_000,
    ],
)
def test_what_is_no_fact_is_refused_by_its_code(text: str) -> None:
    with pytest.raises(FactUnreadableError) as refused:
        decode_fact(text, "1")
    assert refused.value.code == "fact_unreadable"


def test_a_value_beyond_the_largest_payload_names_its_step() -> None:
    value: Any = "x" * MAX_PAYLOAD_BYTES
    with pytest.raises(LimitError, match="step 'report'"):
        split_value(StepCompleted(key=Key("step", "report"), at_ms=NOW, value=value), 300, "r1/")
