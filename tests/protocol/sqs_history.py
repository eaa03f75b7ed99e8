"""What has happened to each message on SQS, and what must hold because of it.

`not lost`      The newest generation of a message is in the queue or the dead-letter queue, or dead in its item, or has
                succeeded; or an operator discarded the message.
`not early`     A death `failed` follows at least N failures of its generation, a death `receives` only the last
                receive.
`not late`      In one generation at most N + x attempts fail; x are failures whose consumer died before recording them,
                receives of a message that another consumer held, and further copies of it.
`attempts`      Attempt k starts only after k - 1 failures, and k is at most N.
`bounded`       The last receive never starts a function.
`order`         FIFO: a function starts only when all earlier messages of its group are through: succeeded, dead, moved
                to the dead-letter queue, or redriven, which queues them anew.
`alone`         FIFO without duplicates: of one group, one function runs at a time.
`one redrive`   Of a redriven generation the copies of one redrive alone start the function.
`final`         Nothing starts in a generation after the one an operator discarded.
`letters`       An enriched letter is put only for a generation that the item has seen die.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tests.protocol.search import need
from tests.protocol.sqs_model import Copy, Item, Letter, Limits, Stage

RULES = frozenset(
    {
        "not lost",
        "not early",
        "not late",
        "attempts",
        "bounded",
        "order",
        "alone",
        "one redrive",
        "final",
        "letters",
    }
)

MANY_EXCUSES = 3
"""Excuses are counted so far; with more, `not late` says nothing."""


class Past(NamedTuple):
    """What happened to a message.

    Attributes:
        newest: Newest generation that was sent.
        copies: SQS messages besides the first one.
        failures: Failures in the generation the item counts.
        excuses: See `not late`.
        succeeded: Generations that succeeded, as bits.
        discarded: 1 + the generation that an operator discarded; 0 if none.
        ran: Token of the redrive that started the function in the redriven generation that the item counts.
        moved: Whether SQS moved it to the dead-letter queue.
    """

    newest: int = 0
    copies: int = 0
    failures: int = 0
    excuses: int = 0
    succeeded: int = 0
    discarded: int = 0
    ran: int = 0
    moved: bool = False


class Consumer(NamedTuple):
    """An invocation.

    Attributes:
        copy: The message it handles, as received.
        stage: What comes next.
        attempt: Number of the attempt, from `ready` on.
        waiting: The rest of its batch.
        handled: What it acknowledges at its end.
    """

    copy: Copy
    stage: Stage = "received"
    attempt: int = 0
    waiting: tuple[Copy, ...] = ()
    handled: tuple[Copy, ...] = ()

    def holds(self, copy: Copy) -> bool:
        """Return whether the SQS message is in this invocation."""
        return any(copy.is_same(own) for own in (self.copy, *self.waiting, *self.handled))

    def serves(self, message: int) -> bool:
        """Return whether any copy of the message is in this invocation."""
        return any(message == own.message for own in (self.copy, *self.waiting, *self.handled))


class Redrive(NamedTuple):
    """An operator's redrive that has not ended."""

    message: int
    generation: int
    sent: bool = False


class World(NamedTuple):
    """A state of the search."""

    source: tuple[Copy, ...]
    letters: frozenset[Letter]
    items: tuple[Item | None, ...]
    consumers: tuple[Consumer, ...]
    redrive: Redrive | None
    past: tuple[Past, ...]


def check(world: World) -> None:
    """Check what must hold in every state."""
    for message, past in enumerate(world.past):
        item, newest = world.items[message], past.newest
        is_safe = (
            past.discarded
            or past.succeeded >> newest
            or any(copy.message == message and copy.generation >= newest for copy in world.source)
            or any(letter.message == message and letter.generation >= newest for letter in world.letters)
            or (item is not None and item.generation >= newest and item.status == "dead")
        )
        need("not lost", bool(is_safe), f"generation {newest} of message {message}")


def note_receive(world: World, copy: Copy) -> World:
    """Note a receive; one beside another consumer of the message excuses a failure."""
    beside = any(consumer.serves(copy.message) for consumer in world.consumers)
    return excuse(world, copy.message) if beside else world


def note_copy(world: World, copy: Copy) -> World:
    """Note that one more SQS message of a receipt was sent."""
    past = world.past[copy.message]
    newest = max(past.newest, copy.generation)
    world = _noted(world, copy.message, past._replace(copies=past.copies + 1, newest=newest))
    return excuse(world, copy.message) if copy.generation == newest else world


def note_claim(world: World, copy: Copy, others: tuple[Consumer, ...]) -> World:
    """Note that the item counts a new generation."""
    beside = any(consumer.serves(copy.message) for consumer in others)
    return _noted(world, copy.message, world.past[copy.message]._replace(failures=0, excuses=int(beside), ran=0))


