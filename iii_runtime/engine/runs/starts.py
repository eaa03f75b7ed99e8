"""Starting runs: one run for each start, however often it is asked for."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import timedelta

from iii_runtime.core.errors import IiiError
from iii_runtime.core.frozen import frozen
from iii_runtime.core.payload import Json, check_name, encode_json
from iii_runtime.core.registry import FunctionSpec
from iii_runtime.core.runs.errors import RunAlreadyStartedError
from iii_runtime.core.runs.policies import IdConflictPolicy, IdReusePolicy, decide_start
from iii_runtime.core.runs.record import InboxItem, RunRecord
from iii_runtime.engine.runs.endings import reason
from iii_runtime.engine.runs.journal import Journal
from iii_runtime.engine.stores import Stores
from iii_runtime.ports.run_dispatch import RunDispatch
from iii_runtime.ports.run_store import Closing, Done, RunStore

_TRIES = 20


@frozen(kw_only=True)
class Start:
    """What is asked for.

    Attributes:
        payload: The workflow's input.
        workflow_id: Chosen by the caller; a fresh one if None.
        request_id: Identity of the request: one that is repeated names the same run, closed or not.
        reuse: See `IdReusePolicy`.
        conflict: See `IdConflictPolicy`.
        delay: How long the run waits before it begins.
        run_timeout: Longest life of the run; the workflow's own by default.
        signal: A signal that is in its inbox from the beginning.
        traceparent: W3C trace context to continue.
    """

    payload: Json = None
    workflow_id: str | None = None
    request_id: str | None = None
    reuse: IdReusePolicy = IdReusePolicy.ALLOW_DUPLICATE
    conflict: IdConflictPolicy = IdConflictPolicy.FAIL
    delay: timedelta = timedelta(0)
    run_timeout: timedelta | None = None
    signal: InboxItem | None = None
    traceparent: str | None = None


@frozen(kw_only=True)
class Started:
    """The run that a start has led to. `is_new` tells whether it was made just now."""

    record: RunRecord
    is_new: bool


class Starter:
    """Starts runs."""

    def __init__(self, stores: Stores, runs: RunStore, journal: Journal, dispatch: RunDispatch) -> None:
        self._stores = stores
        self._runs = runs
        self._journal = journal
        self._dispatch = dispatch

    async def start(self, function: FunctionSpec, start: Start) -> Started:
        """Start a run of a workflow; it is durable when this returns.

        Raises:
            RunAlreadyStartedError: Its workflow id has a run that its policies do not allow beside it.
            PayloadError: The input is no JSON, or the workflow id is no name. Nothing was started.
        """
        record = await self._new_record(function, start)
        for _ in range(_TRIES):
            written = await self._runs.create(record)
            if isinstance(written, Done):
                return await self._begun(written.record)
            found = written.record
            if found is None:
                continue
            answer = decide_start(found, record.run_id, reuse=start.reuse, conflict=start.conflict)
            if answer in ("same", "existing"):
                return Started(record=found, is_new=False)
            if answer == "refused":
                raise RunAlreadyStartedError(found.workflow_id, found.run_id, found.status)
            if answer == "terminate":
                why = reason(f"replaced by run {record.run_id}")
                closing = Closing(status="terminated", outcome=why, at_ms=self._stores.clock.now_ms())
                await self._runs.terminate(found.workflow_id, closing, run_id=found.run_id)
                continue
            if not found.duties:
                now_ms = self._stores.clock.now_ms()
                new = replace(record, epoch=found.epoch + 1, wake_at_ms=record.wake_at_ms or now_ms)
                replaced = await self._runs.replace(found, new)
                if isinstance(replaced, Done):
                    return await self._begun(replaced.record)
            else:
                await self._dispatch.wake(found)
        raise start_contended(record.workflow_id)

    async def _new_record(self, function: FunctionSpec, start: Start) -> RunRecord:
        now_ms, options = self._stores.clock.now_ms(), function.workflow
        fresh = self._stores.ids.new_id()
        workflow_id = fresh if start.workflow_id is None else check_name(start.workflow_id, "a workflow id")
        run_id = fresh if start.request_id is None else derived_run_id(workflow_id, start.request_id)
        text = encode_json(start.payload, f"the input of {function.id}")
        timeout = start.run_timeout or (None if options is None else options.run_timeout)
        begins_ms = now_ms + _ms(start.delay)
        lease = None if start.delay else self._dispatch.lease()
        return RunRecord(
            workflow_id=workflow_id,
            run_id=run_id,
            first_run_id=run_id,
            workflow=function.id,
            input=await self._journal.kept(workflow_id, f"{run_id}.input", text),
            created_ms=now_ms,
            epoch=0 if lease is None else 1,
            acquisitions=0 if lease is None else 1,
            owner=None if lease is None else lease.owner,
            lease_until_ms=None if lease is None else lease.until_ms,
            wake_at_ms=begins_ms if lease is None else None,
            inbox=() if start.signal is None else (start.signal,),
            deadline_ms=None if timeout is None else begins_ms + _ms(timeout),
            start_at_ms=begins_ms if start.delay else None,
            traceparent=start.traceparent,
        )

    async def _begun(self, record: RunRecord) -> Started:
        if record.lease_until_ms is not None:
            self._dispatch.begin(record)
        else:
            await self._dispatch.wake(record)
        return Started(record=record, is_new=True)


def start_contended(workflow_id: str) -> IiiError:
    """Return the error of a start that others got ahead of again and again. Nothing was started; it may be repeated."""
    message = f"workflow id '{workflow_id}' changes hands faster than a run can be started under it. Try it again."
    return IiiError(message, code="start_contended")


def derived_run_id(workflow_id: str, request_id: str) -> str:
    """Return the run id of a start that may be repeated: the same for the same request."""
    digest = hashlib.sha256(f"{len(workflow_id)}.{workflow_id}.{request_id}".encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def _ms(duration: timedelta) -> int:
    return round(duration / timedelta(milliseconds=1))
