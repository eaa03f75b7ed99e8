"""Every move of the queue protocol on SQS: of the queue, of consumers, operators, the AWS console, the reconciler.

SQS delivers at least once: a receive may be throttled, which raises the receive count and runs nothing, and with
duplicates a message that is held may be received by another consumer, its count raised or not.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.protocol import sqs_history as history
from tests.protocol.search import Move
from tests.protocol.sqs_consumer import (
    ConsumerMoves,
    Scenario,
    is_held,
    with_consumer,
    with_copy,
    with_item,
    without_copy,
)
from tests.protocol.sqs_history import Consumer, Past, Redrive, World
from tests.protocol.sqs_model import Copy, Item, Letter

__all__ = ["Scenario", "SqsDeliveries", "without_copy"]

CONSUMERS = 2


class SqsDeliveries(ConsumerMoves):
    """All moves of one scenario."""

    def first(self) -> World:
        """Return the world at the beginning."""
        count = self.scenario.messages
        source = tuple(Copy(message) for message in range(count))
        return World(source, frozenset(), (None,) * count, (), None, (Past(),) * count)

    def is_end(self, world: World) -> bool:
        """Return whether nothing is left to do, and the dead-letter queue holds what the items say.

        With duplicates, or after a redrive by the console, one consumer may write a death and be killed before it puts
        the letter, while another one succeeds and acknowledges: then the item alone has the letter.
        """
        if world.source or world.consumers or world.redrive:
            return False
        dead = frozenset(
            Letter(message, item.generation, enriched=True)
            for message, item in enumerate(world.items)
            if item is not None and item.status == "dead"
        )
        letters = frozenset(letter._replace(token=0) if letter.enriched else letter for letter in world.letters)
        if len(letters) < len(world.letters):
            return False
        is_loose = self.scenario.duplicates or self.scenario.console
        return letters <= dead if is_loose else letters == dead

    def check(self, world: World) -> None:
        """Check what must hold in every state."""
        history.check(world)

    def canonical(self, world: World) -> World:
        """Forget what nothing depends on any more, so that equal futures are equal states."""
        return history.forget_settled(world, fifo=self.scenario.fifo)

    def moves(self, world: World) -> Iterator[Move[World]]:
        """Yield every move that can be made."""
        yield from self._queue(world)
        for consumer in world.consumers:
            yield from self.steps(world, consumer)
            if self.scenario.kills:
                yield from self.kills(world, consumer)
        yield from self._operator(world)
        if self.scenario.console:
            yield from self._console(world)
        for letter in world.letters:
            yield self.reconcile(world, letter)

    # The queue.

    def _queue(self, world: World) -> Iterator[Move[World]]:
        own = [copy for copy in world.source if not copy.strayed]
        is_closed = self.scenario.fifo and any(not copy.strayed and is_held(world, copy) for copy in world.source)
        for copy in world.source:
            if is_held(world, copy):
                if self.scenario.duplicates and len(world.consumers) < CONSUMERS:
                    yield self._receive(world, copy, copy.receives, fair=False)
                    yield self._receive(world, copy, copy.receives + 1, fair=False)
            elif copy.strayed or not self.scenario.fifo or (not is_closed and copy is own[0]):
                yield from self._due(world, copy, own)

    def _due(self, world: World, copy: Copy, own: list[Copy]) -> Iterator[Move[World]]:
        limit = self.scenario.limits.native
        if copy.receives >= limit:
            letter = Letter(copy.message, copy.generation, enriched=False, token=copy.token)
            moved = history.note_moved(without_copy(world, copy), copy.message)
            yield Move(("move natively", *copy), True, moved._replace(letters=moved.letters | {letter}))
            return
        if self.scenario.throttles:
            throttled = with_copy(world, copy, copy._replace(receives=copy.receives + 1))
            yield Move(("throttle", *copy), False, throttled)
        if len(world.consumers) == CONSUMERS:
            return
        yield self._receive(world, copy, copy.receives + 1, fair=True)
        if self.scenario.fifo and not copy.strayed and len(own) > 1 and own[1].receives < limit:
            yield self._receive_two(world, copy, own[1])

    def _receive(self, world: World, copy: Copy, receives: int, *, fair: bool) -> Move[World]:
        received = copy._replace(receives=min(receives, self.scenario.limits.native))
        noted = history.note_receive(world, received)
        world = with_copy(noted, copy, received)
        return Move(("receive", *received), fair, with_consumer(world, Consumer(received)))

    def _receive_two(self, world: World, head: Copy, second: Copy) -> Move[World]:
        taken = tuple(copy._replace(receives=copy.receives + 1) for copy in (head, second))
        world = with_copy(with_copy(world, head, taken[0]), second, taken[1])
        consumer = Consumer(taken[0], waiting=taken[1:])
        return Move(("receive two", *head), False, with_consumer(world, consumer))

    # Operators, the console, the reconciler.

    def _operator(self, world: World) -> Iterator[Move[World]]:
        item, redrive = world.items[0], world.redrive
        if item is not None and item.status == "dead":
            if self.scenario.redrives and redrive is None and self.may_redrive(world, item):
                yield Move(("begin a redrive",), False, world._replace(redrive=Redrive(0, item.generation)))
            if self.scenario.discards:
                yield self.discard(world, item)
        if redrive is not None:
            yield Move(("the operator dies",), False, world._replace(redrive=None))
            yield self.redrive(world, redrive)

    def may_redrive(self, world: World, item: Item) -> bool:
        """Return whether an operator may redrive the first message, once it is dead."""
        return item.generation == 0 and world.past[0].copies < self.scenario.copies

    def may_move(self, letter: Letter) -> bool:
        """Return whether the console may move a letter back."""
        return letter.message == 0 and (letter.generation == 0 or not letter.enriched)

    def redrive(self, world: World, redrive: Redrive) -> Move[World]:
        """Send the letter, then mark the item."""
        return (
            self.mark(world, redrive, None) if redrive.sent else self.send(world, redrive, redrive._replace(sent=True))
        )

    def send(self, world: World, redrive: Redrive, after: Redrive | None) -> Move[World]:
        """Send a letter to the source queue, with a token of its own."""
        number = world.past[redrive.message].copies + 1
        if number > self.scenario.copies:
            return Move(("the operator gives up",), True, world._replace(redrive=None))
        copy = Copy(redrive.message, self.protocol.redriven_generation(redrive.generation), number, number)
        world = history.note_copy(world._replace(source=(*world.source, copy)), copy)
        return Move(("redrive", *copy), True, world._replace(redrive=after))

    def mark(self, world: World, redrive: Redrive, after: Redrive | None) -> Move[World]:
        """Take a redriven letter off the list."""
        item = world.items[redrive.message]
        if item is None or item.generation != redrive.generation or item.status != "dead":
            return Move(("mark in vain", redrive.message), True, world._replace(redrive=None))
        world = with_item(world, redrive.message, item._replace(status="redriven"))
        return Move(("mark", redrive.message), True, world._replace(redrive=after))

    def discard(self, world: World, item: Item) -> Move[World]:
        """End a letter for good."""
        after = history.note_discard(with_item(world, 0, item._replace(status="discarded")), 0, item.generation)
        return Move(("discard", 0), False, after)

    def _console(self, world: World) -> Iterator[Move[World]]:
        for letter in world.letters:
            number = world.past[letter.message].copies + 1
            if number > self.scenario.copies or not self.may_move(letter):
                continue
            generation = letter.generation + letter.enriched
            token = self.protocol.console_token(letter, number)
            copy = Copy(letter.message, generation, number, token, strayed=self.scenario.fifo and letter.enriched)
            copied = history.note_copy(world._replace(source=(*world.source, copy)), copy)
            left = letter._replace(token=token) if letter.enriched else letter
            for rest in self._rests(world, letter):
                yield Move(("console copies", *letter), False, copied._replace(letters=rest | {left}))
                yield Move(("console moves", *letter), False, copied._replace(letters=rest))

    def _rests(self, world: World, letter: Letter) -> list[frozenset[Letter]]:
        """Return what may be left when a letter goes. One that was put twice stands for both, each with its token."""
        rest = world.letters - {letter}
        is_twice = letter.enriched and not letter.token and self.scenario.kills
        return [rest, world.letters] if is_twice else [rest]

    def reconcile(self, world: World, letter: Letter) -> Move[World]:
        """Compare one letter with its item."""
        item = world.items[letter.message]
        decision = self.protocol.reconciled(letter, item)
        if decision == "adopt":
            adopted = with_item(world, letter.message, self.protocol.adopted(letter, item))
            return Move(("adopt", *letter), True, adopted)
        has_other = any(other.enriched and other != letter and other.is_of(letter) for other in world.letters)
        if decision == "keep" and letter.enriched and not has_other:
            return Move(("keep", *letter), True, world)
        if decision == "keep" and not has_other:
            enriched = letter._replace(enriched=True, token=0)
            return Move(("enrich", *letter), True, world._replace(letters=world.letters | {enriched}))
        return Move(("delete the letter", *letter), True, world._replace(letters=world.letters - {letter}))
