"""What is decided about a message before and after it runs: refusals, back-off, groups, the last attempt."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import pytest

from iii_runtime.core.errors import EnqueueError, InputInvalidError, InvocationError, NonRetryableError
from iii_runtime.core.payload import Json
from iii_runtime.core.queue import (
    MAX_BACKOFF,
    MAX_GROUP_BYTES,
    MAX_HOPS,
    SINGLE_GROUP,
    QueueSpec,
    backoff_after,
    check_dedupe_id,
    check_delay,
    check_hops,
    group_key,
    group_value,
)
from iii_runtime.engine.deliver import Bury, Retry, decide_failure, error_record

SECOND = timedelta(seconds=1)
STANDARD = QueueSpec(name="mail")
FIFO = QueueSpec(name="pay", kind="fifo", group_field="order_id", concurrency=2)
SINGLE = QueueSpec(name="one", concurrency=1)


def caused(cause: BaseException) -> InvocationError:
    error = InvocationError("invocation_failed", str(cause), "f")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("base_ms", "waits"),
    [(1000, [1, 2, 4, 8, 16]), (2000, [2, 4, 8, 16]), (1500, [2, 3, 6, 12]), (1, [1, 1, 1, 1]), (0, [0, 0, 0])],
)
def test_the_back_off_doubles_in_whole_seconds(base_ms: int, waits: list[int]) -> None:
    base = timedelta(milliseconds=base_ms)
    assert [backoff_after(attempt + 1, base) / SECOND for attempt in range(len(waits))] == waits


@pytest.mark.parametrize(
    ("attempt", "base"), [(1000, SECOND), (31, timedelta(days=30)), (1, timedelta(days=900_000_000))]
)
def test_the_back_off_ends_at_twelve_hours(attempt: int, base: timedelta) -> None:
    assert backoff_after(attempt, base) == MAX_BACKOFF == timedelta(hours=12)


def test_an_attempt_before_the_last_is_followed_by_another_after_its_back_off() -> None:
    assert decide_failure(caused(ValueError()), 2, STANDARD) == Retry(timedelta(seconds=2))


@pytest.mark.parametrize("attempt", [3, 4])
def test_the_last_attempt_is_followed_by_the_end(attempt: int) -> None:
    assert decide_failure(caused(ValueError()), attempt, STANDARD) == Bury("failed")


@pytest.mark.parametrize("cause", [NonRetryableError("no use"), InputInvalidError("bad", [])])
def test_what_cannot_succeed_is_not_tried_again(cause: Exception) -> None:
    assert decide_failure(caused(cause), 1, STANDARD) == Bury("failed")
    assert decide_failure(cause, 1, STANDARD) == Bury("failed")


def test_the_hopelessness_of_a_called_function_is_not_that_of_its_caller() -> None:
    """The caller may decide otherwise next time; only what the handler itself raises ends its message."""
    assert decide_failure(caused(caused(NonRetryableError("inner"))), 1, STANDARD) == Retry(SECOND)


def test_an_error_is_recorded_as_what_the_handler_raised() -> None:
    record = error_record(caused(KeyError("order_id")))
    assert (record.type, record.message) == ("KeyError", "'order_id'")


def test_an_error_without_text_is_recorded_by_its_form() -> None:
    assert error_record(caused(ValueError())).message == "ValueError()"


def test_a_refusal_of_the_runtime_keeps_its_code() -> None:
    record = error_record(InvocationError("function_not_found", "Function 'x' not found.", "x"))
    assert (record.type, record.message) == ("InvocationError", "function_not_found: Function 'x' not found.")


def test_a_timeout_is_recorded_as_one() -> None:
    record = error_record(InvocationError("TIMEOUT", "function 'x' did not end within 2 s.", "x"))
    assert (record.type, record.message) == ("TIMEOUT", "function 'x' did not end within 2 s.")


@pytest.mark.parametrize(("attempts", "receives"), [(1, 5), (2, 5), (3, 6), (10, 13)])
def test_a_message_that_kills_its_host_is_given_up_after_some_receives(attempts: int, receives: int) -> None:
    assert QueueSpec(name="q", max_attempts=attempts).max_receives == receives


@pytest.mark.parametrize(("delay", "milliseconds"), [(0, 0), (0.0, 0), (1, 1000), (0.25, 250), (900, 900_000)])
def test_a_delay_is_seconds(delay: float, milliseconds: int) -> None:
    assert check_delay(delay, STANDARD, "f") == milliseconds


@pytest.mark.parametrize("delay", [-1, 900.1, float("nan"), float("inf"), "5", True, None, [], 10**400, "x" * 10_000])
def test_a_delay_outside_0_to_900_seconds_is_refused(delay: object) -> None:
    with pytest.raises(EnqueueError, match=r"^enqueue_error: delay must be 0 to 900 seconds") as refusal:
        check_delay(delay, STANDARD, "f")
    assert refusal.value.reason == "delay_invalid"
    assert len(refusal.value.message) < 200


@pytest.mark.parametrize(("queue", "why"), [(FIFO, "type: fifo"), (SINGLE, "concurrency: 1")])
def test_an_ordered_queue_refuses_a_delay_but_not_none(queue: QueueSpec, why: str) -> None:
    assert check_delay(0, queue, "f") == 0
    with pytest.raises(EnqueueError, match=f"keeps its messages in order \\({why}\\)") as refusal:
        check_delay(1, queue, "f")
    assert refusal.value.reason == "delay_not_supported"


@pytest.mark.parametrize("dedupe_id", [None, "x", "x" * 256, "ü"])
def test_a_dedupe_id_has_1_to_256_characters(dedupe_id: str | None) -> None:
    assert check_dedupe_id(dedupe_id, "f") == dedupe_id


@pytest.mark.parametrize("dedupe_id", ["", "x" * 257, 5, b"x", "\ud800", "a\0b"])
def test_any_other_dedupe_id_is_refused(dedupe_id: object) -> None:
    with pytest.raises(EnqueueError, match="dedupe_id must") as refusal:
        check_dedupe_id(dedupe_id, "f")
    assert refusal.value.reason == "dedupe_id_invalid"


def test_a_chain_has_at_most_100_hops() -> None:
    assert check_hops(MAX_HOPS, STANDARD, "f") == 100
    with pytest.raises(EnqueueError, match="hop 101 of its chain, the limit is 100") as refusal:
        check_hops(MAX_HOPS + 1, STANDARD, "f")
    assert refusal.value.reason == "too_many_hops"


@pytest.mark.parametrize("value", ["o1", 5, False, 0, "", {"a": 1}])
def test_the_group_is_the_value_of_the_group_field(value: Json) -> None:
    assert group_value({"order_id": value}, FIFO, "f") == value


@pytest.mark.parametrize("payload", [None, 5, "order_id", [], {}, {"orderId": 1}, {"data": {"order_id": 1}}])
def test_a_fifo_payload_without_the_field_is_refused_in_iiis_words(payload: Json) -> None:
    with pytest.raises(
        EnqueueError, match=r"^enqueue_error: Queue 'pay' requires field 'order_id' in data$"
    ) as refusal:
        group_value(payload, FIFO, "f")
    assert refusal.value.reason == "group_field_missing"


def test_a_null_group_is_refused_in_iiis_words() -> None:
    with pytest.raises(EnqueueError, match="field 'order_id' must not be null") as refusal:
        group_value({"order_id": None}, FIFO, "f")
    assert refusal.value.reason == "group_field_null"


def test_a_huge_group_is_refused() -> None:
    """It is kept beside the payload, and again in the letter; a queue service could not carry it."""
    assert group_value({"order_id": "x" * (MAX_GROUP_BYTES - 2)}, FIFO, "f")
    with pytest.raises(EnqueueError, match="field 'order_id' is 1,025 bytes as JSON") as refusal:
        group_value({"order_id": "x" * (MAX_GROUP_BYTES - 1)}, FIFO, "f")
    assert refusal.value.reason == "payload_too_large"


def test_other_queues_have_no_group_value() -> None:
    assert group_value({}, STANDARD, "f") is None


@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_with_concurrency_1_all_messages_are_one_group(kind: Literal["standard", "fifo"]) -> None:
    queue = QueueSpec(name="q", kind=kind, group_field="id" if kind == "fifo" else None, concurrency=1)
    assert group_key("a", queue) == group_key("b", queue) == SINGLE_GROUP
    assert queue.is_ordered


def test_equal_values_are_one_group_and_different_ones_are_not() -> None:
    values: list[Json] = ["1", 1, "a", {"a": 1, "b": 2}, {"a": 2, "b": 1}, [1], True, "x" * 500]
    keys = [group_key(value, FIFO) for value in values]
    assert len(set(keys)) == len(values)
    assert all(key is not None and len(key) == 32 for key in keys)
    assert group_key({"b": 2, "a": 1}, FIFO) == group_key({"a": 1, "b": 2}, FIFO)


def test_a_standard_queue_has_no_groups() -> None:
    assert group_key("a", STANDARD) is None
    assert not STANDARD.is_ordered
