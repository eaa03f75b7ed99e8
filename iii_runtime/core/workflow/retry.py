"""Retries of steps: when a failed attempt is followed by another one, and when that one begins."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TypeAlias

from iii_runtime.core.errors import IiiError, NonRetryableError, RegistrationError
from iii_runtime.core.frozen import frozen

MAX_INTERVAL = timedelta(days=366)
_DEFAULT_INITIAL = timedelta(seconds=1)
_DEFAULT_GROWTH = 100
"""The default of `maximum_interval`, in initial intervals; as in Temporal."""


class RetryAfter(IiiError):  # noqa: N818 - it says when, and reads as that where it is raised
    """Raise it in a step to choose when the next attempt begins.

    It replaces the interval of the policy, and neither the number of attempts nor schedule-to-close.

    Attributes:
        delay: How long after this failure the next attempt begins; a time that has passed means at once.
    """

    code = "retry_after"

    def __init__(self, delay: timedelta, message: str = "asked to be tried again later") -> None:
        super().__init__(message)
        self.delay = max(delay, timedelta(0))


@frozen(kw_only=True)
class RetryPolicy:
    """When a failed attempt is followed by another one. Names, defaults and meaning as in Temporal, but for `jitter`.

    The interval before attempt n + 1 is `initial_interval * backoff_coefficient ** (n - 1)`, at most
    `maximum_interval`.

    Attributes:
        initial_interval: Before the second attempt.
        backoff_coefficient: What each interval is of the one before; 1 or more.
        maximum_interval: Longest interval; 100 times the initial one by default.
        maximum_attempts: How often a step is tried in total; 0 for no limit, 1 for no retry.
        non_retryable_error_types: Errors that end a step at once: classes, which mean their subclasses too, or texts,
            which mean exactly the name of a class, with or without its module.
        jitter: What part of each interval is left to chance, 0 to 1: 0.2 makes of 10 s anything from 8 to 10 s.

    Raises:
        RegistrationError: A value that cannot work.
    """

    initial_interval: timedelta = _DEFAULT_INITIAL
    backoff_coefficient: float = 2.0
    maximum_interval: timedelta | None = None
    maximum_attempts: int = 0
    non_retryable_error_types: tuple[str | type[BaseException], ...] = ()
    jitter: float = 0.0

    def __post_init__(self) -> None:
        """Check the values: a policy that cannot work is refused where it is written."""
        _check(self)
        object.__setattr__(self, "non_retryable_error_types", tuple(self.non_retryable_error_types))

    @property
    def longest(self) -> timedelta:
        """The longest interval."""
        if self.maximum_interval is not None:
            return self.maximum_interval
        return min(self.initial_interval * _DEFAULT_GROWTH, MAX_INTERVAL)

    def interval(self, failed: int) -> timedelta:
        """Return the interval after so many failed attempts, 1 or more, without jitter."""
        if self.initial_interval <= timedelta(0):
            return timedelta(0)
        longest = self.longest
        # Compared as logarithms, for the power itself has no number after some thousand attempts.
        growth = (failed - 1) * math.log(self.backoff_coefficient)
        if growth >= math.log(max(longest / self.initial_interval, 1.0)):
            return longest
        return min(self.initial_interval * self.backoff_coefficient ** (failed - 1), longest)

    def ends_at(self, error: BaseException) -> bool:
        """Return whether an error ends a step, however many attempts are left."""
        if isinstance(error, NonRetryableError):
            return True
        names = {type(error).__name__, f"{type(error).__module__}.{type(error).__qualname__}"}
        return any(
            each in names if isinstance(each, str) else isinstance(error, each)
            for each in self.non_retryable_error_types
        )


@frozen
class Retry:
    """Another attempt begins at `at_ms`, Unix milliseconds."""

    at_ms: int


@frozen
class GiveUp:
    """No further attempt. `is_late` tells that it is so because it would begin after schedule-to-close."""

    is_late: bool = False


Decision: TypeAlias = "Retry | GiveUp"


def next_attempt(
    policy: RetryPolicy,
    error: BaseException,
    failed: int,
    *,
    now_ms: int,
    requested_ms: int,
    schedule_to_close: timedelta | None,
    random: float = 0.0,
) -> Decision:
    """Return what follows the failure of attempt number `failed`.

    Args:
        policy: The step's policy.
        error: What the attempt raised.
        failed: How many attempts have failed, this one included.
        now_ms: When it failed.
        requested_ms: When the workflow asked for the step.
        schedule_to_close: Longest time from then to an outcome.
        random: From 0 to below 1, for the jitter.
    """
    if policy.ends_at(error) or 0 < policy.maximum_attempts <= failed:
        return GiveUp()
    if isinstance(error, RetryAfter):
        interval = min(error.delay, MAX_INTERVAL)
    else:
        interval = policy.interval(failed) * (1 - policy.jitter * random)
    at_ms = now_ms + round(interval / timedelta(milliseconds=1))
    if schedule_to_close is not None and at_ms >= requested_ms + schedule_to_close / timedelta(milliseconds=1):
        return GiveUp(is_late=True)
    return Retry(at_ms)


def _check(policy: RetryPolicy) -> None:
    for name, value, is_optional in (
        ("initial_interval", policy.initial_interval, False),
        ("maximum_interval", policy.maximum_interval, True),
    ):
        given: object = value
        if is_optional and given is None:
            continue
        if not isinstance(given, timedelta) or not timedelta(0) <= given <= MAX_INTERVAL:
            raise _refused(name, f"a timedelta from 0 to {MAX_INTERVAL.days} days", given)
    if policy.maximum_interval is not None and policy.maximum_interval < policy.initial_interval:
        raise _refused("maximum_interval", "initial_interval or more", policy.maximum_interval)
    if not _is_number(policy.backoff_coefficient) or not 1 <= policy.backoff_coefficient <= 1000:
        raise _refused("backoff_coefficient", "a number from 1 to 1000", policy.backoff_coefficient)
    attempts: object = policy.maximum_attempts
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 0:
        raise _refused("maximum_attempts", "an integer of 0 or more", attempts)
    if not _is_number(policy.jitter) or not 0 <= policy.jitter <= 1:
        raise _refused("jitter", "a number from 0 to 1", policy.jitter)
    _check_types(policy.non_retryable_error_types)


def _check_types(types: object) -> None:
    if isinstance(types, str) or not isinstance(types, tuple | list | set | frozenset):
        raise _refused("non_retryable_error_types", "a tuple of class names and exception classes", types)
    for each in types:
        if not isinstance(each, str) and not (isinstance(each, type) and issubclass(each, BaseException)):
            raise _refused("non_retryable_error_types", "a tuple of class names and exception classes", each)


def _is_number(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value)


def _refused(name: str, wanted: str, found: object) -> RegistrationError:
    return RegistrationError(f"RetryPolicy: {name} must be {wanted}, found {found!r:.80}.", code="retry_policy_invalid")


DEFAULT_RETRY = RetryPolicy()
