"""Mistakes an implementation on SQS could make. The search finds each of them, and says which rule it breaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tests.protocol import sqs_history as history
from tests.protocol.search import Move
from tests.protocol.sqs_consumer import others_than
from tests.protocol.sqs_delivery import Scenario, SqsDeliveries, without_copy
from tests.protocol.sqs_history import Consumer, Redrive, World
from tests.protocol.sqs_model import Copy, Found, Item, Letter, Limits, Protocol

_ONE = Limits(1, 2)
_TWO = Limits(2, 4)
_KILLS = Scenario("kills", Limits(2, 3), kills=True)
_THROTTLES = Scenario("throttles", _TWO, throttles=True)
_REDRIVE = Scenario("a redrive", _ONE, redrives=True, discards=True, copies=1)
_REDRIVE_BESIDE = Scenario("a redrive and duplicates", Limits(2, 3), duplicates=True, redrives=True, copies=1)
_REPEATED = Scenario("repeated redrives", _ONE, redrives=True, discards=True, copies=2)
_CONSOLE = Scenario("the console", _ONE, throttles=True, console=True, copies=2)
_NATIVE = Scenario("the console and native moves", Limits(2, 3), throttles=True, console=True, copies=2)
_FIFO = Scenario("a group", Limits(2, 4), messages=2, fifo=True)
_FIFO_CONSOLE = Scenario("a group and the console", _ONE, messages=2, fifo=True, console=True, copies=1)


class AcknowledgesBeforeTheLetter(SqsDeliveries):
    """The last failure is acknowledged, then written."""

    def record(self, world: World, consumer: Consumer) -> Iterator[Move[World]]:
        is_gone = not any(copy.is_same(consumer.copy) for copy in world.source)
        if consumer.attempt < self.scenario.limits.attempts or is_gone:
            yield from super().record(world, consumer)
            return
        yield self.reach("acknowledge", without_copy(world, consumer.copy), consumer, "failed")


class PutsTheLetterFirst(SqsDeliveries):
    """The letter is on the dead-letter queue before the item knows of the death."""

    def record(self, world: World, consumer: Consumer) -> Iterator[Move[World]]:
        if consumer.attempt < self.scenario.limits.attempts:
            yield from super().record(world, consumer)
            return
        yield from self.put_letter(world, consumer)


class RunsTheLastReceive(Protocol):
    """The last receive starts the function once more."""

    def try_attempt(self, copy: Copy, item: Item | None) -> Found:
        return Found("ready", self.next_attempt(copy, item))


class OnlyAcknowledgesTheDead(Protocol):
    """A message whose item is dead is acknowledged, and its letter never put."""

    def found_dead(self) -> Found:
        return Found("settled")


class CountsReceives(Protocol):
    """The attempt is the receive count."""

    def next_attempt(self, copy: Copy, _item: Item | None) -> int:
        return copy.receives


class CountsEveryFailure(Protocol):
    """A failure adds one, whatever attempt it was."""

    def accepts_failure(self, copy: Copy, item: Item | None, attempt: int) -> bool:
        return item is None or (item.generation == copy.generation and item.status == "alive")

    def failed(self, copy: Copy, item: Item | None, attempt: int) -> Item:
        return super().failed(copy, item, 1 if item is None else item.attempts + 1)


class CountsNoFailure(SqsDeliveries):
    """A failed attempt that is not the last one is hidden and not written."""

    def record(self, world: World, consumer: Consumer) -> Iterator[Move[World]]:
        if consumer.attempt >= self.scenario.limits.attempts:
            yield from super().record(world, consumer)
            return
        yield self.leave("hide", world, consumer)


class CountsForAnyGeneration(Protocol):
    """A late failure counts for the generation that runs now."""

    def accepts_failure(self, copy: Copy, item: Item | None, attempt: int) -> bool:
        return item is None or (item.attempts < attempt and item.status == "alive")


class GivesUpByReceives(Protocol):
    """A message dies unrun when it was received as often as it may be attempted."""

    def try_attempt(self, copy: Copy, item: Item | None) -> Found:
        return Found("used up") if copy.receives > self.limits.attempts else super().try_attempt(copy, item)


class MarksBeforeItSends(SqsDeliveries):
    """A redrive takes the letter off the list, then sends it; the reconciler deletes it as spent in between."""

    def redrive(self, world: World, redrive: Redrive) -> Move[World]:
        return (
            self.send(world, redrive, None) if redrive.sent else self.mark(world, redrive, redrive._replace(sent=True))
        )


class RedrivesTheSameGeneration(Protocol):
    """A redrive changes no generation."""

    def redriven_generation(self, generation: int) -> int:
        return generation


class ClaimsNothing(Protocol):
    """Any copy of the redriven generation may run."""

    def is_own(self, _copy: Copy, _item: Item) -> bool:
        return True


class ClaimsForTheSqsMessage(Protocol):
    """The claim is for the SQS message, which has another identity when it comes back from the console."""

    def console_token(self, _letter: Letter, number: int) -> int:
        return number


class ClaimsWhatWasDiscarded(Protocol):
    """A redriven copy that is still under way takes over a discarded item."""

    def is_claimable(self, copy: Copy, item: Item | None) -> bool:
        return copy.generation > 0 and (item is None or item.generation < copy.generation)


class DeletesWhatNoItemKnows(Protocol):
    """The reconciler deletes every letter whose item is not dead, also one that SQS moved by itself."""

    def reconciled(self, letter: Letter, item: Item | None) -> Literal["keep", "delete", "adopt"]:
        return "keep" if self.is_dead(letter, item) else "delete"


class KeepsPlainLetters(SqsDeliveries):
    """The reconciler leaves alone what SQS moved by itself."""

    def reconcile(self, world: World, letter: Letter) -> Move[World]:
        is_plain = not letter.enriched and self.protocol.reconciled(letter, world.items[letter.message]) == "adopt"
        return Move(("keep", *letter), True, world) if is_plain else super().reconcile(world, letter)


class DiscardsTheItem(SqsDeliveries):
    """A discard deletes the item."""

    def discard(self, world: World, item: Item) -> Move[World]:
        after = history.note_discard(world._replace(items=(None, *world.items[1:])), 0, item.generation)
        return Move(("discard", 0), False, after)


class GoesOnBehindAFailure(SqsDeliveries):
    """The rest of a batch runs though a message of its group failed."""

    def leave(self, verb: str, world: World, consumer: Consumer) -> Move[World]:
        if not consumer.waiting:
            return super().leave(verb, world, consumer)
        after = Consumer(consumer.waiting[0], waiting=consumer.waiting[1:], handled=consumer.handled)
        others = others_than(world, consumer)
        return Move((verb, *consumer.copy), True, world._replace(consumers=(*others, after)))


class RetriesByANewSend(SqsDeliveries):
    """A failed message is sent again, behind its group."""

    def leave(self, verb: str, world: World, consumer: Consumer) -> Move[World]:
        copy = next((copy for copy in world.source if copy.is_same(consumer.copy)), consumer.copy)
        source = (*without_copy(world, copy).source, copy)
        return super().leave(verb, world._replace(source=source), consumer)


class RunsStrayedLetters(SqsDeliveries):
    """What the console moves back runs in the group of its letter."""

    def take_strayed(self, world: World, consumer: Consumer) -> Iterator[Move[World]]:
        found = self.protocol.look(consumer.copy, world.items[consumer.copy.message])
        yield self.go_on("read", world, consumer, found)


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake, where to look for it, and the rule that catches it."""

    made: type[Protocol] | type[SqsDeliveries]
    scenario: Scenario
    rule: str

    def deliveries(self) -> SqsDeliveries:
        """Return the deliveries with the mistake in them."""
        if issubclass(self.made, SqsDeliveries):
            return self.made(self.scenario)
        return SqsDeliveries(self.scenario, self.made(self.scenario.limits))


