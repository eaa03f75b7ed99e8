"""Mistakes a consumer could make: what it asks of the storage, and when."""

from __future__ import annotations

from collections.abc import Iterator

from tests.protocol.delivery import Deliveries, without_run
from tests.protocol.history import Run, World
from tests.protocol.model import Cause, Received, add_letter
from tests.protocol.search import Move


class AcknowledgesBeforeRunning(Deliveries):
    """The message is gone when the function starts."""

    def start(self, world: World, run: Run) -> Move[World]:
        store, _ = self.storage.acknowledge(world.store, run.received)
        return super().start(world._replace(store=store), run)


class BuriesLetterFirst(Deliveries):
    """A death takes two transactions: the letter, then the message."""

    def bury(self, world: World, run: Run, cause: Cause, attempts: int) -> Move[World]:
        row = self.storage.holder(world.store, run.received)
        if row is None:
            return super().bury(world, run, cause, attempts)
        half = world._replace(store=add_letter(world.store, row, cause, attempts))
        return self.reached("put the letter", half, run, "half buried")

    def steps(self, world: World, run: Run) -> Iterator[Move[World]]:
        if run.stage != "half buried":
            yield from super().steps(world, run)
            return
        store, _ = self.storage.acknowledge(world.store, run.received)
        yield Move(("remove the message", *run.received), True, without_run(world, run)._replace(store=store))


class BuriesMessageFirst(BuriesLetterFirst):
    """A death takes two transactions: the message is gone before its letter is there."""

    def bury(self, world: World, run: Run, cause: Cause, attempts: int) -> Move[World]:
        store, _ = self.storage.acknowledge(world.store, run.received)
        return self.reached("remove the message", world._replace(store=store), run, "half buried")


class HidesInsteadOfFailing(Deliveries):
    """A failure gives the message back and is counted nowhere."""

    def after_failure(self, world: World, run: Run) -> Move[World]:
        if self.is_last_attempt(run.received):
            return super().after_failure(world, run)
        store, _ = self.storage.hide(world.store, run.received, 1)
        return Move(("hide", *run.received), True, without_run(world, run)._replace(store=store))


class RunsTheLastReceive(Deliveries):
    """The last receive starts the function once more."""

    def is_last_receive(self, received: Received) -> bool:
        return received.receives > self.scenario.limits.receives


class TakesReceivesForAttempts(Deliveries):
    """A message is given up unrun when it was received as often as it may be attempted."""

    def is_last_receive(self, received: Received) -> bool:
        return received.receives > self.scenario.limits.attempts


class GivesUpAnAttemptEarly(Deliveries):
    """The last attempt is never made."""

    def is_last_attempt(self, received: Received) -> bool:
        return received.attempt >= self.scenario.limits.attempts - 1


class AttemptsOnceMore(Deliveries):
    """One attempt is made beyond the last."""

    def is_last_attempt(self, received: Received) -> bool:
        return received.attempt > self.scenario.limits.attempts
