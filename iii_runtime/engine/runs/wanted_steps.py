"""The steps a workflow waits for: which may begin, which run, and what they came to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from iii_runtime.core.runs.facts import AttemptFailed, AttemptStarted, Fact, Key
from iii_runtime.core.runs.record import RunRecord
from iii_runtime.core.workflow.commands import RunStep
from iii_runtime.engine.runs.attempts import Attempts
from iii_runtime.engine.runs.outcome import Outcome


@dataclass(slots=True, eq=False)
class WantedStep:
    """A step without an outcome.

    Attributes:
        command: What to do.
        failed: How many attempts have failed.
        not_before_ms: When the next attempt may begin.
        is_announced: Whether the next attempt's beginning is a fact, for a step that must not be repeated.
        is_interrupted: Whether an earlier execution began the attempt, and nobody knows how far it came.
        task: The attempt that runs.
    """

    command: RunStep
    failed: int = 0
    not_before_ms: int = 0
    is_announced: bool = False
    is_interrupted: bool = False
    task: asyncio.Task[None] | None = None


@dataclass(slots=True, kw_only=True)
class WantedSteps:
    """All steps of one execution that have no outcome.

    Attributes:
        attempts: Runs their bodies.
        on_outcome: Called when an attempt has ended.
        outcomes: Attempts that have ended and were not looked at, in the order in which they ended.
    """

    attempts: Attempts
    on_outcome: Callable[[], None]
    outcomes: list[tuple[WantedStep, Outcome]] = field(default_factory=list)
    _by_key: dict[Key, WantedStep] = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        """Whether an attempt runs, or its outcome was not looked at."""
        return bool(self.outcomes) or any(step.task is not None for step in self._by_key.values())

    @property
    def next_ms(self) -> int | None:
        """When the next attempt may begin, of those that do not run; None if there is none."""
        return min((step.not_before_ms for step in self._by_key.values() if step.task is None), default=None)

    def add(self, command: RunStep) -> None:
        """Wait for a step."""
        self._by_key[command.key] = WantedStep(command)

    def withdraw(self, key: Key) -> None:
        """Wait for a step no more. An asynchronous body is cancelled; a synchronous one ends unheard."""
        step = self._by_key.pop(key, None)
        if step is not None and step.task is not None:
            step.task.cancel()

    def remember(self, facts: Iterable[Fact]) -> None:
        """Note what stored facts say of attempts."""
        for fact in facts:
            if isinstance(fact, AttemptFailed):
                self.failed(fact)
            elif isinstance(fact, AttemptStarted) and fact.key in self._by_key:
                step = self._by_key[fact.key]
                step.is_announced = step.is_interrupted = True

    def failed(self, fact: AttemptFailed) -> None:
        """Note a failed attempt; another one follows."""
        step = self._by_key.get(fact.key)
        if step is not None:
            step.failed, step.not_before_ms = fact.attempt, fact.next_at_ms
            step.is_announced = step.is_interrupted = False

    def ready(self, now_ms: int) -> list[WantedStep]:
        """Return the steps whose next attempt may begin now."""
        return [step for step in self._by_key.values() if step.task is None and step.not_before_ms <= now_ms]

    def begin(self, step: WantedStep, record: RunRecord) -> None:
        """Run the next attempt of a step."""
        step.task = asyncio.create_task(self._run(step, record), name=f"{record.workflow_id} {step.command.key}")

    def take(self) -> tuple[WantedStep, Outcome] | None:
        """Return the first attempt that has ended and is still waited for; None if there is none."""
        while self.outcomes:
            step, outcome = self.outcomes.pop(0)
            step.task = None
            if self._by_key.get(step.command.key) is step:
                return step, outcome
        return None

    def resolved(self, key: Key) -> None:
        """Forget a step that has its outcome."""
        self._by_key.pop(key, None)

    def abandon(self) -> None:
        """Cancel what runs: nobody waits for it any more."""
        for key in list(self._by_key):
            self.withdraw(key)
        self.outcomes.clear()

    async def _run(self, step: WantedStep, record: RunRecord) -> None:
        outcome = await self.attempts.run(record, step.command, step.failed + 1)
        self.outcomes.append((step, outcome))
        self.on_outcome()
