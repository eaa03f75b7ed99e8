"""Durable runs as a user sees them, on every store of one machine, on a clock that stands still."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, cast

import pytest

from iii_runtime import (
    Http,
    IdConflictPolicy,
    IdReusePolicy,
    InvocationError,
    NonRetryableError,
    RetryAfter,
    RetryPolicy,
    RunAlreadyStartedError,
    RunCancelledError,
    RunClosedError,
    RunFailedError,
    RunNotFoundError,
    RunTerminatedError,
    RunTimedOutError,
    StepError,
    StepInterruptedError,
    StepTimeoutError,
    Worker,
    WorkflowContext,
    register_worker,
)
from iii_runtime.core.runs.errors import QueryError
from iii_runtime.core.runs.fact_codec import decode_link
from iii_runtime.engine.runs.runs import Runs
from iii_runtime.engine.runs.starts import Start
from iii_runtime.testing import Harness

SECOND = timedelta(seconds=1)
HostFor = Callable[[Worker], AbstractAsyncContextManager["Host"]]


class Host(Harness):
    """A harness, and what is asked of its runs."""

    @property
    def runs(self) -> Runs:
        runs = self.runtime.runs
        assert runs is not None
        return runs

    async def start(self, workflow: str, payload: Any = None, workflow_id: str = "w", **more: Any) -> str:
        """Start a run, let it come as far as it can, and return its run id."""
        started = await self.runs.start(workflow, Start(payload=payload, workflow_id=workflow_id, **more))
        await self.idle()
        return started.record.run_id

    async def result(self, workflow_id: str = "w") -> Any:
        return await self.runs.result(workflow_id, within=timedelta(0))

    async def status(self, workflow_id: str = "w") -> str:
        return (await self.runs.control.record(workflow_id)).status


@pytest.fixture(params=["memory", "embedded"])
def host_for(request: pytest.FixtureRequest, tmp_path: Path) -> HostFor:
    store = cast(Literal["memory", "embedded"], request.param)

    @asynccontextmanager
    async def run(worker: Worker) -> AsyncIterator[Host]:
        async with Host([worker], store=store, data=tmp_path / "data") as host:
            yield host

    return run


@pytest.fixture
def worker() -> Worker:
    return register_worker(worker_name="tests")


class Effects(list[str]):
    """What steps have done, in order."""

    def of(self, name: str, *, fails: int = 0, value: Any = None) -> Callable[..., Any]:
        """Return a step that notes its name, and fails so many times before it returns."""

        def step(*_arguments: Any) -> Any:
            self.append(name)
            if self.count(name) <= fails:
                raise ValueError(f"{name} failed")
            return name if value is None else value

        step.__name__ = name
        return step


@pytest.fixture
def effects() -> Effects:
    return Effects()


class TestSteps:
    async def test_steps_run_once_each_and_the_run_has_a_result(
        self, worker: Worker, host_for: HostFor, effects: Effects
    ) -> None:
        @worker.workflow("t::hello")
        async def hello(ctx: WorkflowContext, name: dict[str, Any]) -> str:
            greeting = await ctx.step(effects.of("greet"))
            both = await asyncio.gather(ctx.step(effects.of("left")), ctx.step(effects.of("right")))
            return f"{greeting} {both} {name['name']}"

        async with host_for(worker) as host:
            await host.start("t::hello", {"name": "Ada"})
            assert await host.result() == "greet ['left', 'right'] Ada"
            assert sorted(effects) == ["greet", "left", "right"]

    async def test_a_call_of_a_workflow_waits_for_its_result(self, worker: Worker, host_for: HostFor) -> None:
        @worker.workflow("t::double")
        async def double(ctx: WorkflowContext, number: Any) -> int:
            return int(await ctx.step(lambda: number * 2))

        async with host_for(worker) as host:
            assert await host.trigger({"function_id": "t::double", "payload": 21}) == 42

    async def test_failed_attempts_follow_each_other_after_exact_intervals(
        self, worker: Worker, host_for: HostFor, effects: Effects
    ) -> None:
        @worker.workflow("t::retries")
        async def retries(ctx: WorkflowContext) -> Any:
            policy = RetryPolicy(initial_interval=SECOND, backoff_coefficient=3, maximum_interval=5 * SECOND)
            return await ctx.options(retry=policy).step(effects.of("pay", fails=4))

        async with host_for(worker) as host:
            begun = host.clock.now()
            await host.start("t::retries")
            counts = []
            for seconds in (1, 3, 5, 5):
                await host.advance(timedelta(seconds=seconds) - timedelta(milliseconds=1))
                before = len(effects)
                await host.advance(timedelta(milliseconds=1))
                counts.append((before, len(effects)))
            assert counts == [(1, 2), (2, 3), (3, 4), (4, 5)]
            assert await host.result() == "pay"
            assert host.clock.now() - begun == 14 * SECOND

    async def test_attempts_are_counted_across_lives(self, worker: Worker, host_for: HostFor, effects: Effects) -> None:
        @worker.workflow("t::retries")
        async def retries(ctx: WorkflowContext) -> Any:
            return await ctx.options(retry=RetryPolicy(maximum_attempts=3)).step(effects.of("pay", fails=99))

        async with host_for(worker) as host:
            await host.start("t::retries")
            await host.restart()
            await host.advance(timedelta(hours=1))
            assert effects == ["pay"] * 3
            with pytest.raises(RunFailedError, match="failed 3 times") as failed:
                await host.result()
            assert failed.value.failure is not None
            assert failed.value.failure.cause is not None
            assert failed.value.failure.cause.type == "ValueError"

    async def test_an_error_may_end_a_step_at_once_and_the_workflow_may_go_on(
        self, worker: Worker, host_for: HostFor
    ) -> None:
        def decline() -> None:
            raise NonRetryableError("no funds")

        @worker.workflow("t::declined")
        async def declined(ctx: WorkflowContext) -> Any:
            try:
                await ctx.step(decline)
            except StepError as error:
                return [error.step, error.attempts, error.type]

        async with host_for(worker) as host:
            await host.start("t::declined")
            assert await host.result() == ["decline", 1, "NonRetryableError"]

    async def test_a_step_may_choose_when_it_is_tried_again(
        self, worker: Worker, host_for: HostFor, effects: Effects
    ) -> None:
        def limited() -> str:
            effects.append("limited")
            if len(effects) == 1:
                raise RetryAfter(10 * SECOND)
            return "done"

        @worker.workflow("t::limited")
        async def workflow(ctx: WorkflowContext) -> Any:
            return await ctx.step(limited)

        async with host_for(worker) as host:
            await host.start("t::limited")
            await host.advance(timedelta(seconds=9.999))
            assert len(effects) == 1
            await host.advance(timedelta(milliseconds=1))
            assert await host.result() == "done"

    async def test_a_step_is_given_up_when_its_next_attempt_would_begin_too_late(
        self, worker: Worker, host_for: HostFor, effects: Effects
    ) -> None:
        @worker.workflow("t::late")
        async def late(ctx: WorkflowContext) -> Any:
            steps = ctx.options(retry=RetryPolicy(initial_interval=4 * SECOND), schedule_to_close=timedelta(seconds=10))
            try:
                await steps.step(effects.of("pay", fails=99))
            except StepTimeoutError as error:
                return error.attempts

        async with host_for(worker) as host:
            await host.start("t::late")
            await host.advance(4 * SECOND)
            assert await host.result() == 2

    async def test_an_attempt_that_takes_too_long_is_a_failed_one(
        self, worker: Worker, host_for: HostFor, effects: Effects
    ) -> None:
        async def slow() -> str:
            effects.append("slow")
            if len(effects) == 1:
                await asyncio.Event().wait()
            return "fast"

        @worker.workflow("t::slow")
        async def workflow(ctx: WorkflowContext) -> Any:
            return await ctx.options(start_to_close=timedelta(milliseconds=50)).step(slow)

        async with host_for(worker) as host:
            await host.start("t::slow")
            await host.advance(SECOND)
            assert await host.result() == "fast"

    async def test_a_step_that_must_not_be_repeated_is_reported_when_its_host_died(
        self, worker: Worker, host_for: HostFor, effects: Effects
    ) -> None:
        begun = threading.Event()  # steps run on a loop of their own

        async def charge() -> None:
            effects.append("charge")
            begun.set()
            await asyncio.Event().wait()

        @worker.workflow("t::charge", timeout=timedelta(minutes=5))
        async def workflow(ctx: WorkflowContext) -> Any:
            try:
                await ctx.options(at_most_once=True).step(charge)
            except StepInterruptedError:
                return "unknown"

        async with host_for(worker) as host:
            await host.runs.start("t::charge", Start(workflow_id="w"))
            await asyncio.to_thread(begun.wait, 10)
            await host.restart()
            await host.idle()
            assert await host.result() == "unknown"
            assert effects == ["charge"]

    async def test_a_result_that_cannot_be_kept_names_its_step(self, worker: Worker, host_for: HostFor) -> None:
        @worker.workflow("t::odd")
        async def odd(ctx: WorkflowContext) -> Any:
            return await ctx.options(name="odd one").step(object)

        async with host_for(worker) as host:
            await host.start("t::odd")
            with pytest.raises(RunFailedError, match="step 'odd one'"):
                await host.result()

    async def test_a_large_result_comes_back_as_it_was(self, worker: Worker, host_for: HostFor) -> None:
        @worker.workflow("t::large")
        async def large(ctx: WorkflowContext) -> Any:
            text = await ctx.step(lambda: "x" * 300_000)
            await ctx.sleep(1)
            return text

        async with host_for(worker) as host:
            await host.start("t::large")
            await host.restart()
            await host.advance(SECOND)
            assert await host.result() == "x" * 300_000


class TestTimers:
    async def test_a_sleep_of_three_days_ends_when_it_should_however_often_the_host_dies(
        self, worker: Worker, host_for: HostFor
    ) -> None:
        @worker.workflow("t::sleep")
        async def sleep(ctx: WorkflowContext) -> str:
            await ctx.sleep(timedelta(days=3))
            return str(ctx.now())

        async with host_for(worker) as host:
            await host.start("t::sleep")
            await host.advance(timedelta(days=1))
            await host.restart()
            await host.advance(timedelta(days=1))
            await host.restart()
            await host.advance(timedelta(days=1) - timedelta(milliseconds=1))
            assert await host.status() == "running"
            await host.advance(timedelta(milliseconds=1))
            assert await host.result() == str(host.clock.now())

    async def test_a_race_is_won_by_what_comes_first(self, worker: Worker, host_for: HostFor) -> None:
        @worker.workflow("t::race")
        async def race(ctx: WorkflowContext) -> Any:
            try:
                return await ctx.wait_for_signal("go", 10 * SECOND)
            except TimeoutError:
                return "late"

        async with host_for(worker) as host:
            await host.start("t::race", workflow_id="fast")
            await host.start("t::race", workflow_id="slow")
            await host.advance(9 * SECOND)
            await host.runs.control.signal("fast", "go", "in time")
            await host.advance(SECOND)
            assert [await host.result("fast"), await host.result("slow")] == ["in time", "late"]

    async def test_a_run_that_lives_too_long_is_ended(
        self, worker: Worker, host_for: HostFor, effects: Effects
    ) -> None:
        @worker.workflow("t::long", run_timeout=timedelta(minutes=1))
        async def long(ctx: WorkflowContext) -> None:
            try:
                await ctx.sleep(timedelta(hours=1))
            finally:
                await ctx.step(effects.of("cleanup"))

        async with host_for(worker) as host:
            await host.start("t::long")
            await host.advance(timedelta(minutes=1))
            with pytest.raises(RunTimedOutError):
                await host.result()
            assert effects == []

    async def test_a_start_may_be_put_off(self, worker: Worker, host_for: HostFor, effects: Effects) -> None:
        @worker.workflow("t::later")
        async def later(ctx: WorkflowContext) -> Any:
            return await ctx.step(effects.of("step"))

        async with host_for(worker) as host:
            await host.start("t::later", delay=timedelta(hours=1))
            await host.advance(timedelta(minutes=59))
            assert effects == []
            await host.restart()
            await host.advance(timedelta(minutes=1))
            assert await host.result() == "step"


class TestSignals:
    async def test_signals_are_kept_until_they_are_taken_and_come_in_order(
        self, worker: Worker, host_for: HostFor
    ) -> None:
        @worker.workflow("t::collect")
        async def collect(ctx: WorkflowContext) -> list[Any]:
            await ctx.sleep(SECOND)
            return [await ctx.wait_for_signal("item") for _ in range(3)]

        async with host_for(worker) as host:
            await host.start("t::collect")
            for number in range(3):
                await host.runs.control.signal("w", "item", number, signal_id=f"s{number}")
                await host.runs.control.signal("w", "item", number, signal_id=f"s{number}")
            await host.restart()
            await host.advance(SECOND)
            assert await host.result() == [0, 1, 2]

    async def test_a_signal_may_be_there_from_the_beginning(self, worker: Worker, host_for: HostFor) -> None:
        seen: list[Any] = []

        @worker.workflow("t::begin")
        async def begin(ctx: WorkflowContext) -> list[Any]:
            @ctx.on_signal("go")
            def go(payload: Any) -> None:
                seen.append(payload)

            await ctx.step(lambda: seen.append("step"))
            return list(seen)

        async with host_for(worker) as host:
            item = await host.runs.control.signal_item("w", "go", 1, None)
            await host.start("t::begin", signal=item)
            assert await host.result() == [1, "step"]

    async def test_a_signal_to_nobody_is_refused_and_stores_nothing(self, worker: Worker, host_for: HostFor) -> None:
        @worker.workflow("t::end")
        async def end(ctx: WorkflowContext) -> None: ...

        async with host_for(worker) as host:
            with pytest.raises(RunNotFoundError):
                await host.runs.control.signal("w", "go")
            await host.start("t::end")
            before = await host.runs.control.record("w")
            with pytest.raises(RunClosedError, match="completed"):
                await host.runs.control.signal("w", "go")
            assert await host.runs.control.record("w") == before

    async def test_a_query_answers_while_the_run_goes_on_and_afterwards(
        self, worker: Worker, host_for: HostFor
    ) -> None:
        @worker.workflow("t::progress")
        async def progress(ctx: WorkflowContext) -> None:
            done = 0

            @ctx.on_query("progress")
            def answer() -> int:
                return done

            for _ in range(2):
                await ctx.sleep(SECOND)
                done += 1

        async with host_for(worker) as host:
            await host.start("t::progress")
            answers = [await host.runs.query("w", "progress", [])]
            for _ in range(2):
                await host.advance(SECOND)
                answers.append(await host.runs.query("w", "progress", []))
            assert answers == [0, 1, 2]
            assert await host.status() == "completed"
            with pytest.raises(QueryError, match="progress"):
                await host.runs.query("w", "unknown", [])


class TestEnds:
    async def test_a_cancelled_saga_undoes_what_was_done_in_reverse(
        self, worker: Worker, host_for: HostFor, effects: Effects
    ) -> None:
        @worker.workflow("t::saga")
        async def saga(ctx: WorkflowContext) -> None:
            async with ctx.saga() as undo:
                for name in ("inventory", "payment"):
                    await ctx.step(effects.of(name))
                    undo.compensate(effects.of(f"undo {name}"))
                await ctx.sleep(timedelta(days=1))

        async with host_for(worker) as host:
            await host.start("t::saga")
            await host.restart()
            await host.idle()
            assert effects == ["inventory", "payment"]
            await host.runs.control.cancel("w", reason="changed my mind")
            await host.runs.control.cancel("w")
            await host.idle()
            assert effects == ["inventory", "payment", "undo payment", "undo inventory"]
            with pytest.raises(RunCancelledError):
                await host.result()

    async def test_a_failed_saga_keeps_its_error_and_goes_on_past_a_failed_compensation(
        self, worker: Worker, host_for: HostFor, effects: Effects
    ) -> None:
        once = RetryPolicy(maximum_attempts=1)

        @worker.workflow("t::saga")
        async def saga(ctx: WorkflowContext) -> None:
            steps = ctx.options(retry=once)
            async with ctx.saga() as undo:
                undo.compensate(effects.of("undo a"))
                undo.options(retry=once).compensate(effects.of("undo b", fails=99))
                await steps.step(effects.of("ship", fails=9))

        async with host_for(worker) as host:
            await host.start("t::saga")
            await host.advance(timedelta(days=1))
            assert effects == ["ship", "undo b", "undo a"]
            with pytest.raises(RunFailedError, match="ship failed"):
                await host.result()

    async def test_a_terminated_run_runs_nothing_more(
        self, worker: Worker, host_for: HostFor, effects: Effects
    ) -> None:
        @worker.workflow("t::long")
        async def long(ctx: WorkflowContext) -> None:
            try:
                await ctx.sleep(timedelta(hours=1))
            finally:
                await ctx.step(effects.of("cleanup"))

        async with host_for(worker) as host:
            await host.start("t::long")
            await host.runs.control.terminate("w", reason="enough")
            await host.advance(timedelta(hours=2))
            with pytest.raises(RunTerminatedError, match="enough"):
                await host.result()
            assert effects == []

    async def test_a_run_that_failed_tells_the_function_that_wants_to_know(
        self, worker: Worker, host_for: HostFor
    ) -> None:
        told: list[Any] = []

        @worker.function("t::told")
        def tell(payload: dict[str, Any]) -> None:
            told.append(payload)

        @worker.workflow("t::fails", on_failure="t::told")
        async def fails(ctx: WorkflowContext) -> None:
            raise KeyError("gone")

        async with host_for(worker) as host:
            run_id = await host.start("t::fails")
            await host.settle()
            assert told == [
                {
                    "workflow": "t::fails",
                    "workflow_id": "w",
                    "run_id": run_id,
                    "status": "failed",
                    "error": {"type": "KeyError", "message": "'gone'"},
                }
            ]
            assert (await host.runs.control.record("w")).duties == ()

    async def test_code_that_asks_for_other_things_than_its_past_is_put_aside(
        self, worker: Worker, host_for: HostFor, effects: Effects
    ) -> None:
        names = ["old"]

        @worker.workflow("t::changed")
        async def changed(ctx: WorkflowContext) -> Any:
            await ctx.options(name=names[0]).step(effects.of("step"))
            await ctx.sleep(SECOND)
            return names[0]

        async with host_for(worker) as host:
            await host.start("t::changed")
            names[0] = "new"
            await host.advance(SECOND)
            record = await host.runs.control.record("w")
            assert record.is_open
            assert record.parked is not None
            assert "old" in record.parked
            names[0] = "old"
            await host.runs.control.resume("w")
            await host.idle()
            assert await host.result() == "old"
            assert effects == ["step"]


class TestStarts:
    @pytest.fixture
    def waiting(self, worker: Worker) -> Worker:
        @worker.workflow("t::waits", workflow_id="order.id")
        async def waits(ctx: WorkflowContext, payload: Any) -> Any:
            return await ctx.wait_for_signal("go")

        return worker

    async def test_a_workflow_id_has_one_open_run(self, waiting: Worker, host_for: HostFor) -> None:
        async with host_for(waiting) as host:
            first = await host.start("t::waits")
            with pytest.raises(RunAlreadyStartedError, match=first):
                await host.start("t::waits")
            assert await host.start("t::waits", conflict=IdConflictPolicy.USE_EXISTING) == first
            second = await host.start("t::waits", conflict=IdConflictPolicy.TERMINATE_EXISTING)
            assert second != first
            old = await host.runs.control.record("w", first)
            assert (old.status, await host.status()) == ("terminated", "running")

    async def test_a_workflow_id_whose_run_has_ended_may_be_used_again_if_the_start_says_so(
        self, waiting: Worker, host_for: HostFor
    ) -> None:
        async with host_for(waiting) as host:
            first = await host.start("t::waits")
            await host.runs.control.signal("w", "go", 1)
            await host.idle()
            for policy in (IdReusePolicy.REJECT_DUPLICATE, IdReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY):
                with pytest.raises(RunAlreadyStartedError, match="completed"):
                    await host.start("t::waits", reuse=policy)
            second = await host.start("t::waits")
            assert second != first
            assert await host.runs.result("w", first, timedelta(0)) == 1
            await host.runs.control.cancel("w")
            await host.idle()
            third = await host.start("t::waits", reuse=IdReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY)
            assert third not in (first, second)

    async def test_a_start_that_is_repeated_is_the_same_run_also_when_it_has_ended(
        self, waiting: Worker, host_for: HostFor
    ) -> None:
        async with host_for(waiting) as host:
            first = await host.start("t::waits", request_id="r1")
            assert await host.start("t::waits", request_id="r1") == first
            await host.runs.control.signal("w", "go", 1)
            await host.idle()
            assert await host.start("t::waits", request_id="r1") == first
            assert await host.status() == "completed"

    async def test_a_message_starts_one_run_and_its_workflow_id_comes_from_the_payload(
        self, waiting: Worker, host_for: HostFor
    ) -> None:
        async with host_for(waiting) as host:
            request = {
                "function_id": "t::waits",
                "payload": {"order": {"id": "o-1"}},
                "action": {"type": "enqueue", "queue": "default"},
            }
            await host.trigger(request)
            await host.idle()
            assert await host.status("o-1") == "running"
            with pytest.raises(InvocationError, match=r"'order\.id' of the input"):
                await host.trigger({"function_id": "t::waits", "payload": {}})

    async def test_a_request_starts_a_run_is_answered_at_once_and_its_credentials_are_not_stored(
        self, worker: Worker, host_for: HostFor
    ) -> None:
        @worker.workflow("t::http", triggers=[Http("POST", "/runs")])
        async def workflow(ctx: WorkflowContext, request: dict[str, Any]) -> Any:
            await ctx.sleep(SECOND)
            return request["body"]

        async with host_for(worker) as host:
            headers = {"Authorization": "Bearer secret-token", "Cookie": "secret-cookie"}
            reply = await host.http("POST", "/runs", json={"n": 1}, headers=headers)
            assert reply.status == 202
            ids = reply.json()
            await host.advance(SECOND)
            assert await host.result(ids["workflow_id"]) == {"n": 1}
            record = await host.runs.control.record(ids["workflow_id"], ids["run_id"])
            link = decode_link(record.input)
            runs = host.stores.runs
            assert runs is not None
            stored = record.input if link is None else await runs.get_payload(record.workflow_id, link.key)
            assert "application/json" in stored
            assert "secret" not in stored
