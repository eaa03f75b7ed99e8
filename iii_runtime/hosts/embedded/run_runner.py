"""Executes durable runs in this process: those that are due, up to a limit, each once at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from iii_runtime.core.errors import IiiError, StoreError
from iii_runtime.core.runs.record import RunRecord
from iii_runtime.engine.runs.duties import Duties
from iii_runtime.engine.runs.executor import RunExecutor
from iii_runtime.engine.runs.verdict import Closed, Verdict
from iii_runtime.ports.clock import Clock
from iii_runtime.ports.run_store import Lease, RunStore

_log = logging.getLogger("iii_runtime.run")
_STORE_PAUSE = timedelta(seconds=1)
DEFAULT_MAX_CONCURRENT_RUNS = 1000


class RunRunner:
    """A `RunDispatch` for a process that is the only host of its store.

    Args:
        runs: The store.
        executor: Executes a run.
        duties: Does what a closed run has left.
        clock: Where the time comes from.
        limit: How many runs are executed at the same time; the others wait, which holds nothing.
    """

    def __init__(
        self,
        runs: RunStore,
        executor: RunExecutor,
        duties: Duties,
        clock: Clock,
        *,
        limit: int = DEFAULT_MAX_CONCURRENT_RUNS,
    ) -> None:
        self._runs = runs
        self._executor = executor
        self._duties = duties
        self._clock = clock
        self._limit = limit
        self._active: dict[str, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._rested = asyncio.Event()
        self._watches: dict[str, list[_Watch]] = {}
        self._looking = True
        self._stopping = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is executed and nothing new is being looked for."""
        return not self._active and not self._looking and (self._stopping or not self._wake.is_set())

    def lease(self) -> Lease | None:
        """Return a lease for a run that is created now; None while as many are executed as may be."""
        return self._executor.lease() if self._has_room else None

    def begin(self, record: RunRecord) -> None:
        """Execute a run that was created with such a lease."""
        self._start(record.workflow_id, lambda: self._executor.execute(record))

    async def wake(self, record: RunRecord) -> None:
        """Look at a run: at once if it is due, or by whoever executes it."""
        self._tell(record.workflow_id)
        if not self._executor.nudge(record.workflow_id):
            self._wake.set()

    def look(self) -> None:
        """Look for due runs now."""
        self._wake.set()

    async def release_all(self) -> int:
        """Let the runs go on that an earlier process has left; return how many."""
        return await self._runs.release_all(self._clock.now_ms())

    @contextmanager
    def watch(self, workflow_id: str) -> Iterator[_Watch]:
        """Take note of the ends of a run's executions, from now until the block ends."""
        watch = _Watch(self._clock)
        watches = self._watches.setdefault(workflow_id, [])
        watches.append(watch)
        try:
            yield watch
        finally:
            watches.remove(watch)
            if not watches and self._watches.get(workflow_id) is watches:
                del self._watches[workflow_id]

    async def settle(self) -> None:
        """Return when it is idle. What is due later does not count."""
        while not self.is_idle:
            self._rested.clear()
            await self._rested.wait()

    async def run(self) -> None:
        """Execute what is due until `stop`."""
        while not self._stopping:
            self._looking = True
            self._wake.clear()
            try:
                until_ms = await self._look()
            except StoreError as error:
                _log.error("cannot look for due runs", extra={"iii": {"error": error.message}})
                until_ms = self._clock.now_ms() + round(_STORE_PAUSE / timedelta(milliseconds=1))
            self._looking = False
            self._rested.set()
            await self._wait(until_ms)
        self._looking = False
        self._rested.set()

    async def stop(self, grace: timedelta) -> int:
        """Start nothing more, wait for what is executed at most `grace`, and return how many were given up.

        A run given up keeps its lease until the next start voids it: it goes on then.
        """
        self._stopping = True
        self._wake.set()
        tasks = set(self._active.values())
        if not tasks:
            return 0
        _, pending = await asyncio.wait(tasks, timeout=grace.total_seconds())
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        return len(pending)

    @property
    def _has_room(self) -> bool:
        return not self._stopping and len(self._active) < self._limit

    async def _look(self) -> int | None:
        """Start what is due; return when to look again, None if something will wake this runner."""
        if not self._has_room:
            return None
        due = await self._runs.due(self._clock.now_ms(), self._limit)
        free = self._limit - len(self._active)
        for workflow_id, _ in due:
            if free > 0 and workflow_id not in self._active:
                free -= 1
                self._start(workflow_id, self._waking(workflow_id))
        if due:
            return None  # the end of each execution makes this runner look again
        return await self._runs.next_due_ms()

    def _waking(self, workflow_id: str) -> Callable[[], Coroutine[Any, Any, Verdict]]:
        return lambda: self._executor.wake(workflow_id)

    def _start(self, workflow_id: str, work: Callable[[], Coroutine[Any, Any, Verdict]]) -> None:
        self._active[workflow_id] = asyncio.create_task(self._execute(workflow_id, work), name=f"run {workflow_id}")

    async def _execute(self, workflow_id: str, work: Callable[[], Coroutine[Any, Any, Verdict]]) -> None:
        fields = {"workflow_id": workflow_id}
        try:
            verdict = await work()
            if isinstance(verdict, Closed):
                self._tell(workflow_id)
                if verdict.record.duties:
                    await self._duties.do(verdict.record)
        except IiiError as error:
            _log.error(
                "a run could not go on; its lease ends by itself", extra={"iii": {**fields, "error": str(error)}}
            )
        except Exception:  # noqa: BLE001 - whatever the defect is, the other runs go on
            _log.exception("a run could not go on; its lease ends by itself", extra={"iii": fields})
        finally:
            if self._active.get(workflow_id) is asyncio.current_task():
                del self._active[workflow_id]
            self._tell(workflow_id)
            self._wake.set()
            if not self._active:
                self._rested.set()

    def _tell(self, workflow_id: str) -> None:
        for watch in self._watches.get(workflow_id, ()):
            watch.note()

    async def _wait(self, until_ms: int | None) -> None:
        await _first(self._wake, until_ms, self._clock)


class _Watch:
    """A `RunWatch`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._noted = asyncio.Event()

    def note(self) -> None:
        self._noted.set()

    async def changed(self, until_ms: int) -> None:
        await _first(self._noted, until_ms, self._clock)
        self._noted.clear()


async def _first(event: asyncio.Event, until_ms: int | None, clock: Clock) -> None:
    """Return when the event is set, or at `until_ms`."""
    if event.is_set():
        return
    waits: set[asyncio.Task[Any]] = {asyncio.create_task(event.wait())}
    if until_ms is not None:
        waits.add(asyncio.create_task(clock.sleep_until(datetime.fromtimestamp(until_ms / 1000, UTC))))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
