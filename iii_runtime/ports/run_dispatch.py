"""How runs come to be executed: who takes a new one, and who is woken for one that waits."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from iii_runtime.core.runs.record import RunRecord
from iii_runtime.ports.run_store import Lease


class RunDispatch(Protocol):
    """Brings runs and executions together. Wakes carry nothing: late, repeated and stray ones change nothing."""

    def lease(self) -> Lease | None:
        """Return a lease for a run that is created now and executed in this process; None if it must be woken."""
        ...

    def begin(self, record: RunRecord) -> None:
        """Execute a run that was created with such a lease. Returns at once."""
        ...

    async def wake(self, record: RunRecord) -> None:
        """Have a run looked at when its `wake_at_ms` has come, or by whoever holds it: something was delivered."""
        ...

    def watch(self, workflow_id: str) -> AbstractContextManager[RunWatch]:
        """Take note of the ends of a run's executions, from now until the block ends."""
        ...


class RunWatch(Protocol):
    """Notes of the ends of a run's executions."""

    async def changed(self, until_ms: int) -> None:
        """Return when the run may have been closed since the last return, or since the watch began, or at `until_ms`.

        Early returns change nothing.
        """
        ...
