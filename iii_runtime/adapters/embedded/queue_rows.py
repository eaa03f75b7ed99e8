"""The statements about messages, and the one invariant they keep.

Of each group only the message with the lowest `seq`, its head, has `visible_at`; so do all messages without a group.
Whoever removes a head calls `unblock`, in the same transaction.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from iii_runtime.core.queue import QueueSpec, release_delay
from iii_runtime.core.regroup import grouping_of, regroup
from iii_runtime.ports.message_queue import Delivery

DUE = (
    "SELECT seq, grp, receipt, g, n, rc, rc - uncounted, body FROM q_msg WHERE queue = ? AND visible_at <= ? "
    "ORDER BY visible_at, seq LIMIT ?"
)
NEXT_DUE = "SELECT visible_at FROM q_msg WHERE queue = ? AND visible_at IS NOT NULL ORDER BY visible_at LIMIT 1"
TAKE = "UPDATE q_msg SET held = 1, rc = rc + 1, visible_at = ? WHERE seq = ?"
EXTEND = "UPDATE q_msg SET visible_at = ? WHERE seq = ? AND rc = ? AND held = 1"
HIDE = "UPDATE q_msg SET held = 0, uncounted = uncounted + 1, visible_at = ? WHERE seq = ? AND rc = ? AND held = 1"
FAIL = "UPDATE q_msg SET held = 0, visible_at = ?, n = ?, errors = ? WHERE seq = ?"
HELD = (
    "SELECT seq, queue, grp, receipt, g, n, rc - uncounted, errors, first_ms, blob, body FROM q_msg "
    "WHERE seq = ? AND rc = ? AND held = 1"
)
ACKNOWLEDGE = "DELETE FROM q_msg WHERE seq = ? AND rc = ? AND held = 1 RETURNING queue, grp"
DELETE = "DELETE FROM q_msg WHERE seq = ?"
HELD_AT_START = "SELECT seq, rc - uncounted - n FROM q_msg WHERE held = 1"
RELEASE = "UPDATE q_msg SET held = 0, visible_at = ? WHERE seq = ?"
PURGE = "DELETE FROM q_msg WHERE queue = ? AND NOT (held = 1 AND visible_at > ?)"
UNBLOCK = (
    "UPDATE q_msg SET visible_at = ready_at WHERE visible_at IS NULL AND "
    "seq = (SELECT min(seq) FROM q_msg WHERE queue = ? AND grp = ?)"
)
_IS_BLOCKED = "SELECT 1 FROM q_msg WHERE queue = ? AND grp = ? LIMIT 1"
_INSERT = (
    "INSERT INTO q_msg (queue, grp, receipt, g, visible_at, ready_at, first_ms, blob, body) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
DEPTH = (
    "SELECT (SELECT count(*) FROM q_msg WHERE queue = :queue), "
    "(SELECT count(*) FROM q_msg WHERE queue = :queue AND visible_at > :now), "
    "(SELECT count(*) FROM q_msg WHERE held = 1 AND queue = :queue AND visible_at > :now), "
    "(SELECT count(*) FROM q_letter WHERE queue = :queue)"
)
_ALL = "SELECT seq FROM q_msg WHERE queue = ?"
_BODY = "SELECT receipt, body FROM q_msg WHERE seq = ?"
_REGROUP = "UPDATE q_msg SET grp = ?, ready_at = coalesce(visible_at, ready_at) WHERE seq = ?"
_HEADS = "SELECT min(seq) FROM q_msg WHERE queue = :queue AND grp IS NOT NULL GROUP BY grp"
_BLOCK = (
    "UPDATE q_msg SET visible_at = NULL, held = 0 "  # noqa: S608 - constants only
    f"WHERE queue = :queue AND grp IS NOT NULL AND seq NOT IN ({_HEADS})"
)
_FREE = (
    "UPDATE q_msg SET visible_at = ready_at "  # noqa: S608
    f"WHERE queue = :queue AND visible_at IS NULL AND (grp IS NULL OR seq IN ({_HEADS}))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to insert; instants in Unix milliseconds."""

    queue: str
    group: str | None
    receipt: str
    generation: int
    ready_at: int
    first_ms: int
    blob: str | None
    body: str


