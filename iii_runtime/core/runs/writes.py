"""What the writes of a run take and answer: who holds it, how it ends, and what came of the request."""

from __future__ import annotations

from typing import TypeAlias

from iii_runtime.core.frozen import frozen
from iii_runtime.core.runs.record import RunRecord, Status


@frozen(kw_only=True)
class Lease:
    """Who takes a run, and until when.

    Attributes:
        owner: Identity of this attempt to take it; never used twice.
        until_ms: Unix milliseconds.
    """

    owner: str
    until_ms: int


@frozen(kw_only=True)
class Held:
    """A run as its holder has read it: what the conditions of its writes compare.

    Attributes:
        workflow_id: The workflow id.
        run_id: The run.
        epoch: The holder's epoch.
        sequence: Facts of the journal, as far as the holder has written or read it.
        taken: How many items of the inbox, from its start, were fed to the machine.
    """

    workflow_id: str
    run_id: str
    epoch: int
    sequence: int
    taken: int = 0


@frozen(kw_only=True)
class Closing:
    """How a run ends.

    Attributes:
        status: What it becomes.
        outcome: JSON text of its result or failure, or a link to it.
        at_ms: When.
        duties: What has to be done after the end, each named by whoever knows how to do it; a closed run with duties
            has a wake until `finish_duties`.
    """

    status: Status
    outcome: str
    at_ms: int
    duties: tuple[str, ...] = ()


@frozen
class Done:
    """The write was carried out, now or by an earlier request whose reply was lost. `record` is what came of it."""

    record: RunRecord


@frozen
class Refused:
    """The condition did not hold; nothing was written. `record` is what is there, None if there is nothing."""

    record: RunRecord | None


Written: TypeAlias = "Done | Refused"
