"""What the records of runs in the table's stream tell viewers: it costs a run no write of its own."""

from __future__ import annotations

from iii_runtime.adapters.aws.attributes import Item
from iii_runtime.adapters.aws.run_item import record_of
from iii_runtime.core.change import Change
from iii_runtime.core.runs.events import run_change


def run_changes(old: Item | None, new: Item | None, at_ms: int) -> list[Change]:
    """Return what a write of a run's record tells: nothing where it changes nothing that viewers are told.

    Raises:
        StoreError: `store_corrupt`: an image is no record of a run.
    """
    if new is None:
        return []  # its retention is over
    after, before = record_of(new), None if old is None else record_of(old)
    if before is not None and before.run_id != after.run_id:
        before = None
    known = len(before.tail) if before is not None and before.chunks == after.chunks else 0
    change = run_change(before, after, after.tail[known:], at_ms)
    return [] if change is None else [change]
