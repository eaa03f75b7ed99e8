"""Claimed cron ticks as a table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from iii_runtime.adapters.embedded.database import Database

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CLAIM = (
    "INSERT INTO tick (job, nominal_ms) VALUES (?, ?) "
    "ON CONFLICT (job) DO UPDATE SET nominal_ms = excluded.nominal_ms WHERE excluded.nominal_ms > nominal_ms"
)


class SqliteTickStore:
    """The newest claimed tick of each job."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, job_id: str, nominal: datetime) -> bool:
        """Claim a tick; False if it, or a later one of the same job, was claimed before."""
        nominal_ms = (nominal - _EPOCH) // timedelta(milliseconds=1)
        return await self._database.write(
            lambda connection: connection.execute(_CLAIM, (job_id, nominal_ms)).rowcount > 0
        )
