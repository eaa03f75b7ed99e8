"""What an executor does with a message: begin, acquire, guard, replace, and what is left to do after the run.

A message is acknowledged only by an executor that has seen, or made, another guard of the run.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.protocol import run_rules as rules
from tests.protocol.run_execution import Executions, Moved, known, left, with_executor
from tests.protocol.run_model import NOBODY, Archived, Executor, Record, Stage, Store, World
from tests.protocol.run_rules import Scenario
from tests.protocol.search import Move

WAKE = "wake"


class Executors(Executions):
    """All moves of executors in one scenario over one store."""

    def __init__(self, scenario: Scenario, store: Store) -> None:
        super().__init__(scenario, store)
        self.by_stage: dict[Stage, Callable[[World, int, Executor], Moved]] = {
            "received": self.begin,
            "guarding": self.guard,
            "terminating": self.terminate,
            "replacing": self.replace,
            "running": self.run_moves,
            "linking": self.link_chunk,
            "called": self.after_call,
            "suspending": self.wait,
            "parking": self.park,
            "suspended": self.send_wake,
            "telling": self.tell,
            "clearing": self.clear_duties,
            "done": self.acknowledge,
        }

    def executor_moves(self, world: World, slot: int) -> Moved:
        """Yield what one executor can do."""
        executor = world.executors[slot]
        if executor is None:
            for message in world.queue:
                yield self.receive(world, slot, message)
            return
        yield Move((slot, "crash"), False, left(world, slot))
        yield from self.by_stage[executor.stage](world, slot, executor)

    def receive(self, world: World, slot: int, message: str) -> Move[World]:
        """Take a message from the queue, which goes on to offer it until it is acknowledged."""
        return Move((slot, "receive", message), True, with_executor(world, slot, Executor(message)))

    # The message in hand.

    def begin(self, world: World, slot: int, executor: Executor) -> Moved:
        """Create the run of a start message, or see what there is."""
        record, run = world.record, started_by(executor.message)
        if record is None:
            if run is None:
                yield self.reached((slot, "acquire", "refused"), world, slot, executor, "done")
            else:
                yield from self.create(world, slot, executor, run)
        elif run is None or run == record.run:
            yield from self.acquire(world, slot, executor, record)
        else:
            yield self.meet(world, slot, executor, record, run)

    def create(self, world: World, slot: int, executor: Executor, run: int) -> Moved:
        """Begin a run and take its lease, in one write."""
        after = world._replace(record=self.store.create(run, slot))
        yield from self.take(("create",), after, slot, executor, "received")

    def acquire(self, world: World, slot: int, executor: Executor, record: Record) -> Moved:
        """Take the lease, or find out from the record what else there is to do."""
        if record.is_open and record.leased and record.epoch == slot:
            yield from self.take(("acquire", "refused", "its own"), world, slot, executor, None)
            return
        if not record.is_open:
            stage: Stage = "telling" if record.duties else "done"
            yield self.reached((slot, "acquire", "refused", "closed"), world, slot, executor, stage, run=record.run)
            return
        if self.may_be_busy(record):
            yield self.refused(world, slot, executor, record)
        if record.leased or record.wake is not None:
            after = world._replace(record=self.store.acquire(record, slot))
            yield from self.take(("acquire",), after, slot, executor, "received")

    def may_be_busy(self, record: Record) -> bool:
        """Return whether there may be nothing to do now: a lease may be alive, a deadline ahead, or no wake set."""
        return record.epoch != NOBODY if record.leased else record.wake in (None, "deadline")

    def refused(self, world: World, slot: int, executor: Executor, record: Record) -> Move[World]:
        """Make sure of another guard before the message is acknowledged."""
        stage: Stage = "guarding" if record.leased and record.wake is None else "done"
        return self.reached((slot, "acquire", "refused"), world, slot, executor, stage)

    def guard(self, world: World, slot: int, executor: Executor) -> Moved:
        """Set `wake_at` to the end of the lease of another executor; begin again if there is none any more."""
        record = self.store.guard(known(world))
        if record is None:
            yield self.reached((slot, "guard", "refused"), world, slot, executor, "received")
        else:
            yield self.reached((slot, "guard", "ok"), world._replace(record=record), slot, executor, "done")

    def meet(self, world: World, slot: int, executor: Executor, record: Record, run: int) -> Move[World]:
        """Apply the policies of a start to another run of the id. A start that was used before is refused."""
        stage: Stage = "done"
        if not self.was_used(world, run):
            if record.is_open:
                stage = "terminating" if self.scenario.conflict == "terminate" else "done"
            else:
                stage = "telling" if record.duties else "replacing"
        return self.reached((slot, "create", "refused"), world, slot, executor, stage, run=record.run)

    def was_used(self, world: World, run: int) -> bool:
        """Return whether a run was archived, so that no start may begin it again."""
        return any(archived.run == run for archived in world.archive)

    def terminate(self, world: World, slot: int, executor: Executor) -> Moved:
        """End the run that is in the way, by its run id; then look again."""
        ended = self.store.terminate(known(world), executor.run)
        if ended is None:
            yield self.reached((slot, "terminate", "refused"), world, slot, executor, "received")
            return
        rules.check_taken_over(world, started_by(executor.message) or 0)
        yield self.reached((slot, "terminate", "ok"), world._replace(record=ended), slot, executor, "received")

    def replace(self, world: World, slot: int, executor: Executor) -> Moved:
        """Archive the closed run and begin the next one under a lease, in one transaction."""
        run = started_by(executor.message) or 0
        after = self.replaced(world, executor.run, self.guarded(self.store.create(run, slot)))
        if after is None:
            yield self.reached((slot, "replace", "refused"), world, slot, executor, "received")
        else:
            yield from self.take(("replace",), after, slot, executor, "received")

    def guarded(self, record: Record) -> Record:
        """Return a replacing record with its guard: a copy of its message may have been refused and acknowledged."""
        return record._replace(wake="lease end")

    def replaced(self, world: World, old: int, record: Record) -> World | None:
        """Return the world after a closed run was replaced, None if the transaction fails."""
        before = known(world)
        if self.was_used(world, record.run) or self.store.replace(before, old, record) is None:
            return None
        archive = (*world.archive, Archived(before.run, before.status, before.journal))
        return world._replace(record=record, archive=archive, accepted=frozenset(record.inbox), tries=0)

    # After the run.

    def send_wake(self, world: World, slot: int, executor: Executor) -> Moved:
        """Send the wake of a deadline, after the write that registers it."""
        after = world._replace(queue=with_message(world.queue, WAKE))
        yield self.reached((slot, "send wake"), after, slot, executor, "done")

    def tell(self, world: World, slot: int, executor: Executor) -> Moved:
        """Deliver the outcome to the parent, which knows a repeated one."""
        told = tuple(sorted({*world.told, executor.run}))
        yield self.reached((slot, "tell"), world._replace(told=told), slot, executor, "clearing", run=executor.run)

    def clear_duties(self, world: World, slot: int, executor: Executor) -> Moved:
        """Note that all is done; a start of another run then looks again."""
        record = self.store.clear_duties(known(world), executor.run)
        stage: Stage = "done" if started_by(executor.message) in (None, executor.run) else "received"
        outcome = "refused" if record is None else "ok"
        after = world if record is None else world._replace(record=record)
        yield self.reached((slot, "clear duties", outcome), after, slot, executor, stage)

    def acknowledge(self, world: World, slot: int, executor: Executor) -> Moved:
        """Delete the message from the queue, whoever else still has it."""
        queue = tuple(message for message in world.queue if message != executor.message)
        yield Move((slot, "acknowledge", executor.message), True, left(world, slot)._replace(queue=queue))


def started_by(message: str) -> int | None:
    """Return the run that a message starts, None if it is a wake."""
    return None if message == WAKE else int(message.removeprefix("start "))


def with_message(queue: tuple[str, ...], message: str) -> tuple[str, ...]:
    """Return the queue with a message. One wake stands for any number of them."""
    return queue if message in queue else tuple(sorted((*queue, message)))
