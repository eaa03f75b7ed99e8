"""Durable runs in a dict."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from iii_runtime.adapters.memory.change_feed import MemoryChangeFeed
from iii_runtime.core.errors import StoreError
from iii_runtime.core.runs import transitions
from iii_runtime.core.runs.events import run_change
from iii_runtime.core.runs.record import InboxItem, RunRecord
from iii_runtime.ports.clock import Clock
from iii_runtime.ports.run_store import Closing, Done, Held, Lease, Refused, RunQuery, Written


class MemoryRunStore:
    """Runs, each with its whole journal in its record. Nothing is ever removed."""

    def __init__(
        self, feed: MemoryChangeFeed, clock: Clock, on_run: Callable[[str], None] = lambda _workflow_id: None
    ) -> None:
        """Call `on_run` with a workflow id when its run has changed, and may have become due."""
        self._feed = feed
        self._clock = clock
        self._on_run = on_run
        self._runs: dict[str, RunRecord] = {}
        self._earlier: dict[tuple[str, str], RunRecord] = {}
        self._payloads: dict[tuple[str, str], str] = {}

    async def create(self, record: RunRecord) -> Written:
        """Store a new run under a workflow id that has none."""
        return self._store(record.workflow_id, transitions.create(self._runs.get(record.workflow_id), record))

    async def replace(self, old: RunRecord, record: RunRecord) -> Written:
        """Store a new run in place of a closed one, which becomes history."""
        was_there = (record.workflow_id, record.run_id) in self._earlier
        stored = self._runs.get(record.workflow_id)
        return self._store(record.workflow_id, transitions.replace(stored, old, record, was_there=was_there))

    async def acquire(self, workflow_id: str, lease: Lease, now_ms: int, *, is_redelivery: bool = False) -> Written:
        """Take an open run whose lease has ended or whose wake is due."""
        stored = self._runs.get(workflow_id)
        return self._store(workflow_id, transitions.acquire(stored, lease, now_ms, is_redelivery=is_redelivery))

    async def guard(self, record: RunRecord) -> Written:
        """Make the end of the lease the wake of a run that somebody holds without one."""
        return self._store(record.workflow_id, transitions.guard(self._runs.get(record.workflow_id), record))

    async def append(self, held: Held, facts: Sequence[str], *, lease_until_ms: int, guard: bool = False) -> Written:
        """Add facts to the journal and renew the lease."""
        stored = self._runs.get(held.workflow_id)
        written = transitions.append(stored, held, facts, lease_until_ms=lease_until_ms, guard=guard)
        return self._store(held.workflow_id, written, facts)

    async def suspend(self, held: Held, facts: Sequence[str], *, wake_at_ms: int | None) -> Written:
        """Add facts and give the run back until `wake_at_ms`."""
        stored = self._runs.get(held.workflow_id)
        return self._store(held.workflow_id, transitions.suspend(stored, held, facts, wake_at_ms=wake_at_ms), facts)

    async def close(self, held: Held, facts: Sequence[str], closing: Closing) -> Written:
        """End the run for good, with its last facts."""
        stored = self._runs.get(held.workflow_id)
        return self._store(held.workflow_id, transitions.close(stored, held, facts, closing), facts)

    async def finish_duties(self, record: RunRecord) -> Written:
        """Forget the duties of a closed run, and its wake."""
        return self._store(record.workflow_id, transitions.finish_duties(self._runs.get(record.workflow_id), record))

    async def deliver(self, workflow_id: str, item: InboxItem, now_ms: int, *, run_id: str | None = None) -> Written:
        """Append an item to the inbox of an open run and make its wake due."""
        stored = self._runs.get(workflow_id)
        return self._store(workflow_id, transitions.deliver(stored, item, now_ms, run_id=run_id))

    async def terminate(self, workflow_id: str, closing: Closing, *, run_id: str | None = None) -> Written:
        """End an open run at once, whoever holds it."""
        return self._store(workflow_id, transitions.terminate(self._runs.get(workflow_id), closing, run_id=run_id))

    async def park(self, held: Held, reason: str) -> Written:
        """Give the run back without a wake and say why."""
        return self._store(held.workflow_id, transitions.park(self._runs.get(held.workflow_id), held, reason))

    async def resume(self, workflow_id: str, now_ms: int) -> Written:
        """Make an open run due, parked or not."""
        return self._store(workflow_id, transitions.resume(self._runs.get(workflow_id), now_ms))

    async def release_all(self, now_ms: int) -> int:
        """Void all leases; return how many."""
        written = [transitions.release(stored, now_ms) for stored in self._runs.values()]
        released = [answer.record for answer in written if isinstance(answer, Done)]
        for record in released:
            self._runs[record.workflow_id] = record
            self._on_run(record.workflow_id)
        return len(released)

    async def next_due_ms(self) -> int | None:
        """Return the earliest wake of all runs."""
        return min((at_ms for _, at_ms in self._wakes()), default=None)

    async def read(self, workflow_id: str, run_id: str | None = None) -> RunRecord | None:
        """Return the record of the current run, or of that run of this workflow id."""
        stored = self._runs.get(workflow_id)
        if run_id is None or (stored is not None and stored.run_id == run_id):
            return stored
        return self._earlier.get((workflow_id, run_id))

    async def journal(self, record: RunRecord) -> list[str]:
        """Return all facts of a run, in order."""
        return list(record.tail)

    async def put_payload(self, workflow_id: str, name: str, text: str) -> None:
        """Store a payload."""
        self._payloads[workflow_id, name] = text

    async def get_payload(self, workflow_id: str, name: str) -> str:
        """Return a payload.

        Raises:
            StoreError: `blob_missing`.
        """
        text = self._payloads.get((workflow_id, name))
        if text is None:
            raise StoreError(f"payload {name} of workflow id '{workflow_id}' is missing.", code="blob_missing")
        return text

    async def due(self, until_ms: int, limit: int) -> list[tuple[str, int]]:
        """Return `(workflow id, wake)` of runs whose wake is due until then, earliest first."""
        due = [(workflow_id, at_ms) for workflow_id, at_ms in self._wakes() if at_ms <= until_ms]
        return sorted(due, key=lambda wake: (wake[1], wake[0]))[:limit]

    async def list_runs(self, query: RunQuery) -> list[RunRecord]:
        """Return runs, newest first."""
        found = [record for record in (*self._runs.values(), *self._earlier.values()) if _matches(record, query)]
        found.sort(key=lambda record: (record.created_ms, record.workflow_id), reverse=True)
        return found[: query.limit]

    def _wakes(self) -> list[tuple[str, int]]:
        wakes = ((record.workflow_id, transitions.due_ms(record)) for record in self._runs.values())
        return [(workflow_id, at_ms) for workflow_id, at_ms in wakes if at_ms is not None]

    def _store(self, workflow_id: str, written: Written, facts: Sequence[str] = ()) -> Written:
        before = self._runs.get(workflow_id)
        if isinstance(written, Refused) or written.record is before:
            return written
        after = written.record
        is_new = before is None or before.run_id != after.run_id
        change = run_change(None if is_new else before, after, facts, self._clock.now_ms())
        if before is not None and is_new:
            self._earlier[workflow_id, before.run_id] = before
        self._runs[workflow_id] = after
        if change is not None:
            self._feed.append(change)
        self._on_run(workflow_id)
        return written


def _matches(record: RunRecord, query: RunQuery) -> bool:
    return (
        query.workflow in (None, record.workflow)
        and query.status in (None, record.status)
        and query.workflow_id in (None, record.workflow_id)
        and (query.before_ms is None or record.created_ms < query.before_ms)
    )
