"""The frames that wait for one slow connection: bounded, so that it costs nobody else anything."""

from __future__ import annotations

import asyncio
from collections import deque


class Outbox:
    """A bounded queue of frames with one reader.

    Args:
        most_frames: How many frames may wait.
        most_bytes: How many bytes may wait before the last frame; the last one may exceed it, whatever its size.
    """

    def __init__(self, most_frames: int, most_bytes: int) -> None:
        self._most_frames = most_frames
        self._most_bytes = most_bytes
        self._frames: deque[str] = deque()
        self._bytes = 0
        self._filled = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    def put(self, frame: str) -> bool:
        """Append an ASCII frame; False, and nothing is appended, if the outbox is full. Never waits."""
        if len(self._frames) >= self._most_frames or self._bytes >= self._most_bytes:
            return False
        self._frames.append(frame)
        self._bytes += len(frame)
        self._changed()
        return True

    async def take(self) -> str:
        """Remove and return the oldest frame; waits for one."""
        await self._filled.wait()
        frame = self._frames.popleft()
        self._bytes -= len(frame)
        self._changed()
        return frame

    async def wait_for_room(self) -> None:
        """Return once less than half of the bounds is used."""
        await self._has_room.wait()

    def drain(self) -> list[str]:
        """Remove and return everything."""
        frames = list(self._frames)
        self._frames.clear()
        self._bytes = 0
        self._changed()
        return frames

    def _changed(self) -> None:
        _assign(self._filled, is_set=bool(self._frames))
        is_roomy = len(self._frames) * 2 < self._most_frames and self._bytes * 2 < self._most_bytes
        _assign(self._has_room, is_set=is_roomy or not self._frames)


def _assign(event: asyncio.Event, *, is_set: bool) -> None:
    if is_set:
        event.set()
    else:
        event.clear()
