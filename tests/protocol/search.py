"""Breadth first through every state that moves can reach, then backwards from the ends. Knows nothing of queues."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

World = TypeVar("World", bound=Hashable)


class Breach(Exception):  # noqa: N818 - a finding of the search, not an error in it
    """A rule does not hold."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


def need(rule: str, holds: bool, text: str) -> None:
    """Raise `Breach` if a rule is broken."""
    if not holds:
        raise Breach(rule, text)


class Move(NamedTuple, Generic[World]):
    """A step. `fair`: it happens sooner or later if nothing else does; mishaps and operators are not."""

    label: tuple[object, ...]
    fair: bool
    world: World


class Moves(Protocol[World]):
    """All moves of one scenario. Making one raises `Breach` if the move itself breaks a rule."""

    def first(self) -> World:
        """Return the world at the beginning."""

    def moves(self, world: World) -> Iterable[Move[World]]:
        """Yield every move that can be made."""

    def canonical(self, world: World) -> World:
        """Forget what nothing depends on any more, so that equal futures are equal states."""

    def check(self, world: World) -> None:
        """Check what must hold in every state.

        Raises:
            Breach: A rule is broken.
        """

    def is_end(self, world: World) -> bool:
        """Return whether nothing is left to do."""


class Outcome(NamedTuple):
    """What a search found.

    Attributes:
        states: How many states it saw, the one that breaks a rule included.
        moves: How many moves it made.
        rule: The rule that does not hold, None if all do.
        trace: The shortest way there, and then what is wrong.
    """

    states: int
    moves: int
    rule: str | None = None
    trace: tuple[str, ...] = ()


def explore(moves: Moves[World], wish: Callable[[World], None] = lambda _world: None) -> Outcome:
    """Search all states.

    Args:
        moves: The moves, with the rules.
        wish: One more rule for every state.

    Returns:
        What was found. A rule besides those of the moves is `live`: from every state fair moves alone can reach an end.
    """
    search = _Search(moves, wish)
    try:
        search.run()
    except Breach as breach:
        return Outcome(len(search.worlds), search.made, breach.rule, (*search.way_to(search.here), str(breach)))
    stuck = search.stuck()
    if stuck is not None:
        end = f"live: from here no end can be reached: {search.worlds[stuck]}"
        return Outcome(len(search.worlds), search.made, "live", (*search.way_to(stuck), end))
    return Outcome(len(search.worlds), search.made)


class _Search(Generic[World]):
    def __init__(self, moves: Moves[World], wish: Callable[[World], None]) -> None:
        first = moves.first()
        self.moves = moves
        self.wish = wish
        self.worlds: list[World] = [first]
        self.made = 0
        self.here = 0
        self._number: dict[World, int] = {first: 0}
        self._from: list[tuple[int, tuple[object, ...]]] = [(0, ())]
        self._back: list[list[int]] = [[]]

    def run(self) -> None:
        while self.here < len(self.worlds):
            for label, fair, moved in self.moves.moves(self.worlds[self.here]):
                self.made += 1
                world = self.moves.canonical(moved)
                number = self._number.get(world)
                if number is None:
                    number = self._number[world] = len(self.worlds)
                    self.worlds.append(world)
                    self._from.append((self.here, label))
                    self._back.append([])
                    self._check(number, world)
                if fair:
                    self._back[number].append(self.here)
            self.here += 1

    def _check(self, number: int, world: World) -> None:
        try:
            self.moves.check(world)
            self.wish(world)
        except Breach:
            self.here = number
            raise

    def stuck(self) -> int | None:
        """Return a state, one of the first, from which no end can be reached."""
        ends = [number for number, world in enumerate(self.worlds) if self.moves.is_end(world)]
        live = bytearray(len(self.worlds))
        for number in ends:
            live[number] = 1
        todo = deque(ends)
        while todo:
            for number in self._back[todo.popleft()]:
                if not live[number]:
                    live[number] = 1
                    todo.append(number)
        stuck = live.find(0)
        return stuck if stuck >= 0 else None

    def way_to(self, number: int) -> list[str]:
        """Return the labels of the shortest way to a state."""
        way: list[str] = []
        while number:
            number, label = self._from[number]
            way.append(" ".join(str(part) for part in label))
        return way[::-1]