MISTAKES = (
    Mistake(AcknowledgesBeforeTheLetter, _KILLS, "not lost"),
    Mistake(OnlyAcknowledgesTheDead, _KILLS, "live"),
    Mistake(PutsTheLetterFirst, _KILLS, "letters"),
    Mistake(RunsTheLastReceive, _KILLS, "bounded"),
    Mistake(CountsReceives, _THROTTLES, "attempts"),
    Mistake(CountsEveryFailure, _KILLS, "not early"),
    Mistake(CountsNoFailure, _THROTTLES, "not late"),
    Mistake(CountsForAnyGeneration, _REDRIVE_BESIDE, "not early"),
    Mistake(GivesUpByReceives, _THROTTLES, "not early"),
    Mistake(MarksBeforeItSends, _REDRIVE, "not lost"),
    Mistake(RedrivesTheSameGeneration, _REDRIVE, "not lost"),
    Mistake(ClaimsNothing, _REPEATED, "one redrive"),
    Mistake(ClaimsForTheSqsMessage, _NATIVE, "not lost"),
    Mistake(ClaimsWhatWasDiscarded, _REDRIVE, "final"),
    Mistake(DeletesWhatNoItemKnows, _CONSOLE, "not lost"),
    Mistake(KeepsPlainLetters, _CONSOLE, "live"),
    Mistake(DiscardsTheItem, _REDRIVE, "letters"),
    Mistake(GoesOnBehindAFailure, _FIFO, "order"),
    Mistake(RetriesByANewSend, _FIFO, "order"),
    Mistake(RunsStrayedLetters, _FIFO_CONSOLE, "alone"),
)
