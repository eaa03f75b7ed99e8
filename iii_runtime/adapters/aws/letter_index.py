"""The sparse index `letters`: who is dead in a queue, oldest death first."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from iii_runtime.adapters.aws.attributes import from_attribute, to_attributes
from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.aws.failures import ATTEMPTS, pause, with_retries
from iii_runtime.adapters.aws.message_item import item_key, item_of, partitions_of, receipt_of
from iii_runtime.adapters.aws.table import ONLY, Expression, Table
from iii_runtime.core.delivery import MessageItem
from iii_runtime.core.errors import StoreError
from iii_runtime.plan.names import LETTERS_INDEX
from iii_runtime.ports.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import KeysAndAttributesTypeDef

_MAX_KEYS = 100


@dataclass(frozen=True, slots=True, order=True)
class ListedLetter:
    """An entry of the index.

    Attributes:
        died: Its place in the order of deaths, Unix microseconds.
        receipt: The message receipt id.
    """

    died: int
    receipt: str


class LetterIndex:
    """Reads the index, whose keys are all it needs. It lags behind the items for a moment."""

    def __init__(self, clients: Clients, table: Table, clock: Clock) -> None:
        self._clients = clients
        self._table = table
        self._clock = clock

    async def count(self, queue_name: str) -> int:
        """Return how many letters a queue has.

        Raises:
            StoreError: See `failures`.
        """
        return len(await self.list(queue_name))

    async def list(self, queue_name: str, *, limit: int | None = None) -> list[ListedLetter]:
        """Return the letters of a queue, oldest death first, `limit` of them at most.

        Raises:
            StoreError: See `failures`.
        """
        found: list[list[ListedLetter]] = []
        for partition in partitions_of(queue_name):
            condition = Expression(text="dq = :dq", values={":dq": partition})
            rows = self._table.rows(condition, index=LETTERS_INDEX, limit=limit)
            found.append([_listed(row) async for row in rows])
        # While the index follows a message that has died again, it may list both deaths.
        listed = {entry.receipt: entry for entry in heapq.merge(*(sorted(shard) for shard in found))}
        return sorted(listed.values())[:limit]

    async def items(self, receipts: Sequence[str]) -> dict[str, MessageItem | StoreError]:
        """Return the items of messages as they are now, by receipt; of one that cannot be read, what is wrong with it.

        Raises:
            StoreError: See `failures`.
        """
        found: dict[str, MessageItem | StoreError] = {}
        for start in range(0, len(receipts), _MAX_KEYS):
            await self._read(receipts[start : start + _MAX_KEYS], found)
        return found

    async def _read(self, receipts: Sequence[str], found: dict[str, MessageItem | StoreError]) -> None:
        keys = [to_attributes({"pk": item_key(receipt), "sk": ONLY}) for receipt in receipts]
        waiting: dict[str, KeysAndAttributesTypeDef] = {self._table.name: {"Keys": keys, "ConsistentRead": True}}
        empty = 0
        while True:
            answer = await with_retries(
                partial(self._clients.dynamodb.batch_get_item, RequestItems=waiting),
                clock=self._clock,
                where=f"table {self._table.name}",
            )
            read = answer["Responses"].get(self._table.name, [])
            for attributes in read:
                receipt = receipt_of(attributes["pk"]["S"])
                try:
                    found[receipt] = item_of(self._table.read(attributes))
                except StoreError as error:
                    found[receipt] = error
            waiting = cast("dict[str, KeysAndAttributesTypeDef]", answer.get("UnprocessedKeys", {}))
            if not waiting:
                return
            # DynamoDB leaves out what it has no capacity for.
            empty = 0 if read else empty + 1
            if empty >= ATTEMPTS:
                raise StoreError(
                    f"table {self._table.name} is too busy to return letters. Try again later; raise its limits if it "
                    "happens often.",
                    code="store_throttled",
                )
            await pause(self._clock, empty + 1)


def _listed(row: Mapping[str, object]) -> ListedLetter:
    """Return an entry; one whose place in the order somebody has spoilt comes first, for it hides no other."""
    try:
        died = from_attribute(row["dt"])
    except (LookupError, ValueError):
        died = 0
    receipt = receipt_of(str(from_attribute(row["pk"])))
    return ListedLetter(died if isinstance(died, int) else 0, receipt)
