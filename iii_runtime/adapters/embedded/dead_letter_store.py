"""Dead letters as rows, in the order of their deaths."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import NamedTuple, cast

from iii_runtime.adapters.embedded.database import Database
from iii_runtime.adapters.embedded.queue_rows import NewMessage, insert
from iii_runtime.core.letter import (
    Death,
    ErrorLog,
    Letter,
    body_of_redriven,
    decode_errors,
    encode_errors,
    error_from_json,
)
from iii_runtime.core.message import Cause
from iii_runtime.core.payload import Json, decode_stored, encode_json
from iii_runtime.core.queue import QueueSpec
from iii_runtime.core.regroup import regroup
from iii_runtime.ports.clock import Clock
from iii_runtime.ports.dead_letter import DeadLetter

_INSERT = (
    "REPLACE INTO q_letter (queue, receipt, fn, g, cause, error, errors, attempts, receives, first_ms, failed_ms, "
    "size, blob, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_COLUMNS = "receipt, queue, fn, g, cause, error, errors, attempts, receives, first_ms, failed_ms, size, body"
LIST = f"SELECT {_COLUMNS} FROM q_letter WHERE queue = ? ORDER BY died LIMIT ? OFFSET ?"  # noqa: S608 - constants only
_GET = f"SELECT {_COLUMNS} FROM q_letter WHERE receipt = ?"  # noqa: S608
_TAKE = "DELETE FROM q_letter WHERE queue = ? AND receipt = ? RETURNING g, first_ms, blob, body"
_RECEIPTS = "SELECT receipt FROM q_letter WHERE queue = ? ORDER BY died"


class _Row(NamedTuple):
    """The columns of `_COLUMNS`."""

    receipt: str
    queue: str
    function_id: str | None
    generation: int
    cause: Cause
    error: str
    errors: str | None
    attempts: int
    receives: int
    first_ms: int
    failed_ms: int
    size_bytes: int
    letter: str


class SqliteDeadLetterStore:
    """The dead letters of all queues."""

    def __init__(
        self, database: Database, clock: Clock, on_message: Callable[[str], None] = lambda _queue_name: None
    ) -> None:
        """Call `on_message` on the event loop after each redrive, with the name of the queue."""
        self._database = database
        self._clock = clock
        self._on_message = on_message

    async def list_letters(self, queue_name: str, offset: int, limit: int) -> list[DeadLetter]:
        """Return letters of one queue, oldest death first."""
        return await self._database.read(
            lambda connection: [
                _letter(_Row._make(row)) for row in connection.execute(LIST, (queue_name, limit, offset)).fetchall()
            ]
        )

    async def count(self, queue_name: str) -> int:
        """Return how many letters `list_letters` would return in all."""
        query = "SELECT count(*) FROM q_letter WHERE queue = ?"
        return await self._database.read(lambda connection: int(connection.execute(query, (queue_name,)).fetchone()[0]))

    async def get(self, receipt: str) -> DeadLetter | None:
        """Return one letter of any queue; None if there is no such letter now."""

        def op(connection: sqlite3.Connection) -> DeadLetter | None:
            row = connection.execute(_GET, (receipt,)).fetchone()
            return None if row is None else _letter(_Row._make(row))

        return await self._database.read(op)

    async def redrive(self, queue: QueueSpec, receipt: str) -> bool:
        """Put one letter back as a new generation, in one step; False if it is no letter of this queue."""
        now_ms = self._clock.now_ms()
        return await self._database.write(
            lambda connection: _redrive(connection, queue, receipt, now_ms), lambda _: self._on_message(queue.name)
        )

    async def redrive_all(self, queue: QueueSpec) -> int:
        """Redrive the letters present at the start, oldest first; return how many. All in one step."""
        now_ms = self._clock.now_ms()

        def op(connection: sqlite3.Connection) -> int:
            receipts = connection.execute(_RECEIPTS, (queue.name,)).fetchall()
            return sum(_redrive(connection, queue, receipt, now_ms) for (receipt,) in receipts)

        return await self._database.write(op, lambda _: self._on_message(queue.name))

    async def discard(self, queue_name: str, receipt: str) -> bool:
        """End one letter for good; False if it is no letter of this queue."""
        query = "DELETE FROM q_letter WHERE queue = ? AND receipt = ?"
        return await self._database.write(
            lambda connection: connection.execute(query, (queue_name, receipt)).rowcount > 0
        )

    async def discard_all(self, queue_name: str) -> int:
        """Discard the letters present at the start; return how many."""
        query = "DELETE FROM q_letter WHERE queue = ?"
        return await self._database.write(lambda connection: connection.execute(query, (queue_name,)).rowcount)


def insert_letter(
    connection: sqlite3.Connection, death: Death, letter: Letter, errors: ErrorLog, blob: str | None
) -> None:
    """Add a letter, in the transaction that removes its message. It replaces an older one of the same receipt."""
    connection.execute(
        _INSERT,
        (
            death.queue,
            death.receipt,
            letter.function_id,
            death.generation,
            death.cause,
            encode_json(death.error.to_json(), "error"),
            encode_errors(errors),
            death.attempts,
            death.receives,
            death.first_ms,
            death.failed_ms,
            letter.size_bytes,
            blob,
            letter.text,
        ),
    )


def _redrive(connection: sqlite3.Connection, queue: QueueSpec, receipt: str, now_ms: int) -> bool:
    taken = connection.execute(_TAKE, (queue.name, receipt)).fetchall()
    for generation, first_ms, blob, letter in taken:
        body = body_of_redriven(letter)
        new = NewMessage(
            queue=queue.name,
            group=regroup(body, receipt, queue),
            receipt=receipt,
            generation=generation + 1,
            ready_at=now_ms,
            first_ms=first_ms,
            blob=blob,
            body=body,
        )
        insert(connection, new)
    return bool(taken)


def _letter(row: _Row) -> DeadLetter:
    return DeadLetter(
        receipt=row.receipt,
        queue=row.queue,
        function_id=row.function_id,
        generation=row.generation,
        cause=row.cause,
        error=error_from_json(cast("dict[str, Json]", decode_stored(row.error))),
        errors=decode_errors(row.errors),
        attempts=row.attempts,
        receives=row.receives,
        first_ms=row.first_ms,
        failed_ms=row.failed_ms,
        size_bytes=row.size_bytes,
        letter=row.letter,
    )
