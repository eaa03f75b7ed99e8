"""The change feed: what was written to state and streams, in order, until it was delivered.

Guarantee: nothing is delivered that was not stored, and nothing stored goes undelivered; a change may be delivered
again after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from iii_runtime.core.change import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedEntry:
    """One stored change.

    Attributes:
        position: Grows with every change; the order of the feed.
        change: What happened.
    """

    position: int
    change: Change


class ChangeFeed(Protocol):
    """Reads changes and forgets the delivered ones."""

    async def read(self, after: int, limit: int) -> list[FeedEntry]:
        """Return up to `limit` undelivered changes behind position `after`, in order."""
        ...

    async def forget(self, positions: Sequence[int]) -> None:
        """Remove delivered changes."""
        ...
