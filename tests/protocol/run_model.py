"""The store of durable runs as values: the record of a workflow id, and each operation as a condition and a change.

Epochs are not numbered: only whether an executor has the newest one decides, so the record names the executor that
acquired it last. A crash makes that `GONE`, and the search stays finite however often executors crash. Time is absent:
a lease may be found over at any moment after it began, and so may a deadline.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from tests.protocol.run_workflow import Facts

Status = Literal["open", "completed", "cancelled", "terminated", "continued"]
Wake = Literal["now", "deadline", "lease end"]
Stage = Literal[
    "received",
    "guarding",
    "terminating",
    "replacing",
    "running",
    "linking",
    "called",
    "suspending",
    "parking",
    "suspended",
    "telling",
    "clearing",
    "done",
]

GONE = -1
"""The executor with the newest epoch has crashed, or needs it no more."""
NOBODY = -2
"""No executor has acquired the run yet; its lease is over from the beginning."""

HOLDING = frozenset({"running", "linking", "called", "suspending", "parking"})
"""The stages in which an executor believes that it has the lease."""


class Record(NamedTuple):
    """The one item that decides.

    Attributes:
        run: The current run.
        status: `open`, or how it ended.
        epoch: The executor that acquired it last.
        leased: Whether there is a lease, over or not.
        wake: When the sweep sends a wake: `wake_at`.
        inbox: What was delivered and is no fact yet.
        journal: All facts.
        duties: Whether something is left to do after the close.
        parked: Whether it waits for an operator.
        acquired: Acquisitions since the last progress; counted only if there is a limit.
    """

    run: int
    status: Status = "open"
    epoch: int = NOBODY
    leased: bool = True
    wake: Wake | None = None
    inbox: Facts = ()
    journal: Facts = ()
    duties: bool = False
    parked: bool = False
    acquired: int = 0

    @property
    def is_open(self) -> bool:
        """Whether the run has not ended."""
        return self.status == "open"


class Archived(NamedTuple):
    """An earlier run of the id."""

    run: int
    status: Status
    journal: Facts


class Executor(NamedTuple):
    """One invocation, with what it knows.

    Attributes:
        message: `wake`, or `start` with the number of the run.
        stage: What it does next.
        run: The run in its hands; while terminating or replacing, the run that is in the way.
        seen: How many facts of the journal it has read or stored.
        fed: How many items of the inbox it has fed to the workflow.
        pending: Facts that the workflow was fed and that are not stored yet.
    """

    message: str
    stage: Stage = "received"
    run: int = 0
    seen: int = 0
    fed: int = 0
    pending: Facts = ()


class Chunk(NamedTuple):
    """A journal chunk that nothing links yet."""

    facts: Facts
    writer: int


class Call(NamedTuple):
    """The call of a function: whether its message is queued, how far its consumer is, and how often it has answered."""

    queued: bool = False
    callee: str = ""
    answers: int = 0


class Client(NamedTuple):
    """A client on its way.

    Attributes:
        stage: `new`; `again` if its first request may be repeated; `replacing` the run that is in the way, `started`
            without its signal, `stored`, or `done`.
        run: The run that is in the way.
    """

    stage: Literal["new", "again", "replacing", "started", "stored", "done"] = "new"
    run: int = 0


class World(NamedTuple):
    """A state of the search.

    Attributes:
        record: None before the first start.
        archive: Earlier runs, oldest first.
        queue: Messages that are not acknowledged, sorted.
        executors: Invocations that are going on.
        clients: One for each of the scenario.
        accepted: History: what was accepted for the current chain of runs.
        chunk: The chunk at the place where the next one goes.
        call: The call.
        told: The runs whose parents know the outcome.
        tries: History: how often the run was run since it last made progress or was parked.
    """

    record: Record | None
    archive: tuple[Archived, ...]
    queue: tuple[str, ...]
    executors: tuple[Executor | None, ...]
    clients: tuple[Client, ...] = ()
    accepted: frozenset[str] = frozenset()
    chunk: Chunk | None = None
    call: Call = Call()
    told: tuple[int, ...] = ()
    tries: int = 0


class Store:
    """The operations. Each is one conditional write; None means that its condition fails. A mistake is a subclass.

    Args:
        limit: How many acquisitions without progress are allowed; 0 if they are not counted.
        parent: Whether runs have a parent to tell.
    """

    def __init__(self, limit: int = 0, *, parent: bool = False) -> None:
        self.limit = limit
        self.parent = parent

    # By executors.

    def create(self, run: int, slot: int) -> Record:
        """Return the record of a run that a start message begins: the message is its guard."""
        return Record(run, epoch=slot, acquired=min(self.limit, 1))

    def acquire(self, record: Record, slot: int) -> Record:
        """Take the lease. That the record is free was seen before."""
        acquired = min(record.acquired + 1, self.limit + 1) if self.limit else 0
        return record._replace(epoch=slot, leased=True, parked=False, acquired=acquired)

    def guard(self, record: Record) -> Record | None:
        """Let the sweep look after a lease, unless it does already."""
        return record._replace(wake=record.wake or "lease end") if record.is_open and record.leased else None

    def has_epoch(self, record: Record, slot: int, run: int) -> bool:
        """Return whether the fence lets an executor write."""
        return record.is_open and record.epoch == slot and record.run == run

    def append(self, record: Record, slot: int, executor: Executor) -> Record | None:
        """Store pending facts and drain the inbox items they come from."""
        if self.has_epoch(record, slot, executor.run) and self.is_next(record, executor):
            return self.with_facts(record, executor, executor.pending)
        return None

    def is_next(self, record: Record, executor: Executor) -> bool:
        """Return whether the journal is as the executor knows it."""
        return len(record.journal) == executor.seen

    def is_quiet(self, record: Record, executor: Executor) -> bool:
        """Return whether the inbox is as the executor knows it."""
        return len(record.inbox) == executor.fed

    def is_own_append(self, record: Record, slot: int, executor: Executor) -> bool:
        """Return whether an append failed because it was stored before."""
        length = executor.seen + len(executor.pending)
        return self.has_epoch(record, slot, executor.run) and len(record.journal) == length

    def suspend(self, record: Record, slot: int, executor: Executor, more: Facts, wake: Wake | None) -> Record | None:
        """Store pending facts and `more`, and give the lease back."""
        if not self.may_suspend(record, slot, executor) or not self.is_quiet(record, executor):
            return None
        return self.with_facts(record, executor, (*executor.pending, *more))._replace(leased=False, wake=wake)

    def may_suspend(self, record: Record, slot: int, executor: Executor) -> bool:
        """Return whether the condition of a suspension holds, the inbox apart.

        The lease must be there: a suspension that drains repeated items only adds no fact, so if it is written again
        the number of facts does not stop it from draining what came since.
        """
        return self.has_epoch(record, slot, executor.run) and record.leased and self.is_next(record, executor)

    def close(self, record: Record, slot: int, executor: Executor, status: Status) -> Record | None:
        """Store pending facts and the outcome."""
        own = self.has_epoch(record, slot, executor.run) and self.is_next(record, executor)
        if not own or not self.is_quiet(record, executor):
            return None
        return self.ended(self.with_facts(record, executor, executor.pending), status)

    def continue_as_new(self, record: Record, slot: int, executor: Executor) -> Record | None:
        """Replace the run by the next one of its chain, which keeps the lease and what is left in the inbox."""
        if not self.has_epoch(record, slot, executor.run) or not self.is_next(record, executor):
            return None
        return Record(record.run + 1, epoch=slot, wake="lease end", inbox=record.inbox[executor.fed :])

    def park(self, record: Record, slot: int, executor: Executor) -> Record | None:
        """Give up a run that makes no progress. The count begins anew, so a delivery gives it another chance."""
        if not self.has_epoch(record, slot, executor.run) or not self.is_quiet(record, executor):
            return None
        return record._replace(leased=False, acquired=0, parked=True, wake=None)

    def clear_duties(self, record: Record, run: int) -> Record | None:
        """Note that everything after the close is done."""
        return record._replace(duties=False, wake=None) if record.run == run and record.duties else None

    def replace(self, record: Record, old: int, new: Record) -> Record | None:
        """Put a new run in the place of a closed one."""
        return new if record.run == old and not record.is_open and not record.duties else None

    def with_facts(self, record: Record, executor: Executor, facts: Facts) -> Record:
        """Return the record with more facts, and without the inbox items that were fed."""
        return record._replace(journal=record.journal + facts, inbox=record.inbox[executor.fed :], acquired=0)

    def ended(self, record: Record, status: Status) -> Record:
        """Return the record of a run that has ended; its duties are guarded by a wake."""
        wake: Wake | None = "now" if self.parent else None
        return record._replace(status=status, leased=False, wake=wake, duties=self.parent)

    # By everybody.

    def first(self, run: int, inbox: Facts = ()) -> Record:
        """Return the record of a run that a client begins: it may die before it sends the wake."""
        return Record(run, wake="now", inbox=inbox)

    def deliver(self, record: Record, item: str) -> Record | None:
        """Put an item into the inbox."""
        return record._replace(inbox=(*record.inbox, item), wake="now") if record.is_open else None

    def terminate(self, record: Record, run: int | None = None) -> Record | None:
        """End a run from outside; the next epoch is nobody's."""
        if not record.is_open or run not in (None, record.run):
            return None
        return self.ended(record, "terminated")._replace(epoch=GONE, parked=False)

    def resume(self, record: Record) -> Record | None:
        """Make an open run due, parked or not, and count anew."""
        return record._replace(parked=False, acquired=0, wake="now") if record.is_open else None

    def release(self, record: Record) -> Record | None:
        """Void the lease of a host that died, at the start of the only host."""
        if not record.is_open or not record.leased:
            return None
        return record._replace(epoch=GONE, leased=False, wake="now")
