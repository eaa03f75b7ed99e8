"""The table: one typed request for each operation, with the failures of the service sorted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from botocore.exceptions import ClientError

from iii_runtime.adapters.aws.attributes import Item, Value, from_attributes, reading, to_attributes
from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.aws.failures import ATTEMPTS, with_retries
from iii_runtime.ports.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import QueryOutputTypeDef

T = TypeVar("T")

ONLY = "@"
"""Sort key of an item that is alone under its partition key."""


class ConditionFailedError(Exception):
    """The condition of a write did not hold; nothing was written.

    Attributes:
        item: The item as it is, None if there is none.
    """

    def __init__(self, item: Item | None) -> None:
        super().__init__("the condition of a write did not hold")
        self.item = item


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A condition or an update in DynamoDB's own language.

    Attributes:
        text: The expression, such as `attribute_not_exists(pk) OR #n < :n`.
        names: Attribute names by their placeholder, such as `{"#n": "n"}`; needed where a name is a reserved word.
        values: Values by their placeholder, such as `{":n": 3}`.
    """

    text: str
    names: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)


class Table:
    """One DynamoDB table with the keys `pk` and `sk`.

    Throttled and lost requests are sent again, so a write may arrive twice: give it a condition under which its second
    arrival changes nothing, or a value that is the same. Every operation raises `StoreError`, see `failures`; an item
    with attributes that this runtime never writes is `store_corrupt`, which after a write says that it was carried out.
    """

    def __init__(self, clients: Clients, name: str, clock: Clock) -> None:
        """Use the table called `name`; pauses between repetitions are waited on `clock`."""
        self.name = name
        self._clients = clients
        self._clock = clock

    async def get(self, pk: str, sk: str = ONLY) -> Item | None:
        """Return an item as it is now (a consistent read), None if there is none."""
        answer = await self._ask(
            lambda: self._clients.dynamodb.get_item(TableName=self.name, Key=_key(pk, sk), ConsistentRead=True)
        )
        return self._item(answer.get("Item"))

    async def put(
        self, item: Mapping[str, Value], *, condition: Expression | None = None, attempts: int = ATTEMPTS
    ) -> Item | None:
        """Create or replace the item whose `pk` and `sk` these are, and return what was there before.

        Args:
            item: All its attributes.
            condition: What must hold.
            attempts: How often it is sent at most.

        Raises:
            ConditionFailedError: `condition` did not hold.
        """
        request: dict[str, Any] = {"Item": to_attributes(item), "ReturnValues": "ALL_OLD"}
        _add(request, "ConditionExpression", condition)
        answer = await self._write(lambda: self._clients.dynamodb.put_item(TableName=self.name, **request), attempts)
        return self._item(answer.get("Attributes"), is_written=True)

    async def update(
        self,
        pk: str,
        sk: str,
        change: Expression,
        *,
        condition: Expression | None = None,
        returns: Literal["ALL_OLD", "ALL_NEW"] = "ALL_OLD",
    ) -> Item | None:
        """Change an item, creating it if it is missing, and return it as it was (or as it has become).

        Args:
            pk: Partition key.
            sk: Sort key.
            change: The update expression, such as `SET #n = :n REMOVE st`.
            condition: What must hold; its placeholders may repeat those of `change` with the same meaning.
            returns: Which state of the item to return.

        Raises:
            ConditionFailedError: `condition` did not hold.
        """
        request: dict[str, Any] = {"Key": _key(pk, sk), "ReturnValues": returns}
        _add(request, "UpdateExpression", change)
        _add(request, "ConditionExpression", condition)
        answer = await self._write(lambda: self._clients.dynamodb.update_item(TableName=self.name, **request))
        return self._item(answer.get("Attributes"), is_written=True)

    async def delete(self, pk: str, sk: str = ONLY, *, condition: Expression | None = None) -> Item | None:
        """Remove an item and return it; None if there was none.

        Raises:
            ConditionFailedError: `condition` did not hold.
        """
        request: dict[str, Any] = {"Key": _key(pk, sk), "ReturnValues": "ALL_OLD"}
        _add(request, "ConditionExpression", condition)
        answer = await self._write(lambda: self._clients.dynamodb.delete_item(TableName=self.name, **request))
        return self._item(answer.get("Attributes"), is_written=True)

    async def query(
        self,
        condition: Expression,
        *,
        index: str | None = None,
        limit: int | None = None,
        descending: bool = False,
    ) -> AsyncIterator[Item]:
        """Yield the items under one partition key, ordered by sort key; pages are read as they are needed.

        Args:
            condition: The key condition, such as `pk = :pk AND begins_with(sk, :start)`.
            index: A secondary index to read; it lags behind the table. Without one the read is consistent.
            limit: How many items to yield at most.
            descending: Whether to begin at the end.
        """
        async for row in self.rows(condition, index=index, limit=limit, descending=descending):
            yield self.read(row)

    async def rows(
        self,
        condition: Expression,
        *,
        index: str | None = None,
        limit: int | None = None,
        descending: bool = False,
    ) -> AsyncIterator[Mapping[str, object]]:
        """Yield what `query` does as it is on the wire, for who must not fail at one item that cannot be read."""
        request: dict[str, Any] = {"ScanIndexForward": not descending}
        request |= {"ConsistentRead": True} if index is None else {"IndexName": index}
        _add(request, "KeyConditionExpression", condition)
        left, start = limit, None
        while left is None or left > 0:
            page = await self._ask(partial(self._page, request, start, left))
            for attributes in page["Items"]:
                yield attributes
            start = page.get("LastEvaluatedKey")
            if start is None:
                return
            left = None if left is None else left - len(page["Items"])

    async def scan(self, condition: Expression) -> AsyncIterator[Item]:
        """Yield all items for which `condition` holds, in no order. It reads, and costs, the whole table."""
        request: dict[str, Any] = {}
        _add(request, "FilterExpression", condition)
        while True:
            page = await self._ask(lambda: self._clients.dynamodb.scan(TableName=self.name, **request))
            for attributes in page["Items"]:
                yield self.read(attributes)
            if "LastEvaluatedKey" not in page:
                return
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def read(self, attributes: Mapping[str, object], note: str = "") -> Item:
        """Return the item of its wire form.

        Raises:
            StoreError: `store_corrupt`: it has attributes that this runtime never writes.
        """
        with reading(f"the item at {place_of(attributes)} of table {self.name}{note}"):
            return from_attributes(attributes)

    def _page(self, request: Mapping[str, Any], start: Any, limit: int | None) -> QueryOutputTypeDef:
        more: dict[str, Any] = {} if limit is None else {"Limit": limit}
        if start is not None:
            more["ExclusiveStartKey"] = start
        return self._clients.dynamodb.query(TableName=self.name, **request, **more)

    async def _ask(self, operation: Callable[[], T], attempts: int = ATTEMPTS) -> T:
        return await with_retries(operation, clock=self._clock, where=f"table {self.name}", attempts=attempts)

    async def _write(self, operation: Callable[[], T], attempts: int = ATTEMPTS) -> T:
        try:
            return await self._ask(operation, attempts)
        except ClientError as error:
            raise ConditionFailedError(self._item(error.response.get("Item"))) from error

    def _item(self, attributes: object, *, is_written: bool = False) -> Item | None:
        """Return the item of a reply; DynamoDB leaves the attributes out, or empty, where there is none."""
        if not isinstance(attributes, Mapping) or not attributes:
            return None
        return self.read(attributes, note=" (replaced or removed by now)" if is_written else "")


def place_of(attributes: Mapping[str, object]) -> str:
    """Return the keys of an item on the wire, for messages."""
    keys = (attributes.get(name) for name in ("pk", "sk"))
    return " / ".join(str(key.get("S")) if isinstance(key, Mapping) else "?" for key in keys)


def _key(pk: str, sk: str) -> dict[str, Any]:
    return to_attributes({"pk": pk, "sk": sk})


def _add(request: dict[str, Any], what: str, expression: Expression | None) -> None:
    if expression is None:
        return
    request[what] = expression.text
    if what == "ConditionExpression":
        request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    if expression.names:
        request.setdefault("ExpressionAttributeNames", {}).update(expression.names)
    if expression.values:
        request.setdefault("ExpressionAttributeValues", {}).update(to_attributes(expression.values))
