"""Keeps a message that may be killing its host apart from all others.

Whatever runs when a host dies looks alike at the next start: the message that killed it and those beside it. A message
that was interrupted twice is therefore run while no other message of the host is held. If it kills the host again, it
alone is blamed; if not, it was innocent and is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from iii_runtime.ports.message_queue import Delivery

SUSPECT_AFTER = 2
"""Interruptions after which a message runs alone."""


def is_suspect(delivery: Delivery) -> bool:
    """Return whether earlier receives of the message ended twice without an outcome."""
    return delivery.receives - delivery.attempt >= SUSPECT_AFTER


class Isolation:
    """One per host, shared by the consumers of all its queues.

    Args:
        on_open: Called when messages may be received again.
    """

    def __init__(self, on_open: Callable[[], None] = lambda: None) -> None:
        self._on_open = on_open
        self._is_taken = False
        self._held = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def is_open(self) -> bool:
        """Whether messages may be received."""
        return not self._is_taken

    def take(self) -> bool:
        """Claim to run alone; nothing is received from now on. False if another message has claimed it."""
        if self._is_taken:
            return False
        self._is_taken = True
        return True

    async def quiet(self) -> None:
        """Return when no other message is held."""
        while self._held:
            await self._quiet.wait()

    def release(self) -> None:
        """Let messages be received again."""
        self._is_taken = False
        self._on_open()

    def hold(self) -> None:
        """Count a message, or a receive that may bring some, as held."""
        self._held += 1
        self._quiet.clear()

    def drop(self) -> None:
        """Undo `hold`."""
        self._held -= 1
        if not self._held:
            self._quiet.set()
