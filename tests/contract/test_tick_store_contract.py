"""What every tick store does."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

from iii_runtime.engine.stores import Stores

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


async def test_a_tick_is_claimed_once(stores: Stores) -> None:
    claims = await asyncio.gather(*[stores.ticks.claim("job", NOON) for _ in range(5)])
    assert sorted(claims) == [False, False, False, False, True]


async def test_an_earlier_tick_cannot_be_claimed_after_a_later_one(stores: Stores) -> None:
    assert await stores.ticks.claim("job", NOON)
    assert await stores.ticks.claim("job", NOON + timedelta(seconds=1))
    assert not await stores.ticks.claim("job", NOON)


async def test_a_tick_is_an_instant_whatever_its_time_zone(stores: Stores) -> None:
    assert await stores.ticks.claim("job", NOON)
    assert not await stores.ticks.claim("job", NOON.astimezone(timezone(timedelta(hours=5))))


async def test_jobs_are_apart(stores: Stores) -> None:
    assert await stores.ticks.claim("job", NOON)
    assert await stores.ticks.claim("job 漢字", NOON)
