"""The record of a run: the one item that decides everything about it.

Status, lease, time of the next wake, inbox and the end of the journal live in one record, so each decision is one
conditional write of it. What does not fit is written first, elsewhere, and linked from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from iii_runtime.core.frozen import frozen

Status: TypeAlias = Literal["running", "completed", "failed", "cancelled", "terminated", "timed_out"]
"""What a run is. All but `running` are closed, and final."""

ItemKind: TypeAlias = Literal["signal", "cancel"]
"""What an inbox holds. Outcomes of calls and children, and updates, will have kinds of their own."""

MAX_INBOX = 100
"""Items an inbox holds until the run takes them; a sender is refused then, and may try again."""
INLINE_BYTES = 300
"""Largest payload, as JSON text, that is kept in the record itself."""


@frozen(kw_only=True)
class InboxItem:
    """Something that was sent to a run and that it has not taken yet.

    Attributes:
        id: Its identity: an item that was appended twice is taken once.
        kind: What it is.
        at_ms: When it was sent, Unix milliseconds.
        name: Name of a signal; the reason of a cancellation.
        payload: JSON text of the payload, or a link to it, see `fact_codec`.
    """

    id: str
    kind: ItemKind
    at_ms: int
    name: str = ""
    payload: str = "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The record of the current run of a workflow id, or of an earlier one.

    Attributes:
        workflow_id: Chosen by the caller, or derived from what started the run; unique among running ones.
        run_id: Identity of this run.
        first_run_id: The run with which the chain of this one began.
        workflow: Function id of the workflow.
        status: What it is.
        version: Code version it was started with, Python's minor version included.
        input: JSON text of the input, or a link to it.
        created_ms: When it was created.
        epoch: How often it was acquired under this workflow id; a holder of an older epoch can write nothing.
        owner: Who holds it.
        lease_until_ms: When the lease of its owner ends; None while it is suspended or closed.
        wake_at_ms: When somebody has to look at it; None if there is nothing to do without a message.
        inbox: What it has not taken yet, oldest first.
        tail: The facts behind the last linked chunk, each as text.
        sequence: How many facts its journal has.
        chunks: How many linked chunks its journal has before the tail.
        cancel_requested_ms: When its cancellation was first asked for.
        acquisitions: How often it was acquired since its last progress.
        deadline_ms: When it times out, if it does.
        parked: Why nobody runs it, until an operator or a delivery resumes it.
        outcome: JSON text of the result or the failure of a closed run, or a link to it.
        closed_ms: When it was closed.
        duties: What has to be done now that it is closed, see `Closing`.
        start_at_ms: When it may begin, if its start was delayed.
        traceparent: W3C trace context of what started it.
    """

    workflow_id: str
    run_id: str
    first_run_id: str
    workflow: str
    status: Status = "running"
    version: str = ""
    input: str = "null"
    created_ms: int = 0
    epoch: int = 0
    owner: str | None = None
    lease_until_ms: int | None = None
    wake_at_ms: int | None = None
    inbox: tuple[InboxItem, ...] = ()
    tail: tuple[str, ...] = ()
    sequence: int = 0
    chunks: int = 0
    cancel_requested_ms: int | None = None
    acquisitions: int = 0
    deadline_ms: int | None = None
    parked: str | None = None
    outcome: str | None = None
    closed_ms: int | None = None
    duties: tuple[str, ...] = ()
    start_at_ms: int | None = None
    traceparent: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether the run has not ended."""
        return self.status == "running"

    def is_leased(self, now_ms: int) -> bool:
        """Return whether somebody holds the run at this moment."""
        return self.is_open and self.lease_until_ms is not None and self.lease_until_ms >= now_ms

    def is_free(self, now_ms: int) -> bool:
        """Return whether the run can be acquired at this moment: its lease has ended, or its wake is due."""
        if not self.is_open:
            return False
        if self.lease_until_ms is not None:
            return self.lease_until_ms < now_ms
        return self.wake_at_ms is not None and self.wake_at_ms <= now_ms

    def is_held_by(self, run_id: str, epoch: int) -> bool:
        """Return whether who acquired it with this epoch may still write."""
        return self.is_open and self.run_id == run_id and self.epoch == epoch
