"""The cron scheduler on a clock that the test moves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from iii_runtime.core.cron import CronJob, CronSchedule
from iii_runtime.core.errors import InvocationError
from iii_runtime.engine.cron import CronBusyError, CronJobNotFoundError, CronScheduler
from iii_runtime.testing.clock import SkipClock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
CLEAN = {"function_id": "orders::clean", "job_id": "orders::clean|0 * * * * *|UTC"}
HOURLY = {"function_id": "orders::clean", "job_id": "orders::clean|0 0 * * * *|UTC"}


class MemoryTickStore:
    def __init__(self) -> None:
        self.newest: dict[str, datetime] = {}
        self.is_broken = False

    async def claim(self, job_id: str, nominal: datetime) -> bool:
        if self.is_broken:
            raise OSError("the store is away")
        if job_id in self.newest and nominal <= self.newest[job_id]:
            return False
        self.newest[job_id] = nominal
        return True


class Fired:
    """Records what was fired; holds or fails the functions that the test names."""

    def __init__(self) -> None:
        self.starts: list[tuple[str, datetime]] = []
        self.ends: list[tuple[str, datetime]] = []
        self.held: dict[str, asyncio.Event] = {}
        self.failing: set[str] = set()

    async def __call__(self, job: CronJob, nominal: datetime) -> None:
        self.starts.append((job.function_id, nominal))
        if job.function_id in self.failing:
            raise ValueError("the function failed")
        if job.function_id in self.held:
            await self.held[job.function_id].wait()
        self.ends.append((job.function_id, nominal))

    def hold(self, function_id: str) -> asyncio.Event:
        self.held[function_id] = asyncio.Event()
        return self.held[function_id]


class Bench:
    """One host's scheduler; several may share the clock and the store."""

    def __init__(self, clock: SkipClock | None = None, ticks: MemoryTickStore | None = None) -> None:
        self.clock = clock or SkipClock(NOON)
        self.ticks = ticks or MemoryTickStore()
        self.fired = Fired()
        self.scheduler = CronScheduler(clock=self.clock, ticks=self.ticks, fire=self.fired)

    @asynccontextmanager
    async def running(self, *jobs: CronJob) -> AsyncIterator[asyncio.Task[None]]:
        self.scheduler.replace(jobs)
        task = asyncio.create_task(self.scheduler.run())
        await settle()
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def advance(self, duration: timedelta) -> None:
        """Time passes: whoever sleeps wakes at its own instant."""
        await settle()
        end = self.clock.now() + duration
        while (wake := self.clock.next_wake()) is not None and wake <= end:
            self.clock.advance_to(wake)
            await settle()
        self.clock.advance_to(end)
        await settle()

    async def jump(self, duration: timedelta) -> None:
        """The machine sleeps: everybody wakes at the end of it."""
        self.clock.advance(duration)
        await settle()


def lines(log: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    """Return message and fields of what was logged."""
    return [(record.getMessage(), record.__dict__["iii"]) for record in log.records]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def job(function_id: str = "orders::clean", expression: str = "0 * * * * *", *, overlap: bool = False) -> CronJob:
    return CronJob(
        trigger_id=f"trigger-of-{function_id}",
        function_id=function_id,
        schedule=CronSchedule.parse(expression),
        overlap=overlap,
    )


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "iii_runtime.cron"):
        yield caplog


async def test_a_job_fires_at_each_tick_with_its_nominal_time(bench: Bench) -> None:
    async with bench.running(job()):
        await bench.advance(3 * MINUTE)
    assert bench.fired.starts == [("orders::clean", NOON + n * MINUTE) for n in (1, 2, 3)]


async def test_a_tick_at_the_very_start_is_past(bench: Bench) -> None:
    async with bench.running(job()):
        await bench.advance(59 * SECOND)
    assert bench.fired.starts == []


async def test_jobs_fire_each_on_its_own_schedule(bench: Bench) -> None:
    async with bench.running(job("a::a", "*/20 * * * * *"), job("b::b", "30 * * * * *")):
        await bench.advance(45 * SECOND)
    assert bench.fired.starts == [
        ("a::a", NOON + 20 * SECOND),
        ("b::b", NOON + 30 * SECOND),
        ("a::a", NOON + 40 * SECOND),
    ]


