"""Signals, conditions and queries of a workflow."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

import pytest

from iii_runtime.core.errors import RegistrationError
from iii_runtime.core.runs.errors import QueryError
from iii_runtime.core.workflow.context import WorkflowContext
from tests.unit.machines import a, b, cancel, done, fired, new_machine, run, signal, told


@dataclass
class Vote:
    name: str


class TestWaiting:
    def test_one_wait_takes_one_signal_in_order_and_what_came_before_is_kept(self) -> None:
        async def flow(ctx: WorkflowContext) -> Any:
            await ctx.step(a)
            return [await ctx.wait_for_signal("go") for _ in range(3)]

        facts = signal("go", 1), signal("other", 9), signal("go", 2), done("a"), signal("go", 3)
        assert run(flow, *facts) == ["run a:0()", "complete [1, 2, 3]"]

    def test_a_signal_in_time_withdraws_the_timer(self) -> None:
        async def flow(ctx: WorkflowContext) -> Any:
            await ctx.wait_for_signal("go", timeout=5)
            await ctx.step(a)

        assert run(flow, signal("go")) == ["timer 0 +5000", "withdraw timer 0", "run a:0()"]

    def test_a_signal_that_came_before_needs_no_timer(self) -> None:
        async def flow(ctx: WorkflowContext) -> Any:
            await ctx.step(a)
            return await ctx.wait_for_signal("go", timeout=5)

        assert run(flow, signal("go", 1), done("a")) == ["run a:0()", "complete 1"]

    def test_a_wait_that_takes_too_long_is_a_timeout_and_takes_nothing(self) -> None:
        async def flow(ctx: WorkflowContext) -> Any:
            try:
                await ctx.wait_for_signal("go", timeout=5)
            except TimeoutError as error:
                return str(error), await ctx.wait_for_signal("go")

        machine = new_machine(flow)
        machine.start()
        machine.feed(fired(machine))
        assert machine.waiting_for() == ["signal 'go'"]
        assert told(machine.feed(signal("go", 1))) == ["complete (\"signal 'go' took longer than 5\", 1)"]
        machine.dispose()

    def test_no_time_at_all_takes_what_is_there(self) -> None:
        async def flow(ctx: WorkflowContext) -> Any:
            await ctx.step(a)
            taken = await ctx.wait_for_signal("go", timeout=0)
            try:
                await ctx.wait_for_signal("go", timeout=0)
            except TimeoutError:
                return taken

        assert run(flow, signal("go", 1), done("a"))[-1] == "complete 1"

    def test_several_waits_are_served_in_order(self) -> None:
        async def flow(ctx: WorkflowContext) -> Any:
            return await asyncio.gather(*(ctx.wait_for_signal("go") for _ in range(3)))

        assert run(flow, signal("go", 1), signal("go", 2), signal("go", 3)) == ["complete [1, 2, 3]"]


class TestHandlers:
    def test_a_handler_takes_signals_in_order_also_those_that_came_before(self) -> None:
        async def flow(ctx: WorkflowContext) -> Any:
            seen: list[int] = []
            await ctx.step(a)
            ctx.on_signal("n")(seen.append)
            await ctx.wait_until(lambda: len(seen) == 3)
            return seen

        assert run(flow, signal("n", 1), signal("n", 2), done("a"), signal("n", 3))[-1] == "complete [1, 2, 3]"

    def test_an_asynchronous_handler_may_run_steps(self) -> None:
        async def flow(ctx: WorkflowContext) -> Any:
            results: list[Any] = []

            @ctx.on_signal("n")
            async def handle(payload: Any) -> None:
                results.append(await ctx.step(a, payload))

            await ctx.wait_until(lambda: results)
            return results

        assert run(flow, signal("n", 7), done("a", "x")) == ["run a:0(7)", "complete ['x']"]

    def test_a_payload_becomes_the_class_that_the_handler_names(self) -> None:
        async def flow(ctx: WorkflowContext) -> Any:
            votes: list[Vote] = []

            @ctx.on_signal("vote")
            def vote(given: Vote) -> None:
                votes.append(given)

            await ctx.wait_until(lambda: votes)
            return votes

        assert run(flow, signal("vote", {"name": "yes"})) == ["complete [Vote(name='yes')]"]

    @pytest.mark.parametrize("value", [3, {"nome": "x"}])
    def test_a_payload_that_does_not_fit_is_passed_over_and_logged(
        self, value: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def flow(ctx: WorkflowContext) -> Any:
            @ctx.on_signal("vote")
            def vote(given: Vote) -> None:
                raise AssertionError(given)

            @ctx.on_signal("none")
            def none() -> None:
                raise AssertionError

            return await ctx.step(a)

        with caplog.at_level(logging.ERROR):
            assert run(flow, signal("vote", value), signal("none", 1), done("a", 1))[-1] == "complete 1"
        assert [record.getMessage() for record in caplog.records] == [
            "signal 'vote' was passed over",
            "signal 'none' was passed over",
        ]

    @pytest.mark.parametrize("is_async", [False, True])
    def test_what_a_handler_raises_fails_the_run(self, is_async: bool) -> None:
        async def flow(ctx: WorkflowContext) -> Any:
            def plain(_: Any) -> None:
                raise ValueError("handler")

            async def asynchronous(_: Any) -> None:
                raise ValueError("handler")

            ctx.on_signal("n")(asynchronous if is_async else plain)
            await ctx.step(a)

        assert run(flow, signal("n"))[-1] == "fail ValueError: handler"


class TestConditions:
    def test_a_condition_is_looked_at_after_everything_that_happens_until_nothing_changes(self) -> None:
        async def flow(ctx: WorkflowContext) -> Any:
            stage = [0]

            async def climb(n: int) -> None:
                await ctx.wait_until(lambda: stage[0] == n)
                stage[0] += 1

            tasks = [asyncio.create_task(climb(n)) for n in (3, 2, 1)]
            await ctx.step(a)
            stage[0] = 1
            await asyncio.gather(*tasks)
            return stage

        assert run(flow, done("a")) == ["run a:0()", "complete [4]"]

    def test_a_condition_may_take_too_long(self) -> None:
        async def flow(ctx: WorkflowContext) -> Any:
            await ctx.wait_until(lambda: False, timeout=1)

        machine = new_machine(flow)
        machine.start()
        (waits_for_timer, waits_for_condition) = machine.waiting_for()
        assert waits_for_timer.startswith("timer 0")
        assert waits_for_condition.startswith("the condition ")
        assert told(machine.feed(fired(machine))) == ["fail TimeoutError: ctx.wait_until took longer than 1"]
        machine.dispose()

    def test_what_a_condition_raises_is_raised_where_it_is_awaited(self) -> None:
        async def flow(ctx: WorkflowContext) -> Any:
            values: list[int] = []

            async def fill() -> None:
                values.append(await ctx.step(a))

            task = asyncio.create_task(fill())
            with pytest.raises(ZeroDivisionError):
                await ctx.wait_until(lambda: values and 1 // values[0])
            await task
            return "caught"

        assert run(flow, done("a", 0))[-1] == "complete 'caught'"

    def test_a_condition_cannot_ask_for_a_step(self) -> None:
        async def flow(ctx: WorkflowContext) -> Any:
            await ctx.wait_until(lambda: ctx.step(a))

        assert run(flow)[-1].startswith("fail MisplacedCallError")


class TestQueries:
    @staticmethod
    async def flow(ctx: WorkflowContext) -> Any:
        seen: list[Any] = []

        @ctx.on_query("seen")
        def answer(limit: int = 10) -> list[Any]:
            return seen[:limit]

        @ctx.on_query("vote")
        def vote(given: Vote) -> str:
            return given.name

        for name, forbidden in {
            "step": lambda: ctx.step(a),
            "timer": lambda: asyncio.get_running_loop().call_later(1, print),
            "task": ctx.uuid4,
            "signal": lambda: ctx.on_signal("x"),
            "patch": lambda: ctx.patched("x"),
        }.items():
            ctx.on_query(name)(forbidden)
        ctx.on_signal("n")(seen.append)
        return await ctx.step(b)

    def test_a_query_is_answered_before_and_after_the_end_and_after_the_disposal(self) -> None:
        machine = new_machine(self.flow)
        machine.start()
        machine.feed(signal("n", 1))
        machine.feed(signal("n", 2))
        assert machine.query("seen") == [1, 2]
        assert machine.query("seen", [1]) == [1]
        assert machine.query("vote", [{"name": "yes"}]) == "yes"
        machine.feed(done("b"))
        assert machine.query("seen") == [1, 2]
        machine.dispose()
        assert machine.query("seen") == [1, 2]

    @pytest.mark.parametrize(
        ("name", "arguments", "why"),
        [
            ("sean", [], "no query 'sean'; known are: patch, seen, signal, step, task, timer, vote"),
            ("seen", [1, 2], "query 'seen' takes \\(limit"),
            ("vote", [], "query 'vote' takes \\(given"),
            ("vote", [4], "query 'vote' takes \\(given"),
        ],
    )
    def test_a_query_that_does_not_fit_is_an_error(self, name: str, arguments: list[Any], why: str) -> None:
        machine = new_machine(self.flow)
        machine.start()
        with pytest.raises(QueryError, match=why):
            machine.query(name, arguments)
        machine.dispose()

    @pytest.mark.parametrize("name", ["step", "timer", "task", "signal", "patch"])
    @pytest.mark.parametrize("is_disposed", [False, True])
    def test_a_query_changes_nothing(self, name: str, is_disposed: bool) -> None:
        machine = new_machine(self.flow)
        machine.start()
        if is_disposed:
            machine.dispose()
        with pytest.raises(QueryError, match="may only read"):
            machine.query(name)
        if not is_disposed:
            assert told(machine.feed(done("b", 1))) == ["complete 1"]
            machine.dispose()

    def test_an_asynchronous_query_is_refused_where_it_is_registered(self) -> None:
        async def flow(ctx: WorkflowContext) -> Any:
            async def answer() -> None: ...

            with pytest.raises(RegistrationError, match="answers at once"):
                ctx.on_query("x")(answer)

        assert run(flow) == ["complete None"]

    def test_a_workflow_without_queries_says_so(self) -> None:
        async def flow(ctx: WorkflowContext) -> Any:
            await ctx.step(a)

        machine = new_machine(flow)
        machine.start()
        machine.feed(cancel())
        with pytest.raises(QueryError, match="known are: none"):
            machine.query("x")
        machine.dispose()
