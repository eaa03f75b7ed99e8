"""Plain asyncio in a workflow: durable, and the same on every replay."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime.core.workflow.commands import Fail
from iii_runtime.core.workflow.loop import in_workflow
from iii_runtime.core.workflow.timers import instant
from tests.unit.machines import T0, a, b, c, cancel, done, failed, fired, new_machine, run, signal, told

host_variable: contextvars.ContextVar[str] = contextvars.ContextVar("host_variable", default="none")


def collected(told_: list[str]) -> str:
    """Return the one thing that was told, when nothing is left to collect."""
    gc.collect()
    (only,) = told_
    return only


def noted(seen: list[Any], value: Any) -> list[Any]:
    """Add a value, where only an expression can."""
    seen.append(value)
    return seen


def test_gather_asks_for_everything_at_once_and_keeps_the_order() -> None:
    async def flow(ctx: Any) -> Any:
        return await asyncio.gather(ctx.step(a), ctx.step(b))

    assert run(flow, done("b", 2), done("a", 1)) == ["run a:0()", "run b:0()", "complete [1, 2]"]


def test_the_first_of_a_race_wins_and_the_others_are_withdrawn_when_they_are_cancelled() -> None:
    async def flow(ctx: Any) -> Any:
        ready, rest = await asyncio.wait({ctx.step(a), ctx.step(b)}, return_when=asyncio.FIRST_COMPLETED)
        for step in rest:
            step.cancel()
        await ctx.step(c)
        return [step.result() for step in ready]

    assert run(flow, done("b", 2), done("a", 1), done("c")) == [
        "run a:0()",
        "run b:0()",
        "withdraw a:0",
        "run c:0()",
        "complete [2]",
    ]


def test_a_task_group_cancels_the_rest_when_one_fails() -> None:
    async def flow(ctx: Any) -> Any:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step(a))
            group.create_task(ctx.step(b))

    commands = run(flow, failed("a"))
    assert commands[:3] == ["run a:0()", "run b:0()", "withdraw b:0"] or commands[2].startswith("fail ExceptionGroup")
    assert commands[-1].startswith("fail ExceptionGroup")


def test_the_sets_of_asyncio_have_one_order_on_every_replay() -> None:
    async def flow(ctx: Any) -> Any:
        tasks = [asyncio.create_task(ctx.step(a, n), name=str(n)) for n in range(20)]
        ready, _ = await asyncio.wait([asyncio.create_task(asyncio.sleep(0), name=f"t{n}") for n in range(20)])
        await asyncio.gather(*tasks)
        return [task.get_name() for task in ready]

    facts = [done("a", n, occurrence=n) for n in range(20)]
    ends = set()
    kept = []
    for _ in range(30):
        kept.append([object() for _ in range(17)])  # so that addresses differ
        ends.add(run(flow, *facts)[-1])
    assert len(ends) == 1


def test_two_runs_do_not_share_hashes() -> None:
    hashes: list[int] = []

    async def flow(_ctx: Any) -> None:
        hashes.extend(hash(asyncio.get_running_loop().create_future()) for _ in range(5))

    for run_id in ("one", "two"):
        machine = new_machine(flow, run_id=run_id)
        machine.start()
        machine.dispose()
    assert len(set(hashes)) == 10


def test_as_completed_takes_steps_and_tasks() -> None:
    async def flow(ctx: Any) -> Any:
        tasks = [asyncio.create_task(ctx.step(a)), ctx.step(b)]
        return [await each for each in asyncio.as_completed(tasks)]

    assert run(flow, done("b", 2), done("a", 1))[-1] == "complete [2, 1]"


def test_as_completed_of_coroutines_is_refused_with_advice() -> None:
    async def one(ctx: Any) -> Any:
        return await ctx.step(a)

    async def flow(ctx: Any) -> Any:
        for each in asyncio.as_completed([one(ctx), two := one(ctx)]):
            two.close()
            await each

    with pytest.warns(RuntimeWarning, match="never awaited"):
        told_ = collected(run(flow))
    assert told_.startswith("fail UnsafeWorkflowCallError: asyncio.as_completed with coroutines")
    assert "asyncio.create_task" in told_


@pytest.mark.parametrize("count", [3000])
def test_waiting_with_a_timeout_leaves_no_trace_of_steps_that_have_an_outcome(count: int) -> None:
    async def flow(ctx: Any) -> int:
        for n in range(count):
            await asyncio.wait_for(ctx.step(a, n), 10)
        return count

    machine = new_machine(flow)
    assert told(machine.start([done("a", n, occurrence=n) for n in range(count)])) == [f"complete {count}"]
    machine.dispose()


class TestTimers:
    def test_a_timer_that_is_set_and_cancelled_within_one_drain_is_no_command(self) -> None:
        async def flow(ctx: Any) -> None:
            async with asyncio.timeout(5):
                await asyncio.sleep(0)
            await ctx.step(a)

        assert run(flow) == ["run a:0()"]

    def test_two_sleeps_at_once_take_each_its_own_time(self) -> None:
        async def flow(ctx: Any) -> Any:
            async def nap(seconds: float) -> float:
                await ctx.sleep(seconds)
                return float(ctx.now().timestamp() - T0 / 1000)

            return await asyncio.gather(nap(3), nap(1))

        machine = new_machine(flow)
        assert told(machine.start()) == ["timer 0 +3000", "timer 1 +1000"]
        assert machine.next_deadline_ms == T0 + 1000
        assert machine.feed(fired(machine)) == []
        assert told(machine.feed(fired(machine))) == ["complete [3.0, 1.0]"]
        machine.dispose()

    @pytest.mark.parametrize("delay", [0, -1, timedelta(0), timedelta(days=-400), -float("inf")])
    def test_no_time_at_all_sets_no_timer(self, delay: Any) -> None:
        async def flow(ctx: Any) -> str:
            await ctx.sleep(delay)
            await ctx.sleep_until(instant(T0 - 5))
            async with asyncio.timeout(None):
                await asyncio.sleep(0)
            return "awake"

        assert run(flow) == ["complete 'awake'"]

    def test_a_year_is_fine_and_more_is_an_error_that_names_the_limit(self) -> None:
        async def flow(ctx: Any) -> None:
            try:
                await ctx.sleep(timedelta(days=366, milliseconds=1))
            except Exception as error:  # noqa: BLE001
                assert "366" in str(error)  # noqa: PT017
            await asyncio.sleep(366 * 86400)

        assert run(flow) == [f"timer 0 +{366 * 86_400_000}"]

    @pytest.mark.parametrize("delay", [float("nan"), float("inf"), True, "1"])
    def test_what_is_no_time_is_refused(self, delay: Any) -> None:
        async def flow(ctx: Any) -> None:
            await ctx.sleep(delay)

        assert run(flow)[0].startswith("fail ")

    def test_a_deadline_is_rounded_once(self) -> None:
        async def flow(_ctx: Any) -> None:
            await asyncio.sleep(0.0014)

        assert run(flow) == ["timer 0 +1"]

    def test_a_step_that_is_too_late_is_withdrawn_and_its_result_counts_for_nothing(self) -> None:
        async def flow(ctx: Any) -> Any:
            try:
                async with asyncio.timeout(2):
                    await ctx.step(a)
            except TimeoutError:
                return await ctx.step(b)

        machine = new_machine(flow)
        assert told(machine.start()) == ["timer 0 +2000", "run a:0()"]
        late = fired(machine)
        assert told(machine.feed(late)) == ["withdraw a:0", "run b:0()"]
        assert machine.feed(done("a", 1)) == []
        assert machine.feed(late) == []
        assert told(machine.feed(done("b", 2))) == ["complete 2"]
        machine.dispose()

    def test_a_timer_that_is_withdrawn_may_fire_too_late(self) -> None:
        async def flow(ctx: Any) -> Any:
            async with asyncio.timeout(2):
                await ctx.step(a)
            return await ctx.step(b)

        machine = new_machine(flow)
        machine.start()
        late = fired(machine)
        assert told(machine.feed(done("a", 1))) == ["withdraw timer 0", "run b:0()"]
        assert machine.feed(late) == []
        machine.dispose()


class TestCancellation:
    def test_a_cancellation_that_escapes_ends_the_run_as_cancelled(self) -> None:
        async def flow(ctx: Any) -> Any:
            await ctx.step(a)

        assert run(flow, cancel("enough"))[-1] == "cancelled enough"

    def test_cleaning_up_may_take_more_steps(self) -> None:
        async def flow(ctx: Any) -> Any:
            try:
                await ctx.step(a)
            finally:
                await ctx.step(b)

        facts = cancel(), cancel(), done("b")
        assert run(flow, *facts) == ["run a:0()", "withdraw a:0", "run b:0()", "cancelled"]

    def test_a_cancellation_that_is_caught_leaves_a_completed_run(self) -> None:
        async def flow(ctx: Any) -> Any:
            try:
                await ctx.step(a)
            except asyncio.CancelledError:
                return "kept"

        assert run(flow, cancel())[-1] == "complete 'kept'"

    def test_a_cancellation_that_nobody_asked_for_is_a_failure(self) -> None:
        async def flow(_ctx: Any) -> Any:
            raise asyncio.CancelledError("own")

        assert run(flow) == ["fail CancelledError: own"]

    def test_a_sleep_is_withdrawn(self) -> None:
        async def flow(ctx: Any) -> Any:
            await ctx.sleep(5)

        assert run(flow, cancel()) == ["timer 0 +5000", "cancelled"]


class TestRefused:
    @pytest.mark.parametrize(
        ("call", "advice"),
        [
            (lambda loop: loop.run_in_executor(None, print), "a step for it"),
            (lambda loop: loop.call_soon_threadsafe(print), "plain asyncio"),
            (lambda loop: loop.stop(), "plain asyncio"),
            (lambda loop: loop.set_task_factory(None), "plain asyncio"),
            (lambda loop: loop.create_server(print), "a step for it"),
            (lambda loop: loop.getaddrinfo("x", 1), "a step for it"),
            (lambda loop: loop.sock_recv(None, 1), "a step for it"),
        ],
    )
    def test_what_reaches_out_of_the_workflow_fails_it_even_where_that_is_caught(
        self, call: Callable[[Any], Any], advice: str
    ) -> None:
        async def flow(ctx: Any) -> Any:
            with contextlib.suppress(BaseException):
                call(asyncio.get_running_loop())
            await ctx.step(a)

        (end,) = run(flow)
        assert end.startswith("fail UnsafeWorkflowCallError")
        assert advice in end

    def test_a_thread_is_refused(self) -> None:
        async def flow(_ctx: Any) -> Any:
            await asyncio.to_thread(print)

        assert "asyncio.to_thread" in run(flow)[0]

    def test_code_can_tell_that_it_is_a_workflow(self) -> None:
        async def flow(_ctx: Any) -> bool:
            return in_workflow()

        assert run(flow) == ["complete True"]
        assert not in_workflow()


class TestHost:
    def test_context_variables_of_the_host_do_not_leak_and_tasks_have_their_own(self) -> None:
        async def flow(ctx: Any) -> Any:
            seen = [host_variable.get()]
            host_variable.set("flow")

            async def child() -> str:
                value = host_variable.get()
                host_variable.set("child")
                return value

            seen.append(await asyncio.create_task(child()))
            await ctx.wait_until(lambda: len(noted(seen, host_variable.get())) > 4)
            return seen

        token = host_variable.set("host")
        try:
            machine = new_machine(flow)
            assert machine.start() == []
            assert told(machine.feed(signal("any"))) == ["complete ['none', 'flow', 'flow', 'flow', 'flow']"]
            machine.dispose()
            assert host_variable.get() == "host"
        finally:
            host_variable.reset(token)

    async def test_a_workflow_runs_within_a_task_of_the_host_and_leaves_it_as_it_was(self) -> None:
        async def flow(ctx: Any) -> Any:
            async with asyncio.timeout(5):
                return await ctx.step(a)

        host, task = asyncio.get_running_loop(), asyncio.current_task()
        assert run(flow, done("a", 1))[-1] == "complete 1"
        assert (asyncio.get_running_loop(), asyncio.current_task()) == (host, task)
        async with asyncio.timeout(5):
            await asyncio.sleep(0)

    def test_a_failed_task_that_nobody_awaited_is_told_at_the_end(self, caplog: pytest.LogCaptureFixture) -> None:
        async def broken() -> None:
            raise ValueError("unheard")

        async def flow(ctx: Any) -> None:
            ctx.child = asyncio.create_task(broken())
            await ctx.step(a)

        with caplog.at_level(logging.ERROR):
            run(flow)
            assert caplog.records == []
            run(flow, done("a"))
        assert [record.getMessage() for record in caplog.records] == [
            "a task or step failed, and the workflow ended without awaiting it"
        ]

    def test_a_system_exit_ends_the_run_and_not_the_host(self) -> None:
        async def flow(_ctx: Any) -> None:
            raise SystemExit(3)

        machine = new_machine(flow)
        (end,) = machine.start()
        machine.dispose()
        assert isinstance(end, Fail)
        assert isinstance(end.error, SystemExit)

    def test_a_keyboard_interrupt_is_the_hosts(self) -> None:
        async def flow(_ctx: Any) -> None:
            raise KeyboardInterrupt

        machine = new_machine(flow)
        with pytest.raises(KeyboardInterrupt):
            machine.start()
        machine.dispose()


def test_time_randomness_and_uuids_are_those_of_the_run() -> None:
    async def flow(ctx: Any) -> Any:
        return ctx.now(), ctx.random().random(), ctx.uuid4(), ctx.workflow_id, ctx.run_id, ctx.uuid4()

    def values(run_id: str) -> Any:
        machine = new_machine(flow, run_id=run_id)
        (end,) = machine.start()
        machine.dispose()
        return end.value  # type: ignore[union-attr]

    one = values("one")
    assert one == values("one")
    assert one[0] == instant(T0)
    assert (one[3], one[4], one[2].version) == ("flow-1", "one", 4)
    assert one[2] != one[5] != values("two")[5]
    assert one[1] != values("two")[1]


def test_the_logger_is_silent_while_the_past_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    async def flow(ctx: Any) -> None:
        try:
            ctx.logger.info("begun")
            await ctx.step(a)
            ctx.logger.info("between")
            await ctx.step(b)
            ctx.logger.info("ended %s", 1, extra={"iii": {"own": 1}})
            await ctx.step(c)
        finally:
            ctx.logger.info("never while it is disposed of")

    with caplog.at_level(logging.INFO, logger="iii.logger"):
        machine = new_machine(flow)
        machine.start([done("a")])
        assert caplog.records == []
        machine.feed(done("b"))
        machine.dispose()
    (record,) = caplog.records
    assert record.getMessage() == "ended 1"
    assert record.iii == {  # type: ignore[attr-defined]
        "function_id": "test::flow",
        "workflow_id": "flow-1",
        "run_id": "run-1",
        "own": 1,
    }
