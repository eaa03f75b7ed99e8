"""Breadth first through every state a scenario on SQS can reach, then backwards from its ends."""

from __future__ import annotations

from collections import deque

from tests.protocol.history import Breach
from tests.protocol.search import Outcome
from tests.protocol.sqs_delivery import SqsDeliveries
from tests.protocol.sqs_history import World, check, forget_settled


def explore(deliveries: SqsDeliveries) -> Outcome:
    """Search all states.

    Returns:
        What was found. A rule besides those of `sqs_history` is `live`: from every state fair moves alone can reach an
        end.
    """
    search = _Search(deliveries)
    try:
        search.run()
    except Breach as breach:
        way = search.way_to(search.here)
        return Outcome(len(search.worlds), search.made, breach.rule, (*way, search.last, str(breach)))
    stuck = search.stuck()
    if stuck is not None:
        told = f"live: from here no end can be reached: {search.worlds[stuck]}"
        return Outcome(len(search.worlds), search.made, "live", (*search.way_to(stuck), told))
    return Outcome(len(search.worlds), search.made)


class _Search:
    def __init__(self, deliveries: SqsDeliveries) -> None:
        first = deliveries.first()
        self.deliveries = deliveries
        self.worlds: list[World] = [first]
        self.made = 0
        self.here = 0
        self.last = ""
        self._number: dict[World, int] = {first: 0}
        self._from: list[tuple[int, tuple[object, ...]]] = [(0, ())]
        self._back: list[list[int]] = [[]]

    def run(self) -> None:
        fifo = self.deliveries.scenario.fifo
        while self.here < len(self.worlds):
            self.last = "(the next move)"
            for label, fair, moved in self.deliveries.moves(self.worlds[self.here]):
                self.made += 1
                world = forget_settled(moved, fifo=fifo)
                number = self._number.get(world)
                if number is None:
                    self.last = _told(label)
                    check(world)
                    number = self._number[world] = len(self.worlds)
                    self.worlds.append(world)
                    self._from.append((self.here, label))
                    self._back.append([])
                if fair:
                    self._back[number].append(self.here)
            self.here += 1

    def stuck(self) -> int | None:
        """Return a state, one of the first, from which no end can be reached."""
        live = bytearray(len(self.worlds))
        todo = deque(number for number, world in enumerate(self.worlds) if self.deliveries.is_end(world))
        for number in todo:
            live[number] = 1
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
            way.append(_told(label))
        return way[::-1]


def _told(label: tuple[object, ...]) -> str:
    return " ".join(str(part) for part in label)
