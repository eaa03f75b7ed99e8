"""The adapters do what the model does: every walk on one of them is a path of the other."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import pytest

from iii_runtime.adapters.embedded import queue_rows
from iii_runtime.core.queue import QueueSpec
from iii_runtime.testing.clock import SkipClock
from tests.protocol.adapter_walk import (
    Adapter,
    End,
    Extend,
    MemoryAdapter,
    Operate,
    Outcome,
    Receive,
    Restart,
    Send,
    SqliteAdapter,
    Step,
    Wait,
    Walk,
)

STANDARD = QueueSpec(name="orders")
FIFO = QueueSpec(name="orders", kind="fifo", group_field="customer")
SINGLE = QueueSpec(name="orders", concurrency=1)

OpenAdapter: TypeAlias = Callable[[SkipClock, Path], Adapter]
ADAPTERS: dict[str, OpenAdapter] = {"memory": lambda clock, _: MemoryAdapter(clock), "embedded": SqliteAdapter}
WALKS = 20
STEPS = 150

WRONG_STATEMENTS = [
    ("DUE", "visible_at, seq", "seq"),
    ("DUE", "visible_at <= ?", "visible_at < ?"),
    ("DUE", "rc - uncounted", "rc"),
    ("TAKE", "held = 1", "held = 0"),
    ("TAKE", "rc = rc + 1", "rc = rc"),
    ("EXTEND", "rc = ?", "rc >= ?"),
    ("EXTEND", "held = 1", "1"),
    ("HIDE", "rc = ?", "rc >= ?"),
    ("HIDE", "AND held = 1", ""),
    ("HIDE", "uncounted + 1", "uncounted"),
    ("HIDE", "uncounted = uncounted + 1", "rc = rc - 1"),
    ("FAIL", "held = 0", "held = held"),
    ("HELD", "rc = ?", "rc >= ?"),
    ("HELD", "AND held = 1", ""),
    ("HELD", "rc - uncounted", "rc"),
    ("ACKNOWLEDGE", "rc = ?", "rc >= ?"),
    ("ACKNOWLEDGE", "AND held = 1", ""),
    ("RELEASE", "held = 0, visible_at = ?", "visible_at = ?"),
    ("HELD_AT_START", "WHERE held = 1", "WHERE visible_at IS NOT NULL"),
    ("HELD_AT_START", " - n", ""),
    ("HELD_AT_START", " - uncounted", ""),
    ("PURGE", "held = 1 AND", ""),
    ("PURGE", "visible_at > ?", "visible_at >= ?"),
    ("UNBLOCK", "visible_at = ready_at", "visible_at = NULL"),
    ("_IS_BLOCKED", "LIMIT 1", "LIMIT 0"),
]


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("queue", [STANDARD, FIFO, SINGLE], ids=["standard", "fifo", "single"])
async def test_every_walk_on_an_adapter_is_one_on_the_model(adapter: str, queue: QueueSpec) -> None:
    for _ in range(WALKS):
        seed = random.getrandbits(32)
        steps = random_steps(random.Random(seed), STEPS)
        error = await walk(ADAPTERS[adapter], queue, steps)
        if error is not None:
            steps, error = await shortened(ADAPTERS[adapter], queue, steps, error)
            told = "\n".join(str(step) for step in steps)
            pytest.fail(f"seed {seed}: {adapter} and the model differ after\n{told}\n{error}", pytrace=False)


@pytest.mark.parametrize(("statement", "right", "wrong"), WRONG_STATEMENTS)
async def test_a_walk_notices_a_wrong_statement(
    statement: str, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the agreement above would prove little."""
    sql = getattr(queue_rows, statement)
    assert right in sql
    monkeypatch.setattr(queue_rows, statement, sql.replace(right, wrong))
    for seed in range(WALKS):
        queue = FIFO if seed % 2 else STANDARD
        if await walk(SqliteAdapter, queue, random_steps(random.Random(seed), STEPS)) is not None:
            return
    pytest.fail(f"{WALKS} walks noticed nothing")


def random_steps(rng: random.Random, count: int) -> list[Step]:
    """Return steps of all kinds, sends and receives and their ends most often."""
    makers: list[tuple[int, Callable[[], Step]]] = [
        (4, lambda: Send("".join(rng.choices("ab", k=rng.choice([1, 1, 2]))), rng.choice([0, 0, 5_000]))),
        (9, lambda: Receive(rng.randint(1, 3))),
        (9, lambda: End(_outcomes(rng), rng.choice([0, 0, 1, 5_000, 30_000]))),
        (4, lambda: Wait(rng.choice([1, 5_000, 29_999, 30_000]))),
        (2, lambda: Extend((rng.randint(-3, 0), rng.randint(-6, 2)))),
        (1, Restart),
        (3, lambda: Operate(rng.choice(["redrive", "redrive", "discard"]), rng.randint(-6, 3))),
        (1, lambda: Operate(rng.choice(["redrive all", "redrive all", "discard all", "purge"]))),
    ]
    weights = [weight for weight, _ in makers]
    return [maker() for _, maker in rng.choices(makers, weights, k=count)]


async def walk(open_adapter: OpenAdapter, queue: QueueSpec, steps: list[Step]) -> AssertionError | None:
    """Take all steps on a new adapter and a new model; return what differs, if anything does."""
    clock = SkipClock()
    with TemporaryDirectory() as directory:
        adapter = open_adapter(clock, Path(directory))
        both = Walk(adapter, clock, queue)
        try:
            await both.begin()
            for step in steps:
                await both.take(step)
        except AssertionError as error:
            return error
        finally:
            await adapter.close()
    return None


async def shortened(
    open_adapter: OpenAdapter, queue: QueueSpec, steps: list[Step], error: AssertionError
) -> tuple[list[Step], AssertionError]:
    """Leave out every step without which the walk still fails."""
    size = len(steps) // 2
    while size:
        for start in range(len(steps) - size, -1, -size):
            fewer = steps[:start] + steps[start + size :]
            still = await walk(open_adapter, queue, fewer)
            if still is not None:
                steps, error = fewer, still
        size //= 2
    return steps, error


def _outcomes(rng: random.Random) -> tuple[tuple[int, Outcome], ...]:
    kinds: list[Outcome] = ["acknowledge", "hide", "fail", "fail", "bury as failed", "bury as received too often"]
    return tuple((rng.randint(-3, 5), rng.choice(kinds)) for _ in range(rng.choice([1, 1, 1, 2, 3])))
