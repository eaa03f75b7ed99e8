"""Claimed cron ticks and leases of running jobs, one item for each job.

Attributes: `tk` the newest claimed tick; `lt` and `ls` the tick that runs and when its lease ends; `o` the claim that
wrote last. Times are Unix milliseconds.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from iii_runtime.adapters.aws.attributes import Item, item_named, reading
from iii_runtime.adapters.aws.document_keys import fitted_key
from iii_runtime.adapters.aws.table import ONLY, ConditionFailedError, Expression, Table
from iii_runtime.core.members import optional
from iii_runtime.ports.clock import Clock, IdSource
from iii_runtime.ports.job_lease import Acquired

JOB = "C#"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEWER = "(attribute_not_exists(tk) OR tk < :tick)"
_FREE = "(attribute_not_exists(ls) OR ls <= :now)"


class DynamoTickStore:
    """The newest claimed tick of each job, and its lease while it runs: a `TickStore` and a `JobLease`.

    Each operation is one conditional write. One whose reply was lost is sent again and recognised by its claim.
    """

    def __init__(self, table: Table, clock: Clock, ids: IdSource) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids

    async def claim(self, job_id: str, nominal: datetime) -> bool:
        """Claim a tick; False if it, or a later one of the same job, was claimed before."""
        return await self.acquire(job_id, nominal, lease=None) == "acquired"

    async def acquire(self, job_id: str, nominal: datetime, *, lease: timedelta | None) -> Acquired:
        """Claim a tick and, with a `lease`, the right to run until it ends.

        Returns:
            `taken` before `running`: a tick that was claimed is no tick to wait for.
        """
        tick, claim = _ms(nominal), self._ids.new_id()
        change = Expression(text="SET tk = :tick, o = :claim", values={":tick": tick, ":claim": claim})
        condition = Expression(text=_NEWER)
        if lease is not None:
            now = self._clock.now_ms()
            ends = now + lease // timedelta(milliseconds=1)
            change = Expression(text=f"{change.text}, lt = :tick, ls = :ends", values={**change.values, ":ends": ends})
            condition = Expression(text=f"{_NEWER} AND {_FREE}", values={":now": now})
        try:
            await self._table.update(fitted_key(JOB, job_id), ONLY, change, condition=condition)
        except ConditionFailedError as refused:
            return _standing(refused.item or {}, tick, claim)
        return "acquired"

    async def release(self, job_id: str, nominal: datetime) -> None:
        """Give the lease of this tick back. One that was lost to a later tick is left alone."""
        condition = Expression(text="lt = :tick", values={":tick": _ms(nominal)})
        try:
            await self._table.update(
                fitted_key(JOB, job_id), ONLY, Expression(text="REMOVE lt, ls"), condition=condition
            )
        except ConditionFailedError:
            return  # its time had passed, and a later tick runs; or this very request has arrived before


def _standing(item: Item, tick: int, claim: str) -> Acquired:
    """Return what became of a claim that was refused."""
    if item.get("o") == claim:
        return "acquired"
    with reading(item_named(item)):
        newest = optional(item, "tk", int)
    return "taken" if newest is not None and newest >= tick else "running"


def _ms(instant: datetime) -> int:
    return (instant - _EPOCH) // timedelta(milliseconds=1)
