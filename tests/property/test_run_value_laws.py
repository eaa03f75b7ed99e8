"""Laws of what a run stores: values come back, the first run sees what a replay sees, retries grow up to a cap."""

from __future__ import annotations

import json
from datetime import timedelta, timezone
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from iii_runtime.core.runs.fact_codec import decode_fact, encode_fact, split_value
from iii_runtime.core.runs.facts import Key, StepCompleted, StepFailed
from iii_runtime.core.runs.failure import Failure
from iii_runtime.core.runs.values import decode_value, encode_value
from iii_runtime.core.workflow.retry import GiveUp, Retry, RetryPolicy, next_attempt

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
OFFSETS = st.integers(-86399, 86399).map(lambda seconds: timezone(timedelta(seconds=seconds)))
EXACT = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**63, 2**70)
    | st.floats(allow_nan=False)
    | TEXTS
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.datetimes()
    | st.datetimes(timezones=OFFSETS)
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.uuids()
)
HASHABLE = st.recursive(EXACT, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4)
KEYS = TEXTS | st.just("$")
VALUES = st.recursive(
    EXACT | st.sets(HASHABLE, max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=20,
)
LOOSE = st.recursive(VALUES, lambda inner: st.tuples(inner, inner) | st.lists(inner, max_size=3), max_leaves=5)
FAILURES = st.recursive(
    st.builds(Failure, type=TEXTS, message=TEXTS, stack=TEXTS, non_retryable=st.booleans()),
    lambda inner: st.builds(Failure, type=TEXTS, message=TEXTS, cause=inner),
    max_leaves=1,
)
STEPS = st.builds(Key, st.just("step"), TEXTS, st.integers(0, 9))


def through_text(form: Any) -> Any:
    return json.loads(json.dumps(form, allow_nan=False))


@given(VALUES)
def test_what_json_and_the_tags_have_comes_back_equal(value: Any) -> None:
    back = decode_value(through_text(encode_value(value, "x")))
    assert back == value
    assert type(back) is type(value)


@given(LOOSE)
def test_the_first_run_sees_what_every_replay_sees(value: Any) -> None:
    form = encode_value(value, "x")
    first = decode_value(form)
    assert repr(first) == repr(decode_value(through_text(form))) or first == decode_value(through_text(form))
    assert encode_value(first, "x") == form


@given(STEPS, st.integers(0, 2**52), LOOSE, st.integers(1, 99), st.integers(0, 40))
def test_a_completed_step_is_the_same_in_place_and_linked(
    key: Key, at_ms: int, value: Any, attempts: int, limit: int
) -> None:
    fact = StepCompleted(key=key, at_ms=at_ms, value=encode_value(value, "x"), attempts=attempts)
    text, link, value_text = split_value(fact, limit, "r/")
    assert text.isascii()
    assert (link is None) is (value_text is None)
    assert decode_fact(text, value_text) == fact == decode_fact(encode_fact(fact))


@given(STEPS, FAILURES, st.integers(0, 40))
def test_a_failed_step_is_the_same_in_place_and_linked(key: Key, failure: Failure, limit: int) -> None:
    fact = StepFailed(key=key, at_ms=1, failure=failure, attempts=2)
    text, _, value_text = split_value(fact, limit, "r/")
    assert decode_fact(text, value_text) == fact == decode_fact(encode_fact(fact))


POLICIES = st.builds(
    RetryPolicy,
    initial_interval=st.timedeltas(timedelta(0), timedelta(hours=1)),
    backoff_coefficient=st.floats(1, 1000),
    maximum_interval=st.none() | st.timedeltas(timedelta(hours=1), timedelta(days=300)),
    maximum_attempts=st.integers(0, 5),
    jitter=st.floats(0, 1),
)


@given(POLICIES, st.integers(1, 10_000))
def test_intervals_never_shrink_and_never_pass_the_longest(policy: RetryPolicy, failed: int) -> None:
    assert policy.interval(failed) <= policy.interval(failed + 1) <= policy.longest
    assert policy.interval(1) == policy.initial_interval


@given(POLICIES, st.integers(1, 10_000), st.floats(0, 1, exclude_max=True), st.integers(1, 10**9))
def test_a_retry_begins_in_time_or_not_at_all(policy: RetryPolicy, failed: int, chance: float, allowed_ms: int) -> None:
    limit = timedelta(milliseconds=allowed_ms)
    decision = next_attempt(
        policy, ValueError(), failed, now_ms=0, requested_ms=0, schedule_to_close=limit, random=chance
    )
    longest_ms = policy.interval(failed) / timedelta(milliseconds=1)
    if isinstance(decision, Retry):
        assert 0 <= decision.at_ms <= longest_ms + 1
        assert decision.at_ms < allowed_ms
        assert policy.maximum_attempts == 0 or failed < policy.maximum_attempts
    else:
        assert decision == GiveUp(is_late=True) or 0 < policy.maximum_attempts <= failed
