"""Step progress for any pipeline: a state update and a stream event, in one write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iii_runtime.core.errors import IiiError
from iii_runtime.core.logger import Logger
from iii_runtime.core.worker import Worker

TRACK_STEP = "iii::track_step"


class StepTracker:
    """Records where a pipeline stands: in state for whoever asks, on a stream for whoever watches.

    `track(key, step, status, detail)` sets `current_step`, `status` and `steps.<step>` (status, attempt, receipt id,
    time, detail) of the document `scope/key`, and publishes a `step_update` event to group `key` of the stream, in one
    write. Progress never fails a step: a write that fails is logged as an error, and the step goes on.

    Args:
        worker: The worker whose functions report.
        scope: State scope of the documents.
        stream_name: Stream of the events.
    """

    def __init__(self, worker: Worker, *, scope: str, stream_name: str) -> None:
        self._worker = worker
        self._scope = scope
        self._stream_name = stream_name
        self._logger = Logger()

    def track(
        self,
        key: str,
        step: str,
        status: str,
        detail: Mapping[str, Any] | None = None,
        *,
        overall: str | None = None,
    ) -> None:
        """Record that `step` of `key` now has `status`. From synchronous handlers.

        Args:
            key: Key of the document, and group of the event.
            step: Name of the step.
            status: Of the step: `running`, `complete`, `retrying`, ...
            detail: More members of the step's record and of the event.
            overall: Status of the whole document; `status` by default.
        """
        try:
            self._worker.trigger(self._request(key, step, status, detail, overall))
        except IiiError as error:
            self._report(key, step, error)

    async def track_async(
        self,
        key: str,
        step: str,
        status: str,
        detail: Mapping[str, Any] | None = None,
        *,
        overall: str | None = None,
    ) -> None:
        """Do what `track` does, from asynchronous handlers."""
        try:
            await self._worker.trigger_async(self._request(key, step, status, detail, overall))
        except IiiError as error:
            self._report(key, step, error)

    def _request(
        self, key: str, step: str, status: str, detail: Mapping[str, Any] | None, overall: str | None
    ) -> dict[str, Any]:
        payload = {
            "scope": self._scope,
            "key": key,
            "stream_name": self._stream_name,
            "step": step,
            "status": status,
            "detail": dict(detail or {}),
            "overall": overall or status,
        }
        return {"function_id": TRACK_STEP, "payload": payload}

    def _report(self, key: str, step: str, error: IiiError) -> None:
        self._logger.error(  # noqa: PLE1205 - iii's logger takes data, not format arguments
            "step progress was not recorded", {"key": key, "step": step, "code": error.code, "error": error.message}
        )
