"""`dedupe_id`: which receipt an id of a queue and function stands for, five minutes long. Two writes for each send."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256

from iii_runtime.adapters.aws.attributes import Value, reading
from iii_runtime.adapters.aws.table import ONLY, ConditionFailedError, Expression, Table
from iii_runtime.core.members import optional
from iii_runtime.core.message import decode_envelope, encode_envelope
from iii_runtime.core.payload import encode_json
from iii_runtime.core.queue import DEDUPE_WINDOW
from iii_runtime.ports.clock import Clock
from iii_runtime.ports.message_queue import OutgoingMessage

_WINDOW_MS = DEDUPE_WINDOW // timedelta(milliseconds=1)
_KEPT_S = 3600


@dataclass(frozen=True, slots=True)
class Reservation:
    """What an id stands for.

    Attributes:
        key: Of its item.
        receipt: The receipt of the first message with the id.
        is_sent: Whether that message was sent for certain. If not, its sender may have died: send under its receipt.
    """

    key: str
    receipt: str
    is_sent: bool


class DedupeIds:
    """The ids in use. First reserved, then sent, then confirmed: one write would lose a message or its receipt."""

    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock

    async def reserve(self, queue_name: str, message: OutgoingMessage) -> Reservation:
        """Let the id of `message` stand for its receipt, unless it already stands for another one.

        Raises:
            StoreError: See `failures`.
        """
        name = encode_json([queue_name, message.function_id, message.dedupe_id])
        key = f"DD#{sha256(name.encode('ascii')).hexdigest()}"
        now_ms = self._clock.now_ms()
        ends_ms = now_ms + _WINDOW_MS
        item: dict[str, Value] = {
            "pk": key,
            "sk": ONLY,
            "r": message.receipt,
            "exp": ends_ms,
            "ttl": ends_ms // 1000 + _KEPT_S,
        }
        condition = Expression(text="attribute_not_exists(pk) OR exp <= :now", values={":now": now_ms})
        try:
            await self._table.put(item, condition=condition)
        except ConditionFailedError as error:
            first = error.item or {}
            with reading(f"the item at {key}"):
                receipt = optional(first, "r", str) or message.receipt
            return Reservation(key, receipt, "ok" in first)
        return Reservation(key, message.receipt, False)

    async def confirm(self, reservation: Reservation) -> None:
        """Note that the message was sent. Later ones with the id are then not sent at all.

        Raises:
            StoreError: See `failures`. The message was sent all the same.
        """
        change = Expression(text="SET ok = :now", values={":now": self._clock.now_ms()})
        condition = Expression(text="r = :receipt", values={":receipt": reservation.receipt})
        try:
            await self._table.update(reservation.key, ONLY, change, condition=condition)
        except ConditionFailedError:
            return  # the window has ended meanwhile, and the id stands for another message


def body_under(message: OutgoingMessage, receipt: str) -> str:
    """Return the body of a message as one with another receipt; its payload stays."""
    if receipt == message.receipt:
        return message.body
    return encode_envelope(replace(decode_envelope(message.body), receipt=receipt))
