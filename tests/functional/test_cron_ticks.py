"""Cron ticks on the virtual clock: at their nominal times, never over themselves, never twice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime import Cron, InvocationError, Worker, current_invocation
from iii_runtime.testing import Harness

Host = Callable[..., Harness]
MINUTE = timedelta(minutes=1)


async def test_a_job_fires_at_its_times_with_iiis_payload(worker: Worker, host: Host) -> None:
    seen: list[Any] = []
    worker.function("jobs::tick", triggers=[Cron("30 */2 * * * *")])(seen.append)
    async with host() as harness:
        await harness.advance(5 * MINUTE)
        assert seen == [
            {
                "trigger": "cron",
                "job_id": "jobs::tick|30 */2 * * * *|UTC",
                "scheduled_time": f"2026-01-01T00:0{minute}:30Z",
                "actual_time": f"2026-01-01T00:0{minute}:30Z",
            }
            for minute in (0, 2, 4)
        ]


async def test_a_tick_is_an_invocation_of_its_own(worker: Worker, host: Host) -> None:
    seen: list[Any] = []
    worker.function("jobs::tick", triggers=[Cron("0 * * * * *")])(lambda data: seen.append(current_invocation()))
    async with host() as harness:
        await harness.advance(2 * MINUTE)
        assert [(call.source, call.attempt, call.hops) for call in seen] == [("cron", 1, 0)] * 2
        assert len({call.trace_id for call in seen}) == 2


async def test_a_failing_tick_is_logged_and_not_repeated(
    worker: Worker, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    ticks: list[Any] = []

    def fail(data: Any) -> None:
        ticks.append(data["scheduled_time"])
        raise ValueError("no")

    worker.function("jobs::tick", triggers=[Cron("0 * * * * *")])(fail)
    async with host() as harness:
        await harness.advance(2 * MINUTE)
        assert ticks == ["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]
    failures = [record.__dict__["iii"] for record in caplog.records if record.getMessage() == "cron tick failed"]
    assert [fields["nominal"][11:16] for fields in failures] == ["00:01", "00:02"]
    assert {(fields["function_id"], fields["error"]) for fields in failures} == {
        ("jobs::tick", "invocation_failed: no")
    }


async def test_a_tick_during_a_run_is_skipped(worker: Worker, host: Host, caplog: pytest.LogCaptureFixture) -> None:
    started, go = threading.Event(), threading.Event()
    ticks: list[str] = []

    def slow(data: Any) -> None:
        ticks.append(data["scheduled_time"])
        started.set()
        go.wait(10)

    worker.function("jobs::tick", triggers=[Cron("0 * * * * *")])(slow)
    async with host() as harness:
        await harness.idle()
        harness.clock.advance(MINUTE)
        assert await asyncio.to_thread(started.wait, 10)
        harness.clock.advance(MINUTE)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        go.set()
        await harness.advance(MINUTE)
        assert ticks == ["2026-01-01T00:01:00Z", "2026-01-01T00:03:00Z"]
    skipped = [record.__dict__["iii"] for record in caplog.records if record.getMessage() == "cron tick skipped"]
    assert [(fields["nominal"], fields["reason"]) for fields in skipped] == [("2026-01-01T00:02:00+00:00", "running")]


async def test_a_condition_skips_on_false_and_its_error_skips_too(worker: Worker, host: Host) -> None:
    ticks: list[str] = []
    answers = iter([True, False, None])

    def condition(data: Any) -> Any:
        answer = next(answers, "broken")
        if answer == "broken":
            raise ValueError("cannot tell")
        return answer

    worker.register_function("is::open", condition)
    worker.function("jobs::tick", triggers=[Cron("0 * * * * *", condition="is::open")])(
        lambda data: ticks.append(data["scheduled_time"][11:16])
    )
    async with host() as harness:
        await harness.advance(5 * MINUTE)
        assert ticks == ["00:01", "00:03"]


async def test_a_job_can_be_run_now_beside_its_schedule(worker: Worker, host: Host) -> None:
    seen: list[Any] = []

    def tick(data: Any) -> None:
        seen.append(data["scheduled_time"])
        if len(seen) == 3:
            raise ValueError("third time")

    worker.function("jobs::tick", triggers=[Cron("0 0 * * * *")])(tick)
    async with host() as harness:
        request = {"function_id": "iii::cron::run", "payload": {"function_id": "jobs::tick"}}
        assert await harness.trigger(request) == {
            "function_id": "jobs::tick",
            "scheduled_time": "2026-01-01T00:00:00+00:00",
        }
        await harness.advance(timedelta(hours=1))
        assert seen == ["2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"]
        with pytest.raises(InvocationError, match="third time"):
            await harness.trigger(request)
        with pytest.raises(InvocationError, match="no cron trigger starts function") as refusal:
            await harness.trigger({**request, "payload": {"function_id": "jobs::none"}})
        assert refusal.value.code == "cron_job_not_found"


async def test_jobs_are_listed_with_their_next_tick(worker: Worker, host: Host) -> None:
    worker.function("jobs::tick", triggers=[Cron("0 0 9 * * *", timezone="Europe/Berlin")])(lambda data: None)
    async with host() as harness:
        (job,) = await harness.trigger({"function_id": "iii::cron::list"})
        next_tick = job.pop("next")
        assert job == {"function_id": "jobs::tick", "expression": "0 0 9 * * *", "timezone": "Europe/Berlin"}
        assert next_tick.startswith(("2026-01-01T08:00:00+00:00", "2026-01-01T09:00:00+01:00"))


async def test_a_tick_that_was_claimed_does_not_fire_in_the_next_life(worker: Worker, host: Host) -> None:
    ticks: list[str] = []
    worker.function("jobs::tick", triggers=[Cron("0 * * * * *")])(lambda data: ticks.append(data["scheduled_time"]))
    async with host() as harness:
        await harness.advance(MINUTE)
        await harness.restart()
        await harness.advance(MINUTE)
        assert ticks == ["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]


async def test_a_job_is_followed_from_its_registration_until_it_is_unregistered(worker: Worker, host: Host) -> None:
    ticks: list[str] = []
    worker.register_function("jobs::tick", lambda data: ticks.append(data["scheduled_time"][14:16]))
    async with host() as harness:
        await harness.advance(MINUTE)
        trigger = worker.register_trigger(
            {"type": "cron", "function_id": "jobs::tick", "config": {"expression": "0 * * * * *"}}
        )
        await harness.advance(2 * MINUTE)
        assert ticks == ["02", "03"]
        trigger.unregister()
        await harness.advance(2 * MINUTE)
        assert ticks == ["02", "03"]
