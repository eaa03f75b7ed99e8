"""What an executor does with a run in its hands: every operation as moves, the same for the search and for a trace.

An executor may crash between any two operations, and may go on after its lease is over. The moves of one operation are
its outcomes: `ok`, `refused` by its condition, or `lost`: stored, but the reply did not arrive, so it is sent again.
After each reply the workflow runs on, and a step it wants is run at once when all the facts behind it are stored.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.protocol import run_rules as rules
from tests.protocol.run_model import (
    GONE,
    HOLDING,
    Archived,
    Chunk,
    Executor,
    Record,
    Stage,
    Status,
    Store,
    Wake,
    World,
)
from tests.protocol.run_rules import Scenario
from tests.protocol.run_workflow import SENT, TIMEOUT, WAITING, Facts, Wish, fresh
from tests.protocol.search import Move, need

Moved = Iterator[Move[World]]


class Executions:
    """The moves of executors that have acquired a run, in one scenario over one store."""

    def __init__(self, scenario: Scenario, store: Store) -> None:
        self.scenario = scenario
        self.store = store

    def take(self, label: tuple[str, ...], after: World, slot: int, executor: Executor, lost: Stage | None) -> Moved:
        """Run a run whose lease was taken, or park it. `lost` is the stage to go back to after a lost reply."""
        record = known(after)
        full = label if len(label) > 1 else (*label, "ok")
        if self.is_used_up(record):
            parking = self.view(after, executor)._replace(stage="parking")
            yield Move((slot, *full), True, with_executor(after, slot, parking))
        else:
            if self.scenario.limit:
                after = after._replace(tries=after.tries + 1)
                rules.check_run(after, self.scenario.limit)
            yield from self.run_on((slot, *full), after, slot, self.view(after, executor))
        if lost is not None and label[0] in self.scenario.losses:
            yield Move((slot, label[0], "lost"), False, with_executor(after, slot, executor._replace(stage=lost)))

    def is_used_up(self, record: Record) -> bool:
        """Return whether a run was acquired too often without progress."""
        return self.scenario.limit > 0 and record.acquired > self.scenario.limit

    def view(self, world: World, executor: Executor) -> Executor:
        """Return what an executor knows after a reply: the inbox is fed at once."""
        record = known(world)
        pending = fresh(record.inbox, self.known_items(world))
        return Executor(executor.message, "running", record.run, len(record.journal), len(record.inbox), pending)

    def known_items(self, world: World) -> Facts:
        """Return the facts that a repeated item is told by; a run hands them on to the next one of its chain."""
        return rules.chain_of(world)

    def run_on(self, label: tuple[object, ...], world: World, slot: int, executor: Executor) -> Moved:
        """Let the workflow run until it wants something that needs another write."""
        world = with_executor(world, slot, executor)
        wish = self.wish(world, executor)
        if wish.kind != "step" or not self.may_start(executor):
            yield Move(label, True, world)
            return
        rules.check_effect(world, slot, executor, wish.name)
        for outcome in range(self.scenario.outcomes if wish.name == "A" else 1):
            pending = (*executor.pending, f"{wish.name}={outcome}")
            yield Move(
                (*label, "run", pending[-1]), True, with_executor(world, slot, executor._replace(pending=pending))
            )

    def may_start(self, executor: Executor) -> bool:
        """Return whether effects may start: all that led to them is stored."""
        return not executor.pending

    def wish(self, world: World, executor: Executor) -> Wish:
        """Return what the workflow wants."""
        return self.scenario.workflow.wish(executor.run, rules.facts_of(world, executor))

    def run_moves(self, world: World, slot: int, executor: Executor) -> Moved:
        """Yield how the executor meets the wish of the workflow."""
        wish = self.wish(world, executor)
        if self.scenario.chunks and executor.pending and not self.holds(world, slot, executor):
            yield from self.put_late_chunk(world, slot, executor)
        if wish.kind == "step" or (wish.kind == "call" and executor.pending):
            put = self.put_chunk if self.scenario.chunks else self.append
            yield from put(world, slot, executor)
        elif wish.kind == "wait":
            if self.scenario.deadline and self.is_registered(world, executor):
                timed_out = executor._replace(pending=(*executor.pending, TIMEOUT))
                yield from self.run_on((slot, "read the clock"), world, slot, timed_out)
            yield from self.wait(world, slot, executor)
        elif wish.kind == "call":
            yield self.send_call(world, slot, executor)
        elif wish.kind == "continue":
            yield from self.continue_as_new(world, slot, executor)
        else:
            yield from self.close(world, slot, executor, "completed" if wish.name == "completed" else "cancelled")

    def holds(self, world: World, slot: int, executor: Executor) -> bool:
        """Return whether the executor has the newest epoch of an open run."""
        return self.store.has_epoch(known(world), slot, executor.run)

    def append(self, world: World, slot: int, executor: Executor) -> Moved:
        """Store the pending facts; a repeated append recognises itself by their number."""
        record = self.store.append(known(world), slot, executor)
        if record is not None:
            rules.check_write(known(world), executor, "append")
            after = world._replace(record=record, tries=0)
            yield from self.run_on((slot, "append", "ok"), after, slot, self.view(after, executor))
            if "append" in self.scenario.losses:
                yield Move((slot, "append", "lost"), False, after)
        elif self.store.is_own_append(known(world), slot, executor):
            yield from self.run_on((slot, "append", "refused", "its own"), world, slot, self.view(world, executor))
        else:
            yield self.fenced("append", world, slot)

    def put_chunk(self, world: World, slot: int, executor: Executor) -> Moved:
        """Write a chunk before it is linked. A lower epoch overwrites nothing of a higher one."""
        if not self.holds(world, slot, executor):
            yield self.fenced("put chunk", world, slot)
        else:
            after = world._replace(chunk=Chunk(executor.pending, slot))
            yield self.reached((slot, "put chunk", "ok"), after, slot, executor, "linking")

    def put_late_chunk(self, world: World, slot: int, executor: Executor) -> Moved:
        """Let the put of an executor that has lost its epoch arrive late."""
        record = known(world)
        is_next = record.run == executor.run and self.store.is_next(record, executor)
        if is_next and self.accepts_late_chunk(world, record):
            yield Move((slot, "put chunk", "late"), False, world._replace(chunk=Chunk(executor.pending, GONE)))

    def accepts_late_chunk(self, world: World, record: Record) -> bool:
        """Return whether a chunk may be put by a lower epoch: only if that of the newest is not there."""
        return world.chunk is None or world.chunk.writer != record.epoch or record.epoch < 0

    def link_chunk(self, world: World, slot: int, executor: Executor) -> Moved:
        """Append by linking the chunk."""
        record = self.store.append(known(world), slot, executor)
        if record is None:
            if self.store.is_own_append(known(world), slot, executor):
                yield from self.run_on((slot, "append", "refused", "its own"), world, slot, self.view(world, executor))
            else:
                yield self.fenced("append", world, slot)
            return
        rules.check_write(known(world), executor, "append")
        is_own = world.chunk is not None and world.chunk.facts == executor.pending
        need("append only", is_own, f"the linked chunk is {world.chunk}, its writer put {executor.pending}")
        after = world._replace(record=record, chunk=None, tries=0)
        yield from self.run_on((slot, "append", "ok"), after, slot, self.view(after, executor))
        if "append" in self.scenario.losses:
            yield Move((slot, "append", "lost"), False, after)

    def is_registered(self, world: World, executor: Executor) -> bool:
        """Return whether the deadline of the wait is stored."""
        return WAITING in rules.journal_of(world, executor.run)[: executor.seen]

    def wait(self, world: World, slot: int, executor: Executor) -> Moved:
        """Suspend until the outside answers; the first time with the deadline as a fact."""
        is_new = self.scenario.deadline and not self.is_registered(world, executor)
        yield from self.suspend(world, slot, executor, (WAITING,) if is_new else (), self.wake())

    def wake(self) -> Wake | None:
        """Return when a suspended run must be looked at."""
        return "deadline" if self.scenario.deadline else None

    def suspend(self, world: World, slot: int, executor: Executor, more: Facts, wake: Wake | None) -> Moved:
        """Store the pending facts and give the lease back, unless the inbox has grown."""
        before = known(world)
        record = self.store.suspend(before, slot, executor, more, wake)
        stage: Stage = "done" if wake is None else "suspended"
        if record is not None:
            rules.check_write(before, executor, "suspension")
            after = world._replace(record=record, tries=0)
            yield self.reached((slot, "suspend", "ok"), after, slot, executor, stage)
            if "suspend" in self.scenario.losses:
                yield self.reached((slot, "suspend", "lost"), after, slot, executor, "suspending")._replace(fair=False)
        elif self.store.may_suspend(before, slot, executor):
            yield from self.feed("suspend", world, slot, executor)
        elif self.holds(world, slot, executor) and not before.leased:
            yield self.reached((slot, "suspend", "refused", "its own"), world, slot, executor, stage)
        else:
            yield self.fenced("suspend", world, slot)

    def close(self, world: World, slot: int, executor: Executor, status: Status) -> Moved:
        """Store the pending facts and the outcome, unless the inbox has grown."""
        before = known(world)
        record = self.store.close(before, slot, executor, status)
        stage: Stage = "telling" if self.scenario.parent else "done"
        if record is not None:
            rules.check_write(before, executor, "close")
            after = world._replace(record=record)
            yield self.reached((slot, "close", "ok"), after, slot, executor, stage, run=record.run)
            if "close" in self.scenario.losses:
                yield Move((slot, "close", "lost"), False, after)
        elif self.holds(world, slot, executor) and self.store.is_next(before, executor):
            yield from self.feed("close", world, slot, executor)
        elif not before.is_open and before.epoch == slot and before.run == executor.run:
            yield self.reached((slot, "close", "refused", "its own"), world, slot, executor, stage, run=before.run)
        else:
            yield self.fenced("close", world, slot)

    def feed(self, what: str, world: World, slot: int, executor: Executor) -> Moved:
        """Feed what came into the inbox since the last reply, under the same lease."""
        inbox = known(world).inbox
        new = fresh(inbox[executor.fed :], (*self.known_items(world), *executor.pending))
        fed = executor._replace(stage="running", fed=len(inbox), pending=executor.pending + new)
        yield from self.run_on((slot, what, "refused", "the inbox has grown"), world, slot, fed)

    def send_call(self, world: World, slot: int, executor: Executor) -> Move[World]:
        """Send the call, also by an executor that has lost its epoch: sends know no fence."""
        rules.check_effect(world, slot, executor, None)
        after = world._replace(call=world.call._replace(queued=True))
        return self.reached((slot, "send call"), after, slot, executor, "called")

    def after_call(self, world: World, slot: int, executor: Executor) -> Moved:
        """Suspend with the fact that the call was sent."""
        facts = (SENT, WAITING) if self.scenario.deadline else (SENT,)
        yield from self.suspend(world, slot, executor, facts, self.wake())

    def continue_as_new(self, world: World, slot: int, executor: Executor) -> Moved:
        """Archive the run and go on with the next one of its chain, in one transaction."""
        before = known(world)
        record = self.store.continue_as_new(before, slot, executor)
        if record is not None:
            rules.check_write(before, executor, "continue-as-new")
            archived = Archived(before.run, "continued", before.journal + executor.pending)
            after = world._replace(record=record, archive=(*world.archive, archived), tries=0)
            yield from self.run_on((slot, "continue as new", "ok"), after, slot, self.view(after, executor))
            if "continue as new" in self.scenario.losses:
                yield Move((slot, "continue as new", "lost"), False, after)
        elif before.is_open and before.epoch == slot and before.run != executor.run:
            label = (slot, "continue as new", "refused", "its own")
            yield from self.run_on(label, world, slot, self.view(world, executor))
        else:
            yield self.fenced("continue as new", world, slot)

    def park(self, world: World, slot: int, executor: Executor) -> Moved:
        """Give up the run until somebody delivers something or resumes it; stop if its inbox has grown."""
        before = known(world)
        record = self.store.park(before, slot, executor)
        if record is None:
            yield self.fenced("park", world, slot)
            return
        rules.check_parked(world, executor, before, self.scenario.limit)
        yield self.reached((slot, "park", "ok"), world._replace(record=record, tries=0), slot, executor, "done")

    def fenced(self, what: str, world: World, slot: int) -> Move[World]:
        """Stop at once: write nothing, and do not acknowledge."""
        return Move((slot, what, "refused", "fenced"), True, left(world, slot))

    def reached(
        self, label: tuple[object, ...], world: World, slot: int, executor: Executor, stage: Stage, *, run: int = 0
    ) -> Move[World]:
        """Return a move that ends in a stage; the executor forgets what it knows of the run if it is done with it."""
        keeps = stage in HOLDING
        after = executor._replace(stage=stage) if keeps else Executor(executor.message, stage, run)
        return Move(label, True, with_executor(world, slot, after))


def known(world: World) -> Record:
    """Return the record, which is there as soon as somebody has acquired it."""
    if world.record is None:
        raise LookupError("there is no record yet")
    return world.record


def with_executor(world: World, slot: int, executor: Executor | None) -> World:
    """Return the world with an executor in its place."""
    executors = world.executors
    return world._replace(executors=(*executors[:slot], executor, *executors[slot + 1 :]))


def left(world: World, slot: int) -> World:
    """Return the world without an executor: its message stays in the queue, its lease in the record."""
    world = with_executor(world, slot, None)
    if world.record is not None and world.record.epoch == slot:
        world = world._replace(record=world.record._replace(epoch=GONE))
    if world.chunk is not None and world.chunk.writer == slot:
        world = world._replace(chunk=world.chunk._replace(writer=GONE))
    return world
