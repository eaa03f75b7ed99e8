"""`iii-runtime runs` and the client of this machine, with a host and without one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from iii_runtime import Client, IiiError, RunAlreadyStartedError, RunFailedError
from tests.host.commands import answer, done, refused, run
from tests.host.process import DevProcess

WORKER = """
from datetime import timedelta

from iii_runtime import RetryPolicy, WorkflowContext, register_worker

worker = register_worker(worker_name="shop")


def charge(total: int) -> int:
    if total < 0:
        raise ValueError(f"no such total: {total}") from KeyError("total")
    return total


@worker.workflow("shop::buy")
async def buy(ctx: WorkflowContext, total: int) -> dict:
    state = "waiting"

    @ctx.on_query("state")
    def tell(prefix: str = "") -> str:
        return prefix + state

    paid = await ctx.wait_for_signal("paid")
    state = "paid"
    return {"paid": paid, "charged": await ctx.options(retry=RetryPolicy(maximum_attempts=1)).step(charge, total)}
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(WORKER)
    with DevProcess(folder, "shop.py", "--no-reload") as process:
        process.address()
        yield process


@pytest.mark.process
@pytest.mark.usefixtures("own_folder")
class TestWithAHost:
    def test_a_run_goes_through_its_life(self, host: DevProcess) -> None:
        at = ("--data", str(host.data))
        started = answer("runs", "start", "shop::buy", "--input", "5", "--id", "life", *at)
        assert (started["workflow_id"], started["is_new"]) == ("life", True)
        assert answer("runs", "query", "life", "state", '"it is "', *at) == "it is waiting"
        listed = answer("runs", "list", "--status", "running", "--id", "life", *at)
        assert [each["run_id"] for each in listed] == [started["run_id"]]
        done("runs", "signal", "life", "paid", "--payload", '{"by": "card"}', *at)
        assert answer("runs", "result", "life", *at) == {"paid": {"by": "card"}, "charged": 5}
        assert answer("runs", "query", "life", "state", "--run", started["run_id"], *at) == "paid"
        shown = done("runs", "show", "life", *at)
        assert "status       completed" in shown
        assert "signal paid" in shown
        kinds = [event["kind"] for event in answer("runs", "history", "life", *at)]
        assert (kinds[0], kinds[-1]) == ("run_started", "run_closed")
        assert '"value":5' in done("runs", "history", "life", *at)
        told = refused(1, "runs", "signal", "life", "paid", *at)
        assert "error: run_closed: run 'life'" in told
        assert "completed" in done("runs", "list", "--workflow", "shop::buy", *at)

    def test_a_failed_run_is_an_error_with_its_causes(self, host: DevProcess) -> None:
        at = ("--data", str(host.data))
        done("runs", "start", "shop::buy", "--input=-1", "--id", "bad", *at)
        done("runs", "signal", "bad", "paid", *at)
        told = refused(1, "runs", "result", "bad", *at)
        assert "error: run_failed: run 'bad'" in told
        assert "caused by ValueError: no such total: -1" in told
        assert "caused by KeyError" in told
        assert 'raise ValueError(f"no such total' in told

    def test_a_run_can_be_cancelled_and_terminated_once(self, host: DevProcess) -> None:
        at = ("--data", str(host.data))
        for command, code in (("cancel", "run_cancelled"), ("terminate", "run_terminated")):
            done("runs", "start", "shop::buy", "--input", "1", "--id", command, *at)
            assert answer("runs", command, command, "--reason", "enough", *at) == {"done": True}
            assert f"error: {code}: " in refused(1, "runs", "result", command, *at)
            assert "error: run_closed: " in refused(1, "runs", command, command, *at)

    def test_a_result_that_does_not_come_in_time_is_an_error_and_the_run_goes_on(self, host: DevProcess) -> None:
        at = ("--data", str(host.data))
        done("runs", "start", "shop::buy", "--input", "1", "--id", "slow", *at)
        assert "error: TIMEOUT: run 'slow'" in refused(1, "runs", "result", "slow", "--timeout", "0", *at)
        assert answer("runs", "show", "slow", *at)["waiting_for"] == ["signal 'paid'"]

    def test_a_workflow_id_in_use_is_refused_unless_a_policy_says_otherwise(self, host: DevProcess) -> None:
        at = ("--data", str(host.data))
        start = ("runs", "start", "shop::buy", "--input", "1", "--id", "used", *at)
        first = answer(*start)
        assert "error: run_already_started: " in refused(1, *start)
        again = run(*start, "--conflict", "use_existing")
        assert again.stdout.split() == ["used", first["run_id"]]
        assert "it is there already, and running" in again.stderr
        assert answer(*start, "--conflict", "terminate_existing")["is_new"] is True

    def test_what_happens_to_a_run_can_be_watched(self, host: DevProcess) -> None:
        at = ("--data", str(host.data))
        done("runs", "start", "shop::buy", "--input", "1", "--id", "seen", *at)
        seen = done("runs", "watch", "seen", "--until", "1", *at)
        assert "the runs from now on" in seen

    def test_a_program_of_its_own_does_the_same_with_the_client(self, host: DevProcess) -> None:
        async def program() -> Any:
            client = Client.local(host.data)
            handle = await client.start("shop::buy", 7, workflow_id="of-program")
            with pytest.raises(RunAlreadyStartedError) as refused_start:
                await client.start("shop::buy", 7, workflow_id="of-program")
            assert refused_start.value.run_id == handle.run_id
            await handle.signal("paid", "cash")
            bad = await client.signal_with_start("shop::buy", -1, workflow_id="of-program-2", signal="paid")
            with pytest.raises(RunFailedError) as failed:
                await bad.result(timeout=timedelta(seconds=20))
            causes = [failed.value.__cause__]
            while causes[-1] is not None and causes[-1].__cause__ is not None:
                causes.append(causes[-1].__cause__)
            return await handle.result(timeout=timedelta(seconds=20)), [str(cause) for cause in causes]

        result, causes = asyncio.run(program())
        assert result == {"paid": "cash", "charged": 7}
        assert [cause.partition(":")[0] for cause in causes] == ["StepError", "ValueError", "KeyError"]


