"""Who subscribes to what, and which frames wait for whom. No sockets here; everything happens on the host's loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from iii_runtime.core.change import StreamChange
from iii_runtime.core.payload import PayloadError, render_json
from iii_runtime.core.stream_protocol import FrameError, Subscription
from iii_runtime.hosts.embedded.outbox import Outbox

_log = logging.getLogger("iii_runtime.stream")

GOING_AWAY = 1001
INTERNAL_ERROR = 1011
TRY_AGAIN_LATER = 1013
TOO_SLOW = "the client reads too slowly; connect and join again"


@dataclass(frozen=True, slots=True, kw_only=True)
class HubLimits:
    """What one host grants its stream clients.

    Attributes:
        connections: Connections at the same time.
        subscriptions: Subscriptions of one connection.
        frames: Frames that may wait for one connection.
        frame_bytes: Bytes that may wait for one connection; the newest frame may exceed it.
    """

    connections: int = 1000
    subscriptions: int = 1000
    frames: int = 1000
    frame_bytes: int = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Closing:
    """Why a connection is to be closed: a WebSocket close code and at most 123 bytes of text."""

    code: int
    reason: str


class StreamClient:
    """One connection as the hub sees it. Created by `StreamHub.admit`."""

    def __init__(self, limits: HubLimits) -> None:
        self.outbox = Outbox(limits.frames, limits.frame_bytes)
        self.joined: dict[str, Joined] = {}
        self.closing: Closing | None = None
        self._is_closing = asyncio.Event()

    def send(self, frame: str) -> None:
        """Let a frame wait for the connection. Never waits itself: a client that is too slow is closed instead."""
        if self.closing is None and not self.outbox.put(frame):
            self.close(TRY_AGAIN_LATER, TOO_SLOW)

    def close(self, code: int, reason: str) -> None:
        """Ask the connection to close; what waits for it is dropped. The first reason stays."""
        if self.closing is None:
            self.closing = Closing(code, reason)
            self.outbox.drain()
            self._is_closing.set()

    async def wait_closing(self) -> None:
        """Return once the connection is to be closed."""
        await self._is_closing.wait()


class Joined:
    """A subscription of a client. Until its sync frame is known, its frames are held back."""

    def __init__(self, subscription: Subscription, limits: HubLimits) -> None:
        self.subscription = subscription
        self.held: Outbox | None = Outbox(limits.frames, limits.frame_bytes)


class StreamHub:
    """Hands changes to the clients that subscribed to them.

    Guarantee: after a join, a client gets what was stored at some moment after the join (the sync frame), and after it
    every change that was stored since, in the order of the feed within a group. A change close to the join may come in
    both, or twice: at least once, and the last frame of an item is its newest state. A client that cannot keep up is
    closed, never skipped; it joins again and syncs.

    A client with several subscriptions that match a change gets one frame, for frames do not name subscriptions.
    """

    def __init__(self, limits: HubLimits | None = None) -> None:
        self._limits = limits or HubLimits()
        self._clients: set[StreamClient] = set()
        self._groups: dict[tuple[str, str], dict[StreamClient, dict[str, Joined]]] = {}
        self._is_closed = False

    @property
    def client_count(self) -> int:
        """How many connections there are."""
        return len(self._clients)

    def push(self, changes: Sequence[StreamChange]) -> None:
        """Hand over changes in the order of the feed. Returns at once, whatever the clients do.

        One call should not hold more than half of `HubLimits.frames`: connections write only after it has returned.
        """
        for change in changes:
            members = self._groups.get((change.stream_name, change.group_id))
            if members:
                self._deliver(change, members)

    def admit(self) -> StreamClient | None:
        """Return a client for a new connection; None at the limit, and once the hub is closed."""
        if self._is_closed or len(self._clients) >= self._limits.connections:
            return None
        client = StreamClient(self._limits)
        self._clients.add(client)
        return client

    def dismiss(self, client: StreamClient) -> None:
        """Forget a client and its subscriptions."""
        for subscription_id in list(client.joined):
            self.leave(client, subscription_id)
        self._clients.discard(client)

    def join(self, client: StreamClient, subscription: Subscription) -> None:
        """Register a subscription, in place of an older one with the same id. Its changes are held until `synced`.

        Raises:
            FrameError: `too_many_subscriptions`.
        """
        self.leave(client, subscription.subscription_id)
        if len(client.joined) >= self._limits.subscriptions:
            message = f"a connection has at most {self._limits.subscriptions} subscriptions; leave one first."
            raise FrameError(message, subscription.subscription_id, code="too_many_subscriptions")
        joined = Joined(subscription, self._limits)
        client.joined[subscription.subscription_id] = joined
        members = self._groups.setdefault((subscription.stream_name, subscription.group_id), {})
        members.setdefault(client, {})[subscription.subscription_id] = joined

    def synced(self, client: StreamClient, subscription_id: str, frame: str) -> None:
        """Send the sync frame of a subscription, read from the store after `join`, and what was held since."""
        joined = client.joined[subscription_id]
        client.send(frame)
        held, joined.held = joined.held, None
        for later in held.drain() if held else ():
            client.send(later)

    def leave(self, client: StreamClient, subscription_id: str) -> None:
        """End a subscription; an unknown one is no error."""
        joined = client.joined.pop(subscription_id, None)
        if joined is None:
            return
        key = (joined.subscription.stream_name, joined.subscription.group_id)
        members = self._groups[key]
        del members[client][subscription_id]
        if not members[client]:
            del members[client]
        if not members:
            del self._groups[key]

    def close(self, reason: str) -> None:
        """Ask every connection to close, and admit no further one."""
        self._is_closed = True
        for client in self._clients:
            client.close(GOING_AWAY, reason)

    def _deliver(self, change: StreamChange, members: dict[StreamClient, dict[str, Joined]]) -> None:
        frame: str | None = None
        for client, subscriptions in members.items():
            matching = [
                joined
                for joined in subscriptions.values()
                if joined.subscription.matches(change.stream_name, change.group_id, change.item_id)
            ]
            if not matching or client.closing is not None:
                continue
            try:
                frame = frame or render_json(change.to_payload(), "the frame")
            except PayloadError as error:
                _log.warning("a change is too large to push", extra={"iii": {"error": error.message}})
                client.close(INTERNAL_ERROR, "a change is too large for a frame; read it with stream::get")
                continue
            _give(client, matching, frame)


def _give(client: StreamClient, matching: Iterable[Joined], frame: str) -> None:
    is_due = False
    for joined in matching:
        if joined.held is None:
            is_due = True
        elif not joined.held.put(frame):
            client.close(TRY_AGAIN_LATER, "too many changes while joining; connect and join again")
    if is_due:
        client.send(frame)
