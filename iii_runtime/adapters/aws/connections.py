"""WebSocket connections and their subscriptions in the table.

| pk | sk | what |
|---|---|---|
| `W#<connection id>` | `@` | a connection; `n` counts its subscriptions |
| `W#<connection id>` | `J#<hash of the subscription id>` | a subscription, for its connection |
| `J#<stream>#<group>` | `<connection id>#<hash>` | the same, for the change feed; `lost` if a frame was lost |
| `W` | `@` | `until` when there may be any connection, Unix seconds |

A subscription is in both places or in none: they are written in one transaction, together with the count. The keys
hold hashes of subscription ids, which may be anything; the plain names are attributes: `c` connection, `id`
subscription, `s` stream, `g` group, `i` item.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from iii_runtime.adapters.aws.attributes import Item, Value
from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.aws.document_keys import group_partition
from iii_runtime.adapters.aws.failures import pause
from iii_runtime.adapters.aws.table import ONLY, ConditionFailedError, Expression, Table
from iii_runtime.adapters.aws.transactions import MOST_PARTS, Transactions
from iii_runtime.core.errors import StoreError
from iii_runtime.core.stream_protocol import Subscription
from iii_runtime.ports.clock import Clock, IdSource
from iii_runtime.ports.stream_connections import ConnectionGoneError, Member, TooManySubscriptionsError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

_log = logging.getLogger(__name__)

CONNECTION, SUBSCRIPTION = "W#", "J#"
ANY_CONNECTION = "W"

CONNECTION_LIFE = timedelta(hours=2, minutes=10)
"""How long a connection is kept: API Gateway ends one after two hours."""

_RACES = 5
_EXISTS = Expression(text="attribute_exists(pk)")
_IS_NEW = Expression(text="attribute_not_exists(pk)")


class DynamoConnections:
    """Who is connected, and subscribed to what. What nobody removed expires.

    Every method raises `StoreError`, see `failures`.
    """

    def __init__(self, clients: Clients, table: Table, clock: Clock, ids: IdSource) -> None:
        self._table = table
        self._transactions = Transactions(clients, table, clock, ids)
        self._clock = clock

    async def register(self, connection_id: str) -> None:
        """Add a connection; two writes, of which the first rarely changes anything."""
        now, life = self._now(), round(CONNECTION_LIFE.total_seconds())
        # Twice as long as this connection needs, so that most others find it long enough for them too.
        until = Expression(
            text="SET #u = :u, #t = :u", names={"#u": "until", "#t": "ttl"}, values={":u": now + 2 * life}
        )
        is_short = Expression(text="attribute_not_exists(pk) OR #u < :needed", values={":needed": now + life})
        try:
            await self._table.update(ANY_CONNECTION, ONLY, until, condition=is_short)
        except ConditionFailedError:
            _log.debug("the item that tells of connections lasts longer than this one")
        await self._table.put({"pk": CONNECTION + connection_id, "sk": ONLY, "n": 0, "ttl": now + life})

    async def forget(self, connection_id: str) -> None:
        """Remove a connection, and after it, so that none can be added meanwhile, its subscriptions."""
        pk = CONNECTION + connection_id
        await self._table.delete(pk)
        condition = Expression(text="pk = :pk AND begins_with(sk, :j)", values={":pk": pk, ":j": SUBSCRIPTION})
        rows = [row async for row in self._table.query(condition)]
        at_once = MOST_PARTS // 2
        for start in range(0, len(rows), at_once):
            keys = [key for row in rows[start : start + at_once] for key in (_own(row), _in_group(row))]
            await self._transactions.run([self._transactions.delete(*key) for key in keys])

    async def join(self, connection_id: str, subscription: Subscription, *, most: int) -> None:
        """Add a subscription, in place of an older one with the same id; one read and one transaction.

        Raises:
            ConnectionGoneError: The connection is not registered (any more).
            TooManySubscriptionsError: It has `most` others.
        """
        row = _row(connection_id, subscription, self._now() + round(CONNECTION_LIFE.total_seconds()))
        for attempt in range(1, _RACES + 1):
            old = await self._table.get(*_own(row))
            try:
                await self._transactions.run(self._joining(row, old, most))
            except ClientError as error:
                _refuse(error, most)
            else:
                return
            await pause(self._clock, attempt)
        raise self._raced(subscription.subscription_id)

    async def leave(self, connection_id: str, subscription_id: str) -> None:
        """Remove a subscription; an unknown one is no error."""
        pk, sk = CONNECTION + connection_id, SUBSCRIPTION + _hash(subscription_id)
        for attempt in range(1, _RACES + 1):
            old = await self._table.get(pk, sk)
            if old is None:
                return
            try:
                await self._transactions.run(self._leaving(old))
            except ClientError:  # another frame of the connection was faster, or it has ended
                await pause(self._clock, attempt)
            else:
                return
        raise self._raced(subscription_id)

    async def members(self, stream_name: str, group_id: str) -> list[Member]:
        """Return the subscriptions of a group; the read is consistent."""
        now = self._now()
        condition = Expression(text="pk = :pk", values={":pk": group_partition(SUBSCRIPTION, stream_name, group_id)})
        found: list[Member] = []
        async for attributes in self._table.rows(condition):
            try:
                row = self._table.read(attributes)
                ttl = row.get("ttl")
                if isinstance(ttl, int) and ttl > now:
                    found.append(_member(row))
            except StoreError as error:  # it cannot be served, and must not cost the others of the group
                _log.error("a subscription is damaged: %s", error.message)
        return found

    async def mark_lost(self, members: Sequence[Member]) -> None:
        """Note that frames for these subscriptions were lost; one that is gone stays so."""
        lost = Expression(text="SET lost = :true", values={":true": True})
        for member in members:
            row = _row(member.connection_id, member.subscription, 0)
            try:
                await self._table.update(*_in_group(row), lost, condition=_EXISTS)
            except ConditionFailedError:
                _log.debug("a subscription ended before it could be marked")

    async def may_have_any(self) -> bool:
        """Return whether a connection was registered within the life of one, or up to twice that; one read."""
        item = await self._table.get(ANY_CONNECTION)
        until = None if item is None else item.get("until")
        return isinstance(until, int) and until > self._now()

    def _joining(self, row: Item, old: Item | None, most: int) -> list[TransactWriteItemTypeDef]:
        """Return the parts of a transaction; the last one is about the connection."""
        make, connection, (pk, sk) = self._transactions, _own(row)[0], _in_group(row)
        parts = [make.put(row, _IS_NEW if old is None else _is_same(old)), make.put({**row, "pk": pk, "sk": sk})]
        if old is None:
            has_room = Expression(text="attribute_exists(pk) AND #n < :most", values={":most": most})
            return [*parts, make.update(connection, ONLY, _counted(1), has_room)]
        if _in_group(old) != (pk, sk):
            parts.append(make.delete(*_in_group(old)))
        return [*parts, make.check(connection, ONLY, _EXISTS)]

    def _leaving(self, old: Item) -> list[TransactWriteItemTypeDef]:
        make, (pk, sk) = self._transactions, _own(old)
        return [
            make.delete(pk, sk, _is_same(old)),
            make.delete(*_in_group(old)),
            make.update(pk, ONLY, _counted(-1), _EXISTS),
        ]

    def _raced(self, subscription_id: str) -> StoreError:
        return StoreError(
            f"table {self._table.name}: subscription '{subscription_id}' was changed by other frames of its "
            f"connection {_RACES} times in a row. Wait for the answer to one frame before you send the next.",
            code="store_conflict",
        )

    def _now(self) -> int:
        return self._clock.now_ms() // 1000


def _refuse(error: ClientError, most: int) -> None:
    """Raise what the connection, the last part of a transaction, is against; nothing if another frame was faster."""
    reasons = error.response.get("CancellationReasons", [])
    if not reasons or reasons[-1].get("Code") != "ConditionalCheckFailed":
        return
    if not reasons[-1].get("Item"):
        raise ConnectionGoneError("the connection has ended.") from error
    raise TooManySubscriptionsError(f"a connection has at most {most} subscriptions; leave one first.") from error


def _row(connection_id: str, subscription: Subscription, ttl: int) -> Item:
    return {
        "pk": CONNECTION + connection_id,
        "sk": SUBSCRIPTION + _hash(subscription.subscription_id),
        "c": connection_id,
        "id": subscription.subscription_id,
        "s": subscription.stream_name,
        "g": subscription.group_id,
        "i": subscription.item_id,
        "ttl": ttl,
    }


def _own(row: Mapping[str, Value]) -> tuple[str, str]:
    """Return where the connection has the subscription of a row."""
    return CONNECTION + _text(row, "c"), SUBSCRIPTION + _hash(_text(row, "id"))


def _in_group(row: Mapping[str, Value]) -> tuple[str, str]:
    """Return where the group has the subscription of a row."""
    partition = group_partition(SUBSCRIPTION, _text(row, "s"), _text(row, "g"))
    return partition, f"{_text(row, 'c')}#{_hash(_text(row, 'id'))}"


def _member(row: Mapping[str, Value]) -> Member:
    return Member(
        connection_id=_text(row, "c"),
        subscription=Subscription(
            subscription_id=_text(row, "id"),
            stream_name=_text(row, "s"),
            group_id=_text(row, "g"),
            item_id=None if row.get("i") is None else _text(row, "i"),
        ),
        is_lost=row.get("lost") is True,
    )


def _is_same(old: Mapping[str, Value]) -> Expression:
    """Return the condition that a row still leads to where it led."""
    return Expression(text="s = :s AND g = :g", values={":s": _text(old, "s"), ":g": _text(old, "g")})


def _counted(step: int) -> Expression:
    return Expression(text="SET #n = #n + :step", names={"#n": "n"}, values={":step": step})


def _text(row: Mapping[str, Value], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise StoreError(f"a subscription in the table has no text as its '{name}'.", code="store_corrupt")
    return value


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
