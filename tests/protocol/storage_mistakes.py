"""Mistakes a storage could make: what becomes of a message, its lease, its letter and its group."""

from __future__ import annotations

from tests.protocol.model import Cause, Received, Row, State, Storage, add_letter, replace_row, without_row


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


def _row_of(state: State, received: Received) -> Row | None:
    key = (received.message, received.generation)
    return next((row for row in state.rows if (row.message, row.generation) == key), None)
