"""Retries of steps: exact intervals, and when to stop."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from iii_runtime.core.errors import NonRetryableError, RegistrationError
from iii_runtime.core.workflow.retry import GiveUp, Retry, RetryAfter, RetryPolicy, next_attempt

SECOND = timedelta(seconds=1)


def after(policy: RetryPolicy, failed: int, error: BaseException | None = None, **more: Any) -> Retry | GiveUp:
    """What follows a failure at the time 0 of a step that was asked for at the time 0."""
    given: dict[str, Any] = {"now_ms": 0, "requested_ms": 0, "schedule_to_close": None} | more
    return next_attempt(policy, error or ValueError("no"), failed, **given)


def test_each_interval_is_a_multiple_of_the_one_before_up_to_the_longest() -> None:
    policy = RetryPolicy(initial_interval=SECOND, backoff_coefficient=2, maximum_interval=10 * SECOND)
    assert [after(policy, n) for n in range(1, 7)] == [Retry(ms) for ms in (1000, 2000, 4000, 8000, 10000, 10000)]


def test_the_longest_interval_is_100_initial_ones_unless_it_is_said() -> None:
    assert after(RetryPolicy(initial_interval=SECOND), 50) == Retry(100_000)


def test_5000_failed_attempts_overflow_nothing() -> None:
    policy = RetryPolicy(initial_interval=SECOND, backoff_coefficient=1000, maximum_interval=timedelta(hours=1))
    assert after(policy, 5000) == Retry(3_600_000)


def test_a_coefficient_of_1_waits_the_same_each_time() -> None:
    assert after(RetryPolicy(backoff_coefficient=1), 4000) == Retry(1000)


def test_no_interval_means_at_once() -> None:
    assert after(RetryPolicy(initial_interval=timedelta(0)), 3, now_ms=7) == Retry(7)


def test_as_many_attempts_are_made_as_the_policy_says() -> None:
    policy = RetryPolicy(maximum_attempts=3)
    assert [type(after(policy, n)) for n in (1, 2, 3)] == [Retry, Retry, GiveUp]
    assert after(RetryPolicy(maximum_attempts=1), 1) == GiveUp()


def test_an_error_may_say_that_no_attempt_can_succeed() -> None:
    assert after(RetryPolicy(), 1, NonRetryableError("never")) == GiveUp()


class PaymentError(Exception):
    """An error of a user."""


class CardDeclinedError(PaymentError):
    """A kind of it."""


@pytest.mark.parametrize(
    ("listed", "ends"),
    [
        (PaymentError, True),
        (CardDeclinedError, True),
        ("CardDeclinedError", True),
        (f"{__name__}.CardDeclinedError", True),
        ("PaymentError", False),
        ("card", False),
        (KeyError, False),
    ],
)
def test_a_class_means_its_subclasses_too_and_a_name_itself_alone(listed: Any, ends: bool) -> None:
    policy = RetryPolicy(non_retryable_error_types=(listed,))
    assert isinstance(after(policy, 1, CardDeclinedError("no")), GiveUp) is ends


def test_an_error_may_choose_when_the_next_attempt_begins_but_not_how_many_there_are() -> None:
    policy = RetryPolicy(initial_interval=SECOND, maximum_attempts=2)
    assert after(policy, 1, RetryAfter(timedelta(seconds=10))) == Retry(10_000)
    assert after(policy, 2, RetryAfter(timedelta(seconds=10))) == GiveUp()


def test_an_attempt_that_would_begin_after_schedule_to_close_is_not_waited_for() -> None:
    policy = RetryPolicy(initial_interval=4 * SECOND)
    assert after(policy, 1, now_ms=5000, schedule_to_close=10 * SECOND) == Retry(9000)
    assert after(policy, 1, now_ms=6000, schedule_to_close=10 * SECOND) == GiveUp(is_late=True)
    late = RetryAfter(timedelta(minutes=1))
    assert after(policy, 1, late, schedule_to_close=10 * SECOND) == GiveUp(is_late=True)


def test_jitter_only_shortens() -> None:
    policy = RetryPolicy(initial_interval=10 * SECOND, jitter=0.2)
    assert after(policy, 1, random=0.0) == Retry(10_000)
    assert after(policy, 1, random=0.5) == Retry(9000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("initial_interval", 1),
        ("initial_interval", timedelta(seconds=-1)),
        ("initial_interval", timedelta(days=400)),
        ("maximum_interval", timedelta(milliseconds=1)),
        ("backoff_coefficient", 0.5),
        ("backoff_coefficient", float("nan")),
        ("maximum_attempts", -1),
        ("maximum_attempts", True),
        ("jitter", 1.5),
        ("non_retryable_error_types", "ValueError"),
        ("non_retryable_error_types", (3,)),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(RegistrationError, match=name) as refused:
        RetryPolicy(**{name: value})
    assert refused.value.code == "retry_policy_invalid"


def test_a_time_that_has_passed_means_at_once() -> None:
    assert after(RetryPolicy(), 1, RetryAfter(timedelta(seconds=-5)), now_ms=7) == Retry(7)
