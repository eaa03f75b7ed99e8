"""How closed runs are forgotten: in steps of a bounded number of rows, each one transaction."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple, TypeAlias

from iii_runtime.adapters.embedded.queue_rows import milliseconds
from iii_runtime.ports.run_store import CLOSED_RUN_RETENTION

PayloadPlace: TypeAlias = tuple[int, str, str]

START: PayloadPlace = (-1, "", "")
"""Before the first payload."""

_EXPIRED = (
    "SELECT workflow_id, run_id FROM {table} WHERE closed_ms <= ? AND duties IS NULL "
    "ORDER BY closed_ms, workflow_id LIMIT ?"
)
_REMOVE_FACTS = (
    "DELETE FROM run_fact WHERE (workflow_id, run_id, number) IN "
    "(SELECT workflow_id, run_id, number FROM run_fact WHERE workflow_id = ? AND run_id = ? LIMIT ?)"
)
_REMOVE_RUN = "DELETE FROM {table} WHERE workflow_id = ? AND run_id = ?"
_OLD_PAYLOADS = (
    "SELECT written_ms, workflow_id, name FROM run_payload WHERE written_ms <= ? AND (written_ms, workflow_id, name) > "
    "(?, ?, ?) ORDER BY written_ms, workflow_id, name LIMIT ?"
)
_MAY_LINK = "workflow_id = :id AND (created_ms <= :latest OR run_id <> first_run_id)"
_MAY_BE_LINKED = (
    f"SELECT EXISTS (SELECT 1 FROM run WHERE {_MAY_LINK}) OR EXISTS (SELECT 1 FROM run_history WHERE {_MAY_LINK})"  # noqa: S608
)
_REMOVE_PAYLOAD = "DELETE FROM run_payload WHERE workflow_id = ? AND name = ?"


class RunStep(NamedTuple):
    """What one step removed, and whether nothing is left to remove."""

    runs: int
    is_done: bool


class PayloadStep(NamedTuple):
    """What one step removed, and behind which payload the next one begins; None if it was the last."""

    removed: int
    after: PayloadPlace | None


def remove_closed_runs(connection: sqlite3.Connection, until_ms: int, limit: int) -> RunStep:
    """Remove up to `limit` rows of runs that ended until then and have nothing left to do, the oldest first.

    The facts of a run go before its record, so none is left without it.
    """
    removed, room = 0, limit
    for table in ("run", "run_history"):
        for workflow_id, run_id in connection.execute(_EXPIRED.format(table=table), (until_ms, limit)).fetchall():
            room -= connection.execute(_REMOVE_FACTS, (workflow_id, run_id, room)).rowcount
            if room <= 0:
                return RunStep(removed, is_done=False)
            connection.execute(_REMOVE_RUN.format(table=table), (workflow_id, run_id))
            removed, room = removed + 1, room - 1
            if room <= 0:
                return RunStep(removed, is_done=False)
    return RunStep(removed, is_done=True)


def remove_payloads(connection: sqlite3.Connection, after: PayloadPlace, until_ms: int, limit: int) -> PayloadStep:
    """Look at up to `limit` payloads that were written until then, and remove those that no run can refer to.

    A payload is written before what refers to it, at most the life of a start message earlier, which is shorter than
    runs are kept. So a payload is no more needed once all runs that began before it, or that long after it, are gone.
    A run that goes on where an earlier one of its chain has stopped may refer to what that was sent, and keeps it all.
    """
    old = connection.execute(_OLD_PAYLOADS, (until_ms, *after, limit)).fetchall()
    retention_ms = milliseconds(CLOSED_RUN_RETENTION)
    removed = 0
    for written_ms, workflow_id, name in old:
        ids = {"id": workflow_id, "latest": written_ms + retention_ms}
        if not connection.execute(_MAY_BE_LINKED, ids).fetchone()[0]:
            removed += connection.execute(_REMOVE_PAYLOAD, (workflow_id, name)).rowcount
    return PayloadStep(removed, tuple(old[-1]) if len(old) == limit else None)
