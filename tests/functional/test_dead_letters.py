"""Dead letters: listed exactly, redriven from any position, attempts starting at 1 again, discarded for good."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime import DurableSubscriber, InvocationError, TriggerAction, Worker, current_invocation
from iii_runtime.testing import Harness


class Mailbox:
    """A function `mail::send` that fails while it is `broken`, and what it did."""

    def __init__(self, worker: Worker) -> None:
        self.is_broken = True
        self.attempts: list[tuple[Any, int]] = []
        worker.register_function("mail::send", self.send)

    def send(self, data: Any) -> None:
        invocation = current_invocation()
        assert invocation is not None
        self.attempts.append((data, invocation.attempt))
        if self.is_broken:
            raise ValueError(f"cannot send {data}")


@pytest.fixture
def mailbox(worker: Worker) -> Mailbox:
    return Mailbox(worker)


@pytest.fixture
async def harness(mailbox: Mailbox, host: Callable[..., Harness]) -> AsyncIterator[Harness]:
    async with host() as harness:
        yield harness


async def call(harness: Harness, function_id: str, **payload: Any) -> Any:
    return await harness.trigger({"function_id": function_id, "payload": payload})


async def letters_of(harness: Harness, queue: str = "mail", **page: int) -> list[Any]:
    return [letter["payload"] for letter in await call(harness, "engine::queue::dlq_messages", queue=queue, **page)]


async def kill(harness: Harness, payload: Any, queue: str = "mail") -> str:
    """Enqueue a message, let it die and return its receipt."""
    action = TriggerAction.Enqueue(queue=queue)
    result = await harness.trigger({"function_id": "mail::send", "payload": payload, "action": action})
    await harness.settle()
    return str(result["messageReceiptId"])


async def test_letters_are_listed_in_the_order_of_their_deaths_and_counted_exactly(harness: Harness) -> None:
    for payload in range(5):
        await kill(harness, payload)
    assert await letters_of(harness) == [0, 1, 2, 3, 4]
    assert await letters_of(harness, offset=1, limit=2) == [1, 2]
    assert await letters_of(harness, offset=4, limit=10) == [4]
    assert await letters_of(harness, offset=5) == []
    assert await letters_of(harness, limit=0) == []
    assert await letters_of(harness, queue="few") == []
    stats = await call(harness, "engine::queue::topic_stats", queue="mail")
    assert stats == {
        "depth": 0,
        "consumer_count": 1,
        "dlq_depth": 5,
        "config": {
            "max_attempts": 3,
            "concurrency": 10,
            "type": "standard",
            "message_group_field": None,
            "backoff_ms": 1000,
        },
    }
    assert await call(harness, "engine::queue::dlq_topics") == [
        {"topic": "mail", "broker_type": harness.stores.broker, "message_count": 5}
    ]
    listed = {row["name"]: row for row in await call(harness, "engine::queue::list")}
    assert set(listed) == {"default", "mail", "quick", "pay", "one", "few", "patient"}
    assert {name: listed["mail"][name] for name in ("visible", "delayed", "in_flight", "dead")} == {
        "visible": 0,
        "delayed": 0,
        "in_flight": 0,
        "dead": 5,
    }


async def test_pages_show_every_letter_once_even_if_all_died_at_the_same_instant(harness: Harness) -> None:
    payloads = [f"p{number}" for number in range(7)]
    for payload in payloads:
        action = TriggerAction.Enqueue(queue="quick")
        await harness.trigger({"function_id": "mail::send", "payload": payload, "action": action})
    await harness.settle()
    whole = await letters_of(harness, queue="quick")
    assert sorted(whole) == payloads
    for size in (1, 2, 3):
        pages = [await letters_of(harness, queue="quick", offset=start, limit=size) for start in range(0, 8, size)]
        assert [payload for page in pages for payload in page] == whole


async def test_counts_say_what_waits_and_what_is_delayed(harness: Harness, mailbox: Mailbox) -> None:
    action = TriggerAction.Enqueue(queue="mail", delay=60)
    await harness.trigger({"function_id": "mail::send", "payload": 1, "action": action})
    await harness.idle()
    stats = await call(harness, "engine::queue::topic_stats", topic="mail")
    assert (stats["depth"], stats["dlq_depth"]) == (1, 0)
    assert await call(harness, "iii::queue::purge", queue="mail") == {"queue": "mail", "purged": 1}
    await harness.settle()
    assert mailbox.attempts == []


async def test_a_page_may_be_null_and_must_be_a_number(harness: Harness) -> None:
    assert await call(harness, "engine::queue::dlq_messages", queue="mail", offset=None, limit=None) == []
    for wrong in (-1, "5", True, 1.5):
        with pytest.raises(
            InvocationError, match="'limit' of engine::queue::dlq_messages must be an integer"
        ) as refusal:
            await call(harness, "engine::queue::dlq_messages", queue="mail", limit=wrong)
        assert refusal.value.code == "request_invalid"


@pytest.mark.parametrize("position", [0, 2, 4])
async def test_a_letter_at_any_position_is_redriven_and_starts_at_attempt_1(
    harness: Harness, mailbox: Mailbox, position: int
) -> None:
    receipts = [await kill(harness, payload) for payload in range(5)]
    mailbox.attempts.clear()
    mailbox.is_broken = False
    result = await call(harness, "iii::queue::redrive_message", queue="mail", message_id=receipts[position])
    assert result == {"queue": "mail", "message_id": receipts[position], "redriven": 1}
    await harness.settle()
    assert mailbox.attempts == [(position, 1)]
    assert await letters_of(harness) == [payload for payload in range(5) if payload != position]


async def test_a_redriven_message_that_fails_again_dies_again_after_all_its_attempts(
    harness: Harness, mailbox: Mailbox
) -> None:
    receipt = await kill(harness, "a")
    for generation in (1, 2):
        mailbox.attempts.clear()
        await call(harness, "iii::queue::redrive_message", queue="mail", message_id=receipt)
        await harness.settle()
        assert mailbox.attempts == [("a", 1), ("a", 2), ("a", 3)]
        (letter,) = await call(harness, "engine::queue::dlq_messages", queue="mail")
        assert (letter["id"], letter["retries"], letter["payload"]) == (receipt, 3, "a")
        detail = await call(harness, "engine::queue::dlq_message", message_id=receipt)
        assert detail["generation"] == generation


async def test_all_letters_are_redriven_oldest_first(harness: Harness, mailbox: Mailbox) -> None:
    for payload in range(3):
        await kill(harness, payload, queue="one")
    mailbox.attempts.clear()
    mailbox.is_broken = False
    assert await call(harness, "iii::queue::redrive", queue="one") == {"queue": "one", "redriven": 3}
    assert await call(harness, "iii::queue::redrive", queue="one") == {"queue": "one", "redriven": 0}
    await harness.settle()
    assert mailbox.attempts == [(0, 1), (1, 1), (2, 1)]
    assert await letters_of(harness, queue="one") == []


async def test_a_letter_is_found_in_its_own_queue_only(harness: Harness) -> None:
    receipt = await kill(harness, "a")
    for function_id in ("iii::queue::redrive_message", "iii::queue::discard_message"):
        outcome = "redriven" if "redrive" in function_id else "discarded"
        result = await call(harness, function_id, queue="few", message_id=receipt)
        assert result == {"queue": "few", "message_id": receipt, outcome: 0}
        result = await call(harness, function_id, queue="mail", message_id="unknown")
        assert result[outcome] == 0
    assert await letters_of(harness) == ["a"]


async def test_a_discarded_letter_is_gone_for_good(harness: Harness, mailbox: Mailbox) -> None:
    receipts = [await kill(harness, payload) for payload in ("a", "b", "c")]
    mailbox.attempts.clear()
    result = await call(harness, "iii::queue::discard_message", queue="mail", message_id=receipts[1])
    assert result == {"queue": "mail", "message_id": receipts[1], "discarded": 1}
    assert await letters_of(harness) == ["a", "c"]
    redriven = await call(harness, "iii::queue::redrive_message", queue="mail", message_id=receipts[1])
    assert redriven["redriven"] == 0
    assert await call(harness, "engine::queue::dlq_message", message_id=receipts[1]) is None
    assert await call(harness, "iii::queue::discard", queue="mail") == {"queue": "mail", "discarded": 2}
    await harness.settle()
    assert await letters_of(harness) == []
    assert mailbox.attempts == []


async def test_letters_survive_a_restart(harness: Harness, mailbox: Mailbox) -> None:
    receipt = await kill(harness, "a")
    await harness.restart()
    assert await letters_of(harness) == ["a"]
    mailbox.is_broken = False
    await call(harness, "iii::queue::redrive_message", queue="mail", message_id=receipt)
    await harness.restart()
    await harness.settle()
    assert mailbox.attempts[3:] == [("a", 1)]


async def test_the_letters_of_a_topic_are_those_of_all_its_subscribers(
    worker: Worker, host: Callable[..., Harness]
) -> None:
    broken = True

    def fail(data: Any) -> None:
        if broken:
            raise ValueError("no")

    for function_id in ("a::a", "b::b"):
        worker.function(function_id, triggers=[DurableSubscriber("paid", max_retries=0)])(fail)
    async with host() as harness:
        for number in range(2):
            await call(harness, "iii::durable::publish", topic="paid", data=number)
            await harness.settle()
            await harness.advance(timedelta(seconds=1))
        letters = await call(harness, "engine::queue::dlq_messages", topic="paid")
        assert [(letter["payload"], letter["function_id"]) for letter in letters] == [
            (0, "a::a"),
            (0, "b::b"),
            (1, "a::a"),
            (1, "b::b"),
        ]
        assert await call(harness, "engine::queue::list_topics") == [
            {"name": "paid", "broker_type": harness.stores.broker, "subscriber_count": 2}
        ]
        stats = await call(harness, "engine::queue::topic_stats", topic="paid")
        assert (stats["dlq_depth"], stats["consumer_count"]) == (4, 2)
        broken = False
        assert await call(harness, "iii::queue::redrive", topic="paid") == {"queue": "paid", "redriven": 4}
        await harness.settle()
        assert await call(harness, "engine::queue::dlq_messages", topic="paid") == []


@pytest.mark.parametrize(
    ("function_id", "payload", "code"),
    [
        ("iii::queue::redrive", {}, "queue_not_set"),
        ("iii::queue::redrive", {"queue": ""}, "queue_not_set"),
        ("iii::queue::redrive", None, "queue_not_set"),
        ("iii::queue::redrive", "mail", "queue_not_set"),
        ("iii::queue::redrive", {"queue": "nowhere"}, "queue_not_found"),
        ("iii::queue::redrive_message", {"message_id": "x"}, "queue_not_set"),
        ("iii::queue::redrive_message", {"queue": "mail"}, "message_id_not_set"),
        ("iii::queue::redrive_message", {"queue": "mail", "message_id": 5}, "message_id_not_set"),
        ("iii::queue::discard_message", {"queue": "mail"}, "message_id_not_set"),
        ("engine::queue::dlq_messages", {}, "queue_not_set"),
        ("engine::queue::dlq_message", {}, "message_id_not_set"),
        ("engine::queue::topic_stats", {"queue": "nowhere"}, "queue_not_found"),
    ],
)
async def test_a_request_that_says_too_little_is_refused_with_the_code_of_iii(
    harness: Harness, function_id: str, payload: Any, code: str
) -> None:
    with pytest.raises(InvocationError) as refusal:
        await harness.trigger({"function_id": function_id, "payload": payload})
    assert refusal.value.code == code
