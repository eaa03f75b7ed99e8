"""The commands that a machine has not handed over yet."""

from __future__ import annotations

from collections.abc import Callable

from iii_runtime.core.workflow.commands import Command


class Outbox:
    """Commands in the order in which they were asked for. What is taken back before it was handed over leaves no trace.

    An entry makes its command when it is handed over: on a replay few are.
    """

    def __init__(self) -> None:
        self._entries: dict[int, Callable[[], Command]] = {}
        self._next = 0

    def add(self, entry: Callable[[], Command]) -> int:
        """Add an entry; return its number."""
        number = self._next
        self._entries[number] = entry
        self._next = number + 1
        return number

    def discard(self, number: int) -> bool:
        """Take an entry back; return whether it had not been handed over."""
        return self._entries.pop(number, None) is not None

    def take(self) -> list[Command]:
        """Hand over everything."""
        commands = [entry() for entry in self._entries.values()]
        self._entries.clear()
        return commands
