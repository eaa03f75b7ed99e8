"""A store of runs does what the pure transitions say, under any sequence of writes, and so does the next process.

The executors of the machine below repeat requests, come back from the dead with old epochs, and guess sequence numbers.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from iii_runtime.adapters.embedded.blob_store import FileBlobStore
from iii_runtime.adapters.embedded.database import Database
from iii_runtime.adapters.embedded.run_store import SqliteRunStore
from iii_runtime.adapters.memory.change_feed import MemoryChangeFeed
from iii_runtime.adapters.memory.run_store import MemoryRunStore
from iii_runtime.core.runs import transitions
from iii_runtime.core.runs.fact_codec import encode_fact
from iii_runtime.core.runs.facts import Suspended
from iii_runtime.core.runs.record import InboxItem, RunRecord, Status
from iii_runtime.core.runs.writes import Closing, Done, Held, Lease, Written
from iii_runtime.ports.run_store import RunQuery, RunStore
from iii_runtime.testing.clock import SkipClock

T = TypeVar("T")

WORKFLOW_IDS = st.sampled_from(["a", "b"])
RUN_IDS = st.sampled_from(["r1", "r2", "r3"])
EPOCHS = st.integers(0, 3)
TAKEN = st.integers(0, 2)
FACTS = st.integers(0, 2)
WAKES = st.none() | st.integers(-50, 200)
LEASE_MS = 100


class RunLaws(RuleBasedStateMachine):
    """Whatever a store answers, the transitions answer the same."""

    store: RunStore

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._clock = SkipClock()
        self._runs: dict[str, RunRecord] = {}
        self._earlier: dict[tuple[str, str], RunRecord] = {}
        self._number = 0

    @initialize()
    def begin(self) -> None:
        self._open()

    @rule(
        workflow_id=WORKFLOW_IDS, run_id=RUN_IDS, is_leased=st.booleans(), has_signal=st.booleans(), again=st.booleans()
    )
    def create(self, workflow_id: str, run_id: str, is_leased: bool, has_signal: bool, again: bool) -> None:
        record = self._new(workflow_id, run_id, is_leased=is_leased, has_signal=has_signal)
        for _ in range(1 + again):
            written = transitions.create(self._runs.get(workflow_id), record)
            self._check(workflow_id, written, self._run(self.store.create(record)))

    @rule(
        workflow_id=WORKFLOW_IDS, run_id=RUN_IDS, is_stale=st.booleans(), is_leased=st.booleans(), again=st.booleans()
    )
    def replace(self, workflow_id: str, run_id: str, is_stale: bool, is_leased: bool, again: bool) -> None:
        old = self._runs.get(workflow_id)
        if old is None:
            return
        record = replace(
            self._new(workflow_id, run_id, is_leased=is_leased, has_signal=False), epoch=old.epoch + 1, wake_at_ms=7
        )
        old = replace(old, run_id="stale") if is_stale else old
        for _ in range(1 + again):
            written = transitions.replace(
                self._runs.get(workflow_id), old, record, was_there=(workflow_id, run_id) in self._earlier
            )
            self._check(workflow_id, written, self._run(self.store.replace(old, record)))

    @rule(workflow_id=WORKFLOW_IDS, is_redelivery=st.booleans(), again=st.booleans())
    def acquire(self, workflow_id: str, is_redelivery: bool, again: bool) -> None:
        now_ms = self._now()
        lease = Lease(owner=self._next("owner"), until_ms=now_ms + LEASE_MS)
        for _ in range(1 + again):
            written = transitions.acquire(self._runs.get(workflow_id), lease, now_ms, is_redelivery=is_redelivery)
            self._check(
                workflow_id,
                written,
                self._run(self.store.acquire(workflow_id, lease, now_ms, is_redelivery=is_redelivery)),
            )

    @rule(workflow_id=WORKFLOW_IDS)
    def guard(self, workflow_id: str) -> None:
        record = self._runs.get(workflow_id)
        if record is not None:
            self._check(workflow_id, transitions.guard(record, record), self._run(self.store.guard(record)))

    @rule(
        workflow_id=WORKFLOW_IDS,
        facts=FACTS,
        taken=TAKEN,
        off=st.integers(-1, 1),
        guard=st.booleans(),
        again=st.booleans(),
    )
    def append(self, workflow_id: str, facts: int, taken: int, off: int, guard: bool, again: bool) -> None:
        held, texts, until_ms = self._held(workflow_id, taken, off), self._facts(facts), self._now() + LEASE_MS
        for _ in range(1 + again):
            written = transitions.append(self._runs.get(workflow_id), held, texts, lease_until_ms=until_ms, guard=guard)
            asked = self.store.append(held, texts, lease_until_ms=until_ms, guard=guard)
            self._check(workflow_id, written, self._run(asked), texts)

    @rule(workflow_id=WORKFLOW_IDS, facts=FACTS, taken=TAKEN, off=st.integers(0, 1), wake=WAKES, again=st.booleans())
    def suspend(self, workflow_id: str, facts: int, taken: int, off: int, wake: int | None, again: bool) -> None:
        held, texts = self._held(workflow_id, taken, off), self._facts(facts)
        wake_at_ms = None if wake is None else self._now() + wake
        for _ in range(1 + again):
            written = transitions.suspend(self._runs.get(workflow_id), held, texts, wake_at_ms=wake_at_ms)
            self._check(workflow_id, written, self._run(self.store.suspend(held, texts, wake_at_ms=wake_at_ms)), texts)

    @rule(
        workflow_id=WORKFLOW_IDS,
        facts=FACTS,
        taken=TAKEN,
        off=st.integers(0, 1),
        has_duties=st.booleans(),
        again=st.booleans(),
    )
    def close(self, workflow_id: str, facts: int, taken: int, off: int, has_duties: bool, again: bool) -> None:
        held, texts = self._held(workflow_id, taken, off), self._facts(facts)
        closing = self._closing("completed", has_duties=has_duties)
        for _ in range(1 + again):
            written = transitions.close(self._runs.get(workflow_id), held, texts, closing)
            self._check(workflow_id, written, self._run(self.store.close(held, texts, closing)), texts)

    @rule(workflow_id=WORKFLOW_IDS)
    def finish_duties(self, workflow_id: str) -> None:
        record = self._runs.get(workflow_id)
        if record is not None:
            written = transitions.finish_duties(record, record)
            self._check(workflow_id, written, self._run(self.store.finish_duties(record)))

    @rule(workflow_id=WORKFLOW_IDS, is_cancel=st.booleans(), run_id=st.none() | RUN_IDS, again=st.booleans())
    def deliver(self, workflow_id: str, is_cancel: bool, run_id: str | None, again: bool) -> None:
        item = InboxItem(
            id=self._next("item"), kind="cancel" if is_cancel else "signal", at_ms=self._now(), payload='{"é":1}'
        )
        for _ in range(1 + again):
            written = transitions.deliver(self._runs.get(workflow_id), item, self._now(), run_id=run_id)
            asked = self.store.deliver(workflow_id, item, self._now(), run_id=run_id)
            self._check(workflow_id, written, self._run(asked))

    @rule(workflow_id=WORKFLOW_IDS, run_id=st.none() | RUN_IDS, has_duties=st.booleans(), again=st.booleans())
    def terminate(self, workflow_id: str, run_id: str | None, has_duties: bool, again: bool) -> None:
        closing = self._closing("terminated", has_duties=has_duties)
        for _ in range(1 + again):
            written = transitions.terminate(self._runs.get(workflow_id), closing, run_id=run_id)
            self._check(workflow_id, written, self._run(self.store.terminate(workflow_id, closing, run_id=run_id)))

    @rule(workflow_id=WORKFLOW_IDS, taken=TAKEN, again=st.booleans())
    def park(self, workflow_id: str, taken: int, again: bool) -> None:
        held = self._held(workflow_id, taken, 0)
        for _ in range(1 + again):
            written = transitions.park(self._runs.get(workflow_id), held, "why")
            self._check(workflow_id, written, self._run(self.store.park(held, "why")))

    @rule(workflow_id=WORKFLOW_IDS)
    def resume(self, workflow_id: str) -> None:
        written = transitions.resume(self._runs.get(workflow_id), self._now())
        self._check(workflow_id, written, self._run(self.store.resume(workflow_id, self._now())))

    @rule()
    def release_all(self) -> None:
        written = [transitions.release(record, self._now()) for record in self._runs.values()]
        released = [answer.record for answer in written if isinstance(answer, Done)]
        self._runs |= {record.workflow_id: record for record in released}
        assert self._run(self.store.release_all(self._now())) == len(released)

    @rule(pause=st.sampled_from([1, 50, 150]))
    def wait(self, pause: int) -> None:
        self._clock.advance(timedelta(milliseconds=pause))

    @rule()
    def crash(self) -> None:
        """The process dies; the next one finds what was committed."""
        self._reopen()

    @invariant()
    def everything_is_as_expected(self) -> None:
        if not hasattr(self, "store"):
            return
        for workflow_id, expected in self._runs.items():
            self._check_record(expected, self._run(self.store.read(workflow_id)))
        for (workflow_id, run_id), expected in self._earlier.items():
            self._check_record(expected, self._run(self.store.read(workflow_id, run_id)))
        everything = [*self._runs.values(), *self._earlier.values()]
        listed = self._run(self.store.list_runs(RunQuery(limit=1000)))
        assert sorted(_identity(record) for record in listed) == sorted(_identity(record) for record in everything)
        instants = {record.workflow_id: transitions.due_ms(record) for record in self._runs.values()}
        wakes = sorted((at_ms, workflow_id) for workflow_id, at_ms in instants.items() if at_ms is not None)
        due = [(workflow_id, at_ms) for at_ms, workflow_id in wakes]
        assert self._run(self.store.due(10**15, 10)) == due
        assert self._run(self.store.next_due_ms()) == (due[0][1] if due else None)
        now_ms = self._now()
        free = {record.workflow_id for record in self._runs.values() if record.is_free(now_ms)}
        assert free <= {workflow_id for workflow_id, _ in self._run(self.store.due(now_ms, 10))}

    def teardown(self) -> None:
        self._close()
        self._runner.close()

    def _check(self, workflow_id: str, expected: Written, answer: Written, facts: list[str] | None = None) -> None:
        assert type(answer) is type(expected)
        if expected.record is None or answer.record is None:
            assert expected.record is answer.record
            return
        self._check_record(expected.record, answer.record)
        before = self._runs.get(workflow_id)
        if isinstance(expected, Done) and expected.record is not before:
            if before is not None and before.run_id != expected.record.run_id:
                self._earlier[workflow_id, before.run_id] = before
            self._runs[workflow_id] = expected.record
            if before is not None and before.run_id == expected.record.run_id and facts:
                assert expected.record.tail[-len(facts) :] == tuple(facts)

    def _check_record(self, expected: RunRecord, answer: RunRecord | None) -> None:
        assert answer is not None
        assert replace(answer, tail=()) == replace(expected, tail=())
        assert tuple(self._run(self.store.journal(answer))) == expected.tail

    def _new(self, workflow_id: str, run_id: str, *, is_leased: bool, has_signal: bool) -> RunRecord:
        signal = InboxItem(id=self._next("item"), kind="signal", at_ms=self._now(), name="first")
        return RunRecord(
            workflow_id=workflow_id,
            run_id=run_id,
            first_run_id=run_id,
            workflow="f",
            created_ms=self._now(),
            epoch=1 if is_leased else 0,
            owner=self._next("owner") if is_leased else None,
            lease_until_ms=self._now() + LEASE_MS if is_leased else None,
            wake_at_ms=None if is_leased else self._now(),
            inbox=(signal,) if has_signal else (),
        )

    def _held(self, workflow_id: str, taken: int, off: int) -> Held:
        """What somebody believes: mostly the truth, at times what was so before."""
        record = self._runs.get(workflow_id)
        if record is None:
            return Held(workflow_id=workflow_id, run_id="r1", epoch=1, sequence=0)
        taken = min(taken, len(record.inbox)) if taken < 2 else len(record.inbox)
        epoch = record.epoch - (1 if off < 0 else 0)
        return Held(
            workflow_id=workflow_id,
            run_id=record.run_id,
            epoch=epoch,
            sequence=record.sequence + max(off, 0),
            taken=taken,
        )

    def _closing(self, status: Status, *, has_duties: bool) -> Closing:
        return Closing(
            status=status, outcome=f'"{self._next("end")}"', at_ms=self._now(), duties=("tell",) if has_duties else ()
        )

    def _facts(self, count: int) -> list[str]:
        return [encode_fact(Suspended(at_ms=int(self._next("")))) for _ in range(count)]

    def _next(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}{self._number}"

    def _now(self) -> int:
        return self._clock.now_ms()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    def _open(self) -> None:
        raise NotImplementedError

    def _reopen(self) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError


def _identity(record: RunRecord) -> tuple[str, str]:
    return record.workflow_id, record.run_id


class MemoryRunLaws(RunLaws):
    """The memory adapter; it has no storage that outlives it."""

    def _open(self) -> None:
        self.store = MemoryRunStore(MemoryChangeFeed(), self._clock)

    def _reopen(self) -> None:
        pass

    def _close(self) -> None:
        pass


class EmbeddedRunLaws(RunLaws):
    """The embedded adapter. A crash leaves the files as they are on the disk, with nothing closed or folded in."""

    def _open(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="run-laws-"))
        self._life = 0
        self._use(self._home / "0")

    def _reopen(self) -> None:
        dead = self._home / str(self._life)
        self._life += 1
        alive = self._home / str(self._life)
        shutil.copytree(dead, alive)
        self._run(self._database.close())
        self._use(alive)

    def _close(self) -> None:
        if hasattr(self, "_database"):
            self._run(self._database.close())
            shutil.rmtree(self._home)

    def _use(self, directory: Path) -> None:
        self._database = Database.open(directory / "iii.db", synchronous="OFF")
        blobs = FileBlobStore(directory / "blobs", self._clock, is_durable=False)
        self.store = SqliteRunStore(self._database, blobs, self._clock)


TestMemoryRunLaws = MemoryRunLaws.TestCase
TestMemoryRunLaws.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestEmbeddedRunLaws = EmbeddedRunLaws.TestCase
TestEmbeddedRunLaws.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