@pytest.mark.usefixtures("own_folder")
class TestWithoutAHost:
    def test_a_run_that_is_started_and_signalled_is_stored(self, tmp_path: Path) -> None:
        (tmp_path / "functions").mkdir()
        (tmp_path / "functions" / "shop_worker.py").write_text(WORKER)
        started = run("runs", "start", "shop::buy", "--input", "5", "--id", "w")
        assert "no host runs; the run begins when one starts" in started.stderr
        done("runs", "signal", "w", "paid")
        assert answer("runs", "show", "w")["messages"] == 1
        assert "error: TIMEOUT" in refused(1, "runs", "result", "w")
        told = run("runs", "start", "shop::buy", "--input", "5", "--wait")
        assert told.exit_code == 2
        assert "--wait needs a running host" in told.stderr
        with DevProcess(tmp_path, "functions", "--no-reload") as process:
            process.address()
            at = ("--data", str(process.data))
            assert answer("runs", "result", "w", *at) == {"paid": None, "charged": 5}

    def test_what_is_not_there_is_said(self, tmp_path: Path) -> None:
        assert "There are no such runs." in run("runs", "list").stderr
        assert "error: run_not_found: there is no run of the workflow id 'nobody'." in refused(
            1, "runs", "show", "nobody"
        )
        told = json.loads(run("runs", "cancel", "nobody", "--json").stderr.splitlines()[-1])
        assert told["error"]["code"] == "run_not_found"

    def test_the_client_says_that_no_host_runs(self, tmp_path: Path) -> None:
        with pytest.raises(IiiError, match="no host is running") as failed:
            asyncio.run(Client.local(tmp_path).describe("w"))
        assert failed.value.code == "host_unreachable"
