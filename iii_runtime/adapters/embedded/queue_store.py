"""Queues as rows: each operation is one transaction, and looks at no message that is not due."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from datetime import timedelta

from iii_runtime.adapters.embedded import queue_rows as rows
from iii_runtime.adapters.embedded.database import Database, distinct
from iii_runtime.adapters.embedded.dead_letter_store import insert_letter
from iii_runtime.adapters.embedded.queue_rows import DueRow, NewMessage, milliseconds, parse_handle
from iii_runtime.core.letter import Death, compose_letter, decode_errors, encode_errors, with_error
from iii_runtime.core.message import Cause, ErrorRecord
from iii_runtime.core.queue import DEDUPE_WINDOW, QueueSpec
from iii_runtime.ports.clock import Clock, IdSource
from iii_runtime.ports.message_queue import Delivery, OutgoingMessage, QueueDepth

_FIND_DUPLICATE = "SELECT receipt FROM dedupe WHERE queue = ? AND fn = ? AND id = ? AND at_ms > ?"
_REMEMBER = "REPLACE INTO dedupe (queue, fn, id, receipt, at_ms) VALUES (?, ?, ?, ?, ?)"
_QUEUES = (
    "SELECT queue FROM q_msg WHERE queue > ? ORDER BY queue LIMIT 1",
    "SELECT queue FROM q_letter WHERE queue > ? ORDER BY queue LIMIT 1",
)


class SqliteMessageQueue:
    """The messages of all queues.

    Whether a message waits for others is a property of its row, not of the queue, so no change of configuration can
    strand it; `prepare` brings the rows in line with the configuration.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        ids: IdSource,
        on_message: Callable[[str], None] = lambda _queue_name: None,
    ) -> None:
        """Call `on_message` on the event loop after each commit by which a message of that queue may become due."""
        self._database = database
        self._clock = clock
        self._ids = ids
        self._on_message = on_message

    async def prepare(self, queue: QueueSpec) -> None:
        """Group the stored messages as the queue is configured now."""
        await self._database.write(
            lambda connection: rows.group_anew(connection, queue), lambda _: self._on_message(queue.name)
        )

    async def send(self, queue: QueueSpec, messages: Sequence[OutgoingMessage]) -> list[str]:
        """Store messages of one queue in order, all or none, and return their receipts."""
        return await self.send_all([(queue, message) for message in messages])

    async def send_all(self, messages: Sequence[tuple[QueueSpec, OutgoingMessage]]) -> list[str]:
        """Store messages, each on its queue, in order, all or none, and return their receipts."""
        now_ms = self._clock.now_ms()
        names = dict.fromkeys(queue.name for queue, _ in messages)

        def wake(_: list[str]) -> None:
            for name in names:
                self._on_message(name)

        return await self._database.write(
            lambda connection: [_store(connection, queue.name, message, now_ms) for queue, message in messages], wake
        )

    async def receive(self, queue: QueueSpec, limit: int, lease: timedelta) -> list[Delivery]:
        """Take up to `limit` messages that are due, oldest first."""
        now_ms = self._clock.now_ms()
        until_ms = now_ms + milliseconds(lease)
        return await self._database.write(
            lambda connection: [
                _delivery(queue.name, row) for row in rows.take_due(connection, queue.name, now_ms, until_ms, limit)
            ]
        )

    async def next_due_ms(self, queue: QueueSpec) -> int | None:
        """Return when the next message becomes receivable."""

        def op(connection: sqlite3.Connection) -> int | None:
            row = connection.execute(rows.NEXT_DUE, (queue.name,)).fetchone()
            return None if row is None else int(row[0])

        return await self._database.read(op)

    async def extend(self, deliveries: Sequence[Delivery], lease: timedelta) -> None:
        """Renew the leases that are still held."""
        until_ms = self._clock.now_ms() + milliseconds(lease)
        renewed = [(until_ms, *parse_handle(delivery)) for delivery in deliveries]
        await self._database.write(lambda connection: connection.executemany(rows.EXTEND, renewed).rowcount)

    async def acknowledge(self, delivery: Delivery) -> bool:
        """Remove the message for good. False if the lease was lost."""

        def op(connection: sqlite3.Connection) -> bool:
            gone = connection.execute(rows.ACKNOWLEDGE, parse_handle(delivery)).fetchall()
            for queue, group in gone:
                rows.unblock(connection, queue, group)
            return bool(gone)

        return await self._database.write(op, self._wake_group(delivery))

    async def hide(self, delivery: Delivery, delay: timedelta) -> bool:
        """Give the message back as if it had not been received. False if the lease was lost."""
        row = (self._clock.now_ms() + milliseconds(delay), *parse_handle(delivery))
        return await self._database.write(
            lambda connection: connection.execute(rows.HIDE, row).rowcount > 0, self._wake(delivery)
        )

    async def fail(self, delivery: Delivery, error: ErrorRecord, retry_after: timedelta) -> bool:
        """Record the failed attempt once and give the message back. False if the lease was lost."""
        visible_at = self._clock.now_ms() + milliseconds(retry_after)

        def op(connection: sqlite3.Connection) -> bool:
            row = rows.find_held(connection, delivery)
            if row is None:
                return False
            failed, errors = row.failed, row.errors
            if delivery.attempt > failed:
                failed = delivery.attempt
                errors = encode_errors(with_error(decode_errors(errors), failed, error))
            connection.execute(rows.FAIL, (visible_at, failed, errors, row.seq))
            return True

        return await self._database.write(op, self._wake(delivery))

    async def bury(self, delivery: Delivery, cause: Cause, error: ErrorRecord, attempts: int) -> bool:
        """Make the message a dead letter, in one step. False if the lease was lost."""
        now_ms, token = self._clock.now_ms(), self._ids.new_id()

        def op(connection: sqlite3.Connection) -> bool:
            row = rows.find_held(connection, delivery)
            if row is None:
                return False
            death = Death(
                receipt=row.receipt,
                queue=row.queue,
                generation=row.generation,
                token=token,
                cause=cause,
                error=error,
                attempts=attempts,
                receives=row.receives,
                first_ms=row.first_ms,
                failed_ms=now_ms,
            )
            log = decode_errors(row.errors)
            log = with_error(log, attempts, error) if attempts > row.failed else log
            insert_letter(connection, death, compose_letter(row.body, death), log, row.blob)
            connection.execute(rows.DELETE, (row.seq,))
            rows.unblock(connection, row.queue, row.group)
            return True

        return await self._database.write(op, self._wake_group(delivery))

    async def release_all(self) -> int:
        """Void the leases of an earlier process; return how many."""
        now_ms = self._clock.now_ms()
        return await self._database.write(lambda connection: rows.release_all(connection, now_ms))

    async def depth(self, queue_name: str) -> QueueDepth:
        """Return exact counts of one queue."""
        arguments = {"queue": queue_name, "now": self._clock.now_ms()}
        total, later, in_flight, dead = await self._database.read(
            lambda connection: connection.execute(rows.DEPTH, arguments).fetchone()
        )
        return QueueDepth(visible=total - later, delayed=later - in_flight, in_flight=in_flight, dead=dead)

    async def purge(self, queue_name: str) -> int:
        """Delete the messages of a queue that are not in flight; return how many."""
        row = (queue_name, self._clock.now_ms())
        return await self._database.write(lambda connection: connection.execute(rows.PURGE, row).rowcount)

    async def queue_names(self) -> list[str]:
        """Return the sorted names of all queues that hold a message or a dead letter."""
        return await self._database.read(
            lambda connection: sorted({name for query in _QUEUES for name in distinct(connection, query)})
        )

    def _wake(self, delivery: Delivery) -> Callable[[bool], None]:
        return lambda has_lease: self._on_message(delivery.queue) if has_lease else None

    def _wake_group(self, delivery: Delivery) -> Callable[[bool], None] | None:
        return self._wake(delivery) if delivery.group is not None else None


def _store(connection: sqlite3.Connection, queue: str, message: OutgoingMessage, now_ms: int) -> str:
    if message.dedupe_id is not None:
        key = (queue, message.function_id, message.dedupe_id)
        oldest = now_ms - milliseconds(DEDUPE_WINDOW)
        if first := connection.execute(_FIND_DUPLICATE, (*key, oldest)).fetchone():
            return str(first[0])
        connection.execute(_REMEMBER, (*key, message.receipt, now_ms))
    new = NewMessage(
        queue=queue,
        group=message.group,
        receipt=message.receipt,
        generation=0,
        ready_at=now_ms + message.delay_ms,
        first_ms=now_ms,
        blob=message.blob_key,
        body=message.body,
    )
    rows.insert(connection, new)
    return message.receipt


def _delivery(queue: str, row: DueRow) -> Delivery:
    return Delivery(
        receipt=row.receipt,
        queue=queue,
        body=row.body,
        generation=row.generation,
        attempt=row.failed + 1,
        receives=row.receives + 1,
        handle=rows.handle_of(row.seq, row.rc + 1),
        group=row.group,
    )
