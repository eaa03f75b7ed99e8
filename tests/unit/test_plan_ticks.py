"""The ticks of one minute that only the minute tick can fire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from iii_runtime import Cron, register_worker
from iii_runtime.core.cron import CronJob, CronSchedule
from iii_runtime.core.registry import Catalog
from iii_runtime.plan.jobs import plan_jobs
from iii_runtime.plan.ticks import plan_ticks, tick_jobs

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def catalog(*crons: Cron) -> Catalog:
    worker = register_worker()
    worker.function("a::b", triggers=crons)(lambda tick: tick)
    worker.register_trigger({"type": "cron", "function_id": "a::gone", "config": {"expression": "7 * * * * *"}})
    return Catalog.of([worker.registry])


def job(expression: str, timezone: str = "UTC") -> CronJob:
    return CronJob(trigger_id="t", function_id="a::b", schedule=CronSchedule.parse(expression, timezone))


def test_rules_and_schedules_are_left_to_eventbridge_and_functions_that_do_not_exist_to_nobody() -> None:
    known = catalog(
        Cron("0 0 * * * *"),
        Cron("0 30 9 * * *", timezone="Europe/Berlin"),
        Cron("30 * * * * *", condition="a::c", overlap=True),
        Cron("0 0 0 13 * FRI"),
    )
    assert [each.schedule.expression for each in tick_jobs(known)] == ["30 * * * * *", "0 0 0 13 * FRI"]
    everything = plan_jobs(known)
    assert len(everything) == 5
    assert (everything[2].condition, everything[2].overlap) == ("a::c", True)


def test_the_ticks_of_a_minute_are_in_order_and_those_of_one_job_are_there_once() -> None:
    jobs = [job("*/20 * * * * *"), job("10 * * * * *"), job("*/20 * * * * *")]
    planned = plan_ticks(jobs, NOON)
    assert [each.instant.second for each in planned] == [0, 10, 20, 40]
    assert {each.instant.replace(second=0) for each in planned} == {NOON}


def test_a_time_zone_counts() -> None:
    berlin = job("15 0 14 * * *", "Europe/Berlin")
    assert [each.instant for each in plan_ticks([berlin], NOON)] == [NOON + timedelta(seconds=15)]
    assert plan_ticks([berlin], NOON + timedelta(hours=2)) == []


@given(st.integers(0, 59), st.integers(1, 30), st.integers(0, 60 * 24 * 400))
def test_minute_by_minute_nothing_is_missed_and_nothing_is_planned_twice(second: int, step: int, start: int) -> None:
    jobs = [job(f"{second} * * * * *"), job(f"*/{step} */7 * * * *", "America/New_York")]
    begin = NOON + timedelta(minutes=start)
    planned = [
        (each.job.job_id, each.instant)
        for minute in range(20)
        for each in plan_ticks(jobs, begin + timedelta(minutes=minute))
    ]
    expected: list[tuple[str, datetime]] = []
    for each in jobs:
        instant = each.schedule.next_after(begin - timedelta(seconds=1))
        while instant is not None and instant < begin + timedelta(minutes=20):
            expected.append((each.job_id, instant))
            instant = each.schedule.next_after(instant)
    assert sorted(planned) == sorted(expected)
