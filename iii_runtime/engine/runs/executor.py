"""Taking runs and executing them: what a wake leads to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from iii_runtime.core.payload import Json
from iii_runtime.core.registry import FunctionSpec
from iii_runtime.core.runs.errors import QueryError, WorkflowDivergedError
from iii_runtime.core.runs.facts import Fact
from iii_runtime.core.runs.record import RunRecord
from iii_runtime.core.workflow.machine import Machine
from iii_runtime.engine.app import App
from iii_runtime.engine.runs.attempts import Attempts
from iii_runtime.engine.runs.execution import Execution, Limits, Tools
from iii_runtime.engine.runs.journal import Journal
from iii_runtime.engine.runs.verdict import Closed, Lost, NotDue, Parked, Verdict
from iii_runtime.engine.stores import Stores
from iii_runtime.ports.run_store import Done, Held, Lease, RunStore

_log = logging.getLogger("iii_runtime.run")
_SKEW_MS = 2000
"""A wake so little ahead is this host's clock being late."""
MAX_ACQUISITIONS = 10
"""How often a run is taken without progress before it is put aside: it kills whoever runs it."""


class RunExecutor:
    """Executes runs, one at a time each, here.

    Args:
        app: Where workflows are registered.
        stores: The ports.
        attempts: Runs bodies of steps.
        limits: How long an execution goes on.
    """

    def __init__(self, app: App, stores: Stores, runs: RunStore, attempts: Attempts, limits: Limits) -> None:
        self._app = app
        self._stores = stores
        self._runs = runs
        self._limits = limits
        self._journal = Journal(runs)
        self._tools = Tools(runs=runs, clock=stores.clock, journal=self._journal, attempts=attempts, limits=limits)
        self._active: dict[str, Execution] = {}

    def lease(self) -> Lease:
        """Return a lease for a run that is taken now."""
        until_ms = self._stores.clock.now_ms() + self._limits.lease // timedelta(milliseconds=1)
        return Lease(owner=self._stores.ids.new_id(), until_ms=until_ms)

    def nudge(self, workflow_id: str) -> bool:
        """Tell the execution of a run that something was delivered; return whether one goes on here."""
        execution = self._active.get(workflow_id)
        if execution is None:
            return False
        execution.nudge()
        return True

    async def wake(self, workflow_id: str, *, is_redelivery: bool = False) -> Verdict:
        """Take a run, if it is free and due, and execute it."""
        now_ms = self._stores.clock.now_ms()
        taken = await self._runs.acquire(workflow_id, self.lease(), now_ms, is_redelivery=is_redelivery)
        if isinstance(taken, Done):
            return await self.execute(taken.record)
        return await self._refused(taken.record, now_ms)

    async def execute(self, record: RunRecord) -> Verdict:
        """Execute a run that was taken, or created with a lease."""
        held = Held(workflow_id=record.workflow_id, run_id=record.run_id, epoch=record.epoch, sequence=record.sequence)
        if record.acquisitions > MAX_ACQUISITIONS:
            return await self._park(held, f"taken {record.acquisitions} times without progress: it kills its host")
        function = self._app.catalog.functions.get(record.workflow)
        if function is None or function.workflow is None or function.plan is None:
            fields = {"workflow_id": record.workflow_id, "workflow": record.workflow}
            _log.error(
                "the workflow of a run is not registered; it is looked for when the lease ends", extra={"iii": fields}
            )
            return Lost()
        payload = await self._journal.value(record, record.input)
        execution = Execution(
            record, self._machines(function, record, payload), self._tools, on_failure=function.workflow.on_failure
        )
        self._active[record.workflow_id] = execution
        try:
            return await execution.run()
        finally:
            if self._active.get(record.workflow_id) is execution:
                del self._active[record.workflow_id]

    async def query(self, record: RunRecord, name: str, arguments: Sequence[Json]) -> Any:
        """Return the answer of a run's workflow, from what is stored of it.

        Raises:
            QueryError: It was not answered, or its workflow is not registered.
        """
        function = self._app.catalog.functions.get(record.workflow)
        if function is None or function.workflow is None or function.plan is None:
            raise QueryError(f"workflow '{record.workflow}' is not registered, so nobody can answer.")
        machine = self._machines(function, record, await self._journal.value(record, record.input))()
        try:
            machine.start(await self._journal.facts(record))
            return machine.query(name, arguments)
        finally:
            machine.dispose()

    async def waiting_for(self, record: RunRecord, facts: Sequence[Fact]) -> list[str] | None:
        """Return in words what an open run waits for; None if its code is not here, or does not fit its journal."""
        function = self._app.catalog.functions.get(record.workflow)
        if function is None or function.workflow is None or function.plan is None:
            return None
        machine = self._machines(function, record, await self._journal.value(record, record.input))()
        try:
            machine.start(facts)
            return machine.waiting_for()
        except WorkflowDivergedError:
            return None
        finally:
            machine.dispose()

    def _machines(self, function: FunctionSpec, record: RunRecord, payload: Json) -> Callable[[], Machine]:
        plan, options = function.plan, function.workflow
        assert plan is not None and options is not None  # noqa: S101, PT018 - looked at by the caller

        def start(ctx: object) -> object:
            return replace(plan, handler=lambda *args, **keywords: plan.handler(ctx, *args, **keywords)).bind(
                payload, "direct", None
            )()

        return lambda: Machine(
            start,
            workflow=record.workflow,
            workflow_id=record.workflow_id,
            run_id=record.run_id,
            started_ms=record.start_at_ms or record.created_ms,
            max_steps=options.max_steps,
        )

    async def _refused(self, record: RunRecord | None, now_ms: int) -> Verdict:
        if record is None:
            return NotDue()
        if not record.is_open:
            return Closed(record) if record.duties else NotDue()
        if record.lease_until_ms is not None:
            if record.wake_at_ms is not None:
                return NotDue()
            guarded = await self._runs.guard(record)
            return NotDue() if isinstance(guarded, Done) else NotDue(again_ms=now_ms)
        if record.wake_at_ms is not None and record.wake_at_ms - now_ms <= _SKEW_MS:
            return NotDue(again_ms=record.wake_at_ms)
        return NotDue()

    async def _park(self, held: Held, reason: str) -> Verdict:
        _log.error("parked", extra={"iii": {"workflow_id": held.workflow_id, "run_id": held.run_id, "error": reason}})
        written = await self._runs.park(held, reason)
        return Parked(written.record) if isinstance(written, Done) else Lost()
