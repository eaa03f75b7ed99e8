"""Sagas: what was done is undone, in reverse order, whatever else goes wrong."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime.core.payload import PayloadError
from iii_runtime.core.runs.errors import StepError
from iii_runtime.core.workflow.commands import Fail, RunStep
from iii_runtime.core.workflow.retry import RetryPolicy
from tests.unit.machines import a, b, c, cancel, done, failed, fired, new_machine, run, told


async def flow(ctx: Any) -> Any:
    async with ctx.saga() as saga:
        saga.compensate(b, 1)
        saga.compensate(c, 2)
        await ctx.step(a)
    return "fine"


def test_nothing_is_undone_when_all_went_well() -> None:
    assert run(flow, done("a")) == ["run a:0()", "complete 'fine'"]


def test_an_error_undoes_in_reverse_order_one_after_the_other_and_goes_on() -> None:
    commands = run(flow, failed("a", message="broke"), done("c"), done("b"))
    assert commands[:3] == ["run a:0()", "run c:0(2)", "run b:0(1)"]
    assert commands[3].startswith("fail StepError: step 'a' failed")
    assert "broke" in commands[3]


def test_a_compensation_that_fails_stops_no_other_and_the_original_error_tells_of_it() -> None:
    machine = new_machine(flow)
    machine.start()
    machine.feed(failed("a"))
    assert told(machine.feed(failed("c", message="also"))) == ["run b:0(1)"]
    (end,) = machine.feed(done("b"))
    machine.dispose()
    assert isinstance(end, Fail)
    assert isinstance(end.error, StepError)
    assert end.error.step == "a"
    assert [failure.step for failure in end.error.compensation_failures] == ["c"]  # type: ignore[attr-defined]
    assert "a compensation failed: step 'c'" in end.error.__notes__[-1]


def test_a_cancellation_undoes_too_and_a_second_one_does_not_reach_the_compensations() -> None:
    facts = cancel(), cancel(), done("c"), done("b")
    assert run(flow, *facts) == ["run a:0()", "withdraw a:0", "run c:0(2)", "run b:0(1)", "cancelled"]


def test_a_timeout_around_a_saga_does_not_reach_the_compensations() -> None:
    async def timed(ctx: Any) -> Any:
        async with asyncio.timeout(1):
            await flow(ctx)

    machine = new_machine(timed)
    machine.start()
    machine.feed(failed("a"))
    assert machine.feed(fired(machine)) == []
    assert told(machine.feed(done("c"))) == ["run b:0(1)"]
    assert told(machine.feed(done("b")))[0].startswith("fail StepError")
    machine.dispose()


def test_a_cancellation_during_the_compensations_strikes_after_them() -> None:
    async def guarded(ctx: Any) -> Any:
        try:
            await flow(ctx)
        except StepError:
            await ctx.step(a, "again")

    facts = failed("a"), cancel("enough"), done("c"), done("b")
    assert run(guarded, *facts) == ["run a:0()", "run c:0(2)", "run b:0(1)", "cancelled"]


def test_a_run_that_is_put_to_sleep_undoes_nothing() -> None:
    machine = new_machine(flow)
    assert told(machine.start()) == ["run a:0()"]
    machine.dispose()
    assert machine.waiting_for() == ["step 'a'"]


def test_a_replay_goes_on_at_the_next_compensation() -> None:
    machine = new_machine(flow)
    assert told(machine.start([failed("a"), done("c")])) == ["run b:0(1)"]
    machine.dispose()


def test_compensations_have_options_and_a_name_of_their_own() -> None:
    async def named(ctx: Any) -> Any:
        async with ctx.saga() as saga:
            once = RetryPolicy(maximum_attempts=1)
            saga.options(name="undo", retry=once, start_to_close=timedelta(seconds=3)).compensate(b)
            raise ValueError

    machine = new_machine(named)
    (command,) = machine.start()
    machine.dispose()
    assert isinstance(command, RunStep)
    assert command.key.name == "undo"
    assert (command.options.retry.maximum_attempts, command.options.start_to_close) == (1, timedelta(seconds=3))


def test_a_compensation_without_a_usable_name_is_refused_where_it_is_registered() -> None:
    async def nameless(ctx: Any) -> Any:
        async with ctx.saga() as saga:
            with pytest.raises(PayloadError, match="the name of a compensation"):
                saga.options(name="").compensate(b)

    assert run(nameless) == ["complete None"]