async def test_a_tick_is_fired_by_one_of_two_hosts() -> None:
    one = Bench()
    other = Bench(one.clock, one.ticks)
    async with one.running(job()), other.running(job()):
        await one.advance(2 * MINUTE)
    assert sorted(one.fired.starts + other.fired.starts) == [("orders::clean", NOON + n * MINUTE) for n in (1, 2)]


async def test_ticks_missed_while_no_host_ran_are_not_caught_up(bench: Bench) -> None:
    async with bench.running(job()):
        await bench.advance(MINUTE)
    await bench.advance(10 * MINUTE)
    successor = Bench(bench.clock, bench.ticks)
    async with successor.running(job()):
        await successor.advance(MINUTE)
    assert successor.fired.starts == [("orders::clean", NOON + 12 * MINUTE)]


class TestOverlap:
    async def test_a_tick_during_a_long_run_is_skipped_and_logged(
        self, bench: Bench, log: pytest.LogCaptureFixture
    ) -> None:
        release = bench.fired.hold("orders::clean")
        async with bench.running(job()):
            await bench.advance(2 * MINUTE)
            assert bench.fired.starts == [("orders::clean", NOON + MINUTE)]
            assert lines(log) == [
                ("cron tick skipped", {**CLEAN, "nominal": "2026-01-01T12:02:00+00:00", "reason": "running"})
            ]
            release.set()
            await bench.advance(MINUTE)
        assert bench.fired.starts == [("orders::clean", NOON + n * MINUTE) for n in (1, 3)]

    async def test_a_job_overlaps_itself_if_it_says_so(self, bench: Bench) -> None:
        bench.fired.hold("orders::clean")
        async with bench.running(job(overlap=True)):
            await bench.advance(2 * MINUTE)
        assert len(bench.fired.starts) == 2

    async def test_a_long_run_does_not_hold_up_another_job(self, bench: Bench) -> None:
        bench.fired.hold("a::a")
        async with bench.running(job("a::a"), job("b::b")):
            await bench.advance(2 * MINUTE)
        assert [function for function, _ in bench.fired.starts] == ["a::a", "b::b", "b::b"]


class TestClockJumps:
    async def test_a_tick_noticed_over_a_minute_late_is_skipped_and_logged(
        self, bench: Bench, log: pytest.LogCaptureFixture
    ) -> None:
        async with bench.running(job(expression="0 0 * * * *")):
            await bench.jump(timedelta(hours=1, seconds=61))
            assert bench.fired.starts == []
            fields = {**HOURLY, "nominal": "2026-01-01T13:00:00+00:00", "reason": "late", "late_s": 61}
            assert lines(log) == [("cron tick skipped", fields)]
            await bench.advance(timedelta(hours=1))
        assert bench.fired.starts == [("orders::clean", NOON + timedelta(hours=2))]

    async def test_a_tick_noticed_a_minute_late_still_fires(self, bench: Bench) -> None:
        async with bench.running(job(expression="0 0 * * * *")):
            await bench.jump(timedelta(hours=1, seconds=60))
        assert bench.fired.starts == [("orders::clean", NOON + timedelta(hours=1))]

    async def test_many_missed_ticks_collapse_and_the_next_future_one_fires(
        self, bench: Bench, log: pytest.LogCaptureFixture
    ) -> None:
        async with bench.running(job()):
            await bench.jump(timedelta(hours=10, seconds=30))
            assert bench.fired.starts == []
            assert [message for message, _ in lines(log)] == ["cron tick skipped", "cron ticks skipped"]
            assert lines(log)[1][1] == {
                **CLEAN,
                "nominal": "2026-01-01T12:02:00+00:00",
                "reason": "past",
                "until": "2026-01-01T22:00:30+00:00",
            }
            await bench.advance(30 * SECOND)
        assert bench.fired.starts == [("orders::clean", NOON + timedelta(hours=10, minutes=1))]

    async def test_of_several_ticks_noticed_at_once_the_first_fires(self, bench: Bench) -> None:
        async with bench.running(job(expression="* * * * * *")):
            await bench.jump(5 * SECOND)
            assert bench.fired.starts == [("orders::clean", NOON + SECOND)]
            await bench.advance(SECOND)
        assert bench.fired.starts[1:] == [("orders::clean", NOON + 6 * SECOND)]


