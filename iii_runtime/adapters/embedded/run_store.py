"""Durable runs as rows: each operation reads the record, decides and writes it within one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace as changed
from functools import partial
from typing import NamedTuple, TypeAlias

from iii_runtime.adapters.embedded import run_rows as rows
from iii_runtime.adapters.embedded.blob_store import FileBlobStore
from iii_runtime.adapters.embedded.change_feed import append_change
from iii_runtime.adapters.embedded.database import Database
from iii_runtime.adapters.embedded.kept_value import KeptValue
from iii_runtime.core.errors import StoreError
from iii_runtime.core.message import INLINE_LIMIT
from iii_runtime.core.payload import render_json
from iii_runtime.core.runs import transitions
from iii_runtime.core.runs.events import run_change
from iii_runtime.core.runs.record import InboxItem, RunRecord
from iii_runtime.ports.clock import Clock
from iii_runtime.ports.run_store import Closing, Done, Held, Lease, Refused, RunQuery, Written

Transition: TypeAlias = Callable[[RunRecord | None], Written]


class _Outcome(NamedTuple):
    """What an operation answers, and what it has changed: the run, and the change feed."""

    written: Written
    is_changed: bool = False
    is_published: bool = False


_PUT_PAYLOAD = "REPLACE INTO run_payload (workflow_id, name, written_ms, text, blob) VALUES (?, ?, ?, ?, ?)"
_GET_PAYLOAD = "SELECT text, blob FROM run_payload WHERE workflow_id = ? AND name = ?"


class SqliteRunStore:
    """Runs, their journals and payloads. A write and its change of the stream `runs` are one transaction."""

    def __init__(
        self,
        database: Database,
        blobs: FileBlobStore,
        clock: Clock,
        *,
        on_run: Callable[[str], None] = lambda _workflow_id: None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Have listeners called on the event loop after each commit.

        Args:
            database: Where the rows are.
            blobs: Where large payloads are.
            clock: Time of the changes.
            on_run: Called with a workflow id: its run has changed, and may have become due.
            on_change: Called when the change feed has grown.
        """
        self._database = database
        self._blobs = blobs
        self._clock = clock
        self._on_run = on_run
        self._on_change = on_change

    async def create(self, record: RunRecord) -> Written:
        """Store a new run under a workflow id that has none."""
        return await self._write(record.workflow_id, partial(transitions.create, record=record))

    async def replace(self, old: RunRecord, record: RunRecord) -> Written:
        """Store a new run in place of a closed one, which becomes history; all in one step."""
        now_ms = self._clock.now_ms()

        def op(connection: sqlite3.Connection) -> _Outcome:
            was_there = rows.is_earlier(connection, record.workflow_id, record.run_id)
            transition = partial(transitions.replace, old=old, record=record, was_there=was_there)
            return _apply(connection, record.workflow_id, transition, (), now_ms)

        return await self._tell(record.workflow_id, op)

    async def acquire(self, workflow_id: str, lease: Lease, now_ms: int, *, is_redelivery: bool = False) -> Written:
        """Take an open run whose lease has ended or whose wake is due."""
        transition = partial(transitions.acquire, lease=lease, now_ms=now_ms, is_redelivery=is_redelivery)
        return await self._write(workflow_id, transition)

    async def guard(self, record: RunRecord) -> Written:
        """Make the end of the lease the wake of a run that somebody holds without one."""
        return await self._write(record.workflow_id, partial(transitions.guard, record=record))

    async def append(self, held: Held, facts: Sequence[str], *, lease_until_ms: int, guard: bool = False) -> Written:
        """Add facts to the journal and renew the lease."""
        texts = tuple(facts)
        transition = partial(transitions.append, held=held, facts=texts, lease_until_ms=lease_until_ms, guard=guard)
        return await self._write(held.workflow_id, transition, texts)

    async def suspend(self, held: Held, facts: Sequence[str], *, wake_at_ms: int | None) -> Written:
        """Add facts and give the run back until `wake_at_ms`."""
        texts = tuple(facts)
        transition = partial(transitions.suspend, held=held, facts=texts, wake_at_ms=wake_at_ms)
        return await self._write(held.workflow_id, transition, texts)

    async def close(self, held: Held, facts: Sequence[str], closing: Closing) -> Written:
        """End the run for good, with its last facts."""
        texts = tuple(facts)
        return await self._write(
            held.workflow_id, partial(transitions.close, held=held, facts=texts, closing=closing), texts
        )

    async def finish_duties(self, record: RunRecord) -> Written:
        """Forget the duties of a closed run, and its wake."""
        return await self._write(record.workflow_id, partial(transitions.finish_duties, record=record))

    async def deliver(self, workflow_id: str, item: InboxItem, now_ms: int, *, run_id: str | None = None) -> Written:
        """Append an item to the inbox of an open run and make its wake due."""
        return await self._write(workflow_id, partial(transitions.deliver, item=item, now_ms=now_ms, run_id=run_id))

    async def terminate(self, workflow_id: str, closing: Closing, *, run_id: str | None = None) -> Written:
        """End an open run at once, whoever holds it."""
        return await self._write(workflow_id, partial(transitions.terminate, closing=closing, run_id=run_id))

    async def park(self, held: Held, reason: str) -> Written:
        """Give the run back without a wake and say why."""
        return await self._write(held.workflow_id, partial(transitions.park, held=held, reason=reason))

    async def resume(self, workflow_id: str, now_ms: int) -> Written:
        """Make an open run due, parked or not."""
        return await self._write(workflow_id, partial(transitions.resume, now_ms=now_ms))

    async def release_all(self, now_ms: int) -> int:
        """Void the leases of an earlier process that died, all in one step; return how many."""

        def op(connection: sqlite3.Connection) -> list[str]:
            held = rows.leased(connection)
            for record in held:
                released = transitions.release(record, now_ms)
                if isinstance(released, Done):
                    rows.store(connection, record, released.record, ())
            return [record.workflow_id for record in held]

        def tell(released: list[str]) -> None:
            for workflow_id in released:
                self._on_run(workflow_id)

        released = await self._database.write(op, tell)
        return len(released)

    async def next_due_ms(self) -> int | None:
        """Return the earliest wake of all runs."""
        return await self._database.read(rows.next_due)

    async def read(self, workflow_id: str, run_id: str | None = None) -> RunRecord | None:
        """Return the record of the current run, or of that run of this workflow id."""

        def op(connection: sqlite3.Connection) -> RunRecord | None:
            record = rows.find(connection, workflow_id)
            if run_id is None or (record is not None and record.run_id == run_id):
                return record
            return rows.find_earlier(connection, workflow_id, run_id)

        return await self._database.read(op)

    async def journal(self, record: RunRecord) -> list[str]:
        """Return all facts of a run, in order."""
        return await self._database.read(lambda connection: rows.facts_of(connection, record))

    async def put_payload(self, workflow_id: str, name: str, text: str) -> None:
        """Store a payload: as a row, or as a blob if it is large."""
        blob: str | None = None
        if len(text) > INLINE_LIMIT:
            blob = f"run payload {len(workflow_id)} {workflow_id} {name}"
            await self._blobs.put(blob, text)
        row = (workflow_id, name, self._clock.now_ms(), text if blob is None else None, blob)
        await self._database.write(lambda connection: connection.execute(_PUT_PAYLOAD, row).rowcount)

    async def get_payload(self, workflow_id: str, name: str) -> str:
        """Return a payload.

        Raises:
            StoreError: `blob_missing`.
        """

        def op(connection: sqlite3.Connection) -> str | None:
            row = connection.execute(_GET_PAYLOAD, (workflow_id, name)).fetchone()
            if row is None:
                return None
            text, blob = row
            return self._blobs.load(blob) if text is None else str(text)

        text = await self._database.read(op)
        if text is None:
            raise StoreError(
                f"payload {name} of workflow id '{workflow_id}' is missing. Restore the data directory as a whole.",
                code="blob_missing",
            )
        return text

    async def due(self, until_ms: int, limit: int) -> list[tuple[str, int]]:
        """Return `(workflow id, wake)` of runs whose wake is due until then, earliest first."""
        return await self._database.read(lambda connection: rows.due(connection, until_ms, limit))

    async def list_runs(self, query: RunQuery) -> list[RunRecord]:
        """Return runs, newest first."""
        return await self._database.read(lambda connection: rows.listed(connection, query))

    async def _write(self, workflow_id: str, transition: Transition, facts: Sequence[str] = ()) -> Written:
        now_ms = self._clock.now_ms()
        return await self._tell(
            workflow_id, lambda connection: _apply(connection, workflow_id, transition, facts, now_ms)
        )

    async def _tell(self, workflow_id: str, op: Callable[[sqlite3.Connection], _Outcome]) -> Written:
        """Carry out a write and tell the listeners what it has changed."""

        def tell(outcome: _Outcome) -> None:
            if outcome.is_changed:
                self._on_run(workflow_id)
            if outcome.is_published:
                self._on_change()

        return (await self._database.write(op, tell)).written


def _apply(
    connection: sqlite3.Connection, workflow_id: str, transition: Transition, facts: Sequence[str], now_ms: int
) -> _Outcome:
    before = rows.find(connection, workflow_id)
    written = transition(before)
    if isinstance(written, Refused) or written.record is before:
        return _Outcome(written)
    after = changed(written.record, tail=()) if written.record.tail else written.record
    rows.store(connection, before, after, facts)
    is_new = before is None or before.run_id != after.run_id
    change = run_change(None if is_new else before, after, facts, now_ms)
    if change is not None:
        append_change(connection, change, KeptValue(render_json(change.data), None))
    return _Outcome(Done(after), is_changed=True, is_published=change is not None)
