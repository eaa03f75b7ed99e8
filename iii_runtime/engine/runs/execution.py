"""One execution of one run: from its acquisition until it waits, ends, or is lost to somebody else.

The order of effects is the whole point. The machine may be fed facts that are not stored yet; whatever it then wants
from outside happens after they were. So the last outcome and the suspension are one write, and so are the last outcome
and the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from iii_runtime.core.errors import FunctionBusyError
from iii_runtime.core.frozen import frozen
from iii_runtime.core.runs.errors import LimitError, WorkflowDivergedError
from iii_runtime.core.runs.facts import (
    AttemptFailed,
    AttemptStarted,
    CancelRequested,
    Fact,
    Patched,
    SignalReceived,
    StepCompleted,
    StepFailed,
    TimerFired,
)
from iii_runtime.core.runs.facts import Suspended as SuspendedFact
from iii_runtime.core.runs.failures import failure_of
from iii_runtime.core.runs.record import InboxItem, RunRecord
from iii_runtime.core.workflow.commands import (
    Command,
    Complete,
    EndCancelled,
    Fail,
    RecordPatch,
    RunStep,
    WithdrawStep,
)
from iii_runtime.core.workflow.machine import Machine
from iii_runtime.engine.runs.attempts import Attempts
from iii_runtime.engine.runs.endings import closing_of, timed_out
from iii_runtime.engine.runs.journal import Journal
from iii_runtime.engine.runs.verdict import Closed, Lost, Parked, Suspended, Verdict, Yielded
from iii_runtime.engine.runs.wanted_steps import WantedStep, WantedSteps
from iii_runtime.ports.clock import Clock
from iii_runtime.ports.run_store import Closing, Done, Held, RunStore, Written

_log = logging.getLogger("iii_runtime.run")
_BUSY_PAUSE_MS = 1000
_OUTCOMES = (StepCompleted, StepFailed, AttemptFailed, TimerFired)


@frozen(kw_only=True)
class Limits:
    """How long an execution goes on.

    Attributes:
        lease: How long it holds the run without a sign of life; renewed at half.
        patience: Longest wait for a timer or a back-off that is spent here, in place of a suspension.
        remaining: How long this process may still run, if that is bounded.
    """

    lease: timedelta = timedelta(seconds=120)
    patience: timedelta = timedelta(0)
    remaining: Callable[[], timedelta | None] = lambda: None


@frozen(kw_only=True)
class Tools:
    """What an execution works with."""

    runs: RunStore
    clock: Clock
    journal: Journal
    attempts: Attempts
    limits: Limits


class _LostError(Exception):
    """The run is not ours any more."""


class Execution:
    """One execution of a run that was acquired.

    Args:
        record: The run, as its acquisition or creation has returned it.
        new_machine: Makes a machine of its workflow.
        tools: What it works with.
        on_failure: The function that is told if the run fails, if any.
    """

    def __init__(
        self, record: RunRecord, new_machine: Callable[[], Machine], tools: Tools, *, on_failure: str | None = None
    ) -> None:
        self._record = record
        self._new_machine = new_machine
        self._machine = new_machine()
        self._tools = tools
        self._on_failure = on_failure
        self._held = Held(
            workflow_id=record.workflow_id, run_id=record.run_id, epoch=record.epoch, sequence=record.sequence
        )
        self._pending: list[tuple[Fact, str]] = []
        self._received: set[str] = set()
        self._news = asyncio.Event()
        self._steps = WantedSteps(attempts=tools.attempts, on_outcome=self._news.set)
        self._end: Complete | Fail | EndCancelled | None = None
        self._is_nudged = False
        self._has_begun = False
        self._renew_at_ms = 0
        self._renewed()

    def nudge(self) -> None:
        """Look into the inbox: something was delivered."""
        self._is_nudged = True
        self._news.set()

    async def run(self) -> Verdict:
        """Execute until the run waits, ends, or is lost.

        Raises:
            StoreError: Its lease ends by itself, and the run goes on then.
        """
        try:
            await self._replay(await self._tools.journal.facts(self._record))
            await self._take_inbox(self._record.inbox)
            while True:
                verdict = await self._turn()
                if verdict is not None:
                    return verdict
        except _LostError:
            return Lost()
        except WorkflowDivergedError as error:
            return await self._park(error.message)
        finally:
            self._steps.abandon()
            self._machine.dispose()

    async def _turn(self) -> Verdict | None:
        """Do the next thing; return how the execution ended, if it did."""
        if self._end is not None:
            return await self._close(await closing_of(self._end, self._tools.journal, self._record, self._now()))
        now = self._tools.clock.now_ms()
        if self._record.deadline_ms is not None and self._record.deadline_ms <= now:
            return await self._close(timed_out(self._record, now))
        if self._is_nudged or now >= self._renew_at_ms:
            await self._append()
            return None
        if await self._look_at_outcome() or await self._fire_timers(now):
            return None
        if ready := self._steps.ready(now):
            return await self._start(ready)
        if not self._steps.is_running and not self._is_patient(now):
            return await self._suspend()
        if self._pending:
            await self._append()
        else:
            next_ms = self._next_ms()
            await self._wait(self._renew_at_ms if next_ms is None else min(next_ms, self._renew_at_ms))
        return None

    async def _start(self, ready: Sequence[WantedStep]) -> Verdict | None:
        """Begin attempts, once all facts are stored from which they follow."""
        for step in ready:
            if step.is_interrupted:
                await self._take(self._tools.attempts.interrupted(step.command, self._now(), step.failed + 1))
                return None
            if step.command.options.at_most_once and not step.is_announced:
                step.is_announced = True
                await self._note(AttemptStarted(key=step.command.key, at_ms=self._now(), attempt=step.failed + 1))
        if self._pending:
            await self._append()
            return None
        startable = [step for step in ready if self._has_time_for(step)]
        if not startable and not self._steps.is_running:
            return await self._yield()
        for step in startable:
            self._steps.begin(step, self._record)
        self._has_begun = True
        if not startable:
            await self._wait(self._renew_at_ms)  # what runs ends first; then this execution yields
        return None

    async def _look_at_outcome(self) -> bool:
        """Feed the next outcome of an attempt; return whether there was one."""
        found = self._steps.take()
        if found is None:
            return False
        step, outcome = found
        if isinstance(outcome.error, FunctionBusyError):  # it did not begin, which is no attempt
            step.not_before_ms = self._tools.clock.now_ms() + _BUSY_PAUSE_MS
            return True
        fact = self._tools.attempts.fact_of(step.command, outcome, step.failed + 1, self._now())
        try:
            await self._take(fact)
        except LimitError as error:  # another attempt would return as much
            failed = StepFailed(key=fact.key, at_ms=fact.at_ms, failure=failure_of(error), attempts=step.failed + 1)
            await self._take(failed)
        return True

    async def _fire_timers(self, until_ms: int) -> bool:
        """Feed the earliest timer that is due; return whether there was one."""
        timer = self._machine.next_timer()
        if timer is None or timer.deadline_ms > until_ms:
            return False
        at_ms = max(timer.deadline_ms, self._machine.now_ms, until_ms)
        await self._take(TimerFired(number=timer.number, deadline_ms=timer.deadline_ms, at_ms=at_ms))
        return True

    async def _take_inbox(self, items: Sequence[InboxItem]) -> None:
        """Feed what the inbox holds beyond what was fed already; a timer that was due before an item goes first."""
        new = items[self._held.taken :]
        if new and self._end is not None:
            await self._rewind(items)
            return
        for item in new:
            await self._receive(item)
        self._held = replace(self._held, taken=len(items))

    async def _receive(self, item: InboxItem) -> None:
        at_ms = min(item.at_ms, self._tools.clock.now_ms())
        while self._end is None and await self._fire_timers(at_ms):
            continue
        if item.id in self._received:
            return
        self._received.add(item.id)
        at_ms = max(at_ms, self._machine.now_ms)
        if item.kind == "cancel":
            await self._take(CancelRequested(id=item.id, at_ms=at_ms, reason=item.name))
            return
        value = await self._tools.journal.value(self._record, item.payload)
        await self._take(SignalReceived(id=item.id, name=item.name, at_ms=at_ms, value=value))

    async def _rewind(self, items: Sequence[InboxItem]) -> None:
        """Let what was just delivered come before the facts that ended the workflow, since those are not stored yet."""
        late = [fact for fact, _ in self._pending if isinstance(fact, _OUTCOMES)]
        self._machine.dispose()
        self._steps.abandon()
        self._machine, self._end = self._new_machine(), None
        self._pending.clear()
        await self._replay(await self._tools.journal.facts(self._record))
        for item in items:
            await self._receive(item)
        for fact in late:
            if self._machine.expects(fact):
                await self._take(replace(fact, at_ms=max(fact.at_ms, self._machine.now_ms)))
        self._held = replace(self._held, taken=len(items))

    async def _replay(self, facts: Sequence[Fact]) -> None:
        self._received = {fact.id for fact in facts if isinstance(fact, SignalReceived | CancelRequested)}
        await self._obey(self._machine.start(facts))
        self._steps.remember(facts)

    async def _take(self, fact: Fact) -> None:
        """Feed a fact and keep it for the next write."""
        await self._note(fact)
        if isinstance(fact, AttemptFailed):
            self._steps.failed(fact)
        elif isinstance(fact, StepCompleted | StepFailed):
            self._steps.resolved(fact.key)
        await self._obey(self._machine.feed(fact))

    async def _note(self, fact: Fact) -> None:
        self._pending.append((fact, await self._tools.journal.text_of(self._record, fact)))

    async def _obey(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case RunStep():
                    self._steps.add(command)
                case WithdrawStep():
                    self._steps.withdraw(command.key)
                case RecordPatch():
                    await self._note(Patched(patch_id=command.patch_id, at_ms=self._machine.now_ms))
                case Complete() | Fail() | EndCancelled():
                    self._end = command
                case _:
                    continue  # the machine itself knows its timers

    async def _append(self) -> None:
        """Store the pending facts, renew the lease, and see what was delivered meanwhile."""
        self._is_nudged = False
        until_ms = self._tools.clock.now_ms() + _ms(self._tools.limits.lease)
        guard = self._tools.clock.now_ms() >= self._renew_at_ms
        written = await self._tools.runs.append(self._held, self._texts(), lease_until_ms=until_ms, guard=guard)
        await self._go_on_with(self._written(written))

    async def _suspend(self) -> Verdict | None:
        if self._held.sequence + len(self._pending) == 0:
            await self._note(SuspendedFact(at_ms=self._now()))
        written = await self._tools.runs.suspend(self._held, self._texts(), wake_at_ms=self._next_ms())
        if isinstance(written, Done):
            return Suspended(written.record)
        await self._grown(written.record)
        return None

    async def _yield(self) -> Verdict | None:
        """Give the run back because the next attempt would outlive this process."""
        now = self._tools.clock.now_ms()
        written = await self._tools.runs.suspend(self._held, self._texts(), wake_at_ms=now)
        if isinstance(written, Done):
            return Yielded(written.record)
        await self._grown(written.record)
        return None

    async def _close(self, closing: Closing) -> Verdict | None:
        if closing.status != "completed" and self._on_failure is not None:
            closing = replace(closing, duties=(f"on_failure {self._on_failure}",))
        written = await self._tools.runs.close(self._held, self._texts(), closing)
        if isinstance(written, Done):
            return Closed(written.record)
        await self._grown(written.record)
        return None

    async def _park(self, reason: str) -> Verdict:
        _log.error("parked", extra={"iii": {**self._fields(), "error": reason}})
        written = await self._tools.runs.park(self._held, reason)
        return Parked(written.record) if isinstance(written, Done) else Lost()

    async def _grown(self, record: RunRecord | None) -> None:
        """Go on after a write that was refused because something was delivered."""
        if record is None or not record.is_held_by(self._held.run_id, self._held.epoch):
            raise _LostError
        self._record = record
        await self._take_inbox(record.inbox)

    async def _go_on_with(self, record: RunRecord) -> None:
        self._record = record
        self._held = replace(self._held, sequence=record.sequence, taken=0)
        self._pending.clear()
        self._renewed()
        await self._take_inbox(record.inbox)

    async def _wait(self, until_ms: int) -> None:
        """Return when an attempt has ended, something was delivered, or that time has come."""
        self._news.clear()
        if self._steps.outcomes or self._is_nudged:
            return
        news = asyncio.create_task(self._news.wait())
        time = asyncio.create_task(self._tools.clock.sleep_until(datetime.fromtimestamp(until_ms / 1000, UTC)))
        try:
            await asyncio.wait({news, time}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
            time.cancel()

    def _next_ms(self) -> int | None:
        """Return when something of the run is due: a timer, an attempt, its deadline; None if nothing is."""
        timer = self._machine.next_timer()
        instants = (None if timer is None else timer.deadline_ms, self._steps.next_ms, self._record.deadline_ms)
        return min((instant for instant in instants if instant is not None), default=None)

    def _is_patient(self, now_ms: int) -> bool:
        """Return whether what is due next is so near that it is waited for here."""
        next_ms = self._next_ms()
        return next_ms is not None and next_ms - now_ms <= _ms(self._tools.limits.patience)

    def _has_time_for(self, step: WantedStep) -> bool:
        """Return whether an attempt can end before this process does; the first one of an execution may try."""
        remaining = self._tools.limits.remaining()
        return (
            remaining is None
            or not self._has_begun
            or self._tools.attempts.limit(self._record, step.command) <= remaining
        )

    def _written(self, written: Written) -> RunRecord:
        if not isinstance(written, Done):
            raise _LostError
        return written.record

    def _texts(self) -> list[str]:
        return [text for _, text in self._pending]

    def _renewed(self) -> None:
        self._renew_at_ms = self._tools.clock.now_ms() + _ms(self._tools.limits.lease) // 2

    def _now(self) -> int:
        """Return the time of a fact that is noticed now; it never goes back."""
        return max(self._tools.clock.now_ms(), self._machine.now_ms)

    def _fields(self) -> dict[str, object]:
        return {"workflow_id": self._held.workflow_id, "run_id": self._held.run_id, "workflow": self._record.workflow}


def _ms(duration: timedelta) -> int:
    return round(duration / timedelta(milliseconds=1))