class TestFailures:
    async def test_an_error_is_logged_and_the_tick_is_not_tried_again(
        self, bench: Bench, log: pytest.LogCaptureFixture
    ) -> None:
        bench.fired.failing.add("orders::clean")
        async with bench.running(job()):
            await bench.advance(90 * SECOND)
            assert bench.fired.starts == [("orders::clean", NOON + MINUTE)]
            fields = {**CLEAN, "nominal": "2026-01-01T12:01:00+00:00", "error": "the function failed"}
            assert lines(log) == [("cron tick failed", fields)]
            assert log.records[0].exc_info is not None
            bench.fired.failing.clear()
            await bench.advance(MINUTE)
        assert bench.fired.ends == [("orders::clean", NOON + 2 * MINUTE)]

    async def test_an_error_of_a_handler_is_logged_with_the_handlers_own_stack(
        self, bench: Bench, log: pytest.LogCaptureFixture
    ) -> None:
        async def fail(_job: CronJob, _nominal: datetime) -> None:
            raise InvocationError("invocation_failed", "boom", "orders::clean", "line 1")

        bench.scheduler = CronScheduler(clock=bench.clock, ticks=bench.ticks, fire=fail)
        async with bench.running(job()):
            await bench.advance(MINUTE)
        (_, fields), (record,) = lines(log)[0], log.records
        assert (fields["error"], fields["stack"], record.exc_info) == ("invocation_failed: boom", "line 1", None)

    async def test_a_tick_that_cannot_be_claimed_does_not_fire_and_the_next_one_does(
        self, bench: Bench, log: pytest.LogCaptureFixture
    ) -> None:
        bench.ticks.is_broken = True
        async with bench.running(job()):
            await bench.advance(MINUTE)
            assert lines(log)[0][1]["error"] == "the store is away"
            bench.ticks.is_broken = False
            await bench.advance(MINUTE)
        assert bench.fired.starts == [("orders::clean", NOON + 2 * MINUTE)]


class TestReplace:
    async def test_a_removed_job_stops_and_an_added_one_starts(self, bench: Bench) -> None:
        async with bench.running(job("a::a")):
            await bench.advance(MINUTE)
            bench.scheduler.replace([job("a::a")])
            bench.scheduler.replace([job("b::b")])
            await bench.advance(MINUTE)
        assert bench.fired.starts == [("a::a", NOON + MINUTE), ("b::b", NOON + 2 * MINUTE)]

    async def test_a_changed_expression_stops_the_ticks_of_the_old_one(self, bench: Bench) -> None:
        async with bench.running(job()):
            bench.scheduler.replace([job(expression="30 * * * * *")])
            await bench.advance(MINUTE)
        assert bench.fired.starts == [("orders::clean", NOON + 30 * SECOND)]

    async def test_a_job_that_stays_keeps_its_next_tick(self, bench: Bench) -> None:
        async with bench.running(job()):
            bench.clock.advance(MINUTE)
            bench.scheduler.replace([job(), job("b::b")])
            await settle()
        assert bench.fired.starts == [("orders::clean", NOON + MINUTE)]

    async def test_a_job_that_stays_takes_its_new_overlap(self, bench: Bench) -> None:
        bench.fired.hold("orders::clean")
        async with bench.running(job()):
            await bench.advance(MINUTE)
            bench.scheduler.replace([job(overlap=True)])
            await bench.advance(MINUTE)
        assert len(bench.fired.starts) == 2

    async def test_a_removed_job_that_runs_ends_undisturbed(self, bench: Bench) -> None:
        release = bench.fired.hold("orders::clean")
        async with bench.running(job()):
            await bench.advance(MINUTE)
            bench.scheduler.replace([])
            await settle()
            release.set()
            await settle()
        assert bench.fired.ends == [("orders::clean", NOON + MINUTE)]

    async def test_two_triggers_with_one_function_and_schedule_are_one_job(self, bench: Bench) -> None:
        async with bench.running(job(), job()):
            await bench.advance(MINUTE)
        assert len(bench.fired.starts) == 1

    async def test_a_job_without_a_further_tick_leaves_the_others_alone(
        self, bench: Bench, log: pytest.LogCaptureFixture
    ) -> None:
        async with bench.running(job("a::a", "30 0 12 1 1 * 2026"), job("b::b")):
            await bench.advance(2 * MINUTE)
        assert [function for function, _ in bench.fired.starts] == ["a::a", "b::b", "b::b"]
        assert [(message, fields["function_id"]) for message, fields in lines(log)] == [
            ("cron job has no further tick", "a::a")
        ]


