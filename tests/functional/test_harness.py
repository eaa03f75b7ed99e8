"""The test kit itself: time moves only when it is told to, and nothing that is due is passed over."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from iii_runtime import NotAttachedError, OnState, TriggerAction, Worker
from iii_runtime.core.config import ConfigError
from iii_runtime.testing import Harness

Host = Callable[..., Harness]


async def enqueue(harness: Harness, payload: Any, delay: float) -> None:
    action = TriggerAction.Enqueue(queue="mail", delay=delay)
    await harness.trigger({"function_id": "mail::send", "payload": payload, "action": action})


async def test_time_stands_still_until_it_is_moved(worker: Worker, host: Host) -> None:
    seen: list[Any] = []
    worker.register_function("mail::send", seen.append)
    async with host() as harness:
        start = harness.clock.now()
        await enqueue(harness, "now", 0)
        await enqueue(harness, "later", 5)
        await harness.idle()
        assert seen == ["now"]
        assert harness.clock.now() == start
        await harness.advance(timedelta(seconds=4.999))
        assert seen == ["now"]
        await harness.advance(timedelta(milliseconds=1))
        assert seen == ["now", "later"]
        assert harness.clock.now() == start + timedelta(seconds=5)


async def test_moving_far_stops_at_everything_that_is_due_on_the_way(worker: Worker, host: Host) -> None:
    seen: list[tuple[Any, float]] = []
    worker.register_function(
        "mail::send", lambda data: seen.append((data, (harness.clock.now() - start).total_seconds()))
    )
    async with host() as harness:
        start = harness.clock.now()
        for delay in (30, 10, 20):
            await enqueue(harness, delay, delay)
        await harness.advance(timedelta(hours=1))
        assert seen == [(10, 10), (20, 20), (30, 30)]
        assert harness.clock.now() == start + timedelta(hours=1)


async def test_settling_follows_whatever_the_work_sets_off(worker: Worker, host: Host) -> None:
    """A message writes state, whose trigger enqueues a delayed message, which writes state again."""

    def write(data: int) -> None:
        payload = {"scope": "s", "key": "k", "value": data}
        worker.trigger({"function_id": "state::set", "payload": payload, "action": TriggerAction.Void()})

    def react(data: Any) -> None:
        if data["new_value"] < 3:
            action = TriggerAction.Enqueue(queue="mail", delay=60)
            worker.trigger({"function_id": "mail::send", "payload": data["new_value"] + 1, "action": action})

    worker.register_function("mail::send", write)
    worker.function("on::state", triggers=[OnState("s")])(react)
    async with host() as harness:
        start = harness.clock.now()
        await enqueue(harness, 0, 0)
        await harness.settle()
        assert await harness.trigger({"function_id": "state::get", "payload": {"scope": "s", "key": "k"}}) == 3
        assert harness.clock.now() == start + timedelta(minutes=3)


async def test_workers_belong_to_it_only_while_it_runs(worker: Worker, host: Host) -> None:
    worker.register_function("a::b", lambda data: data)
    async with host() as harness:
        assert await worker.trigger_async({"function_id": "a::b", "payload": 1}) == 1
    with pytest.raises(NotAttachedError):
        await worker.trigger_async({"function_id": "a::b"})
    with pytest.raises(RuntimeError, match="the harness is not started"):
        await harness.trigger({"function_id": "a::b"})


def test_the_embedded_store_needs_a_directory(worker: Worker) -> None:
    with pytest.raises(ValueError, match="needs data="):
        Harness([worker], store="embedded")


BACK_OFF = """
workers:
  - name: iii-queue
    config: { queue_configs: { mail: { max_retries: 2, backoff_ms: ${BACKOFF:5000} } } }
"""


@pytest.mark.parametrize(("env", "back_off"), [(None, 5), ({"BACKOFF": "9000"}, 9)])
@pytest.mark.parametrize("form", [Path, str])
async def test_a_configuration_file_is_read_with_the_variables_of_the_test_alone(
    worker: Worker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    env: dict[str, str] | None,
    back_off: int,
    form: type[Path | str],
) -> None:
    monkeypatch.setenv("BACKOFF", "1")
    file = tmp_path / "iii-config.yaml"
    file.write_text(BACK_OFF)

    def fail(data: Any) -> None:
        raise ValueError("no")

    worker.register_function("mail::send", fail)
    async with Harness([worker], config=form(file), env=env) as harness:
        start = harness.clock.now()
        await enqueue(harness, 1, 0)
        await harness.settle()
        assert harness.clock.now() == start + timedelta(seconds=back_off)


def test_a_configuration_file_that_cannot_be_used_is_refused_at_once(worker: Worker, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the file does not exist"):
        Harness([worker], config=tmp_path / "missing.yaml")


async def test_an_error_in_the_test_is_not_hidden_by_the_end(worker: Worker, host: Host) -> None:
    with pytest.raises(ZeroDivisionError):
        async with host():
            raise ZeroDivisionError
