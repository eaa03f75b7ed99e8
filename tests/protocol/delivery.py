"""Deliveries by one host: every move of its runs, of time, and of an operator.

A run is one receive on its way through the engine: the last receive is buried unrun; otherwise the function runs, and
then the message is acknowledged, failed or buried. Between any two of these steps the host may be killed (its runs are
gone, its next start voids their leases), a run may be given up, a lease may end while its run goes on, and a write may
be stored though the store reports that it was not, so that the run repeats it. A message may also turn out to be one
for a newer host, and be hidden unrun. Mishaps spare a run that is past the
last receive, or the number of receives would grow without end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.protocol import history
from tests.protocol.history import Limits, Past, Run, Stage, World
from tests.protocol.model import Cause, Received, Row, State, Storage
from tests.protocol.search import Move

LEASE = 1
BACKOFF = 1


class Scenario(NamedTuple):
    """What may happen.

    Attributes:
        name: For failure messages.
        groups: The group of each message, None on a queue that keeps no order.
        limits: Attempts in total, and the receive that is not run.
        places: Messages handled at the same time.
        kills: Whether the host may be killed, any number of times.
        losses: Whether leases may end before their runs, runs may be given up and writes repeated, any number of times.
        hides: How often one message may be left to a newer host.
        redrives: How often one message may be redriven.
        operator: Whether messages may be discarded and purged.
        final_errors: Whether the function may raise an error that forbids a retry.
        sent_later: How many of the messages are sent during the search.
    """

    name: str
    groups: tuple[str | None, ...]
    limits: Limits = Limits(attempts=2, receives=4)
    places: int = 2
    kills: bool = False
    losses: bool = False
    hides: int = 0
    redrives: int = 0
    operator: bool = False
    final_errors: bool = False
    sent_later: int = 0


class Deliveries:
    """All moves of one scenario over one storage."""

    def __init__(self, scenario: Scenario, storage: Storage) -> None:
        self.scenario = scenario
        self.storage = storage

    def first(self) -> World:
        """Return the world at the beginning."""
        world = World(State(), (), (Past(),) * len(self.scenario.groups))
        for message in range(len(self.scenario.groups) - self.scenario.sent_later):
            world = self._sent(world, message)
        return world

    def is_end(self, world: World) -> bool:
        """Return whether nothing is left to do."""
        return not world.store.rows and not world.runs and all(past.queued for past in world.past)

    def check(self, world: World) -> None:
        """Check what must hold in every state."""
        history.check(world, self.scenario.groups)

    def canonical(self, world: World) -> World:
        """Forget what nothing depends on any more, so that equal futures are equal states."""
        return history.forget_settled(world)

    def moves(self, world: World) -> Iterator[Move[World]]:
        """Yield every move that can be made."""
        for run in world.runs:
            yield from self.steps(world, run)
            if self.scenario.losses and not self._is_spared(run):
                yield from self._losses(world, run)
        if len(world.runs) < self.scenario.places:
            yield from (self.receive(world, row) for row in self.storage.due(world.store))
        for row in world.store.rows:
            if not row.held and row.wait:
                store = self.storage.end_wait(world.store, row)
                yield Move(("back-off ends", row.message), True, world._replace(store=store))
        unsent = next((message for message, past in enumerate(world.past) if not past.queued), None)
        if unsent is not None:
            yield Move(("send", unsent), True, self._sent(world, unsent))
        if self.scenario.kills and world.runs and not any(self._is_spared(run) for run in world.runs):
            yield Move(("the host is killed and starts again",), False, self.restart(world))
        yield from self._operator(world)

    # The engine's steps.

    def receive(self, world: World, row: Row) -> Move[World]:
        """Receive a message that is due."""
        store, received = self.storage.receive(world.store, row, LEASE)
        history.note_receive(world, received, self.scenario.limits)
        return Move(("receive", *received), True, _with_run(world._replace(store=store), Run(received)))

    def steps(self, world: World, run: Run) -> Iterator[Move[World]]:
        """Yield what a run can do next."""
        if run.stage == "received":
            yield self.begin(world, run)
            if world.past[run.received.message].hidden < self.scenario.hides:
                yield self.reached("find it newer", world, run, "newer")._replace(fair=False)
        elif run.stage == "newer":
            yield self.hide(world, run)
        elif run.stage == "running":
            yield self.reached("return", history.note_success(world, run), run, "returned")
            failed = history.note_failure(world, run, self.scenario.limits)
            yield self.reached("raise", failed, run, "raised")
            if self.scenario.final_errors:
                yield self.reached("raise for good", failed, run, "raised for good")
        elif run.stage == "returned":
            yield self.acknowledge(world, run)
        else:
            yield self.after_failure(world, run)

    def hide(self, world: World, run: Run) -> Move[World]:
        """Leave the message to a newer host."""
        store, kept = self.storage.hide(world.store, run.received, BACKOFF)
        after = without_run(world, run)._replace(store=store)
        return Move(("hide", *run.received), True, history.note_hidden(after, run) if kept else after)

    def begin(self, world: World, run: Run) -> Move[World]:
        """Bury the last receive, or start the function."""
        if self.is_last_receive(run.received):
            return self.bury(world, run, "receives", run.received.attempt - 1)
        return self.start(world, run)

    def start(self, world: World, run: Run) -> Move[World]:
        """Start the function."""
        started = history.note_start(world, run, self.scenario.limits, self.scenario.groups)
        return self.reached("start", started, run, "running")

    def after_failure(self, world: World, run: Run) -> Move[World]:
        """Bury after the last attempt, or record the failure and give the message back."""
        if run.stage == "raised for good" or self.is_last_attempt(run.received):
            return self.bury(world, run, "failed", run.received.attempt)
        store, kept = self.storage.fail(world.store, run.received, BACKOFF)
        after = without_run(world, run)._replace(store=store)
        return Move(("fail", *run.received), True, history.note_recorded(after, run) if kept else after)

    def acknowledge(self, world: World, run: Run) -> Move[World]:
        """End a message that succeeded."""
        store, kept = self.storage.acknowledge(world.store, run.received)
        after = without_run(world, run)._replace(store=store)
        return Move(("acknowledge", *run.received), True, history.note_done(after, run) if kept else after)

    def bury(self, world: World, run: Run, cause: Cause, attempts: int) -> Move[World]:
        """End a message as a letter."""
        store, kept = self.storage.bury(world.store, run.received, cause, attempts)
        after = without_run(world, run)._replace(store=store)
        if kept:
            after = history.note_death(after, run, cause, attempts, self.scenario.limits)
        return Move(("bury", cause, *run.received), True, after)

    def is_last_receive(self, received: Received) -> bool:
        """Return whether the message is given up unrun."""
        return received.receives >= self.scenario.limits.receives

    def is_last_attempt(self, received: Received) -> bool:
        """Return whether a failure ends the message."""
        return received.attempt >= self.scenario.limits.attempts

    def reached(self, verb: str, world: World, run: Run, stage: Stage) -> Move[World]:
        """Return the move that takes a run to its next stage."""
        return Move((verb, *run.received), True, _with_run(without_run(world, run), run._replace(stage=stage)))

    # Mishaps and operators.

    def restart(self, world: World) -> World:
        """Kill the host at this moment, and start it again."""
        for run in world.runs:
            world = history.note_interrupted(world, run)
        return world._replace(runs=(), store=self.storage.release_all(world.store)[0])

    def _is_spared(self, run: Run) -> bool:
        return run.received.receives > self.scenario.limits.receives

    def _losses(self, world: World, run: Run) -> Iterator[Move[World]]:
        row = self.storage.holder(world.store, run.received)
        if row is not None and run.stage not in {"received", "running"}:
            yield from self._repeats(world, run)
        after = history.note_interrupted(world, run)
        if row is not None and row.wait:
            after = after._replace(store=self.storage.end_wait(world.store, row))
        if not run.lost:
            lost = _with_run(without_run(after, run), run._replace(lost=True))
            yield Move(("the lease ends of", *run.received), False, lost)
        yield Move(("given up", *run.received), False, without_run(after, run))

    def _repeats(self, world: World, run: Run) -> Iterator[Move[World]]:
        for label, _, after in self.steps(world, run):
            if len(after.runs) < len(world.runs):
                again = _with_run(after, run._replace(lost=True))
                yield Move((*label, "and lose the reply"), False, again)

    def _operator(self, world: World) -> Iterator[Move[World]]:
        for message, past in enumerate(world.past):
            if past.generation < self.scenario.redrives:
                store, found = self.storage.redrive(world.store, message)
                if found:
                    after = history.queue_anew(world._replace(store=store), message, past.generation + 1)
                    yield Move(("redrive", message), False, after)
            if self.scenario.operator:
                store, found = self.storage.discard(world.store, message)
                if found:
                    after = history.note_end(world._replace(store=store), message, "discarded")
                    yield Move(("discard", message), False, after)
        if self.scenario.operator and world.store.rows:
            yield Move(("purge",), False, self._purged(world))

    def _purged(self, world: World) -> World:
        store, _ = self.storage.purge(world.store)
        kept = {row.message for row in store.rows}
        gone = [row.message for row in world.store.rows if row.message not in kept]
        world = world._replace(store=store)
        for message in gone:
            world = history.note_end(world, message, "purged")
        return world

    def _sent(self, world: World, message: int) -> World:
        store = self.storage.send(world.store, message, self.scenario.groups[message])
        return history.queue_anew(world._replace(store=store), message, 0)


def without_run(world: World, run: Run) -> World:
    """Return the world after the end of a run."""
    runs = list(world.runs)
    runs.remove(run)
    return world._replace(runs=tuple(runs))


def _with_run(world: World, run: Run) -> World:
    return world._replace(runs=tuple(sorted((*world.runs, run))))
