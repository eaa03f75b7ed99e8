"""State: values by scope and key. Every write stores its change for the change feed in the same step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from iii_runtime.core.payload import Json
from iii_runtime.core.update_ops import OpError


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The outcome of a write.

    Attributes:
        old_value: The value before, None if there was none.
        new_value: The value after, None if it was deleted.
        existed: Whether there was a value before.
        errors: Update operations that were skipped.
    """

    old_value: Json
    new_value: Json
    existed: bool
    errors: tuple[OpError, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A stream event, not persisted as an item, that becomes visible exactly if the write it rides on is stored."""

    stream_name: str
    group_id: str
    item_id: str | None
    type: str
    data: Json


class StateStore(Protocol):
    """State documents."""

    async def get(self, scope: str, key: str) -> Json:
        """Return the value, None if there is none."""
        ...

    async def set(self, scope: str, key: str, value: Json) -> Written:
        """Replace the value."""
        ...

    async def delete(self, scope: str, key: str) -> Written:
        """Remove the value; a missing one is reported with `existed=False`."""
        ...

    async def update(self, scope: str, key: str, ops: Sequence[Json], notice: Notice | None = None) -> Written:
        """Apply update operations in order, atomically; `notice` is published with the write, or not at all."""
        ...

    async def list_values(self, scope: str) -> list[Json]:
        """Return the values of a scope, ordered by key."""
        ...

    async def list_scopes(self) -> list[str]:
        """Return the sorted names of the scopes that hold a value."""
        ...
