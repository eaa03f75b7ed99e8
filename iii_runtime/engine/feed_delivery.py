"""Delivers batches of stored changes: pushes, publishes, fires triggers; says from where one must come again."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TypeAlias

from iii_runtime.core.call import Call
from iii_runtime.core.change import Change, StateChange, StreamChange
from iii_runtime.core.errors import FunctionBusyError, InvocationError
from iii_runtime.core.frozen import frozen
from iii_runtime.core.invocation import Source
from iii_runtime.core.payload import copy_json
from iii_runtime.core.triggers import OnState, OnStream
from iii_runtime.engine.conditions import invoke_if
from iii_runtime.engine.runtime import Runtime
from iii_runtime.engine.stream_push import StreamPush
from iii_runtime.ports.parallel import Job, Parallel
from iii_runtime.ports.progress import ProgressPublisher

_log = logging.getLogger("iii_runtime.change")

BUSY_PAUSES = tuple(timedelta(milliseconds=ms) for ms in (250, 500, 1000, 2000, 4000))
"""Waits before a function that could not be started is tried again."""

END_MARGIN = timedelta(seconds=10)
"""Time that must be left behind a function, for what comes after it."""

_MOST_KEPT = 10_000

_Step: TypeAlias = tuple[str, str]
"""Something done for one change: the change's identity, and what."""


@frozen(kw_only=True)
class FeedRecord:
    """One record of the change feed.

    Attributes:
        identity: Unique among all records of the feed, the same each time it comes.
        changes: What happened, in order; None if the record cannot be read.
    """

    identity: str
    changes: Sequence[Change] | None


@frozen(kw_only=True)
class _Entry:
    index: int
    identity: str
    change: Change


@dataclass(slots=True)
class _Outcome:
    """What became of entries: the steps that need not be done again, and the records that must come again."""

    done: set[_Step] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)


