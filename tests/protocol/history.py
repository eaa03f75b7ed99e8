"""What has happened to each message, and what must hold because of it.

What must hold, by the name under which a breach is reported:

`not lost`      A message is queued or a letter, or its present generation has succeeded, or it was discarded or purged.
`one place`     A message is queued once, or a letter once, never both.
`final`         A discarded or purged message is never again queued or a letter.
`leases`        The leases that have not ended are those of the runs that go on under one: none is left over by a
                process that died, and none is taken away from a run.
`alone`         Of one group (without groups: of one message) at most one run is under its lease.
`order`         A function starts under its lease only when all messages of its group that were queued before are done,
                dead or purged. A redriven message counts as queued anew.
`attempts`      The number of an attempt is 1 + the failures recorded in its generation; each of 1 to k - 1 has failed
                before attempt k starts; none is above the maximum.
`not early`     A letter `failed` reports the maximum of attempts, each of which has failed (fewer only if the last
                error forbids a retry). A letter `receives` is of the last receive or a later one, after at least as
                many interrupted runs as there are more receives than attempts.
`not late`      In one generation no more attempts fail than the maximum and the interrupted runs together.
`bounded`       In one generation a function starts at most once less than the maximum of receives.
`redrive`       A redrive makes exactly the next generation of its message, and no other is ever received.

An interrupted run is one whose host was killed, that was given up, or whose lease ended before it did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from tests.protocol.model import Cause, Received, State
from tests.protocol.search import Breach, need

RULES = frozenset(
    {
        "not lost",
        "one place",
        "final",
        "leases",
        "alone",
        "order",
        "attempts",
        "not early",
        "not late",
        "bounded",
        "redrive",
    }
)

Stage = Literal["received", "newer", "running", "returned", "raised", "raised for good", "half buried"]


class Run(NamedTuple):
    """A receive in the hands of the engine. `lost`: its lease, or its hold on the message, ended before it did."""

    received: Received
    stage: Stage = "received"
    lost: bool = False


class Past(NamedTuple):
    """What happened to a message. All but `end` is about the present generation.

    Attributes:
        queued: Its place in the order of sends and redrives; 0 before it is sent.
        open: Whether it is still to be handled: not acknowledged, not dead, not purged.
        generation: Redrives so far.
        starts: How often the function started.
        failed: The attempts that failed, as bits.
        failures: How many times the function failed.
        recorded: How many failures the store has accepted.
        interrupted: How many runs were.
        hidden: How often it was left to a newer host.
        succeeded: Whether the function has returned.
        end: How an operator ended it.
    """

    queued: int = 0
    open: bool = False
    generation: int = 0
    starts: int = 0
    failed: int = 0
    failures: int = 0
    recorded: int = 0
    interrupted: int = 0
    hidden: int = 0
    succeeded: bool = False
    end: Literal["", "discarded", "purged"] = ""


class World(NamedTuple):
    """A state of the search: the store, the runs, and what happened to each message."""

    store: State
    runs: tuple[Run, ...]
    past: tuple[Past, ...]


class Limits(NamedTuple):
    """What the rules about numbers need."""

    attempts: int
    receives: int


def check(world: World, groups: tuple[str | None, ...]) -> None:
    """Check what must hold in every state."""
    held = [groups[run.received.message] or run.received.message for run in world.runs if not run.lost]
    if len(set(held)) < len(held):
        raise Breach("alone", f"runs under their leases: {held}")
    places = [row.message for row in world.store.rows] + [letter.message for letter in world.store.letters]
    for message, past in enumerate(world.past):
        _check_place(message, past, places.count(message))
    leases = sorted((row.message, row.generation, row.handle) for row in world.store.rows if row.has_live_lease)
    holders = sorted(
        (run.received.message, run.received.generation, run.received.handle) for run in world.runs if not run.lost
    )
    if leases != holders:
        raise Breach("leases", f"leases {leases}, runs under a lease {holders}")


def queue_anew(world: World, message: int, generation: int) -> World:
    """Note a send, or a redrive."""
    place = 1 + max(past.queued for past in world.past)
    rows = [row for row in world.store.rows if row.message == message]
    fresh = [(row.generation, row.failed, row.receives) for row in rows] == [(generation, 0, 0)]
    need("redrive", fresh, f"generation {generation} of message {message} begins as {rows}")
    return _noted(world, message, Past(queued=place, open=True, generation=generation))


def note_receive(world: World, received: Received, limits: Limits) -> None:
    """Check a receive."""
    past = world.past[received.message]
    need("redrive", received.generation == past.generation, f"{received} after {past.generation} redrives")
    missing = [k for k in range(1, received.attempt) if not past.failed & 1 << k]
    need("attempts", not missing, f"{received}, but {missing} never failed")
    is_next = received.attempt == past.recorded + 1 and received.attempt <= limits.attempts
    need("attempts", is_next, f"{received} after {past.recorded} recorded failures")


def note_start(world: World, run: Run, limits: Limits, groups: tuple[str | None, ...]) -> World:
    """Note that a function starts."""
    message = run.received.message
    if not run.lost:
        group, place = groups[message], world.past[message].queued
        for other, past in enumerate(world.past):
            ahead = group is not None and groups[other] == group and past.open and past.queued < place
            need("order", not ahead, f"message {message} starts before message {other}")
    world = _changed(world, run, lambda past: past._replace(starts=past.starts + 1))
    starts = world.past[message].starts
    need("bounded", starts < limits.receives, f"start {starts} of message {message}")
    return world


def note_success(world: World, run: Run) -> World:
    """Note that a function has returned."""
    return _changed(world, run, lambda past: past._replace(succeeded=True))


def note_failure(world: World, run: Run, limits: Limits) -> World:
    """Note that a function has failed."""
    bit = 1 << run.received.attempt
    world = _changed(world, run, lambda past: past._replace(failed=past.failed | bit, failures=past.failures + 1))
    past = world.past[run.received.message]
    few = past.failures <= limits.attempts + past.interrupted
    need("not late", few, f"failure {past.failures} of message {run.received.message}, {past.interrupted} interrupted")
    return world


def note_recorded(world: World, run: Run) -> World:
    """Note that the store has accepted a failure."""
    return _changed(world, run, lambda past: past._replace(recorded=past.recorded + 1))


def note_interrupted(world: World, run: Run) -> World:
    """Note that a run was interrupted; once for each."""
    if run.lost:
        return world
    return _changed(world, run, lambda past: past._replace(interrupted=past.interrupted + 1))


def note_hidden(world: World, run: Run) -> World:
    """Note that a message was left to a newer host."""
    return _changed(world, run, lambda past: past._replace(hidden=past.hidden + 1))


def note_done(world: World, run: Run) -> World:
    """Note that a message was acknowledged."""
    return _changed(world, run, lambda past: past._replace(open=False))


def note_death(world: World, run: Run, cause: Cause, attempts: int, limits: Limits) -> World:
    """Note that a message became a letter."""
    past, received = world.past[run.received.message], run.received
    if cause == "receives":
        enough = past.interrupted >= limits.receives - limits.attempts
        need("not early", received.receives >= limits.receives and enough, f"{received}: {past}")
    else:
        wanted = attempts if run.stage == "raised for good" else limits.attempts
        all_failed = all(past.failed & 1 << k for k in range(1, wanted + 1))
        need("not early", attempts == wanted and all_failed, f"{received} dies after {attempts} attempts: {past}")
    return note_done(world, run)


def note_end(world: World, message: int, end: Literal["discarded", "purged"]) -> World:
    """Note that an operator has ended a message."""
    return _noted(world, message, world.past[message]._replace(open=False, end=end))


def forget_settled(world: World) -> World:
    """Forget what no rule asks for any more, so that equal futures are equal states."""
    alive = [row.message for row in world.store.rows] + [run.received.message for run in world.runs]
    for message, past in enumerate(world.past):
        if past.queued and message not in alive:
            kept = Past(past.queued, generation=past.generation, succeeded=past.succeeded, end=past.end)
            world = world if kept == past else _noted(world, message, kept)
    return world


def _check_place(message: int, past: Past, places: int) -> None:
    if places > 1:
        raise Breach("one place", f"message {message} is in {places} places")
    if places and past.end:
        raise Breach("final", f"message {message} was {past.end} and is back")
    if not places and past.queued and not past.succeeded and not past.end:
        raise Breach("not lost", f"message {message}, generation {past.generation}")


def _changed(world: World, run: Run, change: Callable[[Past], Past]) -> World:
    message, generation = run.received.message, run.received.generation
    past = world.past[message]
    return _noted(world, message, change(past)) if past.generation == generation else world


def _noted(world: World, message: int, past: Past) -> World:
    return world._replace(past=(*world.past[:message], past, *world.past[message + 1 :]))
