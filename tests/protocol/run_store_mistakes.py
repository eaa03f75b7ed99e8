"""Mistakes in conditions and writes of the record."""

from __future__ import annotations

from tests.protocol.run_model import Executor, Record, Status, Store, Wake
from tests.protocol.run_workflow import Facts


class FencesByNumberOnly(Store):
    """Each fact is an item of its own, and the only condition is that the next number is free."""

    def append(self, record: Record, slot: int, executor: Executor) -> Record | None:
        if record.run == executor.run and self.is_next(record, executor):
            return self.with_facts(record, executor, executor.pending)
        return None


class AppendsWithoutNumber(Store):
    """A repeated append is not known to be one."""

    def append(self, record: Record, slot: int, executor: Executor) -> Record | None:
        own = self.has_epoch(record, slot, executor.run)
        return self.with_facts(record, executor, executor.pending) if own else None


class SuspendsOverTheInbox(Store):
    """A suspension does not look at the inbox."""

    def suspend(self, record: Record, slot: int, executor: Executor, more: Facts, wake: Wake | None) -> Record | None:
        seen = executor._replace(fed=min(executor.fed, len(record.inbox)))
        after = super().suspend(record._replace(inbox=record.inbox[: seen.fed]), slot, seen, more, wake)
        return None if after is None else after._replace(inbox=record.inbox[seen.fed :])


class SuspendsWithoutEpoch(Store):
    """A suspension needs an open run, and nothing else."""

    def suspend(self, record: Record, slot: int, executor: Executor, more: Facts, wake: Wake | None) -> Record | None:
        if not self.may_suspend(record, slot, executor) or not self.is_quiet(record, executor):
            return None
        return self.with_facts(record, executor, (*executor.pending, *more))._replace(leased=False, wake=wake)

    def may_suspend(self, record: Record, slot: int, executor: Executor) -> bool:
        return record.is_open and record.run == executor.run


class SuspendsWithoutLease(Store):
    """A suspension may be written twice: the second one drains what came in between."""

    def may_suspend(self, record: Record, slot: int, executor: Executor) -> bool:
        return self.has_epoch(record, slot, executor.run) and self.is_next(record, executor)


class ClosesOverTheInbox(Store):
    """A close does not look at the inbox."""

    def close(self, record: Record, slot: int, executor: Executor, status: Status) -> Record | None:
        return super().close(record, slot, executor._replace(fed=len(record.inbox)), status)


class DeliversWithoutWake(Store):
    """A delivery counts on the wake that its sender sends."""

    def deliver(self, record: Record, item: str) -> Record | None:
        return record._replace(inbox=(*record.inbox, item)) if record.is_open else None


class StartsWithoutWake(Store):
    """A client's start counts on the wake that the client sends."""

    def first(self, run: int, inbox: Facts = ()) -> Record:
        return super().first(run, inbox)._replace(wake=None)


class ContinuesWithoutWake(Store):
    """The next run counts on the message in hand, which names the run before."""

    def continue_as_new(self, record: Record, slot: int, executor: Executor) -> Record | None:
        after = super().continue_as_new(record, slot, executor)
        return None if after is None else after._replace(wake=None)


class LeavesDutiesWithoutWake(Store):
    """What is left to do after a close counts on the executor that closed."""

    def close(self, record: Record, slot: int, executor: Executor, status: Status) -> Record | None:
        after = super().close(record, slot, executor, status)
        return None if after is None else after._replace(wake=None)


class TerminatesWhateverRuns(Store):
    """A start ends the run that is there, not the one it saw."""

    def terminate(self, record: Record, run: int | None = None) -> Record | None:
        return super().terminate(record)


class ReplacesWhateverIsThere(Store):
    """A replacing start does not look whether the closed run is still the current one."""

    def replace(self, record: Record, old: int, new: Record) -> Record | None:
        return new


class ForgetsToCount(Store):
    """An acquisition is not counted."""

    def acquire(self, record: Record, slot: int) -> Record:
        return super().acquire(record, slot)._replace(acquired=record.acquired)


class KeepsTheCountWhenParked(Store):
    """A parked run that something is delivered to is parked again before it was run."""

    def park(self, record: Record, slot: int, executor: Executor) -> Record | None:
        after = super().park(record, slot, executor)
        return None if after is None else after._replace(acquired=record.acquired)


class ParksOverTheInbox(Store):
    """Parking needs the fence alone, so it may remove the wake of what came a moment before."""

    def park(self, record: Record, slot: int, executor: Executor) -> Record | None:
        return super().park(record, slot, executor._replace(fed=len(record.inbox)))


class ResumesWithoutWake(Store):
    """An operator's resume counts on the wake that the operator sends."""

    def resume(self, record: Record) -> Record | None:
        after = super().resume(record)
        return None if after is None else after._replace(wake=None)
