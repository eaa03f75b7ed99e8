"""What must hold of durable runs, by the name under which a breach is reported.

`append only`     A journal only grows, and only while its run is open; a linked chunk holds what its writer put there.
`once`            A step has one outcome, a wait one timeout, and a signal is a fact once in a whole chain of runs.
`stored first`    A step or a call starts only when all the facts that led to it are stored.
`final`           A closed or archived run never changes, only a closed one is replaced, and no run begins twice.
`no signal lost`  What was accepted is in the inbox or a fact; a fact, if the run has ended by its own code.
`guarded`         An open run with something to do, or a closed one with duties, has a message in its queue, or
                  `wake_at`. A parked run has neither, but is parked only by an executor that knows its whole inbox.
`fenced`          A write of an executor succeeds only on the journal it knows.
`obedient`        A step starts only under the newest epoch of an open run; after an accepted cancel only the clean-up
                  does. A start that was used before ends no other run.
`together`        A run that a signal-with-start begins has that signal from the first moment on.
`bounded`         Without progress a run is run as often as the limit allows, then it is parked; neither less nor more.
`live`            From every state the end can be reached by fair moves alone: no crash, no client, no repeated message.
                  Checked by the search. This is about what is possible, and no proof that it happens.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.protocol.run_model import Archived, Client, Executor, Record, World
from tests.protocol.run_workflow import CANCEL, CLEAN_UP, SENT, Facts, Script, Workflow
from tests.protocol.search import Breach, need

RULES = frozenset(
    {
        "append only",
        "once",
        "stored first",
        "final",
        "no signal lost",
        "guarded",
        "fenced",
        "obedient",
        "together",
        "bounded",
    }
)


class Scenario(NamedTuple):
    """What may happen.

    Attributes:
        name: For failure messages.
        workflow: What the runs do.
        starts: Runs whose start messages are queued at the beginning.
        late: Which of these messages may come back after they were acknowledged.
        clients: What clients do: `start 1`, `signal 1`, `cancel`, `terminate`, `resume`, and `signal 1 with start 2`.
        repeats: Whether the first request of a delivery may be sent again, because its reply was lost.
        deadline: Whether the wait of the workflow has one.
        chunks: Whether every append needs a chunk.
        outcomes: How many outcomes step A may have; two tell its executions apart.
        parent: Whether a parent must be told of every outcome.
        limit: Acquisitions without progress before a run is parked; 0 if they are not counted.
        conflict: What a start message does about another open run.
        losses: The operations whose replies may be lost.
        executors: How many invocations may go on at the same time.
    """

    name: str
    workflow: Workflow = Script(("A", "signal", "B"))
    starts: tuple[int, ...] = (1,)
    late: tuple[int, ...] = ()
    clients: tuple[str, ...] = ("signal 1",)
    repeats: bool = False
    deadline: bool = True
    chunks: bool = False
    outcomes: int = 1
    parent: bool = False
    limit: int = 0
    conflict: str = "refuse"
    losses: frozenset[str] = frozenset({"append"})
    executors: int = 2


def check(world: World, scenario: Scenario) -> None:
    """Check what must hold in every state."""
    record = world.record
    if record is None:
        return
    chain = chain_of(world)
    _check_once(record, chain)
    if world.accepted and record.status != "terminated":
        lost = world.accepted - set(chain + record.inbox if record.is_open else chain)
        need("no signal lost", not lost, f"{sorted(lost)}")
    if record.wake is None and not world.queue:
        is_guarded = not record.duties and (not record.is_open or record.parked or is_idle(world, scenario))
        need("guarded", is_guarded, f"neither message nor wake_at for {record}")
    for client, kind in zip(world.clients, scenario.clients, strict=True):
        _check_together(record, client, kind)


def check_move(before: World, after: World) -> None:
    """Check a move."""
    if after.archive[: len(before.archive)] != before.archive:
        raise Breach("final", f"an archived run changed: {before.archive} -> {after.archive}")
    old, new = before.record, after.record
    if old is None or old is new:
        return
    if new is None:
        raise Breach("final", "the record is gone")
    if old.run != new.run:
        _check_replaced(old, new, after.archive)
        return
    need("append only", new.journal[: len(old.journal)] == old.journal, f"{old.journal} -> {new.journal}")
    if not old.is_open:
        need("append only", old.journal == new.journal, f"facts of a closed run: {new.journal}")
        need("final", old.status == new.status, f"{old.status} -> {new.status}")


def check_effect(world: World, slot: int, executor: Executor, step: str | None) -> None:
    """Check that a step, or the call if it is None, may start."""
    facts = facts_of(world, executor)
    stored = journal_of(world, executor.run)
    need("stored first", stored[: len(facts)] == facts, f"{step or 'call'} starts from {facts}, stored are {stored}")
    record = world.record
    if step is None or record is None:
        return
    is_newest = record.is_open and record.epoch == slot and record.run == executor.run
    need("obedient", is_newest, f"{step} starts without the lease or on a closed run")
    need("obedient", step == CLEAN_UP or CANCEL not in record.inbox, f"{step} starts after an accepted cancel")


def check_write(record: Record, executor: Executor, what: str) -> None:
    """Check that a write that has succeeded came from an executor which knew the journal."""
    known = len(record.journal) == executor.seen
    need("fenced", known, f"{what} after {executor.seen} facts, stored are {record.journal}")


def check_taken_over(world: World, run: int) -> None:
    """Check that a start may end another run."""
    used = any(archived.run == run for archived in world.archive)
    is_current = world.record is not None and world.record.run == run
    need("obedient", not used and not is_current, f"the start of run {run}, which has begun before, ends a run")


def check_run(world: World, limit: int) -> None:
    """Check that an executor may run a run once more."""
    need("bounded", not limit or world.tries <= limit, f"run {world.tries} times without progress")


def check_parked(world: World, executor: Executor, record: Record, limit: int) -> None:
    """Check that a run may be parked. `record` is what it was before."""
    need("bounded", world.tries == limit, f"parked after {world.tries} of {limit} runs without progress")
    need("guarded", len(record.inbox) == executor.fed, f"parked over a new item in {record.inbox}")


def is_idle(world: World, scenario: Scenario) -> bool:
    """Return whether the run waits for the outside and has nothing to do before that answers."""
    record = world.record
    if record is None or record.leased or record.inbox or scenario.deadline:
        return False
    return scenario.workflow.wish(record.run, record.journal).kind == "wait"


def is_end(world: World, scenario: Scenario) -> bool:
    """Return whether nothing is left to do."""
    record = world.record
    if record is None:
        return not world.queue
    if record.is_open:
        if record.parked and record.wake is None:
            return True
        is_called = SENT in record.journal  # a call is answered, so nobody waits for one in the end
        return is_idle(world, scenario) and not is_called and world.accepted <= set(chain_of(world))
    closed = {record.run, *(archived.run for archived in world.archive if archived.status != "continued")}
    return record.status != "continued" and (not scenario.parent or closed <= set(world.told))


def facts_of(world: World, executor: Executor) -> Facts:
    """Return the facts that an executor has fed to the workflow. Journals only grow, so a count is enough."""
    return journal_of(world, executor.run)[: executor.seen] + executor.pending


def journal_of(world: World, run: int) -> Facts:
    """Return the stored facts of a run."""
    record = world.record
    if record is not None and record.run == run:
        return record.journal
    return next((archived.journal for archived in world.archive if archived.run == run), ())


def chain_of(world: World) -> Facts:
    """Return the stored facts of all runs."""
    facts = () if world.record is None else world.record.journal
    return sum((archived.journal for archived in world.archive), facts) if world.archive else facts


def _check_once(record: Record, chain: Facts) -> None:
    keys = [fact.partition("=")[0] for fact in record.journal]
    need("once", len(set(keys)) == len(keys), f"{record.journal}")
    signals = [fact for fact in chain if fact.startswith("signal ")]
    need("once", len(set(signals)) == len(signals), f"{chain}")


def _check_replaced(old: Record, new: Record, archive: tuple[Archived, ...]) -> None:
    need("final", all(archived.run != new.run for archived in archive), f"run {new.run} begins twice")
    kept = bool(archive) and archive[-1].run == old.run
    need("final", kept and archive[-1].status != "open", f"run {old.run} is replaced while it is {old.status}")


def _check_together(record: Record, client: Client, kind: str) -> None:
    signal, _, run = kind.partition(" with start ")
    if run and client.stage in {"started", "stored"} and record.run == int(run) == client.run:
        need("together", signal in record.inbox + record.journal, f"run {run} is there without {signal}")
