"""Failures of steps and runs: what is kept of an exception, and what is raised again."""

from __future__ import annotations

import json
import traceback
from typing import Any

import pytest

import iii_runtime
from iii_runtime.core.errors import NonRetryableError
from iii_runtime.core.runs.errors import (
    LimitError,
    RecordedError,
    RunFailedError,
    StepError,
    StepInterruptedError,
    StepTimeoutError,
    step_error,
)
from iii_runtime.core.runs.facts import Key
from iii_runtime.core.runs.failure import Failure
from iii_runtime.core.runs.failures import (
    MAX_CAUSES,
    MAX_MESSAGE_BYTES,
    MAX_STACK_BYTES,
    failure_from_json,
    failure_of,
    failure_to_json,
)

CHARGE = Key("step", "charge", 1)


class CardDeclinedError(Exception):
    """An error of a user."""


class TypedError(Exception):
    """Gives itself a type."""

    type = "payment.refused"


class HostileError(Exception):
    """Nothing of it can be asked for."""

    @property
    def type(self) -> str:
        raise SystemExit(3)

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def caught(error: BaseException, cause: BaseException | None = None) -> BaseException:
    if cause is not None:
        error.__cause__ = cause
    try:
        raise error  # noqa: TRY301
    except BaseException as found:  # noqa: BLE001
        return found


def test_a_failure_has_the_class_the_text_and_the_stack_of_its_error() -> None:
    failure = failure_of(caught(CardDeclinedError("no funds")))
    assert (failure.type, failure.message, failure.non_retryable) == ("CardDeclinedError", "no funds", False)
    assert "in caught" in failure.stack
    assert failure_of(NonRetryableError("never")).non_retryable


def test_an_error_may_give_itself_a_type() -> None:
    assert failure_of(TypedError("no")).type == "payment.refused"


def test_the_runtimes_own_frames_before_those_of_the_user_are_left_out() -> None:
    place = f"{iii_runtime.__path__[0]}/engine/anything.py"
    names: dict[str, Any] = {}
    exec(compile("def engine(body):\n    body()", place, "exec"), names)  # noqa: S102
    with pytest.raises(ZeroDivisionError) as raised:
        names["engine"](lambda: 1 // 0)
    whole = raised.value.__traceback__
    error = raised.value.with_traceback(whole and whole.tb_next)
    stack = failure_of(error).stack
    assert "anything.py" not in stack
    assert "1 // 0" in stack


def test_causes_are_kept_as_a_traceback_shows_them() -> None:
    explicit = failure_of(caught(ValueError("outer"), KeyError("inner")))
    implicit = failure_of(caught_in_context())
    suppressed = failure_of(caught_in_context(suppress=True))
    assert explicit.cause is not None
    assert explicit.cause.type == "KeyError"
    assert implicit.cause is not None
    assert implicit.cause.type == "KeyError"
    assert suppressed.cause is None


def caught_in_context(*, suppress: bool = False) -> BaseException:
    try:
        try:
            raise KeyError("inner")  # noqa: TRY301
        except KeyError:
            if suppress:
                raise ValueError("outer") from None
            raise ValueError("outer")  # noqa: B904
    except ValueError as error:
        return error


def test_a_chain_of_causes_ends_even_if_it_is_long_or_a_circle() -> None:
    error: BaseException | None = None
    for number in range(100):
        error = caught(ValueError(str(number)), error)
    assert error is not None
    assert length(failure_of(error)) == MAX_CAUSES
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert length(failure_of(first)) == 2


def length(failure: Failure | None) -> int:
    return 0 if failure is None else 1 + length(failure.cause)


def test_a_group_tells_of_its_errors() -> None:
    failure = failure_of(ExceptionGroup("two failed", [CardDeclinedError("a"), KeyError("b")]))
    assert "CardDeclinedError: a; KeyError: 'b'" in failure.message
    assert failure.cause is not None
    assert failure.cause.type == "CardDeclinedError"


def test_an_error_whose_own_code_fails_is_kept_all_the_same() -> None:
    failure = failure_of(caught(HostileError()))
    assert failure.type == "HostileError"
    assert "cannot be had" in failure.message


@pytest.mark.parametrize("character", ["x", "é", "\U0001f600", "\ud800", "\0"])
def test_a_failure_is_cut_to_its_bounds_as_json(character: str) -> None:
    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        raise ValueError(character * 100_000)

    with pytest.raises(ValueError) as raised:  # noqa: PT011
        deep(50)
    failure = failure_of(raised.value)
    assert len(json.dumps(failure.message)) - 2 <= MAX_MESSAGE_BYTES
    assert len(json.dumps(failure.stack)) - 2 <= MAX_STACK_BYTES
    failure.message.encode("utf-8")
    short = failure_of(raised.value, stack_bytes=100).stack
    assert len(json.dumps(short)) - 2 <= 100
    assert failure.stack.endswith(short)


def test_a_failure_comes_back_from_its_json_form() -> None:
    failure = failure_of(caught(NonRetryableError("outer"), caught(KeyError("inner"))))
    stored = json.loads(json.dumps(failure_to_json(failure)))
    assert failure_from_json(stored | {"later": 1}) == failure
    assert failure_to_json(Failure(type="E", message="")) == {"t": "E", "m": ""}


def test_a_failed_step_names_itself_and_shows_the_original_types() -> None:
    failure = failure_of(caught(CardDeclinedError("no funds"), KeyError("card")))
    error = step_error(CHARGE, failure, 3)
    assert type(error) is StepError
    assert (error.step, error.attempts, error.type, error.failure) == ("charge", 3, "CardDeclinedError", failure)
    assert "'charge'" in error.message
    assert "3 times" in error.message
    assert "no funds" in error.message
    text = "".join(traceback.format_exception(error))
    assert "CardDeclinedError: no funds" in text
    assert "KeyError: 'card'" in text
    assert "in caught" in text


def test_a_step_that_took_too_long_or_was_interrupted_has_an_error_of_its_own() -> None:
    assert isinstance(step_error(CHARGE, Failure(type="DeadlineExceededError", message="late"), 1), StepTimeoutError)
    assert isinstance(step_error(CHARGE, Failure(type="ScheduleToCloseTimeout", message="late"), 1), StepTimeoutError)
    assert isinstance(step_error(CHARGE, Failure(type="StepInterrupted", message="died"), 1), StepInterruptedError)


def test_the_original_type_outlives_any_number_of_records() -> None:
    original = failure_of(caught(CardDeclinedError("no funds")))
    run = failure_of(caught(step_error(CHARGE, original, 1)))
    assert run.type == "StepError"
    assert run.cause == original
    result = RunFailedError("order-1", "r1", run)
    again = failure_of(caught(result))
    assert again.cause == run
    assert isinstance(result.__cause__, RecordedError)
    assert result.__cause__.type == "StepError"


def test_a_limit_is_no_reason_to_try_again() -> None:
    error = LimitError("the result of step 'report'", 1024, "bytes", 2048)
    assert failure_of(error).non_retryable
    assert "step 'report'" in error.message
    assert "2,048 bytes" in error.message
