"""Runs where nobody executes them: what is asked of them is stored, and done when a host starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from iii_runtime.core.runs.record import RunRecord
from iii_runtime.ports.clock import Clock
from iii_runtime.ports.run_store import Lease


class StoredOnly:
    """A `RunDispatch` that executes nothing. It is its own `RunWatch`: no run ends while it is looked at."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def lease(self) -> Lease | None:
        """Return None: whoever starts next takes the run."""
        return None

    def begin(self, record: RunRecord) -> None:
        """Execute a run.

        Raises:
            RuntimeError: Always; no run is leased here.
        """
        raise RuntimeError(f"run '{record.workflow_id}' was leased where nothing is executed.")

    async def wake(self, record: RunRecord) -> None:
        """Do nothing: its wake is stored."""

    @contextmanager
    def watch(self, workflow_id: str) -> Iterator[StoredOnly]:
        """Watch a run that nobody executes."""
        yield self

    async def changed(self, until_ms: int) -> None:
        """Return at `until_ms`."""
        await self._clock.sleep_until(datetime.fromtimestamp(until_ms / 1000, UTC))
