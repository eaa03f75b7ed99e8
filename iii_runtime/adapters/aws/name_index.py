"""The names under which there are documents, read from the index `names` by skipping from one to the next."""

from __future__ import annotations

from iii_runtime.adapters.aws.attributes import Item, item_named, reading
from iii_runtime.adapters.aws.document_keys import (
    INDEX_FLOOR,
    NAME_SHARDS,
    index_after,
    index_partition,
    index_start,
    names_of,
)
from iii_runtime.adapters.aws.table import Expression, Table
from iii_runtime.plan.names import NAMES_INDEX


async def list_names(table: Table, prefix: str, *under: str, of: int) -> list[tuple[str, ...]]:
    """Return the sorted names, all but the last one, of the documents that have a value.

    One short query for each name and shard, however many documents there are. The index lags behind the table: what
    was written in the last second may be missing, what was deleted may still be there.

    Args:
        table: The table.
        prefix: Kind of the documents, `STATE` or `STREAM`.
        under: The first names, to list only documents under them.
        of: How many names a document of this kind has.

    Raises:
        StoreError: See `failures`.
    """
    start = index_start(*under, of=of)
    found: set[tuple[str, ...]] = set()
    for shard in range(NAME_SHARDS):
        after = start or INDEX_FLOOR
        while (row := await _next(table, index_partition(prefix, shard), after, start)) is not None:
            with reading(item_named(row)):
                names = names_of(row) or await _plain_names(table, row)
                if names is not None:
                    if len(names) != of:
                        raise ValueError(f"a document of this kind has {of} names")
                    found.add(names[:-1])
                after = index_after(str(row["nr"]), of=of)
    return sorted(found)


async def _next(table: Table, partition: str, after: str, start: str) -> Item | None:
    condition = Expression(text="nk = :nk AND nr > :after", values={":nk": partition, ":after": after})
    rows = [row async for row in table.query(condition, index=NAMES_INDEX, limit=1)]
    return rows[0] if rows and str(rows[0].get("nr")).startswith(start) else None


async def _plain_names(table: Table, row: Item) -> tuple[str, ...] | None:
    """Return the names of a document whose keys are hashes; None if it was deleted since."""
    item = await table.get(str(row["pk"]), str(row["sk"]))
    return None if item is None else names_of(item)
