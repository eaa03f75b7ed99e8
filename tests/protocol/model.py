"""The queue store as a value: what the embedded backend keeps, and every operation as one step from state to state.

Time is relative: a wait is the number of milliseconds until its instant, at most 0 once that has come. The search over
all states lets waits end in any order; the walk beside the real adapters counts them down exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Literal, NamedTuple

from iii_runtime.core.queue import release_delay

Cause = Literal["failed", "receives"]


class Row(NamedTuple):
    """A stored message.

    Attributes:
        message: Which one; stands for the receipt.
        generation: How often it was redriven. Message and generation together stand for the row's identity.
        group: FIFO group, None if it waits for no other.
        failed: Attempts of this generation recorded as failed.
        receives: Receives of this generation; those that ended in `hide` do not count.
        handle: Number of the newest receive, which may be holding the message. It only grows.
        held: Whether a receive has not ended yet. Its lease may have.
        wait: Until it is receivable or its lease ends; None while it waits behind another one of its group.
        ready: Until it is receivable at the earliest, once it leads its group.
    """

    message: int
    generation: int
    group: str | None
    failed: int = 0
    receives: int = 0
    handle: int = 0
    held: bool = False
    wait: int | None = 0
    ready: int = 0

    @property
    def has_live_lease(self) -> bool:
        """Whether a receive has not ended, and neither has its lease."""
        return self.held and self.wait is not None and self.wait > 0


class Letter(NamedTuple):
    """A dead letter."""

    message: int
    generation: int
    group: str | None
    cause: Cause
    attempts: int
    receives: int


class Received(NamedTuple):
    """What a receive returns. `receives` are the counted ones; `handle` is the number of this very receive."""

    message: int
    generation: int
    attempt: int
    receives: int
    handle: int


class State(NamedTuple):
    """The store: messages in the order of their arrival, letters in the order of their deaths."""

    rows: tuple[Row, ...] = ()
    letters: tuple[Letter, ...] = ()


class Depth(NamedTuple):
    """Exact counts."""

    visible: int
    delayed: int
    in_flight: int
    dead: int


class Storage:
    """The operations. Each one is a transaction: a crash leaves the state before it or the state after it."""

    def send(self, state: State, message: int, group: str | None, delay: int = 0) -> State:
        """Add a new message at the end."""
        return self.arrive(state, Row(message, 0, group, wait=delay, ready=delay))

    def arrive(self, state: State, row: Row) -> State:
        """Add a row at the end; it is blocked if its group has one already."""
        blocked = row.group is not None and any(other.group == row.group for other in state.rows)
        return state._replace(rows=(*state.rows, row._replace(wait=None) if blocked else row))

    def due(self, state: State) -> list[Row]:
        """Return what can be received, in the order in which it is."""
        return sorted((row for row in state.rows if row.wait is not None and row.wait <= 0), key=_due_since)

    def receive(self, state: State, row: Row, lease: int) -> tuple[State, Received]:
        """Take one due row under a lease."""
        taken = row._replace(receives=row.receives + 1, handle=row.handle + 1, held=True, wait=lease)
        received = Received(row.message, row.generation, row.failed + 1, taken.receives, taken.handle)
        return replace_row(state, row, taken), received

    def holder(self, state: State, received: Received) -> Row | None:
        """Return the row that is still held by this receive, whether or not its lease has ended."""
        for row in state.rows:
            same = row.message == received.message and row.generation == received.generation
            if same and row.held and row.handle == received.handle:
                return row
        return None

    def acknowledge(self, state: State, received: Received) -> tuple[State, bool]:
        """Remove the message."""
        row = self.holder(state, received)
        return (state, False) if row is None else (self.remove(state, row), True)

    def hide(self, state: State, received: Received, wait: int) -> tuple[State, bool]:
        """Give the message back as if it had not been received."""
        row = self.holder(state, received)
        if row is None:
            return state, False
        return replace_row(state, row, row._replace(held=False, wait=wait, receives=row.receives - 1)), True

    def fail(self, state: State, received: Received, wait: int) -> tuple[State, bool]:
        """Record the failed attempt and give the message back."""
        row = self.holder(state, received)
        if row is None:
            return state, False
        failed = max(row.failed, received.attempt)
        return replace_row(state, row, row._replace(held=False, wait=wait, failed=failed)), True

    def bury(self, state: State, received: Received, cause: Cause, attempts: int) -> tuple[State, bool]:
        """Turn the message into a letter."""
        row = self.holder(state, received)
        if row is None:
            return state, False
        return self.remove(add_letter(state, row, cause, attempts), row), True

    def extend(self, state: State, received: Iterable[Received], lease: int) -> State:
        """Renew the leases that are still held."""
        for one in received:
            row = self.holder(state, one)
            state = state if row is None else replace_row(state, row, row._replace(wait=lease))
        return state

    def release_all(self, state: State) -> tuple[State, int]:
        """Void all leases, as the host does at its start."""
        held = [row for row in state.rows if row.held]
        for row in held:
            state = replace_row(state, row, row._replace(held=False, wait=_release_wait(row)))
        return state, len(held)

    def purge(self, state: State) -> tuple[State, int]:
        """Remove what has no live lease."""
        kept = tuple(row for row in state.rows if row.has_live_lease)
        return state._replace(rows=kept), len(state.rows) - len(kept)

    def redrive(self, state: State, message: int) -> tuple[State, bool]:
        """Turn a letter into the next generation of its message, at the end of its group."""
        letter = letter_of(state, message)
        if letter is None:
            return state, False
        return self.arrive(
            without_letter(state, letter), Row(letter.message, letter.generation + 1, letter.group)
        ), True

    def discard(self, state: State, message: int) -> tuple[State, bool]:
        """Remove a letter."""
        letter = letter_of(state, message)
        return (state, False) if letter is None else (without_letter(state, letter), True)

    def remove(self, state: State, row: Row) -> State:
        """Remove a row and let the next one of its group be received."""
        return self.unblock(without_row(state, row), row.group)

    def unblock(self, state: State, group: str | None) -> State:
        """Give the first row of a group its turn."""
        head = next((row for row in state.rows if row.group == group and group is not None), None)
        return (
            state if head is None or head.wait is not None else replace_row(state, head, head._replace(wait=head.ready))
        )

    def pass_time(self, state: State, milliseconds: int) -> State:
        """Return the state as it is later."""
        return state._replace(
            rows=tuple(
                row._replace(wait=None if row.wait is None else row.wait - milliseconds, ready=row.ready - milliseconds)
                for row in state.rows
            )
        )

    def end_wait(self, state: State, row: Row) -> State:
        """Return the state when the time of one row has come: its back-off or its lease is over."""
        return replace_row(state, row, row._replace(wait=0))

    def depth(self, state: State) -> Depth:
        """Return the counts."""
        later = [row for row in state.rows if row.wait is not None and row.wait > 0]
        in_flight = sum(row.held for row in later)
        return Depth(len(state.rows) - len(later), len(later) - in_flight, in_flight, len(state.letters))

    def next_due(self, state: State) -> int | None:
        """Return how long it is until the next message becomes receivable; negative if it was before."""
        return min((row.wait for row in state.rows if row.wait is not None), default=None)


def replace_row(state: State, row: Row, by: Row) -> State:
    """Put a row in the place of another."""
    return state._replace(rows=tuple(by if other is row else other for other in state.rows))


def letter_of(state: State, message: int) -> Letter | None:
    """Return the letter of a message, if it is dead."""
    return next((letter for letter in state.letters if letter.message == message), None)


def add_letter(state: State, row: Row, cause: Cause, attempts: int) -> State:
    """Add the letter of a row."""
    letter = Letter(row.message, row.generation, row.group, cause, attempts, row.receives)
    return state._replace(letters=(*state.letters, letter))


def without_row(state: State, row: Row) -> State:
    """Remove a row, and nothing else."""
    return state._replace(rows=tuple(other for other in state.rows if other is not row))


def without_letter(state: State, letter: Letter) -> State:
    """Remove a letter, and nothing else."""
    return state._replace(letters=tuple(other for other in state.letters if other is not letter))


def _release_wait(row: Row) -> int:
    return release_delay(row.receives - row.failed) // timedelta(milliseconds=1)


def _due_since(row: Row) -> int:
    return 0 if row.wait is None else row.wait
