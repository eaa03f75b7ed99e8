"""A host may be killed between any two requests, and any answer may be lost: no message is, and none is counted twice.

Each story is told once undisturbed, to count its requests, and then once for each of them with a mishap there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

import pytest

from iii_runtime.core.message import decode_envelope
from iii_runtime.core.queue import QueueSpec
from iii_runtime.ports.message_queue import Delivery
from iii_runtime.testing.stores import outgoing_message
from tests.contract.sqs_stage import ERROR, LEASE, KilledError, Stage, open_stage

ATTEMPTS = 2
STANDARD = QueueSpec(name="orders", max_attempts=ATTEMPTS)
FIFO = QueueSpec(name="orders", max_attempts=ATTEMPTS, kind="fifo", group_field="customer")
BACKOFF = timedelta(seconds=1)
PAUSE = LEASE + timedelta(seconds=1)
RECEIVES = 20


@dataclass
class Handler:
    """The user's function: it fails as often as it is told to in each generation, and notes each attempt it is given.

    Attributes:
        failures: Failures in each generation, before it succeeds.
        attempts: `(generation, attempt)` of each run.
        succeeded: Generations in which it has returned.
    """

    failures: tuple[int, ...]
    attempts: list[tuple[int, int]] = field(default_factory=list)
    succeeded: list[int] = field(default_factory=list)

    def fails(self, delivery: Delivery) -> bool:
        self.attempts.append((delivery.generation, delivery.attempt))
        is_failure = delivery.attempt <= self.failures[delivery.generation]
        self.succeeded += [] if is_failure else [delivery.generation]
        return is_failure


class Host:
    """What the engine does with a delivery, and an operator with a letter.

    Attributes:
        copies: Messages that the enqueue has made in SQS: more than one if it was repeated, and the queue is standard.
    """

    def __init__(self, stage: Stage, spec: QueueSpec, handler: Handler) -> None:
        self.stage = stage
        self.spec = spec
        self.handler = handler
        self.copies = 0

    async def send(self) -> None:
        message = outgoing_message(self.spec, "m1", {"customer": "a"}, dedupe_id="once")
        await self.stage.queue.send(self.spec, [message])
        self.copies = len(self.stage.waiting(self.stage.url(self.spec)))

    async def handle(self) -> bool:
        """Handle what is visible; return whether there was anything."""
        queue = self.stage.queue
        deliveries = await queue.receive(self.spec, 1, LEASE)
        for delivery in deliveries:
            if not self.handler.fails(delivery):
                await queue.acknowledge(delivery)
            elif delivery.attempt >= ATTEMPTS:
                await queue.bury(delivery, "failed", ERROR, delivery.attempt)
            else:
                await queue.fail(delivery, ERROR, BACKOFF)
            self.stage.clock.advance(BACKOFF)
        return bool(deliveries)

    async def redrive(self) -> None:
        await self.stage.letters.redrive(self.spec, "m1")

    async def redrive_all(self) -> None:
        await self.stage.letters.redrive_all(self.spec)

    async def discard(self) -> None:
        await self.stage.letters.discard("orders", "m1")

    async def settle(self) -> None:
        """Let every lease end, and handle what comes back, until nothing does."""
        for _ in range(RECEIVES):
            self.stage.clock.advance(PAUSE)
            if not await self.handle() and not self.stage.waiting(self.stage.url(self.spec)):
                return
        pytest.fail("the queue does not become empty")

    async def reconcile(self) -> None:
        await self.stage.reconciler.reconcile(self.spec)
        self.stage.clock.advance(PAUSE)


@dataclass(frozen=True)
class Story:
    """A life of one message.

    Attributes:
        failures: See `Handler`.
        steps: Names of what `Host` does, in order.
        ends: `succeeded`, `dead` or `discarded`.
        generation: The generation in which it ends.
    """

    failures: tuple[int, ...]
    steps: tuple[str, ...]
    ends: str
    generation: int = 0


STORIES = {
    "success": Story((0,), ("send", "handle"), "succeeded"),
    "failure, then success": Story((1,), ("send", "handle", "handle"), "succeeded"),
    "death": Story((2,), ("send", "handle", "handle"), "dead"),
    "redrive": Story((2, 1), ("send", "handle", "handle", "redrive", "handle", "handle", "reconcile"), "succeeded", 1),
    "redrive of all": Story((2, 2), ("send", "handle", "handle", "redrive_all", "handle", "handle"), "dead", 1),
    "discard": Story((2,), ("send", "handle", "handle", "discard", "reconcile"), "discarded"),
}

Mishap: TypeAlias = Callable[[Stage, int], None]


def killed(stage: Stage, number: int) -> None:
    """Kill the host before a request."""
    stage.mishaps.begin(kill_at=number)


def lost(stage: Stage, number: int) -> None:
    """Lose the answer to a request."""
    stage.mishaps.begin(lose_at=number)


async def tell(stage: Stage, spec: QueueSpec, story: Story, numbers: list[int], mishap: Mishap) -> Host:
    """Tell a story with a mishap at each of these requests. Whoever was killed comes again, and repeats its step."""
    host = Host(stage, spec, Handler(story.failures))
    pending = list(numbers)
    mishap(stage, pending.pop(0)) if pending else stage.mishaps.begin()
    for step in story.steps:
        while True:
            try:
                await getattr(host, step)()
                break
            except KilledError:
                stage.clock.advance(PAUSE)
                mishap(stage, pending.pop(0)) if pending else stage.mishaps.begin()
                if step == "handle":
                    break  # the message comes back when it does
    stage.mishaps.begin()
    return host


async def check(host: Host, story: Story) -> None:
    """Compare with what must hold in the end, whatever went wrong."""
    stage, spec, handler = host.stage, host.spec, host.handler
    await host.settle()
    if story.generation and handler.attempts[-1][0] < story.generation:
        await host.redrive()  # the operator sees the letter again, and repeats
        await host.settle()
    if story.ends == "discarded" and await stage.listed():
        await host.discard()
        await host.settle()
    await host.reconcile()
    await host.reconcile()
    is_dead = story.ends == "dead"
    assert await stage.listed() == (["m1"] if is_dead else [])
    assert await stage.letters.count("orders") == int(is_dead)
    letters = stage.waiting(stage.letter_url(spec))
    assert [decode_envelope(letter).receipt for letter in letters] == (["m1"] if is_dead else [])
    assert stage.waiting(stage.url(spec)) == []
    assert (story.generation in handler.succeeded) == (story.ends == "succeeded")
    if is_dead:
        letter = await stage.letters.get("m1")
        assert letter is not None
        assert (letter.generation, letter.attempts, letter.cause) == (story.generation, ATTEMPTS, "failed")
    _check_numbers(host, story)


def _check_numbers(host: Host, story: Story) -> None:
    """Attempts count up from 1 in each generation; one may come again, for its record was lost; none is left out."""
    for generation in range(story.generation + 1):
        numbers = [number for seen, number in host.handler.attempts if seen == generation]
        last = min(story.failures[generation] + 1, ATTEMPTS)
        assert sorted(set(numbers)) == list(range(1, last + 1))
        # The first receive of a second copy asks no item, and so begins with 1.
        assert numbers == sorted(numbers) or (generation == 0 and host.copies > 1)


CASES = [
    pytest.param(spec, name, mishap, id=f"{kind}-{name}-{mishap.__name__}")
    for kind, spec in (("standard", STANDARD), ("fifo", FIFO))
    for name in STORIES
    for mishap in (killed, lost)
    # The two kinds differ in what a repeated send does, and in the groups of letters: the short stories have both.
    if spec is STANDARD or mishap is killed or name in {"success", "failure, then success", "death"}
]


@pytest.mark.parametrize(("spec", "name", "mishap"), CASES)
async def test_one_mishap_at_any_request_changes_no_end(
    monkeypatch: pytest.MonkeyPatch, spec: QueueSpec, name: str, mishap: Mishap
) -> None:
    story = STORIES[name]
    with monkeypatch.context() as patch, open_stage(patch, specs=(spec,)) as stage:
        host = await tell(stage, spec, story, [], mishap)
        requests = len(stage.services.calls)
        await check(host, story)
    for number in range(requests):
        with monkeypatch.context() as patch, open_stage(patch, specs=(spec,)) as stage:
            host = await tell(stage, spec, story, [number], mishap)
            await check(host, story)


@pytest.mark.parametrize("spec", [STANDARD, FIFO], ids=["standard", "fifo"])
async def test_neither_do_three_kills(monkeypatch: pytest.MonkeyPatch, spec: QueueSpec) -> None:
    for _ in range(10):
        name = random.choice(["redrive", "redrive of all", "discard"])
        numbers = [random.randint(0, 8) for _ in range(3)]
        with monkeypatch.context() as patch, open_stage(patch, specs=(spec,)) as stage:
            try:
                await check(await tell(stage, spec, STORIES[name], numbers, killed), STORIES[name])
            except AssertionError as error:
                raise AssertionError(f"{name}, killed at {numbers}: {error}") from error
