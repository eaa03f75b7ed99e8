"""Runs as rows: the record of a run, and the statements about it.

The facts of a journal are rows of their own, so an append does not rewrite those before it; the `tail` of a record that
is read from a row is empty.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, TypeAlias

from iii_runtime.core.runs.record import InboxItem, RunRecord
from iii_runtime.core.runs.transitions import due_ms
from iii_runtime.ports.run_store import RunQuery


def _marks(columns: str) -> str:
    return ", ".join("?" for _ in columns.split(", "))


_FIXED = (
    "workflow_id, run_id, first_run_id, workflow, version, input, created_ms, deadline_ms, start_at_ms, traceparent"
)
_MOVING = (
    "epoch, owner, lease_until_ms, wake_at_ms, inbox, sequence, cancel_requested_ms, acquisitions, parked, duties, "
    "due_ms"
)
_FINAL = "status, outcome, closed_ms"
COLUMNS = f"{_FIXED}, {_MOVING}, {_FINAL}"

_FIND = f"SELECT {COLUMNS} FROM run WHERE workflow_id = ?"  # noqa: S608 - constants only, here and below
_FIND_EARLIER = f"SELECT {COLUMNS} FROM run_history WHERE workflow_id = ? AND run_id = ?"  # noqa: S608
_IS_EARLIER = "SELECT 1 FROM run_history WHERE workflow_id = ? AND run_id = ?"
_PUT = f"REPLACE INTO run ({COLUMNS}) VALUES ({_marks(COLUMNS)})"  # noqa: S608
_ARCHIVE = f"INSERT INTO run_history ({COLUMNS}) SELECT {COLUMNS} FROM run WHERE workflow_id = ?"  # noqa: S608
_UPDATE = f"UPDATE run SET ({_MOVING}) = ({_marks(_MOVING)}) WHERE workflow_id = ?"  # noqa: S608
_END = "UPDATE run SET (status, outcome, closed_ms) = (?, ?, ?) WHERE workflow_id = ?"
_ADD_FACT = "INSERT INTO run_fact (workflow_id, run_id, number, fact) VALUES (?, ?, ?, ?)"
_FACTS = "SELECT fact FROM run_fact WHERE workflow_id = ? AND run_id = ? AND number < ? ORDER BY number"
_DUE = "SELECT workflow_id, due_ms FROM run WHERE due_ms <= ? ORDER BY due_ms, workflow_id LIMIT ?"
_NEXT_DUE = "SELECT due_ms FROM run WHERE due_ms IS NOT NULL ORDER BY due_ms LIMIT 1"
_LEASED = f"SELECT {COLUMNS} FROM run WHERE status = 'running' AND lease_until_ms IS NOT NULL"  # noqa: S608

Row: TypeAlias = tuple[Any, ...]


def find(connection: sqlite3.Connection, workflow_id: str) -> RunRecord | None:
    """Return the current run of a workflow id."""
    row = connection.execute(_FIND, (workflow_id,)).fetchone()
    return None if row is None else _record(row)


def find_earlier(connection: sqlite3.Connection, workflow_id: str, run_id: str) -> RunRecord | None:
    """Return an earlier run of a workflow id."""
    row = connection.execute(_FIND_EARLIER, (workflow_id, run_id)).fetchone()
    return None if row is None else _record(row)


def is_earlier(connection: sqlite3.Connection, workflow_id: str, run_id: str) -> bool:
    """Return whether a run is history."""
    return connection.execute(_IS_EARLIER, (workflow_id, run_id)).fetchone() is not None


def store(connection: sqlite3.Connection, before: RunRecord | None, after: RunRecord, facts: Sequence[str]) -> None:
    """Write what has become of a run, and the facts that were added to its journal."""
    workflow_id, run_id = after.workflow_id, after.run_id
    if before is None or before.run_id != run_id:
        if before is not None:
            connection.execute(_ARCHIVE, (workflow_id,))
        connection.execute(_PUT, (*_fixed(after), *_moving(after), after.status, after.outcome, after.closed_ms))
    else:
        connection.execute(_UPDATE, (*_moving(after), workflow_id))
        if before.status != after.status:
            connection.execute(_END, (after.status, after.outcome, after.closed_ms, workflow_id))
    first = after.sequence - len(facts)
    for number, fact in enumerate(facts, first):
        connection.execute(_ADD_FACT, (workflow_id, run_id, number, fact))


def facts_of(connection: sqlite3.Connection, record: RunRecord) -> list[str]:
    """Return the facts of a run, as many as its record counts."""
    return [fact for (fact,) in connection.execute(_FACTS, (record.workflow_id, record.run_id, record.sequence))]


def leased(connection: sqlite3.Connection) -> list[RunRecord]:
    """Return the runs that somebody holds."""
    return [_record(row) for row in connection.execute(_LEASED).fetchall()]


def due(connection: sqlite3.Connection, until_ms: int, limit: int) -> list[tuple[str, int]]:
    """Return the workflow ids of runs that are due, and since when, earliest first."""
    return [(workflow_id, at_ms) for workflow_id, at_ms in connection.execute(_DUE, (until_ms, limit))]


def next_due(connection: sqlite3.Connection) -> int | None:
    """Return when the next run is due."""
    row = connection.execute(_NEXT_DUE).fetchone()
    return None if row is None else int(row[0])


def listed(connection: sqlite3.Connection, query: RunQuery) -> list[RunRecord]:
    """Return the newest runs that match, newest first. Each table gives as many as are asked for, from an index."""
    wanted = {
        "workflow = ?": query.workflow,
        "status = ?": query.status,
        "workflow_id = ?": query.workflow_id,
        "created_ms < ?": query.before_ms,
    }
    conditions = [name for name, value in wanted.items() if value is not None]
    values = [value for value in wanted.values() if value is not None]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    found: list[RunRecord] = []
    for table in ("run", "run_history"):
        statement = f"SELECT {COLUMNS} FROM {table} {where} ORDER BY created_ms DESC, workflow_id DESC LIMIT ?"  # noqa: S608
        found += [_record(row) for row in connection.execute(statement, (*values, query.limit))]
    found.sort(key=lambda record: (record.created_ms, record.workflow_id), reverse=True)
    return found[: query.limit]


def _fixed(record: RunRecord) -> Row:
    return (
        record.workflow_id,
        record.run_id,
        record.first_run_id,
        record.workflow,
        record.version,
        record.input,
        record.created_ms,
        record.deadline_ms,
        record.start_at_ms,
        record.traceparent,
    )


def _moving(record: RunRecord) -> Row:
    inbox = [(item.id, item.kind, item.at_ms, item.name, item.payload) for item in record.inbox]
    return (
        record.epoch,
        record.owner,
        record.lease_until_ms,
        record.wake_at_ms,
        json.dumps(inbox) if inbox else None,
        record.sequence,
        record.cancel_requested_ms,
        record.acquisitions,
        record.parked,
        json.dumps(record.duties) if record.duties else None,
        due_ms(record),
    )


def _record(row: Row) -> RunRecord:
    (workflow_id, run_id, first_run_id, workflow, version, input_text, created_ms, deadline_ms, start_at_ms) = row[:9]
    (traceparent, epoch, owner, lease_until_ms, wake_at_ms, inbox, sequence, cancel_requested_ms) = row[9:17]
    (acquisitions, parked, duties, _, status, outcome, closed_ms) = row[17:]
    return RunRecord(
        workflow_id=workflow_id,
        run_id=run_id,
        first_run_id=first_run_id,
        workflow=workflow,
        status=status,
        version=version,
        input=input_text,
        created_ms=created_ms,
        epoch=epoch,
        owner=owner,
        lease_until_ms=lease_until_ms,
        wake_at_ms=wake_at_ms,
        inbox=() if inbox is None else tuple(_item(*fields) for fields in json.loads(inbox)),
        sequence=sequence,
        cancel_requested_ms=cancel_requested_ms,
        acquisitions=acquisitions,
        deadline_ms=deadline_ms,
        parked=parked,
        outcome=outcome,
        closed_ms=closed_ms,
        duties=() if duties is None else tuple(json.loads(duties)),
        start_at_ms=start_at_ms,
        traceparent=traceparent,
    )


def _item(item_id: str, kind: Any, at_ms: int, name: str, payload: str) -> InboxItem:
    return InboxItem(id=item_id, kind=kind, at_ms=at_ms, name=name, payload=payload)
