"""Durable runs in the table: one item decides about a run, see `run_item` and `run_writes`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from botocore.exceptions import ClientError

from iii_runtime.adapters.aws import run_writes as writes
from iii_runtime.adapters.aws.attributes import Item, Value, from_attributes, item_named, reading, stored_bytes
from iii_runtime.adapters.aws.document_keys import RUN
from iii_runtime.adapters.aws.run_item import (
    EARLIER,
    WAKE_SHARDS,
    chunk_key,
    chunks_of,
    earlier_key,
    item_of,
    partition,
    record_of,
    texts_of,
    workflow_id_of,
)
from iii_runtime.adapters.aws.run_payloads import RunPayloads
from iii_runtime.adapters.aws.run_writes import RecordWrite
from iii_runtime.adapters.aws.table import ONLY, ConditionFailedError, Expression, Table
from iii_runtime.adapters.aws.transactions import Transactions
from iii_runtime.core.errors import StoreError
from iii_runtime.core.runs import transitions
from iii_runtime.core.runs.record import InboxItem, RunRecord
from iii_runtime.core.runs.writes import Closing, Done, Held, Lease, Refused, Written
from iii_runtime.plan.names import WAKE_INDEX
from iii_runtime.ports.run_store import RunQuery

RECORD_BYTES = 1024
"""Largest record that costs one write unit; what would make it larger goes into a chunk."""

_TRIES = 5
_MOST_KNOWN = 1000
Decide = Callable[[RunRecord | None], Written]


class DynamoRunStore:
    """Runs in one table. Every write of a record is one conditional request, and its answer brings the whole record.

    Args:
        table: The table.
        transactions: Of the same table.
        payloads: Where large values are.
    """

    def __init__(self, table: Table, transactions: Transactions, payloads: RunPayloads) -> None:
        self._table = table
        self._transactions = transactions
        self._payloads = payloads
        self._tails: dict[str, RunRecord] = {}
        """Records as their holder here has last seen them: a tail is known, so that it can go into a chunk."""

    async def create(self, record: RunRecord) -> Written:
        """Store a new run under a workflow id that has none."""

        def decide(stored: RunRecord | None) -> Written:
            return transitions.create(stored, record)

        for _ in range(_TRIES):
            try:
                await self._table.put(item_of(record), condition=writes.IS_NEW)
            except ConditionFailedError as refused:
                answer = decide(_stored(refused.item))
                if isinstance(answer, Refused) or refused.item is not None:
                    return self._known(answer)
            else:
                return self._known(Done(record))
        raise _contended(record.workflow_id)

    async def replace(self, old: RunRecord, record: RunRecord) -> Written:
        """Store a new run in place of a closed one, which becomes history."""
        if isinstance(transitions.replace(old, old, record, was_there=False), Refused):
            return Refused(await self.read(record.workflow_id))  # a run does not replace itself, nor an open one
        parts, pk = self._transactions, partition(record.workflow_id)
        for _ in range(_TRIES):
            try:
                await parts.run(
                    [
                        parts.put(item_of(record), writes.replaceable(old)),
                        parts.put(item_of(old, earlier_key(old.run_id)), writes.IS_NEW),
                        parts.check(pk, earlier_key(record.run_id), writes.IS_NEW),
                    ]
                )
            except ClientError as error:
                stored, was_there = _reasons(error)
                if stored is None:
                    stored = await self.read(record.workflow_id)
                answer = transitions.replace(stored, old, record, was_there=was_there)
                if isinstance(answer, Refused) or answer.record is stored:
                    return self._known(answer)
            else:
                return self._known(Done(record))
        raise _contended(record.workflow_id)

    async def acquire(self, workflow_id: str, lease: Lease, now_ms: int, *, is_redelivery: bool = False) -> Written:
        """Take an open run whose lease has ended or whose wake is due."""
        write = writes.acquire(workflow_id, lease, now_ms, is_redelivery=is_redelivery)
        return await self._write(
            workflow_id, write, lambda stored: transitions.acquire(stored, lease, now_ms, is_redelivery=is_redelivery)
        )

    async def guard(self, record: RunRecord) -> Written:
        """Make the end of the lease the wake of a run that somebody holds without one."""
        write = writes.guard(record)
        return await self._write(record.workflow_id, write, lambda stored: transitions.guard(stored, record))

    async def append(self, held: Held, facts: Sequence[str], *, lease_until_ms: int, guard: bool = False) -> Written:
        """Add facts to the journal and renew the lease."""
        chunked = await self._chunk(held, facts)
        write = writes.append(held, facts, lease_until_ms=lease_until_ms, guard=guard, chunked=chunked)
        return await self._write(
            held.workflow_id,
            write,
            lambda stored: transitions.append(stored, held, facts, lease_until_ms=lease_until_ms, guard=guard),
        )

    async def suspend(self, held: Held, facts: Sequence[str], *, wake_at_ms: int | None) -> Written:
        """Add facts and give the run back until `wake_at_ms`."""
        chunked = await self._chunk(held, facts)
        write = writes.suspend(held, facts, wake_at_ms, chunked=chunked)
        return await self._write(
            held.workflow_id, write, lambda stored: transitions.suspend(stored, held, facts, wake_at_ms=wake_at_ms)
        )

    async def close(self, held: Held, facts: Sequence[str], closing: Closing) -> Written:
        """End the run for good, with its last facts."""
        chunked = await self._chunk(held, facts)
        write = writes.close(held, facts, closing, chunked=chunked)
        return await self._write(
            held.workflow_id, write, lambda stored: transitions.close(stored, held, facts, closing)
        )

    async def finish_duties(self, record: RunRecord) -> Written:
        """Forget the duties of a closed run, and its wake."""
        write = writes.finish_duties(record)
        return await self._write(record.workflow_id, write, lambda stored: transitions.finish_duties(stored, record))

    async def deliver(self, workflow_id: str, item: InboxItem, now_ms: int, *, run_id: str | None = None) -> Written:
        """Append an item to the inbox of an open run and make its wake due.

        An item that is sent again after a lost reply may stand in the inbox twice.
        """
        write = writes.deliver(workflow_id, item, now_ms, run_id=run_id)
        return await self._write(
            workflow_id, write, lambda stored: transitions.deliver(stored, item, now_ms, run_id=run_id)
        )

    async def terminate(self, workflow_id: str, closing: Closing, *, run_id: str | None = None) -> Written:
        """End an open run at once, whoever holds it."""
        write = writes.terminate(workflow_id, closing, run_id=run_id)
        return await self._write(
            workflow_id, write, lambda stored: transitions.terminate(stored, closing, run_id=run_id)
        )

    async def park(self, held: Held, reason: str) -> Written:
        """Give the run back without a wake and say why."""
        return await self._write(
            held.workflow_id, writes.park(held, reason), lambda stored: transitions.park(stored, held, reason)
        )

    async def resume(self, workflow_id: str, now_ms: int) -> Written:
        """Make a parked run due."""
        write = writes.resume(workflow_id, now_ms)
        return await self._write(workflow_id, write, lambda stored: transitions.resume(stored, now_ms))

    async def release_all(self, now_ms: int) -> int:
        """Return 0: hosts come and go here, and leases end by themselves."""
        return 0

    async def next_due_ms(self) -> int | None:
        """Return the earliest wake of all runs; the index lags behind."""
        return min([at_ms for _, at_ms in await self._wakes(None, 1)], default=None)

    async def due(self, until_ms: int, limit: int) -> list[tuple[str, int]]:
        """Return `(workflow id, wake)` of runs whose wake is due until then, earliest first; the index lags behind."""
        found = await self._wakes(until_ms, limit)
        return sorted(found, key=lambda wake: (wake[1], wake[0]))[:limit]

    async def read(self, workflow_id: str, run_id: str | None = None) -> RunRecord | None:
        """Return the record of the current run, or of that run of this workflow id."""
        current = _stored(await self._table.get(partition(workflow_id)))
        if run_id is None or current is None or current.run_id == run_id:
            return current
        return _stored(await self._table.get(partition(workflow_id), earlier_key(run_id)))

    async def journal(self, record: RunRecord) -> list[str]:
        """Return all facts of a run, in order."""
        if not record.chunks:
            return [*record.tail]
        facts: list[str] = []
        condition = Expression(
            text="pk = :pk AND begins_with(sk, :start)",
            values={":pk": partition(record.workflow_id), ":start": chunks_of(record.run_id)},
        )
        count = 0
        async for chunk in self._table.query(condition, limit=record.chunks):
            with reading(item_named(chunk)):
                facts += texts_of(chunk, "f")
            count += 1
        if count != record.chunks or len(facts) + len(record.tail) != record.sequence:
            found = len(facts) + len(record.tail)
            raise StoreError(
                f"the journal of run '{record.workflow_id}' ({record.run_id}) has {found} facts of {record.sequence}: "
                "parts of it were removed.",
                code="store_corrupt",
            )
        return [*facts, *record.tail]

    async def put_payload(self, workflow_id: str, name: str, text: str) -> None:
        """Store a payload before it is linked."""
        await self._payloads.put(workflow_id, name, text)

    async def get_payload(self, workflow_id: str, name: str) -> str:
        """Return a payload.

        Raises:
            StoreError: `blob_missing`.
        """
        return await self._payloads.get(workflow_id, name)

    async def list_runs(self, query: RunQuery) -> list[RunRecord]:
        """Return runs, newest first.

        Those of one workflow id are under one key. Otherwise the whole table is read, page by page: 131,000 read units
        for each GB, where an index of all runs would cost something with every run.
        """
        found = [record async for record in self._listed(query) if _matches(record, query)]
        found.sort(key=lambda record: (record.created_ms, record.workflow_id), reverse=True)
        return found[: query.limit]

    async def _listed(self, query: RunQuery) -> AsyncIterator[RunRecord]:
        if query.workflow_id is None:
            values: dict[str, Value] = {":run": RUN, ":current": ONLY, ":earlier": EARLIER}
            text = "begins_with(pk, :run) AND (sk = :current OR begins_with(sk, :earlier))"
            async for item in self._table.scan(Expression(text=text, values=values)):
                yield record_of(item)
            return
        pk = partition(query.workflow_id)
        current = await self._table.get(pk)
        if current is not None:
            yield record_of(current)
        earlier = Expression(text="pk = :pk AND begins_with(sk, :start)", values={":pk": pk, ":start": EARLIER})
        async for item in self._table.query(earlier):
            yield record_of(item)

    async def _write(self, workflow_id: str, write: RecordWrite, decide: Decide) -> Written:
        """Carry out one update; a refused one is what `decide` makes of the record that is there."""
        for _ in range(_TRIES):
            try:
                item = await self._table.update(
                    partition(workflow_id), ONLY, write.change, condition=write.condition, returns="ALL_NEW"
                )
            except ConditionFailedError as refused:
                stored = _stored(refused.item)
                answer = decide(stored)
                if isinstance(answer, Refused) or answer.record is stored:
                    return self._known(answer)
            else:
                return self._known(Done(record_of(item or {})))
        raise _contended(workflow_id)

    async def _chunk(self, held: Held, facts: Sequence[str]) -> bool:
        """Store the tail as a chunk if the record would become too large with these facts; return whether it was.

        A chunk counts only once it is linked, so an executor that has lost the run does no harm with one.
        """
        known = self._tails.get(held.workflow_id)
        if known is None or (known.run_id, known.epoch, known.sequence) != (held.run_id, held.epoch, held.sequence):
            return False  # it is chunked by the next write, which knows
        if not known.tail or not facts or _size(known) + sum(map(len, facts)) <= RECORD_BYTES:
            return False
        chunk: dict[str, Value] = {
            "pk": partition(held.workflow_id),
            "sk": chunk_key(held.run_id, known.chunks),
            "f": [*known.tail],
            "ep": held.epoch,
        }
        unlinked = Expression(text="attribute_not_exists(pk) OR ep <= :ep", values={":ep": held.epoch})
        try:
            await self._table.put(chunk, condition=unlinked)
        except ConditionFailedError:
            return False  # somebody else holds the run by now, and the write that follows is refused
        return True

    async def _wakes(self, until_ms: int | None, limit: int) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        for shard in range(WAKE_SHARDS):
            bound = "" if until_ms is None else " AND wa <= :until"
            values: dict[str, Value] = {":ws": shard}
            if until_ms is not None:
                values[":until"] = until_ms
            condition = Expression(text=f"ws = :ws{bound}", values=values)
            async for row in self._table.query(condition, index=WAKE_INDEX, limit=limit):
                with reading(item_named(row)):
                    found.append((workflow_id_of(row["pk"]), int(str(row["wa"]))))
        return found

    def _known(self, answer: Written) -> Written:
        """Remember what a holder was told, so that its next write knows the tail."""
        record = answer.record
        if record is not None:
            self._tails.pop(record.workflow_id, None)
            if record.is_open and record.lease_until_ms is not None:
                self._tails[record.workflow_id] = record
                if len(self._tails) > _MOST_KNOWN:
                    del self._tails[next(iter(self._tails))]
        return answer


def _stored(item: Item | None) -> RunRecord | None:
    return None if not item else record_of(item)


def _size(record: RunRecord) -> int:
    return stored_bytes(item_of(record))


def _reasons(error: ClientError) -> tuple[RunRecord | None, bool]:
    """Return the current record as a refused replacement tells it, and whether history has the new run."""
    reasons = error.response.get("CancellationReasons") or []
    item = reasons[0].get("Item") if reasons else None
    was_there = [reason.get("Code") for reason in reasons[2:]] == ["ConditionalCheckFailed"]
    return _stored(from_attributes(item)) if item else None, was_there


def _contended(workflow_id: str) -> StoreError:
    message = f"the record of run '{workflow_id}' changes faster than it can be written. Try it again."
    return StoreError(message, code="store_contended")


def _matches(record: RunRecord, query: RunQuery) -> bool:
    return (
        query.workflow in (None, record.workflow)
        and query.status in (None, record.status)
        and (query.before_ms is None or record.created_ms < query.before_ms)
    )
