"""Changes of state and streams, and the payloads their triggers receive: iii's shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from iii_runtime.core.payload import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """A state value was created, updated or deleted."""

    at_ms: int
    event_type: Literal["state:created", "state:updated", "state:deleted"]
    scope: str
    key: str
    old_value: Json
    new_value: Json

    @property
    def order_key(self) -> str:
        """Changes with the same key are delivered in order."""
        return f"state\0{self.scope}\0{self.key}"

    def to_payload(self) -> dict[str, Json]:
        """Return what a state trigger's function receives."""
        return {
            "type": "state",
            "event_type": self.event_type,
            "scope": self.scope,
            "key": self.key,
            "old_value": self.old_value,
            "new_value": self.new_value,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamChange:
    """An item was created, updated or deleted, or an event was sent: `event_type` is then the sender's `type`."""

    at_ms: int
    kind: Literal["create", "update", "delete", "event"]
    stream_name: str
    group_id: str
    item_id: str | None
    data: Json
    event_type: str | None = None

    @property
    def order_key(self) -> str:
        """Changes with the same key are delivered in order."""
        return f"stream\0{self.stream_name}\0{self.group_id}"

    def event(self) -> dict[str, Json]:
        """Return the `event` member of frames and trigger payloads."""
        if self.kind == "event":
            return {"type": "event", "event": {"type": self.event_type, "data": self.data}}
        return {"type": self.kind, "data": self.data}

    def to_payload(self) -> dict[str, Json]:
        """Return what a stream trigger's function receives and a WebSocket client sees."""
        return {
            "type": "stream",
            "timestamp": self.at_ms,
            "streamName": self.stream_name,
            "groupId": self.group_id,
            "id": self.item_id,
            "event": self.event(),
        }


Change: TypeAlias = StateChange | StreamChange


def change_to_json(change: Change) -> dict[str, Json]:
    """Return the stored form of a change."""
    if isinstance(change, StateChange):
        return {
            "state": change.event_type,
            "at": change.at_ms,
            "scope": change.scope,
            "key": change.key,
            "old": change.old_value,
            "new": change.new_value,
        }
    return {
        "stream": change.kind,
        "at": change.at_ms,
        "name": change.stream_name,
        "group": change.group_id,
        "item": change.item_id,
        "data": change.data,
        "type": change.event_type,
    }


def change_from_json(fields: dict[str, Json]) -> Change:
    """Parse the stored form of a change."""
    if "state" in fields:
        return StateChange(
            at_ms=fields["at"],  # type: ignore[arg-type]
            event_type=fields["state"],  # type: ignore[arg-type]
            scope=fields["scope"],  # type: ignore[arg-type]
            key=fields["key"],  # type: ignore[arg-type]
            old_value=fields["old"],
            new_value=fields["new"],
        )
    return StreamChange(
        at_ms=fields["at"],  # type: ignore[arg-type]
        kind=fields["stream"],  # type: ignore[arg-type]
        stream_name=fields["name"],  # type: ignore[arg-type]
        group_id=fields["group"],  # type: ignore[arg-type]
        item_id=fields["item"],  # type: ignore[arg-type]
        data=fields["data"],
        event_type=fields["type"],  # type: ignore[arg-type]
    )
