"""What every response store does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from iii_runtime.adapters.embedded.blob_store import FileBlobStore
from iii_runtime.adapters.embedded.database import Database
from iii_runtime.adapters.embedded.response_store import SqliteResponseStore
from iii_runtime.adapters.embedded.retention import Retention
from iii_runtime.core.message import INLINE_LIMIT
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


async def test_a_request_of_a_dead_host_is_taken_over(stores: Stores, holder_dies: Callable[[], None]) -> None:
    await stores.responses.begin("key", "print", "dead")
    holder_dies()
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


async def test_a_body_of_two_megabytes_comes_back_as_it_was(stores: Stores) -> None:
    large = replace(RESPONSE, body=os.urandom(2 * 1024 * 1024))
    for key in ("GET /a 1", "GET /a 2"):
        await stores.responses.begin(key, "print", "host")
    await stores.responses.finish("GET /a 1", large)
    await stores.responses.finish("GET /a 2", RESPONSE)
    assert await stores.responses.begin("GET /a 1", "print", "another") == large
    assert await stores.responses.begin("GET /a 2", "print", "another") == RESPONSE


async def test_a_dead_hosts_key_is_not_taken_over_by_another_request(
    stores: Stores, holder_dies: Callable[[], None]
) -> None:
    await stores.responses.begin("key", "print", "dead")
    holder_dies()
    assert await stores.responses.begin("key", "other", "host") == Mismatch()


async def test_a_response_that_was_stored_outlives_its_host(stores: Stores, holder_dies: Callable[[], None]) -> None:
    await stores.responses.begin("key", "print", "dead")
    await stores.responses.finish("key", RESPONSE)
    holder_dies()
    assert await stores.responses.begin("key", "print", "host") == RESPONSE
    assert await stores.responses.begin("key", "other", "host") == Mismatch()


class TestBesideTheDatabase:
    """Where the embedded store keeps a large body, and for how long."""

    async def test_a_large_body_is_a_file_until_its_response_expires(self, tmp_path: Path, clock: SkipClock) -> None:
        database = Database.open(tmp_path / "iii.db", synchronous="OFF")
        blobs = FileBlobStore(tmp_path / "blobs", clock, is_durable=False)
        responses, retention = SqliteResponseStore(database, clock, blobs), Retention(database, blobs)
        bodies = {"inline": os.urandom(INLINE_LIMIT), "large": os.urandom(INLINE_LIMIT + 1)}
        for key, body in bodies.items():
            await responses.begin(key, "print", "host")
            await responses.finish(key, replace(RESPONSE, body=body))
        assert len(list((tmp_path / "blobs").iterdir())) == 1
        clock.advance(timedelta(hours=24) - timedelta(milliseconds=1))
        swept = await retention.sweep(clock.now_ms())
        assert (swept.responses, swept.blobs) == (0, 0)
        for key, body in bodies.items():
            assert await responses.begin(key, "print", "host") == replace(RESPONSE, body=body)
        clock.advance(timedelta(milliseconds=1))
        swept = await retention.sweep(clock.now_ms())
        assert (swept.responses, swept.blobs) == (2, 1)
        assert list((tmp_path / "blobs").iterdir()) == []
        await database.close()
        blobs.close()

    async def test_a_key_that_is_used_again_after_it_expired_has_a_body_of_its_own(
        self, tmp_path: Path, clock: SkipClock
    ) -> None:
        database = Database.open(tmp_path / "iii.db", synchronous="OFF")
        blobs = FileBlobStore(tmp_path / "blobs", clock, is_durable=False)
        responses = SqliteResponseStore(database, clock, blobs)
        for fill in (b"1", b"2"):
            clock.advance(timedelta(hours=24))
            assert await responses.begin("key", "print", "host") == Begun()
            await responses.finish("key", replace(RESPONSE, body=fill * 300_000))
        clock.advance(timedelta(hours=2))
        assert (await Retention(database, blobs).sweep(clock.now_ms())).blobs == 1
        assert await responses.begin("key", "print", "host") == replace(RESPONSE, body=b"2" * 300_000)
        await database.close()
        blobs.close()
