"""Changes of state and streams, and the payloads their triggers receive: iii's shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from iii_runtime.core.frozen import frozen
from iii_runtime.core.members import integer, one_of, optional, text
from iii_runtime.core.payload import Json, PayloadError

StateEvent: TypeAlias = Literal["state:created", "state:updated", "state:deleted"]
StreamKind: TypeAlias = Literal["create", "update", "delete", "event"]


@frozen(kw_only=True)
class StateChange:
    """A state value was created, updated or deleted."""

    at_ms: int
    event_type: StateEvent
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


@frozen(kw_only=True)
class StreamChange:
    """An item was created, updated or deleted, or an event was sent: `event_type` is then the sender's `type`."""

    at_ms: int
    kind: StreamKind
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
        return stream_message(
            self.event(),
            stream_name=self.stream_name,
            group_id=self.group_id,
            item_id=self.item_id,
            at_ms=self.at_ms,
        )


Change: TypeAlias = StateChange | StreamChange


def stream_message(
    event: dict[str, Json], *, stream_name: str, group_id: str, item_id: str | None, at_ms: int
) -> dict[str, Json]:
    """Return `event` as iii tells of it: a frame of a WebSocket, and the payload of a stream trigger."""
    return {
        "type": "stream",
        "timestamp": at_ms,
        "streamName": stream_name,
        "groupId": group_id,
        "id": item_id,
        "event": event,
    }


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


def change_from_json(fields: Mapping[str, Json]) -> Change:
    """Parse the stored form of a change.

    Raises:
        PayloadError: `change_unreadable`: what is stored is damaged, or written by a later version.
    """
    try:
        return _state_change(fields) if "state" in fields else _stream_change(fields)
    except (LookupError, TypeError) as error:
        raise PayloadError(f"the stored change cannot be read: {error!r:.200}", code="change_unreadable") from error


def _state_change(fields: Mapping[str, Json]) -> StateChange:
    return StateChange(
        at_ms=integer(fields, "at"),
        event_type=one_of(fields, "state", _STATE_EVENTS),
        scope=text(fields, "scope"),
        key=text(fields, "key"),
        old_value=fields["old"],
        new_value=fields["new"],
    )


def _stream_change(fields: Mapping[str, Json]) -> StreamChange:
    return StreamChange(
        at_ms=integer(fields, "at"),
        kind=one_of(fields, "stream", _STREAM_KINDS),
        stream_name=text(fields, "name"),
        group_id=text(fields, "group"),
        item_id=optional(fields, "item", str),
        data=fields["data"],
        event_type=optional(fields, "type", str),
    )


_STATE_EVENTS: Mapping[str, StateEvent] = {name: name for name in get_args(StateEvent)}
_STREAM_KINDS: Mapping[str, StreamKind] = {name: name for name in get_args(StreamKind)}
