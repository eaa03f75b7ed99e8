"""How an execution of a run ended, for whoever holds the message that caused it."""

from __future__ import annotations

from typing import TypeAlias

from iii_runtime.core.frozen import frozen
from iii_runtime.core.runs.record import RunRecord


@frozen
class Suspended:
    """The run waits. `record.wake_at_ms` says until when; None: for a delivery alone."""

    record: RunRecord


@frozen
class Closed:
    """The run has ended; its duties, if it has any, are to be done."""

    record: RunRecord


@frozen
class Yielded:
    """The run has more to do than this execution has time for; wake it at once."""

    record: RunRecord


@frozen
class Parked:
    """The run was put aside, and says why."""

    record: RunRecord


@frozen
class Lost:
    """Somebody else holds the run, or it was ended: nothing was written, and nothing may be said to be done."""


@frozen
class NotDue:
    """There was nothing to do; `again_ms` is when there will be, if that is within a moment."""

    again_ms: int | None = None


Verdict: TypeAlias = "Suspended | Closed | Yielded | Parked | Lost | NotDue"
