"""Pushes stream changes to connections that another service holds, one post for each frame and connection."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Literal, TypeAlias

from iii_runtime.core.change import StreamChange
from iii_runtime.core.errors import StoreError
from iii_runtime.core.payload import PayloadTooLargeError, render_json
from iii_runtime.core.stream_protocol import FrameError, render_error
from iii_runtime.ports.clock import Clock
from iii_runtime.ports.parallel import Parallel
from iii_runtime.ports.stream_connections import (
    ConnectionGoneError,
    FramePoster,
    Member,
    PostError,
    StreamConnections,
)

_log = logging.getLogger("iii_runtime.stream")

MAX_POSTED_BYTES = 128 * 1024
"""Largest frame that can be posted."""

FRAME_TOO_LARGE = "frame_too_large"
TOO_LARGE = f"larger than a frame, {MAX_POSTED_BYTES:,} bytes"

POST_PAUSES = tuple(timedelta(milliseconds=ms) for ms in (100, 200, 400, 800, 1600))
"""Waits before the repetitions of a post that was not taken for now."""

_Verdict: TypeAlias = Literal["sent", "later", "gone", "refused"]


class StreamPush:
    """Hands changes to the connections that subscribed to them.

    Guarantee: a connection gets every change that is stored after it has joined, in the order in which `push` is given
    those of its group, at least once. The connections are served side by side. One that does not take a frame for now
    is tried again after the others, for about three seconds; one that still does not, or never will, is closed rather
    than skipped, so that its client joins again and syncs. One that has ended is forgotten. None of these fails a push.

    A change too large for a frame is pushed as an error frame in its place, which says where the data can be read. (A
    server with sockets of its own closes the connection with a code that tells why; here nobody can choose the code,
    so a close would tell the client nothing, and it would join again only to meet the next large change.)

    A connection with several subscriptions that match a change gets one frame, for frames do not name subscriptions.

    Args:
        connections: Who subscribed to what.
        poster: Sends the frames.
        parallel: Serves connections side by side.
        clock: What the pauses are waited on.
    """

    def __init__(self, connections: StreamConnections, poster: FramePoster, parallel: Parallel, clock: Clock) -> None:
        self._connections = connections
        self._poster = poster
        self._parallel = parallel
        self._clock = clock

    async def push(self, changes: Sequence[StreamChange]) -> frozenset[str]:
        """Push changes that were stored, in their order, and return the order keys of those that must come again.

        That is so if the store could not say who subscribed to a group, or could not keep that a frame was lost.

        The members of a group are asked for once, and after the changes were stored: whoever joins later than that
        reads a state that has them.
        """
        if not changes:
            return frozenset()
        groups = {change.order_key: change for change in changes}
        try:
            if not await self._connections.may_have_any():
                return frozenset()
        except StoreError as error:
            _log.error("cannot ask who is connected", extra={"iii": {"error": error.message}})
            return frozenset(groups)
        found = await self._parallel.run([partial(self._members, change) for change in groups.values()])
        members = dict(zip(groups, found, strict=True))
        unknown = {key for key, of_group in members.items() if of_group is None}
        viewers = _viewers(changes, {key: of_group or [] for key, of_group in members.items()})
        return frozenset(unknown | await self._deliver(viewers))

    async def _members(self, change: StreamChange) -> list[Member] | None:
        try:
            return await self._connections.members(change.stream_name, change.group_id)
        except StoreError as error:
            fields = {"stream": change.stream_name, "group": change.group_id, "error": error.message}
            _log.error("cannot read who joined a group", extra={"iii": fields})
            return None

    async def _deliver(self, viewers: Sequence[_Viewer]) -> set[str]:
        """Serve all that take what they are sent, then those that did not again; return the groups that failed."""
        waiting = list(viewers)
        gone: list[_Viewer] = []
        refused: list[_Viewer] = []
        for pause in (timedelta(0), *POST_PAUSES):
            if not waiting:
                break
            if pause:
                await self._clock.sleep_until(self._clock.now() + pause)
            verdicts = await self._parallel.run([partial(self._send, viewer) for viewer in waiting])
            judged = list(zip(waiting, verdicts, strict=True))
            gone += [viewer for viewer, verdict in judged if verdict == "gone"]
            refused += [viewer for viewer, verdict in judged if verdict == "refused"]
            waiting = [viewer for viewer, verdict in judged if verdict == "later"]
        await self._parallel.run([partial(self._forget, viewer.connection_id) for viewer in gone])
        given_up = [*refused, *waiting]
        are_settled = await self._parallel.run([partial(self._give_up, viewer) for viewer in given_up])
        return {
            key
            for viewer, is_settled in zip(given_up, are_settled, strict=True)
            if not is_settled
            for key in viewer.order_keys
        }

    async def _send(self, viewer: _Viewer) -> _Verdict:
        if viewer.is_lost:
            return "refused"
        try:
            while viewer.frames:
                await self._poster.post(viewer.connection_id, viewer.frames[0])
                viewer.frames.popleft()
        except ConnectionGoneError:
            return "gone"
        except PostError as error:
            return "later" if error.is_transient else "refused"
        except Exception:  # noqa: BLE001 - whatever the defect is, it costs this connection only
            _log.exception("a frame could not be posted")
            return "refused"
        return "sent"

    async def _give_up(self, viewer: _Viewer) -> bool:
        """Close a connection that missed a frame; return False if nobody will remember that it did."""
        fields = {"connection": viewer.connection_id, "frames": len(viewer.frames)}
        _log.warning("a stream connection does not take its frames and is closed", extra={"iii": fields})
        try:
            await self._poster.close(viewer.connection_id)
        except PostError as error:
            _log.error("cannot close a stream connection", extra={"iii": {**fields, "error": error.message}})
            return viewer.is_lost or await self._mark_lost(viewer)
        await self._forget(viewer.connection_id)
        return True

    async def _mark_lost(self, viewer: _Viewer) -> bool:
        try:
            await self._connections.mark_lost(viewer.members)
        except StoreError as error:
            _log.error("cannot keep that a frame was lost", extra={"iii": {"error": error.message}})
            return False
        return True

    async def _forget(self, connection_id: str) -> None:
        try:
            await self._connections.forget(connection_id)
        except StoreError as error:
            # It is found gone again at the next change, and expires in any case.
            _log.warning("cannot forget a stream connection", extra={"iii": {"error": error.message}})


def render_change(change: StreamChange) -> str:
    """Return the frame that tells of a change, or an error frame if that would be too large to be posted."""
    try:
        frame = render_json(change.to_payload(), "the frame")
    except PayloadTooLargeError:
        frame = None
    if frame is not None and len(frame) <= MAX_POSTED_BYTES:
        return frame
    where = f"group '{change.group_id}' of stream '{change.stream_name}'"
    if change.kind == "event":
        message = f"event '{change.event_type}' in {where} is {TOO_LARGE}. Events are not kept: send less."
    else:
        message = f"a change of '{change.item_id}' in {where} is {TOO_LARGE}. Read it with stream::get."
    _log.warning("a change is too large to push", extra={"iii": {"error": message}})
    return render_error(FrameError(message, code=FRAME_TOO_LARGE))


@dataclass(slots=True)
class _Viewer:
    """A connection, and what it is to be sent."""

    connection_id: str
    frames: deque[str] = field(default_factory=deque)
    members: list[Member] = field(default_factory=list)
    order_keys: set[str] = field(default_factory=set)

    @property
    def is_lost(self) -> bool:
        return any(member.is_lost for member in self.members)


def _viewers(changes: Sequence[StreamChange], members: Mapping[str, Iterable[Member]]) -> list[_Viewer]:
    """Return each connection that is to be sent something, with its frames in the order of the changes."""
    viewers: dict[str, _Viewer] = {}
    of_groups = {key: _by_connection(of_group) for key, of_group in members.items()}
    for change in changes:
        frame: str | None = None
        for connection_id, of_connection in of_groups[change.order_key].items():
            matching = [member for member in of_connection if _matches(member, change)]
            if not matching:
                continue
            frame = frame or render_change(change)
            viewer = viewers.setdefault(connection_id, _Viewer(connection_id))
            viewer.frames.append(frame)
            viewer.order_keys.add(change.order_key)
            viewer.members += [member for member in matching if member not in viewer.members]
    return list(viewers.values())


def _by_connection(members: Iterable[Member]) -> dict[str, list[Member]]:
    found: dict[str, list[Member]] = {}
    for member in members:
        found.setdefault(member.connection_id, []).append(member)
    return found


def _matches(member: Member, change: StreamChange) -> bool:
    return member.subscription.matches(change.stream_name, change.group_id, change.item_id)
