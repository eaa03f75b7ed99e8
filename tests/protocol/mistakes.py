"""Mistakes an implementation could make. The search finds each of them, and says which rule it breaks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.protocol.delivery import Deliveries, Scenario, without_run
from tests.protocol.history import Limits, Run, World
from tests.protocol.model import Cause, Received, Row, State, Storage, add_letter, replace_row, without_row
from tests.protocol.search import Move

_MISHAPS = Scenario("one message", (None,), kills=True, losses=True)
_KILLS = Scenario("one message and kills", (None,), kills=True)
_REDRIVE = Scenario("a redrive", (None,), Limits(1, 3), redrives=1, operator=True)
_HIDES = Scenario("a newer host", (None,), Limits(1, 3), losses=True, hides=2)
_FIFO = Scenario("a group", ("a", "a"), Limits(2, 4), sent_later=1)
_FIFO_REDRIVE = Scenario("a group and a redrive", ("a", "a"), Limits(1, 3), redrives=1)


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


class CountsReceives(Storage):
    """The attempt is the receive count."""

    def receive(self, state: State, row: Row, lease: int) -> tuple[State, Received]:
        state, received = super().receive(state, row, lease)
        return state, received._replace(attempt=received.receives)


class CountsLateFailures(Storage):
    """A failure counts although the message was received again since."""

    def fail(self, state: State, received: Received, wait: int) -> tuple[State, bool]:
        row = _row_of(state, received)
        if row is None or self.holder(state, received):
            return super().fail(state, received, wait)
        return replace_row(state, row, row._replace(failed=row.failed + 1)), True


class CountsRepeatedFailures(Storage):
    """A failure that is reported again counts again."""

    def fail(self, state: State, received: Received, wait: int) -> tuple[State, bool]:
        row = _row_of(state, received)
        if row is None or row.held or row.handle != received.handle:
            return super().fail(state, received, wait)
        return replace_row(state, row, row._replace(failed=row.failed + 1)), True


class CountsNothing(Storage):
    """A failure is accepted and not recorded."""

    def fail(self, state: State, received: Received, wait: int) -> tuple[State, bool]:
        return self.hide(state, received, wait)


class CountsHides(Storage):
    """A message that was left to a newer host counts as received."""

    def hide(self, state: State, received: Received, wait: int) -> tuple[State, bool]:
        row = self.holder(state, received)
        if row is None:
            return state, False
        return replace_row(state, row, row._replace(held=False, wait=wait)), True


class TakesTheReceiveBack(Storage):
    """What is hidden is received under the same number again."""

    def hide(self, state: State, received: Received, wait: int) -> tuple[State, bool]:
        hidden, kept = super().hide(state, received, wait)
        row = _row_of(hidden, received)
        return (
            (hidden, kept)
            if not kept or row is None
            else (
                replace_row(hidden, row, row._replace(handle=row.handle - 1)),
                True,
            )
        )


class ForgetsWhoHolds(Storage):
    """Any receive of a message may end it, not just the newest."""

    def holder(self, state: State, received: Received) -> Row | None:
        return next((row for row in state.rows if row.message == received.message and row.held), None)


class ForgetsLeases(Storage):
    """A message that is held can be received."""

    def due(self, state: State) -> list[Row]:
        return [row for row in state.rows if row.held or row.wait == 0]


class KeepsLeasesAtStart(Storage):
    """The leases of a process that died are left alone."""

    def release_all(self, state: State) -> tuple[State, int]:
        return state, 0


class ForgetsReceivesAtStart(Storage):
    """A kill takes the receives back with the leases."""

    def release_all(self, state: State) -> tuple[State, int]:
        rows = tuple(row._replace(held=False, wait=row.ready, receives=0) if row.held else row for row in state.rows)
        return state._replace(rows=rows), len(rows)


class RedrivesTheSameGeneration(Storage):
    """A redrive changes no generation."""

    def redrive(self, state: State, message: int) -> tuple[State, bool]:
        letters = tuple(letter._replace(generation=letter.generation - 1) for letter in state.letters)
        return super().redrive(state._replace(letters=letters), message)


class RedriveKeepsTheAttempts(Storage):
    """A redriven message goes on where it died."""

    def arrive(self, state: State, row: Row) -> State:
        return super().arrive(state, row._replace(failed=1) if row.generation else row)


class RedriveLeavesTheLetter(Storage):
    """A redrive sends a copy."""

    def redrive(self, state: State, message: int) -> tuple[State, bool]:
        redriven, found = super().redrive(state, message)
        return redriven._replace(letters=state.letters), found


class RedrivesToTheHead(Storage):
    """A redriven message goes before its group."""

    def redrive(self, state: State, message: int) -> tuple[State, bool]:
        redriven, found = super().redrive(state, message)
        if not found:
            return state, False
        row = redriven.rows[-1]._replace(wait=0)
        blocked = (other._replace(wait=None) if not other.held else other for other in state.rows)
        return redriven._replace(rows=(row, *blocked)), True


class DiscardsNothing(Storage):
    """A discard says it was done."""

    def discard(self, state: State, message: int) -> tuple[State, bool]:
        return state, super().discard(state, message)[1]


class PurgesWhatIsInFlight(Storage):
    """A purge removes everything."""

    def purge(self, state: State) -> tuple[State, int]:
        return state._replace(rows=()), len(state.rows)


class GoesOnBehindAFailedHead(Storage):
    """The back-off of a head lets the next of its group pass."""

    def fail(self, state: State, received: Received, wait: int) -> tuple[State, bool]:
        failed, kept = super().fail(state, received, wait)
        return failed._replace(rows=tuple(row._replace(wait=row.wait or 0) for row in failed.rows)), kept


class RetriesAtTheTail(Storage):
    """A failed head is queued again behind its group."""

    def fail(self, state: State, received: Received, wait: int) -> tuple[State, bool]:
        failed, kept = super().fail(state, received, wait)
        row = _row_of(failed, received)
        return (failed, kept) if not kept or row is None else (self.arrive(self.remove(failed, row), row), True)


class SendsPastTheGroup(Storage):
    """A new message does not wait for those of its group."""

    def arrive(self, state: State, row: Row) -> State:
        return state._replace(rows=(*state.rows, row))


class NeverUnblocks(Storage):
    """The end of a head is not the turn of the next."""

    def remove(self, state: State, row: Row) -> State:
        return without_row(state, row)


class DeathDoesNotUnblock(Storage):
    """The death of a head is not the turn of the next."""

    def bury(self, state: State, received: Received, cause: Cause, attempts: int) -> tuple[State, bool]:
        row = self.holder(state, received)
        if row is None:
            return state, False
        return without_row(add_letter(state, row, cause, attempts), row), True


class Mistake(NamedTuple):
    """A mistake, where to look for it, and the rule that catches it."""

    made: type[Storage] | type[Deliveries]
    scenario: Scenario
    rule: str

    def deliveries(self) -> Deliveries:
        """Return the deliveries with the mistake in them."""
        if issubclass(self.made, Deliveries):
            return self.made(self.scenario, Storage())
        return Deliveries(self.scenario, self.made())


MISTAKES = (
    Mistake(AcknowledgesBeforeRunning, _KILLS, "not lost"),
    Mistake(BuriesLetterFirst, _KILLS, "one place"),
    Mistake(BuriesMessageFirst, _KILLS, "not lost"),
    Mistake(HidesInsteadOfFailing, _KILLS, "not late"),
    Mistake(RunsTheLastReceive, _KILLS, "bounded"),
    Mistake(TakesReceivesForAttempts, _KILLS, "not early"),
    Mistake(GivesUpAnAttemptEarly, _KILLS, "not early"),
    Mistake(AttemptsOnceMore, _KILLS, "attempts"),
    Mistake(CountsReceives, _KILLS, "attempts"),
    Mistake(CountsLateFailures, _MISHAPS, "attempts"),
    Mistake(CountsRepeatedFailures, _MISHAPS, "attempts"),
    Mistake(CountsNothing, _KILLS, "attempts"),
    Mistake(CountsHides, _HIDES, "not early"),
    Mistake(TakesTheReceiveBack, _HIDES, "leases"),
    Mistake(ForgetsWhoHolds, _MISHAPS, "leases"),
    Mistake(ForgetsLeases, _KILLS, "alone"),
    Mistake(KeepsLeasesAtStart, _KILLS, "leases"),
    Mistake(ForgetsReceivesAtStart, _KILLS, "bounded"),
    Mistake(RedrivesTheSameGeneration, _REDRIVE, "redrive"),
    Mistake(RedriveKeepsTheAttempts, _REDRIVE, "redrive"),
    Mistake(RedriveLeavesTheLetter, _REDRIVE, "one place"),
    Mistake(RedrivesToTheHead, _FIFO_REDRIVE, "alone"),
    Mistake(DiscardsNothing, _REDRIVE, "final"),
    Mistake(PurgesWhatIsInFlight, _REDRIVE, "leases"),
    Mistake(GoesOnBehindAFailedHead, _FIFO, "order"),
    Mistake(RetriesAtTheTail, _FIFO, "order"),
    Mistake(SendsPastTheGroup, _FIFO, "alone"),
    Mistake(NeverUnblocks, _FIFO, "live"),
    Mistake(DeathDoesNotUnblock, _FIFO, "live"),
)


def _row_of(state: State, received: Received) -> Row | None:
    key = (received.message, received.generation)
    return next((row for row in state.rows if (row.message, row.generation) == key), None)
