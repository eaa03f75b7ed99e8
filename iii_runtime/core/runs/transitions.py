"""Every write of a run's record as a condition and a change: what all stores must do.

Each function takes the record that is there and answers with what the write makes of it: `Done` with the new record, or
`Refused` with the old one. A store applies it within one transaction, or states the same condition to its database.

A reply may be lost, and the request comes again when its condition holds no more. What it has changed tells:

| write | it was carried out before if |
|---|---|
| `create`, `replace` | the run is there with this owner and epoch, and these items |
| `acquire` | the owner is this one |
| `append` | the epoch is this one, and the journal has grown by just these facts |
| `suspend` | the epoch is this one, nobody holds the run, and the journal has grown by just these facts |
| `park` | the epoch is this one, nobody holds the run, and it is parked for this reason |
| `close` | the run is closed under this epoch |
| `terminate` | the run is closed with this status and outcome, at this time |
| `deliver` | the item is in the inbox; a cancellation: one was noted |
| `guard`, `finish_duties` | what they ask for is so |

A write that was carried out before answers `Done` with the very record that it was given: there is nothing to store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as changed
from typing import Any

from iii_runtime.core.runs.record import MAX_INBOX, InboxItem, RunRecord
from iii_runtime.core.runs.writes import Closing, Done, Held, Lease, Refused, Written


def create(stored: RunRecord | None, record: RunRecord) -> Written:
    """Return what comes of storing a run under a workflow id that has none."""
    if stored is None:
        return Done(record)
    return Done(stored) if _is_same_start(stored, record) else Refused(stored)


def replace(stored: RunRecord | None, old: RunRecord, record: RunRecord, *, was_there: bool) -> Written:
    """Return what comes of storing a run in place of a closed one.

    Args:
        stored: What is there.
        old: The closed run, as it was read.
        record: The new one.
        was_there: Whether history has a run with the new run id.

    Raises:
        ValueError: The epoch would go down, or nobody would look at the new run.
    """
    if record.epoch <= old.epoch:
        raise ValueError(f"the epoch of a new run must be above {old.epoch}, found {record.epoch}")
    if record.wake_at_ms is None:
        raise ValueError("a run that replaces another one needs a wake")
    if stored is not None and old.run_id != record.run_id:
        is_as_read = not stored.is_open and (stored.run_id, stored.epoch) == (old.run_id, old.epoch)
        if is_as_read and not stored.duties and not was_there:
            return Done(record)
        if _is_same_start(stored, record):
            return Done(stored)
    return Refused(stored)


def acquire(stored: RunRecord | None, lease: Lease, now_ms: int, *, is_redelivery: bool = False) -> Written:
    """Return what comes of taking a run whose lease has ended or whose wake is due."""
    if stored is None:
        return Refused(None)
    if stored.is_free(now_ms):
        is_unguarded = is_redelivery and stored.wake_at_ms is None
        taken = changed(
            stored,
            epoch=stored.epoch + 1,
            owner=lease.owner,
            lease_until_ms=lease.until_ms,
            wake_at_ms=lease.until_ms if is_unguarded else stored.wake_at_ms,
            acquisitions=stored.acquisitions + 1,
            parked=None,
        )
        return Done(taken)
    return Done(stored) if stored.is_open and stored.owner == lease.owner else Refused(stored)


def guard(stored: RunRecord | None, record: RunRecord) -> Written:
    """Return what comes of making the end of the lease the wake of a run that has none."""
    if stored is None or not _is_leased(stored) or stored.run_id != record.run_id:
        return Refused(stored)
    if stored.wake_at_ms is not None:
        return Done(stored)
    return Done(changed(stored, wake_at_ms=stored.lease_until_ms))


def append(
    stored: RunRecord | None, held: Held, facts: Sequence[str], *, lease_until_ms: int, guard: bool = False
) -> Written:
    """Return what comes of adding facts and renewing the lease; without facts it is only renewed."""
    if stored is None or not stored.is_held_by(held.run_id, held.epoch):
        return Refused(stored)
    if _may_write(stored, held):
        wake_at_ms = lease_until_ms if guard and stored.wake_at_ms is None else stored.wake_at_ms
        grown = _with_facts(stored, held, facts) if facts else {}
        return Done(changed(stored, lease_until_ms=lease_until_ms, wake_at_ms=wake_at_ms, **grown))
    return Done(stored) if facts and stored.sequence == held.sequence + len(facts) else Refused(stored)


def suspend(stored: RunRecord | None, held: Held, facts: Sequence[str], *, wake_at_ms: int | None) -> Written:
    """Return what comes of adding facts and giving the run back until `wake_at_ms`.

    The lease must be there: a suspension without facts leaves the number of facts as it is, so that alone would let a
    repeated request give the run back a second time, and take what was delivered in between.
    """
    if stored is None or not stored.is_held_by(held.run_id, held.epoch):
        return Refused(stored)
    if _may_write(stored, held) and _is_quiet(stored, held):
        grown = _with_facts(stored, held, facts)
        return Done(changed(stored, owner=None, lease_until_ms=None, wake_at_ms=wake_at_ms, **grown))
    is_mine = stored.lease_until_ms is None and stored.sequence == held.sequence + len(facts)
    return Done(stored) if is_mine else Refused(stored)


def close(stored: RunRecord | None, held: Held, facts: Sequence[str], closing: Closing) -> Written:
    """Return what comes of adding the last facts and ending the run."""
    if stored is None:
        return Refused(None)
    if _may_write(stored, held) and _is_quiet(stored, held):
        return Done(changed(stored, **_with_facts(stored, held, facts), **_ended(closing)))
    is_mine = not stored.is_open and (stored.run_id, stored.epoch) == (held.run_id, held.epoch)
    return Done(stored) if is_mine else Refused(stored)


def finish_duties(stored: RunRecord | None, record: RunRecord) -> Written:
    """Return what comes of forgetting the duties of a closed run."""
    if stored is None or stored.is_open or stored.run_id != record.run_id:
        return Refused(stored)
    if not stored.duties:
        return Done(stored)
    return Done(changed(stored, duties=(), wake_at_ms=None))


def deliver(stored: RunRecord | None, item: InboxItem, now_ms: int, *, run_id: str | None = None) -> Written:
    """Return what comes of appending an item to the inbox of an open run."""
    if stored is None or not stored.is_open or run_id not in (None, stored.run_id):
        return Refused(stored)
    is_cancel = item.kind == "cancel"
    if any(waiting.id == item.id for waiting in stored.inbox) or (is_cancel and stored.cancel_requested_ms is not None):
        return Done(stored)
    if len(stored.inbox) >= MAX_INBOX:
        return Refused(stored)
    requested_ms = now_ms if is_cancel else stored.cancel_requested_ms
    return Done(changed(stored, inbox=(*stored.inbox, item), wake_at_ms=now_ms, cancel_requested_ms=requested_ms))


def terminate(stored: RunRecord | None, closing: Closing, *, run_id: str | None = None) -> Written:
    """Return what comes of ending an open run from outside: the new epoch is nobody's."""
    if stored is None or run_id not in (None, stored.run_id):
        return Refused(stored)
    if stored.is_open:
        return Done(changed(stored, epoch=stored.epoch + 1, **_ended(closing)))
    is_mine = (stored.status, stored.outcome, stored.closed_ms) == (closing.status, closing.outcome, closing.at_ms)
    return Done(stored) if is_mine else Refused(stored)


