"""What the frames of a client do, where no process holds its connection: each frame may meet another process."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from datetime import timedelta

from iii_runtime.core.errors import IiiError
from iii_runtime.core.payload import Json, PayloadTooLargeError
from iii_runtime.core.stream_protocol import (
    FrameError,
    Leave,
    Subscription,
    parse_frame,
    render_error,
    render_sync,
)
from iii_runtime.engine.stream_push import FRAME_TOO_LARGE, MAX_POSTED_BYTES, POST_PAUSES, TOO_LARGE
from iii_runtime.ports.clock import Clock
from iii_runtime.ports.stream_connections import ConnectionGoneError, FramePoster, PostError, StreamConnections
from iii_runtime.ports.stream_store import StreamStore

_log = logging.getLogger("iii_runtime.stream")

MOST_SUBSCRIPTIONS = 1000
"""Subscriptions of one connection."""

MOST_SYNCS = 10
"""How often a join reads and posts before it gives up on a group that changes faster than it can be read."""


class _SyncTooLargeError(FrameError):
    """What was joined cannot be shown in one frame."""

    code = FRAME_TOO_LARGE


class StreamSession:
    """Answers the frames of clients.

    Guarantee: after a join, a client gets what was stored at some moment after the join (the sync frame) and every
    change stored since, at least once, and the last frame of an item is its newest state. A change close to the join
    may come before the sync frame, and the sync frame may come several times: pushes are another process's work, so
    nobody can hold them back.

    How the last frame is the newest state: the subscription is registered before the store is read, so a change that
    the reading missed is pushed. That push may overtake the sync frame, which would then be an old state behind a new
    one. So after each sync frame that was taken the store is read again, and posted again while it differs. Once it
    does not, what was stored before the last reading is in the frame, and what was stored later is pushed behind it.
    A push of a change that the frame has already may still follow; the one with the newest state follows it.

    A group for which this has no end after `MOST_SYNCS` frames is left again, with an error frame. Where the sync frame
    would be too large to be posted an error frame takes its place, and the subscription stays: the client reads the
    data in another way, and the changes come.

    Two frames of one connection may be carried out at the same time. A client that wants them in order waits for the
    answer to the first.

    Args:
        connections: Who subscribed to what.
        poster: Sends the frames.
        store: Where sync frames are read from; what was written before a reading must be in it.
        clock: Times the sync frames.
        most: Subscriptions of one connection.
    """

    def __init__(
        self,
        connections: StreamConnections,
        poster: FramePoster,
        store: StreamStore,
        clock: Clock,
        *,
        most: int = MOST_SUBSCRIPTIONS,
    ) -> None:
        self._connections = connections
        self._poster = poster
        self._store = store
        self._clock = clock
        self._most = most

    async def receive(self, connection_id: str, raw: str | bytes) -> None:
        """Carry out a frame. What is wrong with it, or keeps it from being done, is answered with an error frame.

        A connection that has ended is forgotten; one that does not take its answer is closed.
        """
        try:
            try:
                await self._handle(connection_id, raw)
            except FrameError as error:
                await self._post(connection_id, render_error(error))
        except ConnectionGoneError:
            await self.end(connection_id)
        except PostError as error:
            fields = {"connection": connection_id, "error": error.message}
            _log.warning("a stream connection does not take its answer and is closed", extra={"iii": fields})
            await self.close(connection_id)

    async def end(self, connection_id: str) -> None:
        """Forget a connection that has ended. If that cannot be done now, it expires."""
        try:
            await self._connections.forget(connection_id)
        except IiiError as error:
            fields = {"connection": connection_id, "error": error.message}
            _log.warning("cannot forget a stream connection; it will expire", extra={"iii": fields})

    async def close(self, connection_id: str) -> None:
        """Forget a connection and ask it to close, so that its client joins anew."""
        await self.end(connection_id)
        try:
            await self._poster.close(connection_id)
        except PostError as error:
            fields = {"connection": connection_id, "error": error.message}
            _log.error("cannot close a stream connection", extra={"iii": fields})

    async def _handle(self, connection_id: str, raw: str | bytes) -> None:
        frame = parse_frame(raw)
        subscription = frame.subscription
        try:
            if isinstance(frame, Leave):
                await self._connections.leave(connection_id, subscription.subscription_id)
            else:
                await self._join(connection_id, subscription)
        except (FrameError, ConnectionGoneError, PostError):
            raise
        except IiiError as error:
            raise FrameError(error.message, subscription.subscription_id, code=error.code) from error

    async def _join(self, connection_id: str, subscription: Subscription) -> None:
        await self._connections.join(connection_id, subscription, most=self._most)
        try:
            await self._sync(connection_id, subscription)
        except (_SyncTooLargeError, ConnectionGoneError, PostError):
            raise
        except IiiError:
            await self._connections.leave(connection_id, subscription.subscription_id)
            raise

    async def _sync(self, connection_id: str, subscription: Subscription) -> None:
        data = await self._read(subscription)
        for _ in range(MOST_SYNCS):
            await self._post(connection_id, self._render(data, subscription))
            posted, data = data, await self._read(subscription)
            if _text(posted) == _text(data):
                return
        message = (
            f"group '{subscription.group_id}' of stream '{subscription.stream_name}' changes faster than it can be "
            "read; join again, or join single items of it."
        )
        raise FrameError(message, subscription.subscription_id, code="group_too_busy")

    async def _read(self, subscription: Subscription) -> Json:
        stream_name, group_id, item_id = subscription.stream_name, subscription.group_id, subscription.item_id
        if item_id is not None:
            return await self._store.get(stream_name, group_id, item_id)
        return await self._store.list_items(stream_name, group_id)

    def _render(self, data: Json, subscription: Subscription) -> str:
        try:
            frame = render_sync(data, subscription=subscription, timestamp_ms=self._clock.now_ms())
        except PayloadTooLargeError:
            frame = None
        if frame is not None and len(frame) <= MAX_POSTED_BYTES:
            return frame
        is_item = subscription.item_id is not None
        what = f"item '{subscription.item_id}' of " if is_item else ""
        raise _SyncTooLargeError(
            f"{what}group '{subscription.group_id}' of stream '{subscription.stream_name}' is {TOO_LARGE}. You have "
            f"joined; read it with {'stream::get' if is_item else 'stream::list'}.",
            subscription.subscription_id,
        )

    async def _post(self, connection_id: str, frame: str) -> None:
        await post_patiently(self._poster, self._clock, connection_id, frame)


async def post_patiently(
    poster: FramePoster,
    clock: Clock,
    connection_id: str,
    frame: str,
    pauses: Sequence[timedelta] = POST_PAUSES,
) -> None:
    """Post a frame, again after each of `pauses` while it is not taken for now.

    Raises:
        ConnectionGoneError: The connection has ended.
        PostError: It was not taken.
    """
    for pause in pauses:
        try:
            return await poster.post(connection_id, frame)
        except PostError as error:
            if not error.is_transient:
                raise
        await clock.sleep_until(clock.now() + pause)
    return await poster.post(connection_id, frame)


def _text(data: Json) -> str:
    """Return a text in which equal data is equal, whatever the order in which the store gives the members."""
    return json.dumps(data, sort_keys=True)
