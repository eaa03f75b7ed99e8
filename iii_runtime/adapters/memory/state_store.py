"""State in a dict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from iii_runtime.adapters.memory.change_feed import MemoryChangeFeed
from iii_runtime.adapters.memory.documents import Documents
from iii_runtime.core.change import StateChange, StreamChange
from iii_runtime.core.payload import Json, to_json
from iii_runtime.ports.clock import Clock
from iii_runtime.ports.state_store import Notice, Written


class MemoryStateStore:
    """State documents."""

    def __init__(self, feed: MemoryChangeFeed, clock: Clock, *, max_value_bytes: int | None = None) -> None:
        self._feed = feed
        self._clock = clock
        self._documents = Documents(max_value_bytes)

    async def get(self, scope: str, key: str) -> Json:
        """Return the value, None if there is none."""
        return self._documents.get((scope, key))

    async def set(self, scope: str, key: str, value: Json) -> Written:
        """Replace the value; a change is stored even if it is the same."""
        return self._documents.set((scope, key), value, lambda written: self._wrote(scope, key, written))

    async def delete(self, scope: str, key: str) -> Written:
        """Remove the value; a change is stored even if there was none."""
        return self._documents.delete(
            (scope, key), lambda written: self._feed.append(self._change(scope, key, written, "state:deleted"))
        )

    async def update(self, scope: str, key: str, ops: Sequence[Json], notice: Notice | None = None) -> Written:
        """Apply update operations; the change of the document comes before `notice` in the feed."""
        events = [] if notice is None else [notice_change(notice, self._clock.now_ms())]
        return self._documents.update((scope, key), ops, lambda written: self._wrote(scope, key, written, *events))

    async def list_values(self, scope: str) -> list[Json]:
        """Return the values of a scope, ordered by key."""
        return self._documents.values_under((scope,))

    async def list_scopes(self) -> list[str]:
        """Return the sorted names of the scopes that hold a value."""
        return sorted({scope for scope, _ in self._documents.all_keys()})

    def _wrote(self, scope: str, key: str, written: Written, *events: StreamChange) -> None:
        event_type: Literal["state:updated", "state:created"] = "state:updated" if written.existed else "state:created"
        self._feed.append(self._change(scope, key, written, event_type), *events)

    def _change(
        self,
        scope: str,
        key: str,
        written: Written,
        event_type: Literal["state:created", "state:updated", "state:deleted"],
    ) -> StateChange:
        return StateChange(
            at_ms=self._clock.now_ms(),
            event_type=event_type,
            scope=scope,
            key=key,
            old_value=written.old_value,
            new_value=written.new_value,
        )


def notice_change(notice: Notice, at_ms: int) -> StreamChange:
    """Return the change of an event that is not kept as an item."""
    return StreamChange(
        at_ms=at_ms,
        kind="event",
        stream_name=notice.stream_name,
        group_id=notice.group_id,
        item_id=notice.item_id,
        data=to_json(notice.data, "data"),
        event_type=notice.type,
    )
