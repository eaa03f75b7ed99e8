"""WebSocket connections whose sockets another service holds; a store keeps who subscribed to what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from iii_runtime.core.errors import IiiError
from iii_runtime.core.stream_protocol import Subscription


class ConnectionGoneError(IiiError):
    """The connection has ended. It never comes back; what is known of it can be forgotten."""

    code = "connection_gone"


class TooManySubscriptionsError(IiiError):
    """The connection has as many subscriptions as one may have. Nothing was registered."""

    code = "too_many_subscriptions"


class PostError(IiiError):
    """A frame was not taken, or its answer was lost.

    Attributes:
        is_transient: Whether the same frame may be taken a moment later.
    """

    code = "post_failed"

    def __init__(self, message: str, *, is_transient: bool) -> None:
        super().__init__(message)
        self.is_transient = is_transient


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One subscription of a group.

    Attributes:
        connection_id: The connection it belongs to.
        subscription: What the connection wants to see.
        is_lost: Whether a frame for it was lost, so that nothing more may be posted before it has joined anew.
    """

    connection_id: str
    subscription: Subscription
    is_lost: bool = False


class StreamConnections(Protocol):
    """Who is connected, and subscribed to what. Every method may raise `StoreError`."""

    async def register(self, connection_id: str) -> None:
        """Add a connection. As long as it may last from now on, `may_have_any` answers True."""
        ...

    async def forget(self, connection_id: str) -> None:
        """Remove a connection and its subscriptions; an unknown one is no error. It cannot join any more."""
        ...

    async def join(self, connection_id: str, subscription: Subscription, *, most: int) -> None:
        """Add a subscription, in place of an older one with the same id, in one step.

        Whoever calls `members` of its group after this has returned finds it.

        Args:
            connection_id: The connection.
            subscription: What it wants to see.
            most: How many subscriptions the connection may have.

        Raises:
            ConnectionGoneError: The connection is not registered (any more).
            TooManySubscriptionsError: It has `most` others.
        """
        ...

    async def leave(self, connection_id: str, subscription_id: str) -> None:
        """Remove a subscription; an unknown one is no error."""
        ...

    async def members(self, stream_name: str, group_id: str) -> list[Member]:
        """Return the subscriptions of a group, all that were registered before this was called."""
        ...

    async def mark_lost(self, members: Sequence[Member]) -> None:
        """Make `is_lost` true for subscriptions that are still there."""
        ...

    async def may_have_any(self) -> bool:
        """Return False only if no connection is registered: cheaper than to ask for the members of every group."""
        ...


class FramePoster(Protocol):
    """Sends frames to connections, whichever process received them."""

    async def post(self, connection_id: str, frame: str) -> None:
        """Send a frame. One posted after another was taken arrives after it.

        Raises:
            ConnectionGoneError: The connection has ended.
            PostError: It was not taken, or nobody knows: then it may arrive all the same.
        """
        ...

    async def close(self, connection_id: str) -> None:
        """Ask the connection to close; one that has ended is no error.

        Raises:
            PostError: It was not taken.
        """
        ...


class TicketStore(Protocol):
    """Short-lived secrets that admit one connection each."""

    async def issue(self, ticket: str, ttl: timedelta) -> None:
        """Make a ticket valid from now on, for `ttl`."""
        ...

    async def redeem(self, ticket: str) -> bool:
        """Use a ticket up and return whether it was valid. Of several at the same time, one gets True."""
        ...
