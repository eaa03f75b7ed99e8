"""Durable runs: each operation is one conditional write of a run's record, and tells what the record is then.

What a host may do with a run follows from what it has read and written here, never from what a message or an index
said. An operation whose condition does not hold writes nothing. One whose reply was lost may be asked for again: it is
recognised, and answers as if it had just been carried out. The conditions, and how a repeated request is recognised,
are those of `core.runs.transitions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from iii_runtime.core.frozen import frozen
from iii_runtime.core.runs.record import InboxItem, RunRecord, Status
from iii_runtime.core.runs.writes import Closing, Done, Held, Lease, Refused, Written

__all__ = ["CLOSED_RUN_RETENTION", "Closing", "Done", "Held", "Lease", "Refused", "RunQuery", "RunStore", "Written"]


@frozen(kw_only=True)
class RunQuery:
    """Which runs to list.

    Attributes:
        workflow: Only those of this workflow.
        status: Only those that are this.
        workflow_id: Only those of this workflow id: its history.
        before_ms: Only those created before.
        limit: How many at most.
    """

    workflow: str | None = None
    status: Status | None = None
    workflow_id: str | None = None
    before_ms: int | None = None
    limit: int = 50


CLOSED_RUN_RETENTION = timedelta(days=60)
"""How long a run is kept after its end.

A start that comes back must find the run it has led to, and a start message lives 14 days in a queue, 30 as a letter,
and 14 after a redrive: 58 days.
"""


class RunStore(Protocol):
    """Records, journals and payloads of runs. Every operation may raise `StoreError`."""

    async def create(self, record: RunRecord) -> Written:
        """Store a new run under a workflow id that has none.

        The record may be leased (`owner`, `lease_until_ms`, `epoch` 1) or have a `wake_at_ms`, and may have an inbox:
        one write makes the run and its first signal.

        Returns:
            `Done` also if the very run is there already, by the same owner, with the items of its inbox, and nobody
            has acquired it since. `Refused` with what is there, which may be this run, further on.
        """
        ...

    async def replace(self, old: RunRecord, record: RunRecord) -> Written:
        """Store a new run in place of a closed one, which becomes history; all in one step.

        Returns:
            `Refused` if `old` is not what is there any more, has duties left, or a run with this run id was there
            before. `Done` for a repeated request as in `create`.

        Raises:
            ValueError: `record.epoch` is not above `old.epoch`, or it has no `wake_at_ms`. Nothing was stored.
        """
        ...

    async def acquire(self, workflow_id: str, lease: Lease, now_ms: int, *, is_redelivery: bool = False) -> Written:
        """Take an open run whose lease has ended or whose wake is due: a new epoch, and one acquisition more.

        It is parked no more. `wake_at_ms` stays. On a redelivery it becomes the end of the lease where it was missing,
        so that the run outlives its message.
        """
        ...

    async def guard(self, record: RunRecord) -> Written:
        """Make the end of the lease the wake of a run that somebody holds without one.

        Called before a message for it is acknowledged by another one: the message may be all that remembers the run.
        `Done` also if it has a wake by now. `Refused` if nobody holds it any more, or another run is there.
        """
        ...

    async def append(self, held: Held, facts: Sequence[str], *, lease_until_ms: int, guard: bool = False) -> Written:
        """Add facts to the journal, take `held.taken` items out of the inbox, renew the lease, count as progress.

        Without facts it only renews the lease: nothing is taken out of the inbox, since a repeated request would take
        what came in between, and it is no progress.

        Args:
            held: What must be so.
            facts: Texts of the facts, in order.
            lease_until_ms: The new end of the lease.
            guard: Whether the wake becomes the end of the lease where it is missing: for a long execution.
        """
        ...

    async def suspend(self, held: Held, facts: Sequence[str], *, wake_at_ms: int | None) -> Written:
        """Do what `append` does and give the run back until `wake_at_ms`; None waits for a delivery alone.

        `Refused` if the inbox has grown beyond `held.taken`: then the holder goes on, with the same lease.
        """
        ...

    async def close(self, held: Held, facts: Sequence[str], closing: Closing) -> Written:
        """End the run for good, with its last facts. `Refused` if the inbox has grown, as in `suspend`."""
        ...

    async def finish_duties(self, record: RunRecord) -> Written:
        """Forget the duties of a closed run, and its wake; they have been done.

        `record` is the closed run with its duties. `Refused` if another run is there.
        """
        ...

    async def deliver(self, workflow_id: str, item: InboxItem, now_ms: int, *, run_id: str | None = None) -> Written:
        """Append an item to the inbox of an open run and make its wake due.

        A cancellation is noted once: a second one is `Done` and changes nothing. An item whose id waits in the inbox
        already is `Done` too; a store that cannot look for it appends it again, so a run drops an id that it knows.

        Returns:
            `Refused`: no run, a closed one, another run than `run_id`, or a full inbox.
        """
        ...

    async def terminate(self, workflow_id: str, closing: Closing, *, run_id: str | None = None) -> Written:
        """End an open run at once, whoever holds it; its holder can write nothing more."""
        ...

    async def park(self, held: Held, reason: str) -> Written:
        """Give the run back without a wake and say why; nobody runs it until a delivery or `resume`.

        Its inbox stays as it is, and the count of acquisitions begins anew. `Refused` if the inbox has grown beyond
        `held.taken`: only who knows all that was delivered may put a run aside.
        """
        ...

    async def resume(self, workflow_id: str, now_ms: int) -> Written:
        """Make a parked run due. One that is not parked is not touched, and `Done`: it goes on by itself."""
        ...

    async def release_all(self, now_ms: int) -> int:
        """Void the leases of an earlier process that died, and make their runs due; return how many.

        Called once, at start, by the only host. Where hosts come and go, leases end by themselves.
        """
        ...

    async def next_due_ms(self) -> int | None:
        """Return the earliest wake of all runs, closed ones with duties included; None if there is none.

        The same instants count as in `due`.
        """
        ...

    async def read(self, workflow_id: str, run_id: str | None = None) -> RunRecord | None:
        """Return the record of the current run, or of that run of this workflow id; None if there is none."""
        ...

    async def journal(self, record: RunRecord) -> list[str]:
        """Return all facts of a run, in order.

        A store may keep facts apart from the record, whose `tail` is empty then: only this tells them all.
        """
        ...

    async def put_payload(self, workflow_id: str, name: str, text: str) -> None:
        """Store a payload before it is linked; the same name always has the same text.

        It is kept for as long as the runs of its workflow id are, and at least for `CLOSED_RUN_RETENTION`.
        """
        ...

    async def get_payload(self, workflow_id: str, name: str) -> str:
        """Return a payload.

        Raises:
            StoreError: `blob_missing`.
        """
        ...

    async def due(self, until_ms: int, limit: int) -> list[tuple[str, int]]:
        """Return `(workflow id, wake)` of runs whose wake is due until then, earliest first.

        It may lag, and decides nothing: it only says whom to wake. A store may count the end of a lease, plus one
        millisecond, as the wake of a run that somebody holds: nobody else can take it before.
        """
        ...

    async def list_runs(self, query: RunQuery) -> list[RunRecord]:
        """Return runs, newest first."""
        ...
