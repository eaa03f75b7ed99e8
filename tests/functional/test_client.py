"""The client of durable runs, on every store of one machine, on a clock that stands still."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal, cast

import pytest
from pydantic import BaseModel

from iii_runtime import (
    IdConflictPolicy,
    IdReusePolicy,
    IiiError,
    InvocationError,
    QueryError,
    RetryPolicy,
    RunAlreadyStartedError,
    RunCancelledError,
    RunClosedError,
    RunFailedError,
    RunNotFoundError,
    RunTerminatedError,
    RunTimedOutError,
    Worker,
    WorkflowContext,
    register_worker,
)
from iii_runtime.core.client.run_client import RunClient
from iii_runtime.testing import Harness

SECOND = timedelta(seconds=1)


class PausedError(Exception):
    """Raised by a step on purpose."""


@dataclass
class Order:
    id: str
    total: int


class Receipt(BaseModel):
    order_id: str
    paid_at: datetime


@dataclass
class Setting:
    """A host, a client of it, and what its workflows do."""

    host: Harness
    client: RunClient

    async def during(self, waiting: Callable[[], Any], passes: timedelta) -> Any:
        """Let the time pass while something waits; return what it comes to."""
        task = asyncio.ensure_future(waiting())
        await self.host.idle()
        await self.host.advance(passes)
        return await task


SettingFor = Callable[[Worker], AbstractAsyncContextManager[Setting]]


@pytest.fixture(params=["memory", "embedded"])
def setting_for(request: pytest.FixtureRequest, tmp_path: Path) -> SettingFor:
    store = cast(Literal["memory", "embedded"], request.param)

    @asynccontextmanager
    async def run(worker: Worker) -> AsyncIterator[Setting]:
        async with Harness([worker], store=store, data=tmp_path / "data") as host:
            numbers = count(1)
            yield Setting(host, RunClient(host.trigger, lambda: f"id-{next(numbers)}"))

    return run


def shop() -> tuple[Worker, Callable[..., Any]]:
    """Return a worker whose workflow waits for a payment, and the workflow."""
    worker = register_worker(worker_name="shop")

    def charge(total: int) -> int:
        if total < 0:
            raise ValueError(f"no such total: {total}") from KeyError("total")
        return total

    @worker.workflow("shop::buy")
    async def buy(ctx: WorkflowContext, order: dict[str, Any]) -> Receipt:
        state = "waiting"

        @ctx.on_query("status")
        def status(prefix: str = "") -> str:
            return prefix + state

        await ctx.wait_for_signal("paid")
        state = "paid"
        await ctx.options(retry=RetryPolicy(maximum_attempts=1)).step(charge, order["total"])
        return Receipt(order_id=order["id"], paid_at=ctx.now())

    return worker, buy


async def test_a_program_starts_a_run_by_its_function_and_gets_a_typed_result(setting_for: SettingFor) -> None:
    worker, buy = shop()
    async with setting_for(worker) as its:
        handle = await its.client.start(buy, Order("o1", 12), workflow_id="order-1")
        assert (handle.workflow_id, await handle.query("status")) == ("order-1", "waiting")
        await handle.signal("paid")
        receipt = await its.during(handle.result, SECOND)
        assert receipt == Receipt(order_id="o1", paid_at=receipt.paid_at)
        assert isinstance(receipt.paid_at, datetime)
        assert receipt.paid_at.tzinfo is not None
        assert await handle.query("status", "it is ") == "it is paid"
        assert receipt.paid_at.astimezone(UTC) <= its.host.clock.now()


async def test_a_run_that_is_started_by_its_id_has_a_result_of_plain_values(setting_for: SettingFor) -> None:
    async with setting_for(shop()[0]) as its:
        handle = await its.client.start("shop::buy", {"id": "o1", "total": 1})
        await handle.signal("paid")
        result = await its.during(handle.result, SECOND)
        assert result["order_id"] == "o1"


async def test_a_start_that_is_sent_again_names_the_same_run(setting_for: SettingFor) -> None:
    async with setting_for(shop()[0]) as its:
        order = {"id": "o1", "total": 1}
        first = await its.client.start("shop::buy", order, request_id="r1")
        again = await its.client.start("shop::buy", order, request_id="r1")
        assert (again.workflow_id, again.run_id) == (first.workflow_id, first.run_id)
        assert len(await its.client.list()) == 1
        await first.terminate()
        closed = await its.client.start("shop::buy", order, request_id="r1")
        assert closed.run_id == first.run_id


async def test_the_policies_say_what_a_start_does_about_a_workflow_id_in_use(setting_for: SettingFor) -> None:
    async with setting_for(shop()[0]) as its:
        order = {"id": "o1", "total": 1}

        async def start(**more: Any) -> str:
            handle = await its.client.start("shop::buy", order, workflow_id="w", **more)
            assert handle.run_id is not None
            return handle.run_id

        first = await start()
        with pytest.raises(RunAlreadyStartedError) as refused:
            await start()
        assert (refused.value.workflow_id, refused.value.run_id, refused.value.status) == ("w", first, "running")
        assert await start(id_conflict=IdConflictPolicy.USE_EXISTING) == first
        second = await start(id_conflict=IdConflictPolicy.TERMINATE_EXISTING)
        assert second != first
        await its.client.terminate("w")
        with pytest.raises(RunAlreadyStartedError):
            await start(id_reuse=IdReusePolicy.REJECT_DUPLICATE)
        third = await start(id_reuse=IdReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY)
        runs = await its.client.list(workflow_id="w")
        assert {run["run_id"]: run["status"] for run in runs} == {
            first: "terminated",
            second: "terminated",
            third: "running",
        }


async def test_each_way_of_ending_without_a_result_has_an_error_of_its_own(setting_for: SettingFor) -> None:
    async with setting_for(shop()[0]) as its:
        bad = await its.client.start("shop::buy", {"id": "o", "total": -1})
        await bad.signal("paid")
        with pytest.raises(RunFailedError, match="no such total: -1") as failed:
            await its.during(bad.result, SECOND)
        chain: list[str] = []
        error: BaseException | None = failed.value.__cause__
        while error is not None:
            chain.append(str(error))
            error = error.__cause__
        assert [text.partition(":")[0] for text in chain] == ["StepError", "ValueError", "KeyError"]
        order = {"id": "o", "total": 1}
        cancelled = await its.client.start("shop::buy", order)
        await cancelled.cancel(reason="changed my mind")
        with pytest.raises(RunCancelledError):
            await its.during(cancelled.result, SECOND)
        terminated = await its.client.start("shop::buy", order)
        await terminated.terminate(reason="stop it")
        with pytest.raises(RunTerminatedError, match="stop it") as ended:
            await its.during(terminated.result, SECOND)
        assert ended.value.reason == "stop it"
        late = await its.client.start("shop::buy", order, run_timeout=10 * SECOND)
        with pytest.raises(RunTimedOutError):
            await its.during(late.result, 11 * SECOND)


async def test_a_result_that_does_not_come_in_time_is_a_timeout_and_the_run_goes_on(setting_for: SettingFor) -> None:
    async with setting_for(shop()[0]) as its:
        handle = await its.client.start("shop::buy", {"id": "o", "total": 1})
        with pytest.raises(TimeoutError, match=handle.workflow_id):
            await handle.result(timeout=timedelta(0))
        assert (await handle.describe())["status"] == "running"


async def test_a_run_that_is_not_there_is_not_found_and_a_closed_one_takes_nothing(setting_for: SettingFor) -> None:
    async with setting_for(shop()[0]) as its:
        client = its.client
        for operation in (
            partial(client.signal, "nobody", "paid"),
            partial(client.query, "nobody", "status"),
            partial(client.result, "nobody"),
            partial(client.cancel, "nobody"),
            partial(client.terminate, "nobody"),
            partial(client.resume, "nobody"),
            partial(client.describe, "nobody"),
            partial(client.history, "nobody"),
        ):
            with pytest.raises(RunNotFoundError) as missing:
                await operation()
            assert missing.value.workflow_id == "nobody"
        handle = await client.start("shop::buy", {"id": "o", "total": 1}, workflow_id="w")
        await handle.terminate()
        for refused in (partial(client.signal, "w", "paid"), partial(client.cancel, "w"), partial(client.resume, "w")):
            with pytest.raises(RunClosedError) as closed:
                await refused()
            assert (closed.value.run_id, closed.value.status) == (handle.run_id, "terminated")


async def test_signal_with_start_signals_the_open_run_or_starts_one_with_the_signal(setting_for: SettingFor) -> None:
    worker = register_worker(worker_name="w")

    @worker.workflow("w::collect")
    async def collect(ctx: WorkflowContext, wanted: int) -> list[Any]:
        return [await ctx.wait_for_signal("item") for _ in range(wanted)]

    async with setting_for(worker) as its:
        handles = [
            await its.client.signal_with_start(collect, 3, workflow_id="w", signal="item", payload=number)
            for number in range(3)
        ]
        assert len({handle.run_id for handle in handles}) == 1
        assert await its.during(handles[0].result, SECOND) == [0, 1, 2]
        again = await its.client.signal_with_start(collect, 1, workflow_id="w", signal="item", payload="new")
        assert again.run_id != handles[0].run_id
        assert await its.during(again.result, SECOND) == ["new"]
        with pytest.raises(RunAlreadyStartedError):
            await its.client.signal_with_start(
                collect, 1, workflow_id="w", signal="item", id_reuse=IdReusePolicy.REJECT_DUPLICATE
            )


async def test_a_description_says_where_a_run_stands(setting_for: SettingFor) -> None:
    worker = register_worker(worker_name="w")

    def fails() -> None:
        raise PausedError("not yet")

    def works() -> str:
        return "done"

    @worker.workflow("w::steps")
    async def steps(ctx: WorkflowContext) -> None:
        await ctx.step(works)
        await ctx.options(retry=RetryPolicy(initial_interval=60 * SECOND)).step(fails)
        await ctx.wait_for_signal("go", timeout=timedelta(hours=1))

    async with setting_for(worker) as its:
        handle = await its.client.start("w::steps", workflow_id="w")
        await its.host.idle()
        told = await handle.describe()
        began_ms = told["created_ms"]
        assert told["last_step"] == {
            "kind": "attempt_failed",
            "at_ms": began_ms,
            "name": "fails",
            "occurrence": 0,
            "attempt": 1,
            "elapsed_ms": 0,
            "error": {"type": "PausedError", "message": "not yet"},
            "next_at_ms": began_ms + 60_000,
        }
        assert [retry["name"] for retry in told["retrying"]] == ["fails"]
        assert told["waiting"] == {"until_ms": began_ms + 60_000}
        assert told["waiting_for"] == ["step 'fails', 1 attempt failed, next at 2026-01-01T00:01:00+00:00"]
        assert told["executing"] is None


async def test_the_history_of_a_run_has_its_values_and_its_end(setting_for: SettingFor) -> None:
    async with setting_for(shop()[0]) as its:
        handle = await its.client.start("shop::buy", {"id": "o", "total": 7})
        await handle.signal("paid", {"by": "card"})
        await its.during(handle.result, SECOND)
        events = await handle.history()
        events = [event for event in events if event["kind"] != "suspended"]
        assert [event["kind"] for event in events] == [
            "run_started",
            "signal_received",
            "step_completed",
            "run_closed",
        ]
        assert events[0]["input"] == {"id": "o", "total": 7}
        assert events[1]["value"] == {"by": "card"}
        assert events[2]["value"] == 7
        assert (events[3]["status"], events[3]["result"]["order_id"]) == ("completed", "o")


async def test_runs_are_listed_newest_first_by_workflow_and_status(setting_for: SettingFor) -> None:
    async with setting_for(shop()[0]) as its:
        for number in range(4):
            await its.client.start("shop::buy", {"id": "o", "total": 1}, workflow_id=f"w{number}")
            await its.host.advance(SECOND)
        await its.client.terminate("w1")
        listed = await its.client.list(workflow="shop::buy", status="running", limit=2)
        assert [run["workflow_id"] for run in listed] == ["w3", "w2"]
        older = await its.client.list(status="running", before_ms=listed[-1]["created_ms"])
        assert [run["workflow_id"] for run in older] == ["w0"]


async def test_what_is_no_workflow_or_no_input_is_refused_and_nothing_is_started(setting_for: SettingFor) -> None:
    worker, _ = shop()

    @worker.function("shop::plain")
    def plain(payload: Any) -> None:
        """Do nothing."""

    def nameless(ctx: WorkflowContext) -> Any:
        """Do nothing."""

    async with setting_for(worker) as its:
        for workflow, code in (("shop::plain", "workflow_not_found"), ("shop::none", "function_not_found")):
            with pytest.raises(InvocationError) as refused:
                await its.client.start(workflow)
            assert refused.value.code == code
        with pytest.raises(IiiError, match="nameless is no workflow") as unknown:
            await its.client.start(nameless)
        assert unknown.value.code == "workflow_unknown"
        with pytest.raises(IiiError, match=r"the input of the run.*when"):
            await its.client.start("shop::buy", {"when": object()})
        assert await its.client.list() == []


async def test_a_query_that_is_not_answered_says_why(setting_for: SettingFor) -> None:
    async with setting_for(shop()[0]) as its:
        handle = await its.client.start("shop::buy", {"id": "o", "total": 7})
        with pytest.raises(QueryError, match=r"no query 'state'; known are: status"):
            await handle.query("state")


@pytest.mark.parametrize(
    ("function_id", "payload", "problem"),
    [
        ("iii::runs::start", {}, "needs 'workflow'"),
        ("iii::runs::start", [], "takes an object"),
        ("iii::runs::start", {"workflow": "shop::buy", "id_reuse": "never"}, "must be one of allow_duplicate"),
        ("iii::runs::start", {"workflow": "shop::buy", "delay_ms": -1}, "'delay_ms'"),
        ("iii::runs::start", {"workflow": "shop::buy", "workflow_id": ""}, "'workflow_id'"),
        ("iii::runs::signal", {"workflow_id": "w"}, "needs 'name'"),
        ("iii::runs::signal_with_start", {"workflow": "shop::buy", "workflow_id": "w", "signal": 1}, "takes an object"),
        ("iii::runs::query", {"workflow_id": "w", "name": "q", "arguments": {}}, "must be an array"),
        ("iii::runs::result", {"workflow_id": "w", "wait_ms": 10**9}, "'wait_ms'"),
        ("iii::runs::list", {"status": "open"}, "must be one of running"),
        ("iii::runs::list", {"limit": 10**6}, "'limit'"),
    ],
)
async def test_a_request_that_is_none_is_refused_with_what_is_wrong(
    setting_for: SettingFor, function_id: str, payload: Any, problem: str
) -> None:
    async with setting_for(shop()[0]) as its:
        with pytest.raises(InvocationError, match=problem) as refused:
            await its.host.trigger({"function_id": function_id, "payload": payload})
        assert refused.value.code == "run_request_invalid"
        assert await its.client.list() == []
