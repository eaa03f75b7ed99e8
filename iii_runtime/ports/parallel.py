"""Work that goes on at the same time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Job: TypeAlias = Callable[[], Coroutine[Any, Any, T]]
"""Makes the coroutine that does one piece of work; it may block."""


class Parallel(Protocol):
    """Runs jobs side by side, a bounded number at a time."""

    async def run(self, jobs: Sequence[Job[T]]) -> list[T]:
        """Begin the jobs in their order, wait for the end of all, and return their results in the same order.

        Raises:
            Exception: The first one that a job raised, after all have ended.
        """
        ...