class TestStop:
    async def test_it_waits_for_what_runs_and_fires_no_more(self, bench: Bench) -> None:
        release = bench.fired.hold("a::a")
        async with bench.running(job("a::a"), job("b::b", "0 */2 * * * *")) as run:
            await bench.advance(MINUTE)
            bench.clock.advance(MINUTE)
            bench.scheduler.stop()
            await settle()
            bench.scheduler.replace([job("c::c")])
            await bench.advance(5 * MINUTE)
            assert not run.done()
            release.set()
            await run
        assert bench.fired.starts == bench.fired.ends == [("a::a", NOON + MINUTE)]

    async def test_a_cancelled_run_cancels_what_runs(self, bench: Bench) -> None:
        bench.fired.hold("orders::clean")
        async with bench.running(job()) as run:
            await bench.advance(MINUTE)
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
        assert bench.fired.ends == []
        assert bench.clock.next_wake() is None

    async def test_it_does_not_run_twice_at_once(self, bench: Bench) -> None:
        async with bench.running(job()):
            with pytest.raises(RuntimeError, match="runs already"):
                await bench.scheduler.run()
            await bench.advance(MINUTE)
        assert len(bench.fired.starts) == 1


class TestRunNow:
    async def test_it_fires_at_once_and_leaves_the_next_tick_alone(self, bench: Bench) -> None:
        async with bench.running(job()):
            await bench.advance(30 * SECOND)
            assert await bench.scheduler.run_now("orders::clean") == NOON + 30 * SECOND
            await bench.advance(30 * SECOND)
        assert bench.fired.ends == [("orders::clean", NOON + 30 * SECOND), ("orders::clean", NOON + MINUTE)]

    async def test_a_function_without_a_job_is_an_error_that_names_it(self, bench: Bench) -> None:
        bench.scheduler.replace([job()])
        with pytest.raises(CronJobNotFoundError, match="orders::other") as caught:
            await bench.scheduler.run_now("orders::other")
        assert caught.value.code == "cron_job_not_found"

    async def test_a_job_that_runs_is_busy(self, bench: Bench) -> None:
        bench.fired.hold("orders::clean")
        async with bench.running(job()):
            await bench.advance(MINUTE)
            with pytest.raises(CronBusyError, match="trigger-of-orders::clean") as caught:
                await bench.scheduler.run_now("orders::clean")
        assert caught.value.code == "cron_busy"
        assert len(bench.fired.starts) == 1

    async def test_a_tick_during_it_is_skipped(self, bench: Bench) -> None:
        release = bench.fired.hold("orders::clean")
        async with bench.running(job()):
            now = asyncio.create_task(bench.scheduler.run_now("orders::clean"))
            await bench.advance(MINUTE)
            release.set()
            await now
            await bench.advance(MINUTE)
        assert bench.fired.starts == [("orders::clean", NOON), ("orders::clean", NOON + 2 * MINUTE)]

    async def test_an_error_of_the_function_reaches_the_caller_and_frees_the_job(self, bench: Bench) -> None:
        bench.scheduler.replace([job()])
        bench.fired.failing.add("orders::clean")
        with pytest.raises(ValueError, match="the function failed"):
            await bench.scheduler.run_now("orders::clean")
        bench.fired.failing.clear()
        await bench.scheduler.run_now("orders::clean")
        assert bench.fired.ends == [("orders::clean", NOON)]
