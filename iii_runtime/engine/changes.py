"""State and stream triggers: what a change of the feed starts."""

from __future__ import annotations

import logging

from iii_runtime.core.call import Call
from iii_runtime.core.change import Change, StateChange, StreamChange
from iii_runtime.core.errors import InvocationError
from iii_runtime.core.invocation import Source
from iii_runtime.core.payload import copy_json
from iii_runtime.core.triggers import OnState, OnStream
from iii_runtime.engine.app import App
from iii_runtime.engine.conditions import invoke_if
from iii_runtime.engine.invoke import FunctionInvoker

_log = logging.getLogger("iii_runtime.change")


class ChangeTriggers:
    """Fires the triggers a change matches."""

    def __init__(self, app: App, invoker: FunctionInvoker) -> None:
        self._app = app
        self._invoker = invoker

    def matching(self, change: Change) -> list[tuple[str, OnState | OnStream]]:
        """Return `(function_id, trigger)` of every trigger that the change fires, in the order of registration."""
        if isinstance(change, StateChange):
            if not self._app.config.state.triggers_enabled:
                return []
            return [
                (function_id, kind)
                for function_id, kind in self._app.triggers(OnState)
                if isinstance(kind, OnState) and kind.scope in (None, change.scope) and kind.key in (None, change.key)
            ]
        return [
            (function_id, kind)
            for function_id, kind in self._app.triggers(OnStream)
            if isinstance(kind, OnStream) and _stream_matches(kind, change)
        ]

    async def fire(self, change: Change) -> None:
        """Run the matching functions one after another. A failure is logged, the next still runs, none is repeated."""
        source: Source = "state" if isinstance(change, StateChange) else "stream"
        for function_id, kind in self.matching(change):
            call = Call(function_id=function_id, payload=copy_json(change.to_payload()), source=source)
            try:
                await invoke_if(self._invoker, kind.condition, call)
            except InvocationError as error:
                _log.error(
                    "change trigger failed",
                    extra={"iii": {"function_id": function_id, "error": str(error), "stack": error.stacktrace}},
                )


def _stream_matches(kind: OnStream, change: StreamChange) -> bool:
    return (
        kind.stream_name == change.stream_name
        and kind.group_id in (None, change.group_id)
        and kind.item_id in (None, change.item_id)
    )
