"""What every response store does."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from iii_runtime.engine.stores import Stores
from iii_runtime.ports.response_store import Begun, InProgress, Mismatch, StoredResponse
from iii_runtime.testing.clock import SkipClock

RESPONSE = StoredResponse(
    status=201, headers=(("Content-Type", "text/plain"), ("Set-Cookie", "a"), ("Set-Cookie", "b")), body=b"\0\xff"
)


async def test_a_finished_request_is_answered_from_the_store(stores: Stores) -> None:
    assert await stores.responses.begin("key", "print", "host") == Begun()
    assert await stores.responses.begin("key", "print", "host") == InProgress()
    await stores.responses.finish("key", RESPONSE)
    for holder in ("host", "another"):
        assert await stores.responses.begin("key", "print", holder) == RESPONSE


async def test_a_key_of_another_request_is_refused(stores: Stores) -> None:
    await stores.responses.begin("key", "print", "host")
    assert await stores.responses.begin("key", "other", "host") == Mismatch()
    await stores.responses.finish("key", RESPONSE)
    assert await stores.responses.begin("key", "other", "host") == Mismatch()
    assert await stores.responses.begin("key2", "other", "host") == Begun()


async def test_a_request_of_a_dead_host_is_taken_over(stores: Stores) -> None:
    await stores.responses.begin("key", "print", "dead")
    assert await stores.responses.begin("key", "print", "host") == Begun()
    assert await stores.responses.begin("key", "print", "host") == InProgress()


async def test_one_of_simultaneous_requests_begins(stores: Stores) -> None:
    answers = await asyncio.gather(*[stores.responses.begin("key", "print", "host") for _ in range(10)])
    assert sorted(type(answer).__name__ for answer in answers) == ["Begun"] + ["InProgress"] * 9


async def test_a_key_is_remembered_for_a_day(stores: Stores, clock: SkipClock) -> None:
    await stores.responses.begin("key", "print", "host")
    await stores.responses.finish("key", RESPONSE)
    clock.advance(timedelta(hours=24) - timedelta(milliseconds=1))
    assert await stores.responses.begin("key", "print", "host") == RESPONSE
    clock.advance(timedelta(milliseconds=1))
    assert await stores.responses.begin("key", "other", "host") == Begun()


async def test_a_response_without_a_reservation_is_not_kept(stores: Stores) -> None:
    await stores.responses.finish("key", RESPONSE)
    assert await stores.responses.begin("key", "print", "host") == Begun()
