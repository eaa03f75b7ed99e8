"""What may be asked of a run from outside: signal, cancel, terminate, query, describe, its result and its history."""

from __future__ import annotations

from datetime import timedelta

from iii_runtime.core.errors import IiiError
from iii_runtime.core.payload import check_name, encode_json
from iii_runtime.core.runs.errors import InboxFullError, RunClosedError, RunNotFoundError
from iii_runtime.core.runs.record import MAX_INBOX, InboxItem, RunRecord
from iii_runtime.core.runs.values import encode_value
from iii_runtime.engine.runs.endings import reason as reason_text
from iii_runtime.engine.runs.journal import Journal
from iii_runtime.engine.stores import Stores
from iii_runtime.ports.run_dispatch import RunDispatch
from iii_runtime.ports.run_store import Closing, Done, RunStore

MAX_SIGNAL_NAME = 256
_LOOK_AGAIN_MS = 60_000


class RunControl:
    """Acts on runs by their workflow id; with a run id, on that run alone."""

    def __init__(self, stores: Stores, runs: RunStore, journal: Journal, dispatch: RunDispatch) -> None:
        self._stores = stores
        self._runs = runs
        self._journal = journal
        self._dispatch = dispatch

    async def signal_item(self, workflow_id: str, name: str, payload: object, signal_id: str | None) -> InboxItem:
        """Return a signal as it stands in an inbox, its payload stored if it is large.

        Raises:
            PayloadError: The payload cannot be kept, or the name is none.
        """
        check_name(name, "a signal name", limit=MAX_SIGNAL_NAME)
        identity = check_name(signal_id or self._stores.ids.new_id(), "a signal id")
        text = encode_json(encode_value(payload, f"the payload of signal '{name}'"), f"the payload of signal '{name}'")
        kept = await self._journal.kept(workflow_id, f"signal.{identity}", text)
        return InboxItem(id=identity, kind="signal", name=name, payload=kept, at_ms=self._stores.clock.now_ms())

    async def signal(
        self,
        workflow_id: str,
        name: str,
        payload: object = None,
        *,
        run_id: str | None = None,
        signal_id: str | None = None,
    ) -> None:
        """Send a signal to the open run. It is durable when this returns, and received once, in the order of sending.

        Raises:
            RunNotFoundError: There is no such run. Nothing was stored.
            RunClosedError: It is closed. Nothing was stored.
            InboxFullError: It has not taken its earlier signals yet. Nothing was stored; send it again.
        """
        item = await self.signal_item(workflow_id, name, payload, signal_id)
        await self._deliver(workflow_id, item, run_id)

    async def offer(self, workflow_id: str, item: InboxItem) -> RunRecord | None:
        """Deliver an item if the workflow id has an open run; return its record, or None if it has none.

        Raises:
            InboxFullError: See `signal`.
        """
        written = await self._runs.deliver(workflow_id, item, self._stores.clock.now_ms())
        if isinstance(written, Done):
            await self._dispatch.wake(written.record)
            return written.record
        if written.record is not None and written.record.is_open:
            raise InboxFullError(workflow_id, MAX_INBOX)
        return None

    async def cancel(self, workflow_id: str, *, run_id: str | None = None, reason: str = "") -> None:
        """Ask the open run to end itself: it may clean up first. A second request changes nothing.

        Raises:
            RunNotFoundError: There is no such run.
            RunClosedError: It is closed.
        """
        now_ms = self._stores.clock.now_ms()
        item = InboxItem(id=self._stores.ids.new_id(), kind="cancel", name=reason[:1000], at_ms=now_ms)
        await self._deliver(workflow_id, item, run_id)

    async def terminate(self, workflow_id: str, *, run_id: str | None = None, reason: str = "") -> RunRecord:
        """End the open run at once, without another line of its code.

        Raises:
            RunNotFoundError: There is no such run.
            RunClosedError: It is closed.
        """
        closing = Closing(status="terminated", outcome=reason_text(reason), at_ms=self._stores.clock.now_ms())
        written = await self._runs.terminate(workflow_id, closing, run_id=run_id)
        if isinstance(written, Done):
            await self._dispatch.wake(written.record)
            return written.record
        raise _why(written.record, workflow_id, run_id)

    async def resume(self, workflow_id: str) -> RunRecord:
        """Let a run that was parked be executed again.

        Raises:
            RunNotFoundError: There is no such run.
            RunClosedError: It is closed.
        """
        written = await self._runs.resume(workflow_id, self._stores.clock.now_ms())
        if isinstance(written, Done):
            await self._dispatch.wake(written.record)
            return written.record
        raise _why(written.record, workflow_id, None)

    async def record(self, workflow_id: str, run_id: str | None = None) -> RunRecord:
        """Return the record of a run.

        Raises:
            RunNotFoundError: There is no such run.
        """
        record = await self._runs.read(workflow_id, run_id)
        if record is None:
            raise RunNotFoundError(workflow_id, run_id)
        return record

    async def closed(self, workflow_id: str, run_id: str | None, within: timedelta | None) -> RunRecord | None:
        """Wait until a run is closed and return its record; None if it is still open after `within`.

        Raises:
            RunNotFoundError: There is no such run.
        """
        end_ms = None if within is None else self._stores.clock.now_ms() + round(within / timedelta(milliseconds=1))
        with self._dispatch.watch(workflow_id) as watch:  # before the record is read, so that no end is missed
            while True:
                record = await self.record(workflow_id, run_id)
                run_id = run_id or record.run_id
                now_ms = self._stores.clock.now_ms()
                if not record.is_open:
                    return record
                if end_ms is not None and now_ms >= end_ms:
                    return None
                await watch.changed(now_ms + _LOOK_AGAIN_MS if end_ms is None else end_ms)

    async def _deliver(self, workflow_id: str, item: InboxItem, run_id: str | None) -> None:
        written = await self._runs.deliver(workflow_id, item, self._stores.clock.now_ms(), run_id=run_id)
        if isinstance(written, Done):
            await self._dispatch.wake(written.record)
            return
        raise _why(written.record, workflow_id, run_id)


def _why(record: RunRecord | None, workflow_id: str, run_id: str | None) -> IiiError:
    """Return the error of an operation that was refused."""
    if record is None or (run_id is not None and record.run_id != run_id):
        return RunNotFoundError(workflow_id, run_id)
    if not record.is_open:
        return RunClosedError(workflow_id, record.run_id, record.status)
    return InboxFullError(workflow_id, MAX_INBOX)
