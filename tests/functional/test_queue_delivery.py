"""A message on a queue: attempts at exact times, order, concurrency, and a dead letter with the real error."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from iii_runtime import (
    EnqueueError,
    Http,
    Invocation,
    InvocationError,
    NonRetryableError,
    Queue,
    TriggerAction,
    Worker,
    current_invocation,
)
from iii_runtime.testing import Harness

Host = Callable[..., Harness]
START = datetime(2026, 1, 1, tzinfo=UTC)


class Order(BaseModel):
    order_id: str
    total: int


class Log:
    """What handlers did, when: `(seconds since the start, ...)`."""

    def __init__(self) -> None:
        self.harness: Harness | None = None
        self.entries: list[tuple[Any, ...]] = []

    def add(self, *what: Any) -> None:
        assert self.harness is not None
        self.entries.append(((self.harness.clock.now() - START).total_seconds(), *what))


@pytest.fixture
def log() -> Log:
    return Log()


def invocation() -> Invocation:
    present = current_invocation()
    assert present is not None
    return present


async def enqueue(harness: Harness, function_id: str, queue: str, payload: Any = None, **options: Any) -> str:
    action = TriggerAction.Enqueue(queue=queue, **options)
    result = await harness.trigger({"function_id": function_id, "payload": payload, "action": action})
    assert list(result) == ["messageReceiptId"]
    return str(result["messageReceiptId"])


async def letters_of(harness: Harness, queue: str) -> list[dict[str, Any]]:
    letters = await harness.trigger({"function_id": "engine::queue::dlq_messages", "payload": {"queue": queue}})
    return list(letters)


async def test_a_message_is_handled_once_and_is_gone(worker: Worker, host: Host) -> None:
    seen: list[Any] = []
    worker.register_function("mail::send", seen.append)
    async with host() as harness:
        await enqueue(harness, "mail::send", "mail", {"to": "a"})
        await harness.settle()
        assert seen == [{"to": "a"}]
        assert harness.clock.now() == START
        stats = await harness.trigger({"function_id": "engine::queue::topic_stats", "payload": {"queue": "mail"}})
        assert (stats["depth"], stats["dlq_depth"]) == (0, 0)


async def test_failed_attempts_follow_each_other_after_their_back_off_and_end_as_a_dead_letter(
    worker: Worker, host: Host, log: Log
) -> None:
    def fail(data: Any) -> None:
        log.add(invocation().attempt, invocation().message_receipt_id)
        raise ValueError(f"mailbox {data['to']} is full")

    worker.register_function("mail::send", fail)
    async with host() as log.harness:
        receipt = await enqueue(log.harness, "mail::send", "patient", {"to": "a"})
        await log.harness.settle()
        assert log.entries == [
            (0, 1, receipt),
            (2, 2, receipt),
            (5, 3, receipt),
            (11, 4, receipt),
            (23, 5, receipt),
            (47, 6, receipt),
        ]
        (letter,) = await letters_of(log.harness, "patient")
        assert letter | {"traceparent": None} == {
            "id": receipt,
            "queue": "patient",
            "function_id": "mail::send",
            "payload": {"to": "a"},
            "payload_omitted": False,
            "error": "mailbox a is full",
            "error_type": "ValueError",
            "cause": "failed",
            "failed_at": int(START.timestamp()) + 47,
            "enqueued_at": int(START.timestamp()),
            "retries": 6,
            "receives": 6,
            "size_bytes": len('{"to":"a"}'),
            "traceparent": None,
        }
        detail = await log.harness.trigger(
            {"function_id": "engine::queue::dlq_message", "payload": {"message_id": receipt}}
        )
        assert [error["attempt"] for error in detail["errors"]] == [4, 5, 6]
        assert "mailbox a is full" in detail["stack"]
        assert "in fail" in detail["stack"]
        assert "iii_runtime/engine" not in detail["stack"]


async def test_an_attempt_that_succeeds_ends_the_message(worker: Worker, host: Host, log: Log) -> None:
    def flaky(data: Any) -> None:
        log.add(invocation().attempt)
        if invocation().attempt < 3:
            raise ConnectionError("not yet")

    worker.register_function("mail::send", flaky)
    async with host() as log.harness:
        await enqueue(log.harness, "mail::send", "patient")
        await log.harness.settle()
        assert log.entries == [(0, 1), (2, 2), (5, 3)]
        assert await letters_of(log.harness, "patient") == []


async def test_an_error_that_cannot_be_retried_ends_the_message_at_once(worker: Worker, host: Host, log: Log) -> None:
    def refuse(data: Any) -> None:
        log.add(invocation().attempt)
        raise NonRetryableError("the address does not exist")

    worker.register_function("mail::send", refuse)
    async with host() as log.harness:
        await enqueue(log.harness, "mail::send", "patient")
        await log.harness.settle()
        assert log.entries == [(0, 1)]
        (letter,) = await letters_of(log.harness, "patient")
        assert (letter["error_type"], letter["error"], letter["retries"]) == (
            "NonRetryableError",
            "the address does not exist",
            1,
        )


async def test_a_payload_that_does_not_fit_the_model_is_a_dead_letter_from_a_queue_and_422_over_http(
    worker: Worker, host: Host
) -> None:
    seen: list[Order] = []

    @worker.function("orders::pay", triggers=[Queue("mail"), Http("POST", "/orders")])
    def pay(order: Order) -> dict[str, Any]:
        seen.append(order)
        return {"status_code": 201, "body": order}

    async with host() as harness:
        await enqueue(harness, "orders::pay", "mail", {"order_id": "o1", "total": "5"})
        await enqueue(harness, "orders::pay", "mail", {"order_id": "o2", "total": "many"})
        await harness.settle()
        assert seen == [Order(order_id="o1", total=5)]
        (letter,) = await letters_of(harness, "mail")
        assert letter["error_type"] == "InputInvalidError"
        assert letter["error"].startswith("the input does not fit Order: total: ")
        assert (letter["retries"], letter["payload"]) == (1, {"order_id": "o2", "total": "many"})

        created = await harness.http("POST", "/orders", json={"order_id": "o3", "total": 7})
        assert (created.status, created.json()) == (201, {"order_id": "o3", "total": 7})
        refused = await harness.http("POST", "/orders", json={"total": 7})
        assert refused.status == 422
        assert refused.json()["error"]["code"] == "VALIDATION_FAILED"
        assert refused.json()["error"]["details"] == [{"loc": ["order_id"], "msg": "Field required", "type": "missing"}]
        with pytest.raises(InvocationError, match="does not fit Order") as direct:
            await harness.trigger({"function_id": "orders::pay", "payload": {}})
        assert direct.value.code == "VALIDATION_FAILED"


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()])
async def test_a_handler_that_tries_to_end_the_process_fails_its_attempt(
    worker: Worker, host: Host, error: BaseException
) -> None:
    attempts: list[int] = []

    def leave(data: Any) -> None:
        attempts.append(invocation().attempt)
        if data == "exit":
            sys.exit(3)
        raise error

    worker.register_function("mail::send", leave)
    async with host() as harness:
        await enqueue(harness, "mail::send", "mail", "exit")
        await harness.settle()
        assert attempts == [1, 2, 3]
        (letter,) = await letters_of(harness, "mail")
        assert letter["error"] == "the handler raised SystemExit: 3"


async def test_an_attempt_beyond_the_timeout_is_a_failed_one(worker: Worker, host: Host) -> None:
    go = threading.Event()

    @worker.function("slow::sync", timeout=timedelta(milliseconds=30))
    def slow(data: Any) -> None:
        go.wait(10)

    @worker.function("slow::async", timeout=timedelta(milliseconds=30))
    async def slow_async(data: Any) -> None:
        await asyncio.Event().wait()

    async with host() as harness:
        await enqueue(harness, "slow::sync", "quick")
        await enqueue(harness, "slow::async", "quick")
        await harness.settle()
        go.set()
        letters = {letter["function_id"]: letter for letter in await letters_of(harness, "quick")}
        assert set(letters) == {"slow::sync", "slow::async"}
        for function_id, letter in letters.items():
            assert letter["error_type"] == "TIMEOUT"
            assert letter["error"] == f"function '{function_id}' did not end within 0.03 s."


async def test_the_timeout_error_of_a_handler_is_its_own_failure(worker: Worker, host: Host) -> None:
    def fetch(data: Any) -> None:
        raise TimeoutError("the bank does not answer")

    worker.register_function("bank::fetch", fetch)
    async with host() as harness:
        await enqueue(harness, "bank::fetch", "quick")
        await harness.settle()
        (letter,) = await letters_of(harness, "quick")
        assert (letter["error_type"], letter["error"]) == ("TimeoutError", "the bank does not answer")


async def test_a_message_for_a_function_that_is_gone_fails_until_it_is_a_dead_letter(
    worker: Worker, host: Host
) -> None:
    reference = worker.register_function("mail::send", lambda data: None)
    async with host() as harness:
        await enqueue(harness, "mail::send", "mail", delay=5)
        reference.unregister()
        await harness.settle()
        (letter,) = await letters_of(harness, "mail")
        assert letter["retries"] == 3
        assert letter["error"] == "function_not_found: Function 'mail::send' not found."


async def test_a_poisonous_message_does_not_stop_its_neighbours(worker: Worker, host: Host, log: Log) -> None:
    def handle(data: Any) -> None:
        log.add(data)
        if data == "poison":
            raise ValueError("always")

    worker.register_function("mail::send", handle)
    async with host() as log.harness:
        for payload in ("a", "poison", "b", "c"):
            await enqueue(log.harness, "mail::send", "mail", payload)
        await log.harness.settle()
        assert sorted(entry for entry in log.entries if entry[1] != "poison") == [(0, "a"), (0, "b"), (0, "c")]
        assert [entry[0] for entry in log.entries if entry[1] == "poison"] == [0, 1, 3]


async def test_a_fifo_group_waits_for_its_failing_head_and_other_groups_do_not(
    worker: Worker, host: Host, log: Log
) -> None:
    def handle(data: Any) -> None:
        log.add(data["order_id"], data["n"], invocation().attempt)
        if data == {"order_id": "a", "n": 1} and invocation().attempt == 1:
            raise ValueError("later")

    worker.register_function("orders::pay", handle)
    async with host() as log.harness:
        for order_id, number in [("a", 1), ("a", 2), ("b", 1), ("a", 3), ("b", 2)]:
            await enqueue(log.harness, "orders::pay", "pay", {"order_id": order_id, "n": number})
        await log.harness.settle()
        assert [entry for entry in log.entries if entry[1] == "a"] == [
            (0, "a", 1, 1),
            (1, "a", 1, 2),
            (1, "a", 2, 1),
            (1, "a", 3, 1),
        ]
        assert [entry for entry in log.entries if entry[1] == "b"] == [(0, "b", 1, 1), (0, "b", 2, 1)]


async def test_a_fifo_group_goes_on_behind_a_head_that_died(worker: Worker, host: Host, log: Log) -> None:
    def handle(data: Any) -> None:
        log.add(data["n"])
        if data["n"] == 1:
            raise ValueError("always")

    worker.register_function("orders::pay", handle)
    async with host() as log.harness:
        for number in (1, 2):
            await enqueue(log.harness, "orders::pay", "pay", {"order_id": "a", "n": number})
        await log.harness.settle()
        assert log.entries == [(0, 1), (1, 1), (1, 2)]
        assert [letter["payload"]["n"] for letter in await letters_of(log.harness, "pay")] == [1]


async def test_a_queue_with_concurrency_1_is_one_line_held_up_by_a_failure(
    worker: Worker, host: Host, log: Log
) -> None:
    def handle(data: Any) -> None:
        log.add(data, invocation().attempt)
        if data == "a" and invocation().attempt == 1:
            raise ValueError("later")

    worker.register_function("mail::send", handle)
    async with host() as log.harness:
        for payload in ("a", "b", "c"):
            await enqueue(log.harness, "mail::send", "one", payload)
        await log.harness.settle()
        assert log.entries == [(0, "a", 1), (1, "a", 2), (1, "b", 1), (1, "c", 1)]


async def test_as_many_messages_run_at_once_as_the_queue_allows_and_never_more(worker: Worker, host: Host) -> None:
    """The barrier opens only if three run at the same time; a fourth would be seen."""
    barrier, lock = threading.Barrier(3), threading.Lock()
    running = most = 0

    def handle(data: Any) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        barrier.wait(10)
        with lock:
            running -= 1

    worker.register_function("work::do", handle)
    async with host() as harness:
        for _ in range(9):
            await enqueue(harness, "work::do", "few")
        await harness.settle()
        assert most == 3
        assert await letters_of(harness, "few") == []


async def test_a_delayed_message_comes_when_it_is_due(worker: Worker, host: Host, log: Log) -> None:
    worker.register_function("mail::send", log.add)
    async with host() as log.harness:
        await enqueue(log.harness, "mail::send", "mail", "late", delay=2.5)
        await enqueue(log.harness, "mail::send", "mail", "latest", delay=900)
        await enqueue(log.harness, "mail::send", "mail", "now")
        await log.harness.settle()
        assert log.entries == [(0, "now"), (2.5, "late"), (900, "latest")]


async def test_the_same_dedupe_id_within_five_minutes_is_the_same_message(worker: Worker, host: Host) -> None:
    seen: list[Any] = []
    worker.register_function("mail::send", seen.append)
    worker.register_function("mail::other", seen.append)
    async with host() as harness:
        first = await enqueue(harness, "mail::send", "mail", 1, dedupe_id="x")
        await harness.settle()
        assert await enqueue(harness, "mail::send", "mail", 2, dedupe_id="x") == first
        assert await enqueue(harness, "mail::send", "few", 3, dedupe_id="x") != first
        assert await enqueue(harness, "mail::other", "mail", 4, dedupe_id="x") != first
        await harness.advance(timedelta(minutes=5))
        assert await enqueue(harness, "mail::send", "mail", 5, dedupe_id="x") != first
        await harness.settle()
        assert sorted(seen) == [1, 3, 4, 5]


async def test_every_refusal_is_typed_and_stores_nothing(worker: Worker, host: Host) -> None:
    worker.register_function("mail::send", lambda data: None)
    refusals: list[tuple[str, dict[str, Any], Any, str, str]] = [
        ("queue_not_found", {"queue": "nowhere"}, 1, "mail::send", "Queue 'nowhere' not found"),
        ("function_not_registered", {"queue": "mail"}, 1, "mail::sent", "Function 'mail::sent' is not registered"),
        ("delay_invalid", {"queue": "mail", "delay": 901}, 1, "mail::send", "delay must be 0 to 900 seconds"),
        ("delay_not_supported", {"queue": "one", "delay": 1}, 1, "mail::send", "cannot delay one of them"),
        ("dedupe_id_invalid", {"queue": "mail", "dedupe_id": ""}, 1, "mail::send", "dedupe_id must have 1 to 256"),
        ("payload_not_json", {"queue": "mail"}, {1, 2}, "mail::send", "payload is a value of type set"),
        ("group_field_missing", {"queue": "pay"}, {}, "mail::send", "requires field 'order_id' in data"),
        ("group_field_null", {"queue": "pay"}, {"order_id": None}, "mail::send", "must not be null"),
    ]
    async with host() as harness:
        for reason, options, payload, function_id, message in refusals:
            with pytest.raises(EnqueueError, match=message) as refusal:
                await enqueue(harness, function_id, options.pop("queue"), payload, **options)
            assert refusal.value.reason == reason
            assert refusal.value.code == "enqueue_error"
            assert refusal.value.function_id == function_id
        assert await harness.stores.queue.queue_names() == []


async def test_refusals_come_in_the_order_of_the_protocol(worker: Worker, host: Host) -> None:
    """Whoever mends the first fault learns of the second; the order is the same on every backend."""
    worker.register_function("mail::send", lambda data: None)
    good: dict[str, Any] = {"queue": "pay", "function_id": "mail::send", "payload": {"order_id": "o1"}}
    faults: list[tuple[str, dict[str, Any]]] = [
        ("queue_not_found", {"queue": "nowhere"}),
        ("function_not_registered", {"function_id": "mail::sent"}),
        ("delay_not_supported", {"delay": 1}),
        ("dedupe_id_invalid", {"dedupe_id": ""}),
        ("payload_not_json", {"payload": {1, 2}}),
    ]
    async with host() as harness:
        for number, (reason, _) in enumerate(faults):
            options: dict[str, Any] = {**good}
            for _, wrong in faults[number:]:
                options |= wrong
            with pytest.raises(EnqueueError) as refusal:
                await enqueue(
                    harness, options.pop("function_id"), options.pop("queue"), options.pop("payload"), **options
                )
            assert refusal.value.reason == reason


async def test_a_payload_beyond_the_limit_is_refused_before_anything_is_stored(worker: Worker, host: Host) -> None:
    worker.register_function("mail::send", lambda data: None)
    async with host() as harness:
        with pytest.raises(EnqueueError, match=r"the limit is 33,554,432") as refusal:
            await enqueue(harness, "mail::send", "mail", "x" * (32 * 1024 * 1024))
        assert refusal.value.reason == "payload_too_large"
        assert await harness.stores.queue.queue_names() == []


async def test_a_function_of_the_runtime_cannot_be_enqueued_and_the_refusal_says_so(host: Host) -> None:
    async with host() as harness:
        with pytest.raises(EnqueueError, match="a function of the runtime itself") as refusal:
            await enqueue(harness, "state::set", "mail", {"scope": "s", "key": "k", "value": 1})
        assert refusal.value.reason == "function_not_registered"


async def test_a_function_too_slow_for_the_consumer_of_a_queue_is_refused(worker: Worker, host: Host) -> None:
    worker.function("mail::send", triggers=[Queue("mail")], timeout=timedelta(seconds=30))(lambda data: None)
    worker.function("mail::slow", timeout=timedelta(seconds=31))(lambda data: None)
    worker.function("mail::fast", timeout=timedelta(seconds=30))(lambda data: None)
    async with host() as harness:
        await enqueue(harness, "mail::fast", "mail")
        with pytest.raises(EnqueueError, match=r"whose timeout is 30 s; 'mail::slow' may run for 31 s") as refusal:
            await enqueue(harness, "mail::slow", "mail")
        assert refusal.value.reason == "function_not_allowed"
        await enqueue(harness, "mail::slow", "few")


async def test_functions_that_enqueue_each_other_without_end_stop_after_100_hops(worker: Worker, host: Host) -> None:
    runs: Counter[str] = Counter()
    hops: list[int] = []

    def bounce(function_id: str, other: str) -> None:
        @worker.function(function_id)
        def handle(data: Any) -> None:
            runs[function_id] += 1
            hops.append(invocation().hops)
            worker.trigger({"function_id": other, "action": TriggerAction.Enqueue(queue="quick")})

    bounce("ping::it", "pong::it")
    bounce("pong::it", "ping::it")
    async with host() as harness:
        await enqueue(harness, "ping::it", "quick")
        await harness.settle()
        assert hops == list(range(101))
        assert runs == {"ping::it": 51, "pong::it": 50}
        (letter,) = await letters_of(harness, "quick")
        assert letter["error_type"] == "EnqueueError"
        assert "this message would be hop 101 of its chain, the limit is 100" in letter["error"]


async def test_trace_context_hops_and_baggage_go_through_three_queues(worker: Worker, host: Host) -> None:
    seen: list[Invocation] = []

    def chain(function_id: str, queue: str, following: str | None, **trigger: Any) -> None:
        @worker.function(function_id, **trigger)
        def handle(data: Any) -> dict[str, Any]:
            seen.append(invocation())
            if following is not None:
                worker.trigger({"function_id": following, "action": TriggerAction.Enqueue(queue=queue)})
            return {}

    chain("orders::create", "mail", "orders::check", triggers=[Http("POST", "/orders")])
    chain("orders::check", "few", "orders::pay")
    chain("orders::pay", "quick", "orders::ship")
    chain("orders::ship", "", None)
    traceparent = "00-" + "c" * 32 + "-" + "d" * 16 + "-01"
    async with host() as harness:
        await harness.http("POST", "/orders", headers={"traceparent": traceparent, "baggage": "tenant=7"})
        await harness.settle()
    assert [call.function_id for call in seen] == ["orders::create", "orders::check", "orders::pay", "orders::ship"]
    assert [call.source for call in seen] == ["http", "queue", "queue", "queue"]
    assert [call.hops for call in seen] == [0, 1, 2, 3]
    assert {call.trace_id for call in seen} == {"c" * 32}
    assert len({call.traceparent for call in seen}) == 4
    assert {call.baggage for call in seen} == {"tenant=7"}
    assert [call.queue for call in seen] == [None, "mail", "few", "quick"]


async def test_all_attempts_of_a_message_belong_to_one_trace(worker: Worker, host: Host) -> None:
    seen: list[str | None] = []

    def fail(data: Any) -> None:
        seen.append(invocation().trace_id)
        raise ValueError("no")

    worker.register_function("mail::send", fail)
    async with host() as harness:
        await enqueue(harness, "mail::send", "mail")
        await harness.settle()
        (letter,) = await letters_of(harness, "mail")
        assert len(seen) == 3
        assert {*seen, letter["traceparent"].split("-")[1]} == {seen[0]}


async def test_metadata_travels_beside_the_payload(worker: Worker, host: Host) -> None:
    seen: list[Any] = []
    worker.register_function("mail::send", lambda data, metadata: seen.append((data, metadata)))
    async with host() as harness:
        request = {"function_id": "mail::send", "payload": 1, "metadata": {"who": "me"}}
        await harness.trigger(request)
        await harness.trigger({**request, "action": TriggerAction.Enqueue(queue="mail")})
        await harness.trigger({**request, "action": TriggerAction.Void()})
        await harness.trigger({"function_id": "mail::send", "action": TriggerAction.Enqueue(queue="mail")})
        await harness.settle()
        assert seen[0] == (1, {"who": "me"})
        assert sorted(map(repr, seen)) == ["(1, {'who': 'me'})"] * 3 + ["(None, None)"]


async def test_only_an_explicit_false_of_the_condition_skips_a_message(worker: Worker, host: Host) -> None:
    ran: list[Any] = []
    asked: list[Any] = []

    def condition(data: Any) -> Any:
        asked.append(data["answer"])
        data["changed"] = "by the condition"
        if data["answer"] == "raise":
            raise ValueError("no answer")
        return data["answer"]

    worker.register_function("mail::wanted", condition)
    worker.function("mail::send", triggers=[Queue("mail", condition="mail::wanted")])(ran.append)
    answers: list[Any] = [False, True, None, 0, "", [], {}]
    async with host() as harness:
        for answer in [*answers, "raise"]:
            await enqueue(harness, "mail::send", "mail", {"answer": answer})
        await harness.settle()
        assert sorted(map(repr, ran)) == sorted(repr({"answer": answer}) for answer in answers if answer is not False)
        assert asked.count("raise") == 3
        (letter,) = await letters_of(harness, "mail")
        assert (letter["payload"], letter["error"]) == ({"answer": "raise"}, "no answer")


async def test_a_payload_of_two_megabytes_goes_through_a_queue_and_its_dead_letters(worker: Worker, host: Host) -> None:
    big = {"order_id": "a", "text": "ü" * (2 * 1024 * 1024 // 6)}
    seen: list[Any] = []

    def handle(data: Any) -> None:
        seen.append(data)
        if len(seen) < 3:
            raise ValueError("later")

    worker.register_function("orders::pay", handle)
    async with host() as harness:
        receipt = await enqueue(harness, "orders::pay", "pay", big)
        await harness.settle()
        (letter,) = await letters_of(harness, "pay")
        assert (letter["payload"], letter["payload_omitted"]) == (None, True)
        assert letter["size_bytes"] > 2_000_000
        detail = await harness.trigger(
            {"function_id": "engine::queue::dlq_message", "payload": {"message_id": receipt}}
        )
        assert detail["payload"] == big
        await harness.trigger({"function_id": "iii::queue::redrive", "payload": {"queue": "pay"}})
        await harness.settle()
        assert seen == [big, big, big]
        assert await letters_of(harness, "pay") == []


async def test_a_payload_beyond_32_megabytes_is_refused(worker: Worker, host: Host) -> None:
    worker.register_function("mail::send", lambda data: None)
    async with host() as harness:
        with pytest.raises(EnqueueError, match=r"33,554,435 bytes as JSON; the limit is 33,554,432") as refusal:
            await enqueue(harness, "mail::send", "mail", "x" * (32 * 1024 * 1024 + 1))
        assert refusal.value.reason == "payload_too_large"


@pytest.mark.parametrize("text", ["", "\0", "a\0b", "ünïcödé", "語", "😀", "\u2028\ufeff\uffff", '"\\/\n\t'])
async def test_any_text_comes_through_as_it_is(worker: Worker, host: Host, text: str) -> None:
    seen: list[Any] = []

    def handle(data: Any) -> None:
        seen.append(data)
        if len(seen) < 3:
            raise ValueError(text)

    worker.register_function("orders::pay", handle)
    payload = {"order_id": text, text: [text]}
    async with host() as harness:
        await enqueue(harness, "orders::pay", "pay", payload)
        await harness.settle()
        (letter,) = await letters_of(harness, "pay")
        assert letter["payload"] == payload
        assert letter["error"] == (text or "ValueError('')")
        await harness.trigger({"function_id": "iii::queue::redrive", "payload": {"queue": "pay"}})
        await harness.settle()
        assert seen == [payload] * 3


async def test_an_error_whose_text_cannot_be_had_still_ends_as_a_dead_letter(worker: Worker, host: Host) -> None:
    class RudeError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def fail(data: Any) -> None:
        raise RudeError

    def surrogate(data: Any) -> None:
        raise ValueError("\ud800")

    worker.register_function("rude::it", fail)
    worker.register_function("rude::surrogate", surrogate)
    async with host() as harness:
        await enqueue(harness, "rude::it", "quick")
        await enqueue(harness, "rude::surrogate", "quick")
        await harness.settle()
        letters = {letter["function_id"]: letter for letter in await letters_of(harness, "quick")}
        assert letters["rude::it"]["error_type"] == "RudeError"
        assert letters["rude::surrogate"]["error"] == "\\ud800"


async def test_what_happens_in_a_handler_is_logged_with_its_message(
    worker: Worker, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(data: Any) -> None:
        raise ValueError("no")

    worker.register_function("mail::send", fail)
    async with host() as harness:
        receipt = await enqueue(harness, "mail::send", "mail")
        await harness.settle()
    told = [
        (record.getMessage(), record.__dict__["iii"]) for record in caplog.records if record.name == "iii_runtime.queue"
    ]
    assert [message for message, _ in told] == ["attempt failed", "attempt failed", "dead letter"]
    assert {fields["message_receipt_id"] for _, fields in told} == {receipt}
    assert [fields.get("retry_in_s") for _, fields in told] == [1, 2, None]
