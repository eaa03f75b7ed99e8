"""A disk that is really full: what was accepted is kept, the rest is refused, and work goes on once there is space."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iii_runtime import EnqueueError, InvocationError, Worker, register_worker
from iii_runtime.adapters.embedded.queue_store import SqliteMessageQueue
from iii_runtime.core.config import Config
from iii_runtime.testing import Harness

LOTS = "x" * 100_000


async def set_room(harness: Harness, pages: int) -> None:
    """Let the file grow by so many pages of 4 KiB and no further."""
    queue = harness.stores.queue
    assert isinstance(queue, SqliteMessageQueue)

    def limit(connection: Any) -> None:
        (count,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {count + pages}").fetchone()

    await queue._database.write(limit)


async def enqueue(harness: Harness, payload: Any) -> Any:
    action = {"type": "enqueue", "queue": "default", "delay": 1}  # so that none makes room for the next one
    return await harness.trigger({"function_id": "work::do", "payload": payload, "action": action})


async def test_what_fits_is_accepted_the_rest_refused_and_nothing_accepted_is_lost(tmp_path: Path) -> None:
    worker: Worker = register_worker(worker_name="full")
    seen: list[int] = []
    worker.register_function("work::do", lambda data: seen.append(data["n"]))
    accepted: list[int] = []
    async with Harness([worker], config=Config(), store="embedded", data=tmp_path / "data") as harness:
        await set_room(harness, 400)
        refused: list[EnqueueError] = []
        for number in range(30):
            try:
                await enqueue(harness, {"n": number, "fill": LOTS})
                accepted.append(number)
            except EnqueueError as error:
                refused.append(error)
        assert accepted
        assert refused
        assert {error.reason for error in refused} == {"enqueue_failed"}
        assert all("store_full" in error.message for error in refused)
        await set_room(harness, 10_000)
        await harness.settle()
        assert sorted(seen) == accepted


async def test_reading_goes_on_and_a_refused_write_leaves_the_old_value(tmp_path: Path) -> None:
    worker = register_worker(worker_name="full")
    async with Harness([worker], config=Config(), store="embedded", data=tmp_path / "data") as harness:

        async def call(function_id: str, **payload: Any) -> Any:
            return await harness.trigger({"function_id": function_id, "payload": payload})

        await call("state::set", scope="s", key="k", value="old")
        await set_room(harness, 2)
        codes = []
        for number in range(5):
            try:
                await call("state::set", scope="s", key=f"k{number}", value=LOTS)
            except InvocationError as error:
                codes.append((error.code, "store_full" in error.message))
        assert codes == [("SET_ERROR", True)] * 5
        assert await call("state::list", scope="s") == ["old"]
        await set_room(harness, 1_000)
        await call("state::set", scope="s", key="k", value="new")
        assert await call("state::get", scope="s", key="k") == "new"
