"""What has to be done after a run was closed, however often its host dies before it is done."""

from __future__ import annotations

from iii_runtime.core.errors import IiiError
from iii_runtime.core.payload import Json
from iii_runtime.core.runs.record import RunRecord
from iii_runtime.engine.enqueue import Enqueue, Enqueuer
from iii_runtime.engine.runs.endings import told
from iii_runtime.engine.runs.journal import Journal
from iii_runtime.ports.run_store import RunStore

ON_FAILURE = "on_failure "
DEFAULT_QUEUE = "default"


class Duties:
    """Does the duties of closed runs. Each may be done twice, with the same effect as once."""

    def __init__(self, runs: RunStore, journal: Journal, enqueuer: Enqueuer) -> None:
        self._runs = runs
        self._journal = journal
        self._enqueuer = enqueuer

    async def do(self, record: RunRecord) -> None:
        """Do all of them, then forget them.

        Raises:
            StoreError: They stay, and are done at the next wake.
            EnqueueError: The same.
        """
        for duty in record.duties:
            if not duty.startswith(ON_FAILURE):
                raise IiiError(f"run '{record.workflow_id}' has an unknown duty: {duty!r:.80}", code="duty_unknown")
            await self._tell(record, duty.removeprefix(ON_FAILURE))
        await self._runs.finish_duties(record)

    async def _tell(self, record: RunRecord, function_id: str) -> None:
        outcome = "null" if record.outcome is None else record.outcome
        payload: Json = {
            "workflow": record.workflow,
            "workflow_id": record.workflow_id,
            "run_id": record.run_id,
            "status": record.status,
            "error": told(await self._journal.value(record, outcome)),
        }
        request = Enqueue(
            queue=DEFAULT_QUEUE,
            function_id=function_id,
            payload=payload,
            dedupe_id=f"{record.run_id}.on_failure",
            traceparent=record.traceparent,
        )
        await self._enqueuer.enqueue(request)
