"""What every job lease does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest

from iii_runtime.adapters.aws.table import Table
from iii_runtime.adapters.aws.tick_store import DynamoTickStore
from iii_runtime.adapters.memory.job_lease import MemoryJobLease
from iii_runtime.ports.job_lease import JobLease
from iii_runtime.testing.clock import SequenceIds, SkipClock
from tests.contract.aws_services import running_services

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LEASE = timedelta(minutes=5)


@pytest.fixture(params=["memory", "aws"])
def jobs(request: pytest.FixtureRequest, clock: SkipClock) -> Iterator[JobLease]:
    if request.param == "memory":
        yield MemoryJobLease(clock)
        return
    with running_services() as services:
        table = Table(services.clients, services.deployment.table_name, clock)
        yield DynamoTickStore(table, clock, SequenceIds())


async def test_one_of_simultaneous_claims_of_a_tick_is_accepted(jobs: JobLease) -> None:
    answers = await asyncio.gather(*[jobs.acquire("job", NOON, lease=LEASE) for _ in range(5)])
    assert sorted(answers) == ["acquired", "taken", "taken", "taken", "taken"]


async def test_a_job_that_still_runs_does_not_start_again(jobs: JobLease) -> None:
    assert await jobs.acquire("job", NOON, lease=LEASE) == "acquired"
    assert await jobs.acquire("job", NOON + MINUTE, lease=LEASE) == "running"
    await jobs.release("job", NOON)
    assert await jobs.acquire("job", NOON + MINUTE, lease=LEASE) == "acquired"


async def test_a_tick_that_was_refused_was_not_claimed(jobs: JobLease) -> None:
    await jobs.acquire("job", NOON, lease=LEASE)
    assert await jobs.acquire("job", NOON + 2 * MINUTE, lease=LEASE) == "running"
    await jobs.release("job", NOON)
    assert await jobs.acquire("job", NOON + MINUTE, lease=LEASE) == "acquired"


async def test_a_tick_behind_the_newest_is_taken_even_while_the_job_runs(jobs: JobLease) -> None:
    await jobs.acquire("job", NOON, lease=LEASE)
    for tick in (NOON, NOON - MINUTE):
        assert await jobs.acquire("job", tick, lease=LEASE) == "taken"
        assert await jobs.acquire("job", tick, lease=None) == "taken"


async def test_a_lease_whose_time_has_passed_is_released(jobs: JobLease, clock: SkipClock) -> None:
    await jobs.acquire("job", NOON, lease=LEASE)
    clock.advance(LEASE - timedelta(milliseconds=1))
    assert await jobs.acquire("job", NOON + MINUTE, lease=LEASE) == "running"
    clock.advance(timedelta(milliseconds=1))
    assert await jobs.acquire("job", NOON + MINUTE, lease=LEASE) == "acquired"


async def test_a_lost_lease_is_left_to_the_later_tick(jobs: JobLease, clock: SkipClock) -> None:
    await jobs.acquire("job", NOON, lease=LEASE)
    clock.advance(LEASE)
    await jobs.acquire("job", NOON + MINUTE, lease=LEASE)
    await jobs.release("job", NOON)
    assert await jobs.acquire("job", NOON + 2 * MINUTE, lease=LEASE) == "running"


async def test_a_release_may_be_repeated_and_one_of_nothing_does_nothing(jobs: JobLease) -> None:
    await jobs.release("job", NOON)
    await jobs.acquire("job", NOON, lease=LEASE)
    for _ in range(2):
        await jobs.release("job", NOON)
    assert await jobs.acquire("job", NOON, lease=LEASE) == "taken"
    assert await jobs.acquire("job", NOON + MINUTE, lease=LEASE) == "acquired"


async def test_a_job_without_a_lease_may_overlap_itself(jobs: JobLease) -> None:
    assert await jobs.acquire("job", NOON, lease=None) == "acquired"
    assert await jobs.acquire("job", NOON + MINUTE, lease=None) == "acquired"
    assert await jobs.acquire("job", NOON + 2 * MINUTE, lease=LEASE) == "acquired"
    assert await jobs.acquire("job", NOON + 3 * MINUTE, lease=None) == "acquired"


async def test_a_tick_is_an_instant_whatever_its_time_zone(jobs: JobLease) -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5)))
    assert await jobs.acquire("job", NOON, lease=LEASE) == "acquired"
    assert await jobs.acquire("job", elsewhere, lease=LEASE) == "taken"
    await jobs.release("job", elsewhere)
    assert await jobs.acquire("job", NOON + MINUTE, lease=LEASE) == "acquired"


async def test_jobs_are_apart(jobs: JobLease) -> None:
    for job in ("job", "job 漢字", "j" * 3000):
        assert await jobs.acquire(job, NOON, lease=LEASE) == "acquired"