class FeedDelivery:
    """Delivers the change feed where it comes in batches, and a batch comes again from the record that was not done.

    For each change, in the order of the batch within its order key, different keys side by side:

    1. Stream changes are pushed to the connections that joined the group, see `StreamPush`.
    2. Stream changes are published as progress.
    3. The functions whose triggers match are run one after another and waited for. A failure is logged, the next one
       still runs, and none is repeated. A function that could not be started because it is busy is tried again for a
       few seconds, and then its change must come again.

    All pushes are made before the first function runs. The three do not wait for each other's failures: a viewer gets
    a change that cannot be published. What fails holds back the later changes of its key, not those of others.

    Guarantee: nothing is skipped. A record is either done or comes again, with all behind it, so everything happens at
    least once. Of records that come again to the same `FeedDelivery` only what was missing is done; to another one, all
    of it. A record without changes that are known (`changes=None`) comes again too; the others are done.

    Hops are not counted here. A change does not say which invocation wrote it, so every call begins a chain of its own.
    A function that writes what its own trigger listens to, or two that write for each other, go on without end, as fast
    as the feed delivers; `MAX_HOPS` does not end it. Give the trigger a condition, or write to another scope or stream.

    A function that would not have its whole timeout before this host must end is not started: its change comes again.
    The first record of a batch is the exception, so that each batch gets on.

    Args:
        runtime: The engine; the `remaining` of its invoker tells how long this host may go on.
        push: Where stream changes are pushed.
        progress: Where stream changes are published.
        parallel: Serves keys side by side.
    """

    def __init__(self, runtime: Runtime, *, push: StreamPush, progress: ProgressPublisher, parallel: Parallel) -> None:
        self._app = runtime.app
        self._invoker = runtime.invoker
        self._triggers = runtime.changes
        self._clock = runtime.stores.clock
        self._push = push
        self._progress = progress
        self._parallel = parallel
        self._kept: dict[_Step, None] = {}

    async def deliver(self, records: Sequence[FeedRecord]) -> int | None:
        """Deliver a batch; return the place of the first record that must come again, None if all are done."""
        entries = list(_entries(records))
        streamed = [entry for entry in entries if isinstance(entry.change, StreamChange)]
        outcomes = [await self._push_all(streamed)]
        jobs: list[Job[_Outcome]] = [partial(self._publish_all, streamed)]
        jobs += [partial(self._fire_chain, chain) for chain in self._chains(entries)]
        outcomes += await self._parallel.run(jobs)
        unreadable = {index for index, record in enumerate(records) if record.changes is None}
        first = min(unreadable.union(*(outcome.failed for outcome in outcomes)), default=None)
        done = set[_Step]().union(*(outcome.done for outcome in outcomes))
        self._keep(entries, done, len(records) if first is None else first)
        return first

    async def _push_all(self, entries: Sequence[_Entry]) -> _Outcome:
        outcome = _Outcome()
        left = [entry for entry in entries if not self._is_done(entry, "push")]
        failed = await self._push.push([entry.change for entry in left if isinstance(entry.change, StreamChange)])
        for entry in left:
            if entry.change.order_key in failed:
                outcome.failed.add(entry.index)
            else:
                outcome.done.add((entry.identity, "push"))
        return outcome

    async def _publish_all(self, entries: Sequence[_Entry]) -> _Outcome:
        outcome = _Outcome()
        left = [entry for entry in entries if not self._is_done(entry, "publish")]
        changes = [entry.change for entry in left if isinstance(entry.change, StreamChange)]
        failed = await self._progress.publish(changes) if changes else frozenset()
        for place, entry in enumerate(left):
            if place in failed:
                outcome.failed.add(entry.index)
            else:
                outcome.done.add((entry.identity, "publish"))
        return outcome

    def _chains(self, entries: Iterable[_Entry]) -> list[list[_Entry]]:
        """Return the entries that fire a trigger, by order key, the keys in the order of their first one."""
        chains: dict[str, list[_Entry]] = {}
        for entry in entries:
            if self._triggers.matching(entry.change):
                chains.setdefault(entry.change.order_key, []).append(entry)
        return list(chains.values())

    async def _fire_chain(self, entries: Sequence[_Entry]) -> _Outcome:
        outcome = _Outcome()
        for entry in entries:
            for number, (function_id, kind) in enumerate(self._triggers.matching(entry.change)):
                step = (entry.identity, f"fire {number}")
                if step in self._kept:
                    continue
                if not self._has_time(entry, function_id) or not await self._fire(entry.change, function_id, kind):
                    outcome.failed.add(entry.index)
                    return outcome
                outcome.done.add(step)
        return outcome

    def _has_time(self, entry: _Entry, function_id: str) -> bool:
        remaining = self._invoker.remaining()
        function = self._app.catalog.functions.get(function_id)
        if remaining is None or function is None or entry.index == 0:
            return True
        return remaining >= self._app.timeout_of(function) + END_MARGIN

    async def _fire(self, change: Change, function_id: str, kind: OnState | OnStream) -> bool:
        """Run a function once; return False if it could not be started, or a defect kept it from it."""
        source: Source = "state" if isinstance(change, StateChange) else "stream"
        for pause in (*BUSY_PAUSES, None):
            call = Call(function_id=function_id, payload=copy_json(change.to_payload()), source=source)
            try:
                await invoke_if(self._invoker, kind.condition, call)
            except InvocationError as error:
                fields = {"function_id": function_id, "error": str(error), "stack": error.stacktrace}
                if error.code != FunctionBusyError.code:
                    _log.error("change trigger failed", extra={"iii": fields})
                    return True
                if pause is None:
                    _log.error("a busy function cannot be started; its change comes again", extra={"iii": fields})
                    return False
                await self._clock.sleep_until(self._clock.now() + pause)
            except Exception:  # noqa: BLE001 - whatever the defect is, the changes of other keys are not to wait for it
                _log.exception("a change was not delivered; it comes again")
                return False
            else:
                return True
        return False

    def _is_done(self, entry: _Entry, what: str) -> bool:
        return (entry.identity, what) in self._kept

    def _keep(self, entries: Sequence[_Entry], done: set[_Step], first: int) -> None:
        """Keep what was done for the records that come again, and nothing of those that do not."""
        again = {entry.identity for entry in entries if entry.index >= first}
        settled = {entry.identity for entry in entries} - again
        for step in [step for step in self._kept if step[0] in settled]:
            del self._kept[step]
        for step in done:
            if step[0] in again:
                self._kept[step] = None
        for step in list(self._kept)[: max(len(self._kept) - _MOST_KEPT, 0)]:
            del self._kept[step]


def _entries(records: Sequence[FeedRecord]) -> Iterable[_Entry]:
    for index, record in enumerate(records):
        for number, change in enumerate(record.changes or ()):
            yield _Entry(index=index, identity=f"{record.identity}/{number}", change=change)