class DueRow(NamedTuple):
    """A row of `DUE`, as it is before it is taken; `receives` are the counted ones of its `rc`."""

    seq: int
    group: str | None
    receipt: str
    generation: int
    failed: int
    rc: int
    receives: int
    body: str


class HeldRow(NamedTuple):
    """A row of `HELD`; `receives` are the counted ones, the present one included."""

    seq: int
    queue: str
    group: str | None
    receipt: str
    generation: int
    failed: int
    receives: int
    errors: str | None
    first_ms: int
    blob: str | None
    body: str


def take_due(connection: sqlite3.Connection, queue: str, now_ms: int, until_ms: int, limit: int) -> list[DueRow]:
    """Put up to `limit` due messages under leases until `until_ms`, and return them as they were before."""
    found = [DueRow._make(row) for row in connection.execute(DUE, (queue, now_ms, limit)).fetchall()]
    connection.executemany(TAKE, [(until_ms, row.seq) for row in found])
    return found


def find_held(connection: sqlite3.Connection, delivery: Delivery) -> HeldRow | None:
    """Return the message if it is still held by this receive."""
    row = connection.execute(HELD, parse_handle(delivery)).fetchone()
    return None if row is None else HeldRow._make(row)


def insert(connection: sqlite3.Connection, new: NewMessage) -> None:
    """Add a message at the end of its queue and group."""
    is_blocked = new.group is not None and connection.execute(_IS_BLOCKED, (new.queue, new.group)).fetchone()
    visible_at = None if is_blocked else new.ready_at
    connection.execute(
        _INSERT,
        (
            new.queue,
            new.group,
            new.receipt,
            new.generation,
            visible_at,
            new.ready_at,
            new.first_ms,
            new.blob,
            new.body,
        ),
    )


def unblock(connection: sqlite3.Connection, queue: str, group: str | None) -> None:
    """Let the next message of a group be received, after its head was removed."""
    if group is not None:
        connection.execute(UNBLOCK, (queue, group))


def group_anew(connection: sqlite3.Connection, queue: QueueSpec) -> None:
    """Give the stored messages the groups of the present configuration, if it groups them differently than before."""
    grouping = grouping_of(queue)
    known = connection.execute("SELECT grouping FROM q_grouping WHERE queue = ?", (queue.name,)).fetchone()
    if known == (grouping,):
        return
    for (seq,) in connection.execute(_ALL, (queue.name,)).fetchall():
        receipt, body = connection.execute(_BODY, (seq,)).fetchone()
        connection.execute(_REGROUP, (regroup(body, receipt, queue), seq))
    connection.execute(_BLOCK, {"queue": queue.name})
    connection.execute(_FREE, {"queue": queue.name})
    connection.execute("REPLACE INTO q_grouping VALUES (?, ?)", (queue.name, grouping))


def release_all(connection: sqlite3.Connection, now_ms: int) -> int:
    """Give back what an earlier process held, the often interrupted later; return how many."""
    held = connection.execute(HELD_AT_START).fetchall()
    freed = [(now_ms + milliseconds(release_delay(interruptions)), seq) for seq, interruptions in held]
    connection.executemany(RELEASE, freed)
    return len(freed)


def handle_of(seq: int, rc: int) -> str:
    """Return the name of a receive."""
    return f"{seq}.{rc}"


def parse_handle(delivery: Delivery) -> tuple[int, int]:
    """Return the message and the number of its receive that a handle names."""
    seq, rc = delivery.handle.split(".")
    return int(seq), int(rc)


def milliseconds(duration: timedelta) -> int:
    """Return whole milliseconds, rounded up, so that nothing happens too early."""
    return -(-duration // timedelta(milliseconds=1))
