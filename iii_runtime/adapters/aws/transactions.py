"""Writes of several items of the table: all or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from iii_runtime.adapters.aws.attributes import Value, to_attributes
from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.aws.failures import with_retries
from iii_runtime.adapters.aws.table import Expression, Table
from iii_runtime.ports.clock import Clock, IdSource

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

MOST_PARTS = 100
"""Parts of one transaction; no two of them are about one item."""


class Transactions:
    """Makes the parts of transactions on one table and carries them out. Throttled and lost requests are sent again."""

    def __init__(self, clients: Clients, table: Table, clock: Clock, ids: IdSource) -> None:
        self._clients = clients
        self._name = table.name
        self._clock = clock
        self._ids = ids

    def put(self, item: Mapping[str, Value], condition: Expression | None = None) -> TransactWriteItemTypeDef:
        """Return the part that creates or replaces an item."""
        return self._part("Put", {"Item": to_attributes(item)}, condition)

    def delete(self, pk: str, sk: str, condition: Expression | None = None) -> TransactWriteItemTypeDef:
        """Return the part that removes an item; one that is missing is no error."""
        return self._part("Delete", {"Key": to_attributes({"pk": pk, "sk": sk})}, condition)

    def check(self, pk: str, sk: str, condition: Expression) -> TransactWriteItemTypeDef:
        """Return the part that only looks whether `condition` holds for an item."""
        return self._part("ConditionCheck", {"Key": to_attributes({"pk": pk, "sk": sk})}, condition)

    def update(self, pk: str, sk: str, change: Expression, condition: Expression) -> TransactWriteItemTypeDef:
        """Return the part that changes an item; the same placeholder means the same in both expressions."""
        both = Expression(
            text=condition.text,
            names={**change.names, **condition.names},
            values={**change.values, **condition.values},
        )
        members = {"Key": to_attributes({"pk": pk, "sk": sk}), "UpdateExpression": change.text}
        return self._part("Update", members, both)

    async def run(self, parts: Sequence[TransactWriteItemTypeDef]) -> None:
        """Carry out all parts or none.

        Raises:
            ClientError: A condition did not hold; `CancellationReasons` has the reason of each part, with the item.
            StoreError: See `failures`.
        """
        # The token lets a request whose reply was lost be sent again.
        token = self._ids.new_id()
        await with_retries(
            lambda: self._clients.dynamodb.transact_write_items(TransactItems=parts, ClientRequestToken=token),
            clock=self._clock,
            where=f"table {self._name}",
        )

    def _part(self, what: str, members: dict[str, Any], condition: Expression | None) -> TransactWriteItemTypeDef:
        members["TableName"] = self._name
        if condition is not None:
            members["ConditionExpression"] = condition.text
            members["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
            if condition.names:
                members["ExpressionAttributeNames"] = dict(condition.names)
            if condition.values:
                members["ExpressionAttributeValues"] = to_attributes(condition.values)
        return cast("TransactWriteItemTypeDef", {what: members})
