"""Many entries in few requests, each within what a service takes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def in_batches(
    sized: Iterable[tuple[T, int]],
    *,
    most: int,
    most_bytes: int,
    may_join: Callable[[list[T], T], bool] = lambda _batch, _entry: True,
) -> Iterator[list[T]]:
    """Yield the entries in order, as many at once as fit; one that is too large is alone.

    Args:
        sized: Each entry with its size in bytes.
        most: Entries of one batch.
        most_bytes: Bytes of one batch.
        may_join: Whether an entry may be in a batch with those it has.
    """
    batch: list[T] = []
    used = 0
    for entry, size in sized:
        is_full = len(batch) == most or used + size > most_bytes
        if batch and (is_full or not may_join(batch, entry)):
            yield batch
            batch, used = [], 0
        batch.append(entry)
        used += size
    if batch:
        yield batch