def park(stored: RunRecord | None, held: Held, reason: str) -> Written:
    """Return what comes of giving a run back without a wake. The count of acquisitions begins anew."""
    if stored is None or not stored.is_held_by(held.run_id, held.epoch):
        return Refused(stored)
    if _may_write(stored, held) and _is_quiet(stored, held):
        parked = changed(stored, owner=None, lease_until_ms=None, wake_at_ms=None, acquisitions=0, parked=reason)
        return Done(parked)
    return Done(stored) if stored.lease_until_ms is None and stored.parked == reason else Refused(stored)


def resume(stored: RunRecord | None, now_ms: int) -> Written:
    """Return what comes of making a parked run due. One that is not parked is not touched: it goes on by itself."""
    if stored is None or not stored.is_open:
        return Refused(stored)
    if stored.parked is None:
        return Done(stored)
    return Done(changed(stored, wake_at_ms=now_ms, acquisitions=0, parked=None))


def release(stored: RunRecord, now_ms: int) -> Written:
    """Return what comes of voiding the lease of a process that died. The acquisition counts: it has led to nothing."""
    if not _is_leased(stored):
        return Refused(stored)
    return Done(changed(stored, owner=None, lease_until_ms=None, wake_at_ms=now_ms))


def due_ms(record: RunRecord) -> int | None:
    """Return when somebody can do something about a run, for stores that count the ends of leases; None: nobody can.

    Nobody else can take a run while its lease lasts, so its wake does not count then.
    """
    if record.is_open and record.lease_until_ms is not None:
        return record.lease_until_ms + 1
    return record.wake_at_ms


def _is_same_start(stored: RunRecord, record: RunRecord) -> bool:
    """Return whether `stored` is what `record` has made. Not so once it was acquired: it is somebody else's then."""
    is_same = stored.is_open and (stored.run_id, stored.owner, stored.epoch) == (
        record.run_id,
        record.owner,
        record.epoch,
    )
    return is_same and {item.id for item in record.inbox} <= {item.id for item in stored.inbox}


def _is_leased(stored: RunRecord) -> bool:
    return stored.is_open and stored.lease_until_ms is not None


def _may_write(stored: RunRecord, held: Held) -> bool:
    """Return whether a holder has the newest epoch, a lease, over or not, and knows the whole journal."""
    is_holder = stored.is_held_by(held.run_id, held.epoch) and stored.lease_until_ms is not None
    return is_holder and stored.sequence == held.sequence


def _is_quiet(stored: RunRecord, held: Held) -> bool:
    """Return whether the holder knows the whole inbox. Nobody but the holder shortens it, so its length tells."""
    return len(stored.inbox) == held.taken


def _with_facts(stored: RunRecord, held: Held, facts: Sequence[str]) -> dict[str, Any]:
    """Return what changes by new facts; they are progress."""
    return {
        "tail": (*stored.tail, *facts),
        "sequence": stored.sequence + len(facts),
        "inbox": stored.inbox[held.taken :],
        "acquisitions": 0,
    }


def _ended(closing: Closing) -> dict[str, Any]:
    """Return what changes by the end of a run. What is left in its inbox stays: it tells what the run did not take."""
    return {
        "status": closing.status,
        "outcome": closing.outcome,
        "closed_ms": closing.at_ms,
        "duties": closing.duties,
        "wake_at_ms": closing.at_ms if closing.duties else None,
        "owner": None,
        "lease_until_ms": None,
        "parked": None,
    }
