"""Stream tickets in the table: an item each, under `K#<hash>`, so that who reads the table learns no ticket."""

from __future__ import annotations

import hashlib
from datetime import timedelta

from iii_runtime.adapters.aws.table import ConditionFailedError, Expression, Table
from iii_runtime.ports.clock import Clock

TICKET = "K#"


class DynamoTickets:
    """Short-lived secrets that admit one connection each."""

    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock

    async def issue(self, ticket: str, ttl: timedelta) -> None:
        """Make a ticket valid for `ttl`.

        Raises:
            StoreError: See `failures`.
        """
        expires_ms = self._clock.now_ms() + round(ttl / timedelta(milliseconds=1))
        # The table's own expiry takes days and whole seconds; `x` is what counts.
        await self._table.put({"pk": _key(ticket), "sk": "@", "x": expires_ms, "ttl": expires_ms // 1000 + 1})

    async def redeem(self, ticket: str) -> bool:
        """Use a ticket up and return whether it was valid.

        One conditional deletion, so of several at the same time one gets True. If the reply to it is lost and it is
        sent again, nobody does.

        Raises:
            StoreError: See `failures`.
        """
        is_valid = Expression(text="attribute_exists(pk) AND x > :now", values={":now": self._clock.now_ms()})
        try:
            await self._table.delete(_key(ticket), condition=is_valid)
        except ConditionFailedError:
            return False
        return True


def _key(ticket: str) -> str:
    # Any text may be presented as a ticket, also one with lone surrogates.
    return TICKET + hashlib.sha256(ticket.encode("utf-8", "surrogatepass")).hexdigest()
