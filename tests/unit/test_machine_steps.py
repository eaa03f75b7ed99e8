"""Steps of a workflow: asked for once, by name, and answered from the journal."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from dataclasses import dataclass
from typing import Any

import pytest

from iii_runtime.core.runs.errors import LimitError, StepError, WorkflowDivergedError
from iii_runtime.core.runs.facts import AttemptFailed, AttemptStarted, Fact, Key, Patched, Suspended, TimerFired
from iii_runtime.core.runs.failure import Failure
from iii_runtime.core.workflow.commands import Complete, Fail, RunStep
from iii_runtime.core.workflow.unsafe import MisplacedCallError
from tests.unit.machines import T0, a, b, c, done, failed, fired, new_machine, run, signal, told


@dataclass
class Order:
    id: int


def load() -> Order:
    raise NotImplementedError


def test_the_same_name_in_a_loop_is_another_step_each_time() -> None:
    async def flow(ctx: Any) -> list[int]:
        return [await ctx.step(a, n) for n in range(2)]

    assert run(flow, done("a", 0), done("a", 1, occurrence=1)) == ["run a:0(0)", "run a:1(1)", "complete [0, 1]"]


@pytest.mark.parametrize("name", ["%$^&*(_+{|:<?☃️", "a:1", "x" * 256])
def test_a_step_may_have_any_name(name: str) -> None:
    async def flow(ctx: Any) -> Any:
        return await ctx.options(name=name).step(a)

    assert run(flow, done(name, 5)) == [f"run {name}:0()", "complete 5"]


def test_a_step_that_is_called_like_another_and_a_number_is_not_that_one() -> None:
    async def flow(ctx: Any) -> Any:
        return [await ctx.options(name=name).step(a) for name in ("a", "a:1", "a")]

    facts = done("a", 1), done("a:1", 2), done("a", 3, occurrence=1)
    assert run(flow, *facts)[-1] == "complete [1, 2, 3]"


def test_a_step_without_a_name_has_that_of_its_function() -> None:
    async def flow(ctx: Any) -> None:
        await asyncio.gather(ctx.step(functools.partial(functools.partial(a), 1)), ctx.step(lambda: None))

    assert run(flow)[0] == "run a:0()"
    assert run(flow)[1].endswith("flow.<lambda>:0()")


def test_a_result_comes_back_as_the_class_that_the_function_returns() -> None:
    async def flow(ctx: Any) -> Any:
        return await ctx.step(load)

    assert run(flow, done("load", {"id": 3}))[-1] == "complete Order(id=3)"


def test_a_result_that_does_not_fit_its_class_any_more_is_an_error_where_it_is_awaited() -> None:
    async def flow(ctx: Any) -> Any:
        return await ctx.step(load)

    assert run(flow, done("load", 3))[-1].startswith("fail ValueUnfitError: the stored result of step 'load'")


def test_a_failed_step_raises_and_may_be_caught() -> None:
    async def flow(ctx: Any) -> Any:
        try:
            await ctx.step(a)
        except StepError as error:
            return error.type, error.attempts

    assert run(flow, failed("a")) == ["run a:0()", "complete ('ValueError', 3)"]


def test_a_failed_step_that_nobody_catches_fails_the_run() -> None:
    async def flow(ctx: Any) -> Any:
        await ctx.step(a)

    assert run(flow, failed("a", message="out of stock"))[-1].startswith("fail StepError: step 'a' failed 3 times")


def test_steps_may_be_given_to_everything_that_takes_a_coroutine() -> None:
    async def flow(ctx: Any) -> Any:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(ctx.step(a))
            second = asyncio.create_task(ctx.step(b))
        return first.result(), await second

    assert run(flow, done("b", 2), done("a", 1))[-1] == "complete (1, 2)"


def test_the_step_beyond_the_limit_fails_the_run_even_where_everything_is_caught() -> None:
    async def flow(ctx: Any) -> Any:
        for _ in range(3):
            with contextlib.suppress(BaseException):
                await ctx.step(a)

    machine = new_machine(flow, max_steps=2)
    machine.start()
    machine.feed(done("a"))
    (end,) = machine.feed(done("a", occurrence=1))
    machine.dispose()
    assert isinstance(end, Fail)
    assert isinstance(end.error, LimitError)
    assert "step 'a'" in str(end.error)


def test_a_step_cannot_ask_for_a_step_and_its_run_fails_whatever_its_body_makes_of_that() -> None:
    async def flow(ctx: Any) -> Any:
        def outer() -> None:
            ctx.step(a)

        await ctx.options(name="outer").step(outer)

    machine = new_machine(flow)
    (command,) = machine.start()
    assert isinstance(command, RunStep)
    with pytest.raises(MisplacedCallError, match="in the body of a step"):
        command.function()
    (end,) = machine.feed(done("outer"))  # as if the body had caught it
    machine.dispose()
    assert told([end])[0].startswith("fail MisplacedCallError: ctx.step was called outside its workflow")


def test_attempts_are_noted_and_tell_the_workflow_nothing() -> None:
    async def flow(ctx: Any) -> Any:
        await ctx.step(a)
        return ctx.now().timestamp()

    machine = new_machine(flow)
    machine.start()
    failure = Failure(type="E", message="")
    key = Key("step", "a")
    assert machine.feed(AttemptStarted(key=key, at_ms=T0 + 9000, attempt=1)) == []
    assert machine.feed(AttemptFailed(key=key, at_ms=T0, attempt=1, failure=failure, next_at_ms=T0 + 5)) == []
    (step,) = machine.open_steps
    assert (step.attempts, step.next_at_ms, machine.now_ms) == (1, T0 + 5, T0 + 9000)
    assert machine.waiting_for() == ["step 'a', 1 attempt failed, next at 1970-01-01T00:16:40.005000+00:00"]
    assert told(machine.feed(done("a", at_ms=T0 + 1000))) == [f"complete {(T0 + 1000) / 1000}"]
    machine.dispose()


class TestDivergence:
    @pytest.mark.parametrize(
        ("fact", "why"),
        [
            (done("b"), r"fact 2 of the journal: step 'b' completed\. But the workflow has not asked for that step"),
            (failed("a", occurrence=5), "step 'a' \\(occurrence 5\\) failed"),
            (TimerFired(number=0, deadline_ms=T0, at_ms=T0), "has not set that timer"),
            (AttemptStarted(key=Key("step", "b"), at_ms=T0, attempt=1), "attempt 1 of step 'b' began"),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_a_fact_that_the_code_did_not_ask_for_is_told_with_what_it_waits_for(self, fact: Fact, why: str) -> None:
        async def flow(ctx: Any) -> Any:
            await ctx.step(a)
            await ctx.step(c)

        machine = new_machine(flow)
        with pytest.raises(WorkflowDivergedError, match=why + ".*waits for step 'c'"):
            machine.start([done("a"), fact])
        machine.dispose()

    def test_a_wait_of_the_journal_never_answers_a_step_of_the_code(self) -> None:
        async def flow(ctx: Any) -> Any:
            return await ctx.step(a)

        machine = new_machine(flow)
        with pytest.raises(WorkflowDivergedError, match="timer 0 fired"):
            machine.start([TimerFired(number=0, deadline_ms=T0 + 5, at_ms=T0 + 5)])
        machine.dispose()

    def test_a_timer_with_another_deadline_is_another_timer(self) -> None:
        async def flow(ctx: Any) -> Any:
            await ctx.sleep(2)

        machine = new_machine(flow)
        with pytest.raises(WorkflowDivergedError, match=r"has set it for 1970-01-01T00:16:42"):
            machine.start([TimerFired(number=0, deadline_ms=T0 + 1000, at_ms=T0 + 1000)])
        machine.dispose()

    def test_a_workflow_that_ends_before_its_journal_does_has_diverged(self) -> None:
        async def flow(ctx: Any) -> Any:
            await ctx.step(a)

        machine = new_machine(flow)
        with pytest.raises(WorkflowDivergedError, match=r"step 'b' completed.*has ended before it"):
            machine.start([done("a"), signal("late"), done("b")])
        machine.dispose()

    def test_a_machine_says_whether_it_waits_for_a_fact(self) -> None:
        async def flow(ctx: Any) -> Any:
            await asyncio.gather(ctx.step(a), ctx.sleep(1))

        machine = new_machine(flow)
        machine.start()
        timer = fired(machine)
        wrong = TimerFired(number=0, deadline_ms=1, at_ms=T0)
        facts: list[Fact] = [done("a"), done("b"), timer, wrong, signal("x")]
        assert [machine.expects(fact) for fact in facts] == [True, False, True, False, True]
        machine.feed(done("a"))
        assert not machine.expects(done("a"))
        machine.feed(timer)
        assert not machine.expects(signal("x"))
        machine.dispose()

    def test_an_ended_workflow_takes_nothing_more(self) -> None:
        async def flow(ctx: Any) -> Any:
            ctx.step(a)
            ctx.step(b)
            await ctx.step(c)

        machine = new_machine(flow)
        machine.start()
        assert told(machine.feed(done("c"))) == ["complete None"]
        assert machine.feed(done("a")) == machine.feed(failed("b")) == []
        assert machine.closed == Complete(value=None)
        machine.dispose()


class TestPatches:
    @staticmethod
    async def flow(ctx: Any) -> Any:
        first = await ctx.step(b if ctx.patched("new") else a)
        return first, ctx.patched("new")

    def test_a_new_run_takes_the_new_branch_and_records_that_once(self) -> None:
        assert run(self.flow, done("b", 1)) == ["patch new", "run b:0()", "complete (1, True)"]

    def test_a_recorded_branch_is_taken_again(self) -> None:
        machine = new_machine(self.flow)
        assert told(machine.start([Patched(patch_id="new", at_ms=T0), done("b", 1)])) == ["complete (1, True)"]
        machine.dispose()

    @pytest.mark.parametrize("history", [[done("a", 1)], [Suspended(at_ms=T0)]], ids=["step", "suspended"])
    def test_an_old_run_takes_the_old_branch_and_stays_with_it(self, history: list[Fact]) -> None:
        machine = new_machine(self.flow)
        commands = machine.start(history)
        if machine.closed is None:
            commands = machine.feed(done("a", 1))
        assert told(commands) == ["complete (1, False)"]
        machine.dispose()