def note_start(world: World, consumer: Consumer, limits: Limits) -> World:
    """Note that a function starts, and check whether it may."""
    copy, past = consumer.copy, world.past[consumer.copy.message]
    item = world.items[copy.message]
    if item is None or (item.generation == copy.generation and item.status == "alive"):
        is_next = consumer.attempt <= min(past.failures + 1, limits.attempts)
        need(
            "attempts", is_next, f"attempt {consumer.attempt} of message {copy.message} after {past.failures} failures"
        )
    need("bounded", copy.receives < limits.receives, f"receive {copy.receives} of message {copy.message} is run")
    is_final = not past.discarded or copy.generation < past.discarded
    need("final", is_final, f"generation {copy.generation} of message {copy.message} runs after it was discarded")
    if copy.generation:
        need("one redrive", past.ran in (0, copy.token), f"two redrives of message {copy.message} run")
        past = past._replace(ran=copy.token)
    return _noted(world, copy.message, past)


def check_order(world: World, copy: Copy, others: tuple[Consumer, ...], *, alone: bool) -> None:
    """Check the start of a function of a FIFO queue with one group."""
    if alone:
        running = [other.copy.message for other in others if other.stage == "running"]
        need("alone", not running, f"message {copy.message} runs beside {running}")
    if copy.generation:
        return
    for message in range(copy.message):
        past, item = world.past[message], world.items[message]
        died = item is not None and (item.generation > 0 or item.status != "alive")
        through = past.succeeded & 1 or past.moved or past.copies or died
        need("order", bool(through), f"message {copy.message} starts before message {message} is through")


def note_failure(world: World, copy: Copy, limits: Limits) -> World:
    """Note that a function failed."""
    past, item = world.past[copy.message], world.items[copy.message]
    if item is not None and item.generation != copy.generation:
        return world
    past = past._replace(failures=min(past.failures + 1, limits.attempts + MANY_EXCUSES + 1))
    few = past.excuses >= MANY_EXCUSES or past.failures <= limits.attempts + past.excuses
    need("not late", few, f"failure {past.failures} of message {copy.message} with {past.excuses} excuses")
    return _noted(world, copy.message, past)


def note_success(world: World, copy: Copy) -> World:
    """Note that a function returned."""
    past = world.past[copy.message]
    return _noted(world, copy.message, past._replace(succeeded=past.succeeded | 1 << copy.generation))


def check_death(world: World, copy: Copy, limits: Limits, *, by_receives: bool) -> None:
    """Check that a message may die now."""
    failures = world.past[copy.message].failures
    if by_receives:
        need("not early", copy.receives >= limits.receives, f"message {copy.message} dies at receive {copy.receives}")
    else:
        need("not early", failures >= limits.attempts, f"message {copy.message} dies after {failures} failures")


def check_letter(world: World, copy: Copy) -> None:
    """Check that a letter may be put now."""
    item = world.items[copy.message]
    died = item is not None and (item.generation > copy.generation or item.status != "alive")
    need("letters", died, f"generation {copy.generation} of message {copy.message} lives")


def note_moved(world: World, message: int) -> World:
    """Note that SQS moved a message to the dead-letter queue."""
    return _noted(world, message, world.past[message]._replace(moved=True))


def note_discard(world: World, message: int, generation: int) -> World:
    """Note that an operator ended a message."""
    return _noted(world, message, world.past[message]._replace(discarded=generation + 1))


def excuse(world: World, message: int) -> World:
    """Note what may add one failure."""
    past = world.past[message]
    return _noted(world, message, past._replace(excuses=min(past.excuses + 1, MANY_EXCUSES)))


def forget_settled(world: World, *, fifo: bool) -> World:
    """Forget what nothing depends on any more, and the order of equals, so that equal futures are equal states."""
    past = tuple(_without_counts(one, world.items[message], fifo) for message, one in enumerate(world.past))
    consumers = tuple(sorted(_without_counts_of(consumer) for consumer in world.consumers))
    source = world.source if fifo else tuple(sorted(world.source))
    return World(source, world.letters, world.items, consumers, world.redrive, past)


def _without_counts(past: Past, item: Item | None, fifo: bool) -> Past:
    if item is not None and item.status != "alive" and (past.failures or past.excuses):
        past = past._replace(failures=0, excuses=0)
    if not fifo and past.succeeded and not past.succeeded >> past.newest:
        past = past._replace(succeeded=0)
    return past


@lru_cache(maxsize=1 << 16)  # there are few consumers, and each is in very many states
def _without_counts_of(consumer: Consumer) -> Consumer:
    handled = tuple(copy._replace(receives=0) for copy in consumer.handled)
    if consumer.stage in ("received", "claiming"):
        return consumer._replace(handled=handled)
    copy = consumer.copy if consumer.stage in ("used up", "ready") else consumer.copy._replace(receives=0)
    attempt = consumer.attempt if consumer.stage in ("ready", "running", "failed") else 0
    return consumer._replace(copy=copy, attempt=attempt, handled=handled)


def _noted(world: World, message: int, past: Past) -> World:
    return world._replace(past=(*world.past[:message], past, *world.past[message + 1 :]))
