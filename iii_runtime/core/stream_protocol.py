"""The frames on a stream WebSocket, as values. Wire compatible with iii.

A client joins and leaves; the server pushes:

- client: `{"type": "join" | "leave", "data": {"subscriptionId", "streamName", "groupId", "id"?}}`
- server: `{"type": "stream", "timestamp", "streamName", "groupId", "id", "event": {...}}`

A frame that cannot be read is answered with `{"type": "error", "code", "message", "subscriptionId"?}`, which is an
addition to iii.
"""

from __future__ import annotations

from iii_runtime.core.change import stream_message
from iii_runtime.core.errors import IiiError
from iii_runtime.core.frozen import frozen
from iii_runtime.core.payload import Json, PayloadError, check_name, decode_json, encode_json, render_json

MAX_FRAME_BYTES = 64 * 1024
"""Largest frame from a client."""

MAX_ID_CHARACTERS = 256


class FrameError(IiiError):
    """A client's frame cannot be read, or is refused. The connection stays; answer with `render_error`.

    Args:
        message: What was wrong, and what to do.
        subscription_id: The subscription the frame was about, where that could be read.
        code: Why a frame that could be read is refused; `frame_invalid` by default.
    """

    code = "frame_invalid"

    def __init__(self, message: str, subscription_id: str | None = None, *, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.subscription_id = subscription_id


@frozen(kw_only=True)
class Subscription:
    """What one client wants to see.

    Attributes:
        subscription_id: The client's own name for it, unique on its connection.
        stream_name: The stream.
        group_id: The group in the stream.
        item_id: One item of the group; None for all of them.
    """

    subscription_id: str
    stream_name: str
    group_id: str
    item_id: str | None = None

    def matches(self, stream_name: str, group_id: str, item_id: str | None) -> bool:
        """Whether an event belongs to this subscription. An event without an item goes to group subscriptions only."""
        is_same_group = (self.stream_name, self.group_id) == (stream_name, group_id)
        return is_same_group and self.item_id in (None, item_id)


@frozen
class Join:
    """A client starts a subscription."""

    subscription: Subscription


@frozen
class Leave:
    """A client ends a subscription."""

    subscription: Subscription


def parse_frame(raw: str | bytes) -> Join | Leave:
    """Read a frame from a client, text or binary. Unknown members are ignored.

    Raises:
        FrameError: Larger than `MAX_FRAME_BYTES`, not JSON, not a join or leave, or an id that is missing, empty,
            longer than 256 characters or contains NUL.
    """
    size = len(raw) if isinstance(raw, bytes) else len(raw.encode("utf-8", "surrogatepass"))
    if size > MAX_FRAME_BYTES:
        raise FrameError(f"the frame is {size} bytes, the limit is {MAX_FRAME_BYTES}.")
    try:
        frame = decode_json(raw, "the frame")
    except PayloadError as error:
        raise FrameError(error.message) from error
    if not isinstance(frame, dict) or frame.get("type") not in ("join", "leave"):
        raise FrameError('the frame must be an object with "type" join or leave.')
    data = frame.get("data")
    if not isinstance(data, dict):
        raise FrameError('the frame must have an object as "data".')
    subscription = _subscription(data)
    return Join(subscription) if frame["type"] == "join" else Leave(subscription)


def render_sync(data: Json, *, subscription: Subscription, timestamp_ms: int) -> str:
    """Return the frame that answers a join with what is stored: a list for a group, the item or null for an item.

    Later frames are the changes, see `StreamChange.to_payload`.

    Args:
        data: As the store returned it.
        subscription: What was joined.
        timestamp_ms: When the store was read, milliseconds since 1970 UTC.

    Raises:
        PayloadTooLargeError: The frame would be larger than a payload may be.
    """
    message = stream_message(
        {"type": "sync", "data": data},
        stream_name=subscription.stream_name,
        group_id=subscription.group_id,
        item_id=subscription.item_id,
        at_ms=timestamp_ms,
    )
    return render_json(message, "the frame")


def render_error(error: FrameError) -> str:
    """Return the frame that tells a client what was wrong with its own."""
    frame: dict[str, Json] = {"type": "error", "code": error.code, "message": error.message}
    if error.subscription_id is not None:
        frame["subscriptionId"] = error.subscription_id
    return encode_json(frame, "the frame")


def _subscription(data: dict[str, Json]) -> Subscription:
    subscription_id = _name(data, "subscriptionId", None)
    return Subscription(
        subscription_id=subscription_id,
        stream_name=_name(data, "streamName", subscription_id),
        group_id=_name(data, "groupId", subscription_id),
        item_id=None if data.get("id") is None else _name(data, "id", subscription_id),
    )


def _name(data: dict[str, Json], member: str, subscription_id: str | None) -> str:
    try:
        return check_name(data.get(member), f"data.{member}", limit=MAX_ID_CHARACTERS)
    except PayloadError as error:
        raise FrameError(error.message, subscription_id) from error
