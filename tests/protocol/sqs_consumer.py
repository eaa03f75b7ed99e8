"""What a consumer of the SQS queue does: one call at a time, and what the function in it does.

It may be killed between any two of them. A write may be stored and its answer lost, so that it is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.protocol import sqs_history as history
from tests.protocol.search import Move
from tests.protocol.sqs_history import Consumer, World
from tests.protocol.sqs_model import Copy, Found, Item, Letter, Limits, Protocol, Stage


class Scenario(NamedTuple):
    """What may happen.

    Attributes:
        name: For failure messages.
        limits: How often a message may be tried.
        messages: How many are enqueued; on a FIFO queue all of one group.
        kills: Whether consumers may be killed and answers lost, any number of times.
        duplicates: Whether a message that is held may be received by another consumer.
        throttles: Whether a receive may be throttled.
        fifo: Whether the queue keeps an order.
        redrives: Whether an operator redrives the first message.
        discards: Whether an operator discards the first message.
        console: Whether the console moves letters of the first message back.
        copies: SQS messages of one receipt up to which it may be redriven.
    """

    name: str
    limits: Limits
    messages: int = 1
    kills: bool = False
    duplicates: bool = False
    throttles: bool = False
    fifo: bool = False
    redrives: bool = False
    discards: bool = False
    console: bool = False
    copies: int = 0


class ConsumerMoves:
    """The moves of the consumers in one scenario."""

    def __init__(self, scenario: Scenario, protocol: Protocol | None = None) -> None:
        self.scenario = scenario
        self.protocol = protocol or Protocol(scenario.limits)

    def steps(self, world: World, consumer: Consumer) -> Iterator[Move[World]]:
        """Yield what a consumer can do next: one call, or one step of the function."""
        match consumer.stage:
            case "received":
                yield from self._look(world, consumer)
            case "claiming":
                yield self.claim(world, consumer)
            case "used up":
                yield self.bury_unrun(world, consumer)
            case "ready":
                yield self.start(world, consumer, consumer.attempt)
            case "running":
                yield from self._outcomes(world, consumer)
            case "failed":
                yield from self.record(world, consumer)
            case "burying":
                yield from self.put_letter(world, consumer)
            case "resent":
                yield self.settled("leave the strayed one", world, consumer)
            case "acknowledging":
                yield self.acknowledge(world, consumer)

    def _look(self, world: World, consumer: Consumer) -> Iterator[Move[World]]:
        copy = consumer.copy
        if copy.strayed:
            yield from self.take_strayed(world, consumer)
        elif self.protocol.needs_item(copy):
            yield self.go_on("read", world, consumer, self.protocol.look(copy, world.items[copy.message]))
        else:
            yield self.start(world, consumer, 1)

    def _outcomes(self, world: World, consumer: Consumer) -> Iterator[Move[World]]:
        yield self.settled("succeed", history.note_success(world, consumer.copy), consumer)
        failed = history.note_failure(world, consumer.copy, self.scenario.limits)
        yield self.reach("fail", failed, consumer, "failed")

    def start(self, world: World, consumer: Consumer, attempt: int) -> Move[World]:
        """Start the function."""
        consumer_at = consumer._replace(attempt=attempt)
        others = others_than(world, consumer)
        if self.scenario.fifo:
            history.check_order(world, consumer.copy, others, alone=not self.scenario.duplicates)
        noted = history.note_start(world, consumer_at, self.scenario.limits)
        after = _replaced(noted, consumer, consumer_at._replace(stage="running"))
        return Move(("start", attempt, *consumer.copy), True, after)

    def claim(self, world: World, consumer: Consumer) -> Move[World]:
        """Take over the item for a redriven message; refused, read it again."""
        copy = consumer.copy
        if not self.protocol.is_claimable(copy, world.items[copy.message]):
            return self.reach("claim in vain", world, consumer, "received")
        item = self.protocol.claimed(copy)
        world = history.note_claim(with_item(world, copy.message, item), copy, others_than(world, consumer))
        return self.go_on("claim", world, consumer, self.protocol.try_attempt(copy, item))

    def bury_unrun(self, world: World, consumer: Consumer) -> Move[World]:
        """Write the death of a message whose receives are used up; refused, read its item again."""
        copy, item = consumer.copy, world.items[consumer.copy.message]
        if not self.protocol.accepts_last_receive(copy, item):
            return self.reach("die in vain", world, consumer, "received")
        history.check_death(world, copy, self.scenario.limits, by_receives=True)
        world = with_item(world, copy.message, self.protocol.received_too_often(copy, item))
        return self.reach("die by receives", world, consumer, "burying")

    def record(self, world: World, consumer: Consumer) -> Iterator[Move[World]]:
        """Write a failed attempt, or the death that follows it."""
        copy, item = consumer.copy, world.items[consumer.copy.message]
        if not self.protocol.accepts_failure(copy, item, consumer.attempt):
            assert item is not None
            yield self.go_on("record in vain", world, consumer, self.protocol.refused(copy, item))
            return
        failed = self.protocol.failed(copy, item, consumer.attempt)
        if failed.status == "dead":
            history.check_death(world, copy, self.scenario.limits, by_receives=False)
        after = with_item(world, copy.message, failed)
        if self.scenario.kills:
            yield Move(("record and lose the answer", *copy), False, after)
        yield self.recorded(after, consumer, failed)

    def recorded(self, world: World, consumer: Consumer, item: Item) -> Move[World]:
        """Go on after a failure that was written."""
        if item.status == "dead":
            return self.reach("die", world, consumer, "burying")
        return self.leave("record", world, consumer)

    def put_letter(self, world: World, consumer: Consumer) -> Iterator[Move[World]]:
        """Put the enriched letter on the dead-letter queue.

        On a FIFO queue SQS swallows one that was put before, if it comes soon, though the console has moved that one.
        """
        copy = consumer.copy
        history.check_letter(world, copy)
        letter = Letter(copy.message, copy.generation, enriched=True)
        yield self.settled("put the letter", world._replace(letters=world.letters | {letter}), consumer)
        if self.scenario.fifo and self.scenario.console and world.past[copy.message].newest > copy.generation:
            yield self.settled("put the letter, swallowed", world, consumer)

    def take_strayed(self, world: World, consumer: Consumer) -> Iterator[Move[World]]:
        """Send a message that came back in the group of its letter again, in its own group.

        SQS swallows a second send of the same redrive, if it comes soon.
        """
        strayed = consumer.copy
        again = strayed._replace(number=world.past[strayed.message].copies + 1, receives=0, strayed=False)
        sent = history.note_copy(world._replace(source=(*world.source, again)), again)
        yield self.reach("send the strayed one again", sent, consumer, "resent")
        if _was_sent(world, again):
            yield self.reach("send the strayed one again, swallowed", world, consumer, "resent")

    def acknowledge(self, world: World, consumer: Consumer) -> Move[World]:
        """End the invocation; SQS deletes what it does not report as failed."""
        for copy in consumer.handled:
            world = without_copy(world, copy)
        return Move(("acknowledge", *consumer.handled), True, _replaced(world, consumer, None))

    def go_on(self, verb: str, world: World, consumer: Consumer, found: Found) -> Move[World]:
        """Go on as the item says."""
        if found.next == "settled":
            return self.settled(f"{verb}: nothing to do", world, consumer)
        if found.next == "recorded":
            return self.leave(f"{verb}: recorded before", world, consumer)
        return self.reach(
            f"{verb}: {found.next}", world, consumer._replace(attempt=found.attempt), found.next, consumer
        )

    def reach(
        self,
        verb: str,
        world: World,
        consumer: Consumer,
        stage: Stage,
        before: Consumer | None = None,
    ) -> Move[World]:
        """Return the move that takes a consumer to its next stage."""
        label = (verb, *consumer.copy)
        return Move(label, True, _replaced(world, before or consumer, consumer._replace(stage=stage)))

    def settled(self, verb: str, world: World, consumer: Consumer) -> Move[World]:
        """Return the move after which this message is to be acknowledged, with its batch."""
        after = _next_of_batch(consumer, (*consumer.handled, consumer.copy))
        return Move((verb, *consumer.copy), True, _replaced(world, consumer, after))

    def leave(self, verb: str, world: World, consumer: Consumer) -> Move[World]:
        """Return the move after which this message, and the rest of its group in the batch, is given back."""
        after = consumer._replace(stage="acknowledging", waiting=()) if consumer.handled else None
        return Move((verb, *consumer.copy), True, _replaced(world, consumer, after))

    def kills(self, world: World, consumer: Consumer) -> Iterator[Move[World]]:
        if consumer.stage == "failed":
            world = history.excuse(world, consumer.copy.message)
        yield Move(("kill", *consumer.copy), False, _replaced(world, consumer, None))


def without_copy(world: World, copy: Copy) -> World:
    """Delete an SQS message from the source queue."""
    return world._replace(source=tuple(other for other in world.source if not other.is_same(copy)))


def with_copy(world: World, copy: Copy, by: Copy) -> World:
    return world._replace(source=tuple(by if other is copy else other for other in world.source))


def with_item(world: World, message: int, item: Item | None) -> World:
    return world._replace(items=(*world.items[:message], item, *world.items[message + 1 :]))


def with_consumer(world: World, consumer: Consumer) -> World:
    return world._replace(consumers=(*world.consumers, consumer))


def others_than(world: World, consumer: Consumer) -> tuple[Consumer, ...]:
    """Return the other consumers. Two may be equal: then one of them is another."""
    place = world.consumers.index(consumer)
    return (*world.consumers[:place], *world.consumers[place + 1 :])


def _replaced(world: World, consumer: Consumer, by: Consumer | None) -> World:
    others = others_than(world, consumer)
    return world._replace(consumers=others if by is None else (*others, by))


def _next_of_batch(consumer: Consumer, handled: tuple[Copy, ...]) -> Consumer:
    if consumer.waiting:
        return Consumer(consumer.waiting[0], waiting=consumer.waiting[1:], handled=handled)
    return Consumer(consumer.copy, "acknowledging", handled=handled)


def is_held(world: World, copy: Copy) -> bool:
    return any(consumer.holds(copy) for consumer in world.consumers)


def _was_sent(world: World, copy: Copy) -> bool:
    """Return whether the redrive of a copy may have been sent before: its message is there, or has come."""
    item = world.items[copy.message]
    has_come = item is not None and (item.generation >= copy.generation or item.status == "discarded")
    return has_come or any(
        other.token == copy.token and other.message == copy.message and not other.strayed for other in world.source
    )
