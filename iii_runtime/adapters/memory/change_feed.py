"""The change feed in a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from iii_runtime.core.change import Change, change_from_json, change_to_json
from iii_runtime.core.payload import copy_json
from iii_runtime.ports.change_feed import FeedEntry


class MemoryChangeFeed:
    """Changes that were not delivered yet. The state and stream stores append to it."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        """Call `on_change` after each change."""
        self._on_change = on_change
        self._entries: dict[int, Change] = {}
        self._last = 0

    async def read(self, after: int, limit: int) -> list[FeedEntry]:
        """Return up to `limit` changes behind position `after`, in order."""
        behind = (entry for entry in self._entries.items() if entry[0] > after)
        return [FeedEntry(position=position, change=_copied(change)) for position, change in islice(behind, limit)]

    async def forget(self, positions: Sequence[int]) -> None:
        """Remove delivered changes."""
        for position in positions:
            self._entries.pop(position, None)

    def append(self, *changes: Change) -> None:
        """Add changes at the end."""
        for change in changes:
            self._last += 1
            self._entries[self._last] = _copied(change)
        self._on_change()


def _copied(change: Change) -> Change:
    fields = copy_json(change_to_json(change))
    if not isinstance(fields, dict):
        raise TypeError("the stored form of a change is an object")
    return change_from_json(fields)
