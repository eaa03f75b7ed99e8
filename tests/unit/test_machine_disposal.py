"""A workflow that is put to sleep has no effect on its way, and leaves nothing to the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from iii_runtime.core.workflow.commands import Command
from iii_runtime.core.workflow.disposal import zombie_count
from tests.unit.machines import a, b, cancel, done, new_machine, signal, told

effects: list[str] = []


async def step_in_finally(ctx: Any) -> None:
    try:
        await ctx.step(a)
    finally:
        await ctx.step(b)
        effects.append("after the step")


async def sleep_in_finally(ctx: Any) -> None:
    try:
        await ctx.step(a)
    finally:
        await asyncio.sleep(7)
        effects.append("after the sleep")


async def nested_finally(ctx: Any) -> None:
    try:
        await sleep_in_finally(ctx)
    except Exception:  # noqa: BLE001
        effects.append("an error that nobody raised")


async def timeout_and_group_in_finally(ctx: Any) -> None:
    try:
        await ctx.step(a)
    except Exception:  # noqa: BLE001
        effects.append("an error that nobody raised")
    finally:
        try:
            async with asyncio.timeout(3), asyncio.TaskGroup() as group:
                group.create_task(sleep_in_finally(ctx))
                await ctx.step(b)
        except Exception:  # noqa: BLE001
            effects.append("an error that nobody raised")


async def task_in_finally(ctx: Any) -> None:
    try:
        await ctx.step(a)
    finally:
        await asyncio.create_task(sleep_in_finally(ctx), name="late")
        effects.append("after the task")


async def task_group(ctx: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(step_in_finally(ctx))
        group.create_task(sleep_in_finally(ctx))


async def gathered(ctx: Any) -> None:
    await asyncio.gather(step_in_finally(ctx), asyncio.shield(ctx.step(b)), asyncio.wait_for(ctx.step(b), 5))


async def locked(ctx: Any) -> None:
    lock, condition = asyncio.Lock(), asyncio.Condition()

    async def hold() -> None:
        async with lock:
            await ctx.step(a)

    async def wait() -> None:
        async with condition:
            await condition.wait()

    await asyncio.gather(hold(), hold(), wait())


async def generator(ctx: Any) -> AsyncIterator[int]:
    try:
        yield 1
        await ctx.step(a)
        yield 2
    finally:
        await ctx.step(b)
        effects.append("after the step")


async def generator_running(ctx: Any) -> None:
    async for _ in generator(ctx):
        await asyncio.sleep(0)


async def generator_parked(ctx: Any) -> None:
    ctx.kept = generator(ctx)
    await anext(ctx.kept)
    await ctx.step(a)


async def managed(ctx: Any) -> None:
    @asynccontextmanager
    async def block() -> AsyncIterator[None]:
        try:
            yield
        except Exception:  # noqa: BLE001
            effects.append("an error that nobody raised")
        finally:
            await ctx.step(b)
            effects.append("after the step")

    async with block(), ctx.saga() as saga:
        saga.compensate(b)
        await ctx.step(a)


async def never_started(ctx: Any) -> None:
    ctx.kept = asyncio.Task(sleep_in_finally(ctx))  # not by create_task
    await ctx.step(a)


async def cancelled_handlers(ctx: Any) -> None:
    try:
        await ctx.step(a)
    except asyncio.CancelledError:
        effects.append("a cancellation that nobody asked for")


async def waits(ctx: Any) -> None:
    async def one() -> None:
        await ctx.wait_for_signal("never", timeout=9)

    async def two() -> None:
        await ctx.wait_until(lambda: False, timeout=9)

    await asyncio.gather(one(), two())


async def leftover_child(ctx: Any) -> None:
    ctx.kept = asyncio.create_task(sleep_in_finally(ctx))
    await asyncio.sleep(0)


SHAPES: list[Callable[[Any], Any]] = [
    step_in_finally,
    sleep_in_finally,
    nested_finally,
    timeout_and_group_in_finally,
    task_in_finally,
    task_group,
    gathered,
    locked,
    generator_running,
    generator_parked,
    managed,
    never_started,
    cancelled_handlers,
    waits,
    leftover_child,
]


@pytest.fixture(autouse=True)
def no_effects() -> None:
    effects.clear()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_no_shape_has_an_effect_or_is_left_to_the_collector(
    shape: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    zombies = zombie_count()
    machine = new_machine(shape)
    machine.start([signal("before")])
    machine.dispose()
    machine.dispose()
    assert machine._outbox.take() == []
    assert [task for task in asyncio_tasks_of(machine) if has_frame(task)] == []
    del machine
    gc.collect()  # what it collects would be an error here, by the settings of pytest
    assert effects == []
    assert caplog.records == []
    assert zombie_count() == zombies


def asyncio_tasks_of(machine: Any) -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks(machine._loop) if not task.done()]


def has_frame(task: asyncio.Task[Any]) -> bool:
    return getattr(task.get_coro(), "cr_frame", None) is not None


def test_an_ended_run_gives_nothing_to_a_run_that_is_fed_while_it_is_collected() -> None:
    ended = new_machine(leftover_child)
    assert told(ended.start()) == ["complete None"]
    ended.dispose()
    seen: list[list[Command]] = []
    machines = [ended]

    async def flow(ctx: Any) -> None:
        await ctx.step(a)
        machines.clear()
        gc.collect()
        await ctx.step(b)

    other = new_machine(flow)
    seen.append(other.start())
    del ended
    seen.append(other.feed(done("a")))
    other.dispose()
    assert [told(commands) for commands in seen] == [["run a:0()"], ["run b:0()"]]


def test_a_loop_that_catches_everything_is_kept_and_counted_and_has_no_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rounds = [0]

    async def stubborn(ctx: Any) -> None:
        while True:
            try:
                await ctx.step(a)
            except BaseException:  # noqa: BLE001
                rounds[0] += 1

    zombies = zombie_count()
    machine = new_machine(stubborn)
    machine.start()
    with caplog.at_level(logging.WARNING):
        machine.dispose()
    assert zombie_count() == zombies + 1
    assert machine._outbox.take() == []
    assert 0 < rounds[0] < 100
    assert "cannot be ended" in caplog.text


def test_a_run_that_failed_for_good_is_disposed_of_too() -> None:
    async def flow(ctx: Any) -> None:
        try:
            asyncio.get_running_loop().stop()
        finally:
            await ctx.step(a)

    machine = new_machine(flow)
    assert told(machine.start())[0].startswith("fail Unsafe")
    machine.dispose()
    gc.collect()


def test_a_machine_that_never_began_can_be_disposed_of() -> None:
    new_machine(step_in_finally).dispose()


def test_a_cancelled_run_that_cleans_up_can_be_put_to_sleep() -> None:
    machine = new_machine(step_in_finally)
    machine.start([cancel()])
    assert machine.waiting_for() == ["step 'b'"]
    machine.dispose()
    gc.collect()
    assert effects == []
