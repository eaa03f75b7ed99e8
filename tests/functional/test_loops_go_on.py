"""A defect in one of the host's own loops is logged and the loop started again: a host never serves on without it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime import Cron, Worker
from iii_runtime.testing import Harness

Host = Callable[..., Harness]


class FailsOnce:
    """An adapter one operation of which raises what no adapter should, once."""

    def __init__(self, inner: Any, operation: str) -> None:
        self._inner = inner
        self._operation = operation
        self._is_due = True

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._inner, name)
        if name != self._operation or not self._is_due:
            return real

        async def fail(*_arguments: Any) -> None:
            self._is_due = False
            raise ValueError("a defect")

        return fail


def restarts(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record for record in caplog.records if record.getMessage() == "a loop failed and is started again"]
    return [getattr(record, "iii", {})["loop"] for record in lines]


@pytest.mark.parametrize(
    ("port", "operation", "loop"), [("queue", "receive", "queue mail"), ("feed", "read", "change feed")]
)
async def test_a_loop_that_fails_is_started_again(
    worker: Worker, host: Host, caplog: pytest.LogCaptureFixture, port: str, operation: str, loop: str
) -> None:
    import dataclasses

    seen: list[Any] = []
    worker.register_function("mail::send", seen.append)

    def wrap(stores: Any) -> Any:
        return dataclasses.replace(stores, **{port: FailsOnce(getattr(stores, port), operation)})

    async with host(wrap=wrap) as harness:
        pause = harness.clock.now() + timedelta(seconds=1)
        while harness.clock.next_wake() != pause:  # noqa: ASYNC110 - the loop must have begun its pause
            await asyncio.sleep(0)
        harness.clock.advance_to(pause)
        await harness.trigger(
            {"function_id": "mail::send", "payload": 1, "action": {"type": "enqueue", "queue": "mail"}}
        )
        await harness.trigger(
            {"function_id": "stream::set", "payload": {"stream_name": "s", "group_id": "g", "item_id": "i", "data": 1}}
        )
        await harness.settle()
    assert seen == [1]
    assert [change.data for change in harness.pushed] == [1]
    assert len(restarts(caplog)) == 1
    assert loop.split(maxsplit=1)[0] in restarts(caplog)[0]


async def test_schedules_go_on_after_a_defect(
    worker: Worker, host: Host, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from iii_runtime.core.cron import CronSchedule

    ticks: list[Any] = []
    worker.function("tick::do", triggers=[Cron("0 * * * * *")])(ticks.append)
    real = CronSchedule.next_after
    broken = [True]

    def next_after(schedule: CronSchedule, instant: Any) -> Any:
        if broken.pop() if broken else False:
            raise ValueError("a defect")
        return real(schedule, instant)

    monkeypatch.setattr(CronSchedule, "next_after", next_after)
    caplog.set_level(logging.ERROR)
    async with host() as harness:
        await harness.advance(timedelta(minutes=3))
    assert restarts(caplog) == ["cron"]
    assert len(ticks) >= 2
