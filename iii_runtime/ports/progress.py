"""Where stream changes are published for other systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from iii_runtime.core.change import StreamChange


class ProgressPublisher(Protocol):
    """Publishes stream changes to whoever subscribed outside this runtime. At least once, in no order."""

    async def publish(self, changes: Sequence[StreamChange]) -> frozenset[int]:
        """Publish changes that were stored, and return the places of those that could not be, from 0.

        What was refused once in a way that passes was tried again before this returns.
        """
        ...
