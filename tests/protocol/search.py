"""Breadth first through every state a scenario can reach, then backwards from its ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tests.protocol.delivery import Deliveries
from tests.protocol.history import Breach, World, check, forget_settled


class Outcome(NamedTuple):
    """What a search found.

    Attributes:
        states: How many states it saw.
        moves: How many moves it made.
        rule: The rule that does not hold, None if all do.
        trace: The shortest way there, and then what is wrong.
    """

    states: int
    moves: int
    rule: str | None = None
    trace: tuple[str, ...] = ()


def explore(deliveries: Deliveries, wish: Callable[[World], None] = lambda _world: None) -> Outcome:
    """Search all states.

    Args:
        deliveries: The moves.
        wish: One more rule for every state.

    Returns:
        What was found. A rule besides those of `history` is `live`: from every state fair moves alone can reach an end.
    """
    search = _Search(deliveries, wish)
    try:
        search.run()
    except Breach as breach:
        return Outcome(len(search.worlds), search.moves, breach.rule, (*search.way_to(search.here), str(breach)))
    stuck = search.stuck()
    if stuck is not None:
        end = f"live: from here no end can be reached: {search.worlds[stuck]}"
        return Outcome(len(search.worlds), search.moves, "live", (*search.way_to(stuck), end))
    return Outcome(len(search.worlds), search.moves)


class _Search:
    def __init__(self, deliveries: Deliveries, wish: Callable[[World], None]) -> None:
        first = deliveries.first()
        self.deliveries = deliveries
        self.wish = wish
        self.worlds: list[World] = [first]
        self.moves = 0
        self.here = 0
        self._number: dict[World, int] = {first: 0}
        self._from: list[tuple[int, tuple[object, ...]]] = [(0, ())]
        self._back: list[list[int]] = [[]]

    def run(self) -> None:
        while self.here < len(self.worlds):
            for label, fair, moved in self.deliveries.moves(self.worlds[self.here]):
                self.moves += 1
                world = forget_settled(moved)
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
            check(world, self.deliveries.scenario.groups)
            self.wish(world)
        except Breach:
            self.here = number
            raise

    def stuck(self) -> int | None:
        """Return a state, one of the first, from which no end can be reached."""
        ends = [number for number, world in enumerate(self.worlds) if self.deliveries.is_end(world)]
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
