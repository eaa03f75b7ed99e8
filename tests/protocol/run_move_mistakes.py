"""Mistakes in what executors, clients and the sweep do, and when."""

from __future__ import annotations

from collections.abc import Iterator

from tests.protocol.run_clients import Runs
from tests.protocol.run_execution import Moved, known, with_executor
from tests.protocol.run_model import Archived, Client, Executor, Record, Stage, World
from tests.protocol.run_workflow import Facts
from tests.protocol.search import Move


class AcknowledgesWithoutGuard(Runs):
    """A message that meets a live lease is acknowledged, whether or not anything else guards the run."""

    def refused(self, world: World, slot: int, executor: Executor, record: Record) -> Move[World]:
        return self.reached((slot, "acquire", "refused"), world, slot, executor, "done")


class DrainsAtAcquire(Runs):
    """The inbox is emptied by the acquisition, before its items are facts."""

    def take(self, label: tuple[str, ...], after: World, slot: int, executor: Executor, lost: Stage | None) -> Moved:
        for move in super().take(label, after, slot, executor, lost):
            moved = move.world.executors[slot]
            world = move.world._replace(record=known(move.world)._replace(inbox=()))
            if moved is None or label[0] != "acquire":
                yield move
            else:
                yield move._replace(world=with_executor(world, slot, moved._replace(fed=0)))


class ActsBeforeTheStore(Runs):
    """The machine's wishes are granted before the facts that led to them are stored."""

    def may_start(self, executor: Executor) -> bool:
        return True


class ContinuesInTwoWrites(Runs):
    """The run is closed as continued, then the next one is put."""

    def continue_as_new(self, world: World, slot: int, executor: Executor) -> Moved:
        before = known(world)
        if before.status == "continued" and before.run == executor.run and before.epoch == slot:
            record = Record(before.run + 1, epoch=slot, wake="lease end")
            archive = (*world.archive, Archived(before.run, before.status, before.journal))
            after = world._replace(record=record, archive=archive)
            yield from self.run_on((slot, "create next"), after, slot, self.view(after, executor))
            return
        ended = self.store.close(before, slot, executor, "continued")
        if ended is not None:
            yield Move((slot, "close as continued"), True, world._replace(record=ended))
        elif self.holds(world, slot, executor):
            yield from self.feed("close", world, slot, executor)
        else:
            yield self.fenced("close", world, slot)


class SweepsWakesAway(Runs):
    """The sweep clears `wake_at` when it sends the wake."""

    def sweep(self, world: World) -> World:
        record = known(world)
        return world._replace(record=record._replace(wake=None)) if record.is_open else world


class IgnoresTheArchive(Runs):
    """A start does not look whether its run was there before."""

    def was_used(self, world: World, run: int) -> bool:
        return False


class ReplacesWithoutWake(Runs):
    """A start message that replaces a closed run counts on itself as the guard."""

    def guarded(self, record: Record) -> Record:
        return record


class SeesCancelsAtSuspensionOnly(Runs):
    """What an append's reply shows of the inbox is fed only when the run would be suspended."""

    def run_on(self, label: tuple[object, ...], world: World, slot: int, executor: Executor) -> Moved:
        if label[1] == "append":
            executor = executor._replace(fed=0, pending=())
        yield from super().run_on(label, world, slot, executor)


class PutsChunksUnconditionally(Runs):
    """A chunk may be put by whoever comes, and whenever."""

    def accepts_late_chunk(self, world: World, record: Record) -> bool:
        return True


class StartsThenSignals(Runs):
    """A signal-with-start is two writes: a run without the signal, and the signal."""

    def start(self, world: World, number: int, run: int, signal: str | None) -> Moved:
        for move in super().start(world, number, run, None):
            client = move.world.clients[number]
            if signal is not None and client.stage == "stored":
                yield self.client_at(move.world, number, "start alone", Client("started", client.run))
            else:
                yield move

    def client_moves(self, world: World, number: int) -> Iterator[Move[World]]:
        if world.clients[number].stage == "started":
            signal = self.scenario.clients[number].partition(" with ")[0]
            yield from self.deliver(world, number, signal)
        else:
            yield from super().client_moves(world, number)


class SignalsAClosedRun(Runs):
    """A signal-with-start to a closed run is stored as a fact of it."""

    def signal_with_start(self, world: World, number: int, run: int, signal: str) -> Moved:
        record = world.record
        if record is None or record.is_open:
            yield from super().signal_with_start(world, number, run, signal)
            return
        after = world._replace(record=record._replace(journal=(*record.journal, signal)))
        yield self.client_at(after, number, "deliver to a closed run", Client("done"))


class EndsARunForALateStart(Runs):
    """A start that ends what runs does not look whether its own run was there before."""

    def meet(self, world: World, slot: int, executor: Executor, record: Record, run: int) -> Move[World]:
        if record.is_open:
            return self.reached((slot, "create", "refused"), world, slot, executor, "terminating", run=record.run)
        return super().meet(world, slot, executor, record, run)


class ReplacesARunWithDuties(Runs):
    """A closed run is replaced before its parent knows the outcome, and nobody knows of its duties any more."""

    def meet(self, world: World, slot: int, executor: Executor, record: Record, run: int) -> Move[World]:
        return super().meet(world, slot, executor, record._replace(duties=False), run)

    def replaced(self, world: World, old: int, record: Record) -> World | None:
        return super().replaced(world._replace(record=known(world)._replace(duties=False)), old, record)


class FeedsRepeatedItems(Runs):
    """An item that was delivered twice is fed twice if its first copy is a fact already."""

    def known_items(self, world: World) -> Facts:
        return ()


class ForgetsItemsOfEarlierRuns(Runs):
    """The next run of a chain does not know which items the run before has taken."""

    def known_items(self, world: World) -> Facts:
        return known(world).journal


class NeverParks(Runs):
    """A run is run again however often it has made no progress."""

    def is_used_up(self, record: Record) -> bool:
        return False
