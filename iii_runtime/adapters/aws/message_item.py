"""The item that remembers a message: its failed attempts, its death, its redrive. One conditional write for each.

| attribute | meaning |
|---|---|
| `pk`, `sk` | `M#<receipt>`, `@` |
| `g`, `tok` | newest generation known, and the token of the redrive that claimed it |
| `n`, `nb` | recorded failures of `g`; when the next attempt may start, ms |
| `st` | absent: alive; `dead`, `redriven`, `discarded` |
| `er0`, `er1`, `er2` | the last failed attempts, each in the place of its number modulo 3 |
| `dq`, `dt` | keys of the index `letters` while dead: `<queue>#<shard>` and the order of deaths |
| `e`, `el` | the letter, or the link to its blob |
| `ttl` | 30 days after the last write: longer than any copy of the message lives |
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import get_args

from iii_runtime.adapters.aws.attributes import Item, Value, item_named, reading
from iii_runtime.adapters.aws.blob_store import link_of, link_value
from iii_runtime.adapters.aws.table import ONLY, ConditionFailedError, Expression, Table
from iii_runtime.core.delivery import MessageItem, State
from iii_runtime.core.errors import StoreError
from iii_runtime.core.letter import KEPT_ERRORS, ErrorLog, decode_errors, encode_errors, with_error
from iii_runtime.core.members import integer, one_of, optional, text
from iii_runtime.core.message import BlobLink, ErrorRecord
from iii_runtime.ports.clock import Clock

SHARDS = 4
"""Partitions of the index for each queue, so that many deaths at once find room."""

_PREFIX = "M#"
_NAMES = {"#ttl": "ttl"}
KEPT = timedelta(days=30)
"""How long an item stays after its last write, and so a letter after its death."""

_STATES: Mapping[str, State] = {name: name for name in get_args(State)}
_ERRORS = tuple(f"er{place}" for place in range(KEPT_ERRORS))
_ALIVE = "attribute_not_exists(pk) OR (g = :g AND attribute_not_exists(st))"
_UNCOUNTED = "attribute_not_exists(pk) OR (g = :g AND n < :n AND attribute_not_exists(st))"
_CLAIMABLE = "attribute_not_exists(pk) OR (g < :g AND (attribute_not_exists(st) OR st <> :discarded))"
_UNLISTED = (
    "attribute_exists(pk) AND (attribute_not_exists(dq) OR attribute_not_exists(dt)) "
    "AND (attribute_not_exists(st) OR NOT (st IN (:redriven, :discarded)))"
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A write was refused.

    Attributes:
        item: The item as it is, which says why.
    """

    item: MessageItem | None


class MessageItems:
    """The items of all messages. A write that arrives twice changes nothing the second time."""

    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock

    async def read(self, receipt: str) -> MessageItem | None:
        """Return the item of a message, None if it has never failed.

        Raises:
            StoreError: See `failures`.
        """
        item = await self._table.get(item_key(receipt))
        return None if item is None else item_of(item)

    async def claim(self, receipt: str, generation: int, token: str) -> Refusal | None:
        """Begin a generation for the redrive with this token; return why that was refused, or None."""
        removed = ", ".join(("st", "dq", "dt", "nb", "e", "el", *_ERRORS))
        change = Expression(
            text=f"SET g = :g, n = :none, tok = :tok, #ttl = :ttl REMOVE {removed}",
            names=_NAMES,
            values={":g": generation, ":none": 0, ":tok": token, ":ttl": self._ttl()},
        )
        return await self._write(receipt, change, Expression(text=_CLAIMABLE, values={":discarded": "discarded"}))

    async def record_failure(
        self, receipt: str, generation: int, attempt: int, error: ErrorRecord, not_before_ms: int
    ) -> Refusal | None:
        """Count a failed attempt, at most once; return why that was refused, or None."""
        place, text = _kept(attempt, error)
        change = Expression(
            text=f"SET g = :g, n = :n, nb = :nb, {place} = :er, #ttl = :ttl",
            names=_NAMES,
            values={":g": generation, ":n": attempt, ":nb": not_before_ms, ":er": text, ":ttl": self._ttl()},
        )
        return await self._write(receipt, change, Expression(text=_UNCOUNTED))

    async def record_death(self, receipt: str, death: MessageItem, *, failure: ErrorRecord | None) -> Refusal | None:
        """Write that a message is dead, and where its letter is; return why that was refused, or None.

        Args:
            receipt: The message receipt id.
            death: Generation, failed attempts, letter, queue and place in the order of deaths.
            failure: The error of attempt `death.failed`, if the message dies of one that is not counted yet.
        """
        if failure is None:
            return await self._die(receipt, death, "n = if_not_exists(n, :n)", {}, (), Expression(text=_ALIVE))
        place, text = _kept(death.failed, failure)
        return await self._die(receipt, death, f"n = :n, {place} = :er", {":er": text}, (), Expression(text=_UNCOUNTED))

    async def adopt(self, receipt: str, death: MessageItem, seen: MessageItem | None) -> bool:
        """Write the death of a message that the broker gave up, over the item as it was seen.

        The recorded failures of its generation stay, those of an earlier one go. False if the item has changed.
        """
        is_new = seen is None or seen.generation != death.generation
        sets, values = "n = :n", {}
        if death.token is not None:
            sets, values = "n = :n, tok = :tok", {":tok": death.token}
        refused = await self._die(receipt, death, sets, values, _ERRORS if is_new else (), _unchanged(seen))
        return refused is None

    async def end(self, receipt: str, generation: int, state: State) -> Refusal | None:
        """Take a letter off the list: it is `redriven` or `discarded`. Return why that was refused, or None."""
        change = Expression(
            text="SET st = :st, #ttl = :ttl REMOVE dq, dt", names=_NAMES, values={":st": state, ":ttl": self._ttl()}
        )
        condition = Expression(text="g = :g AND st = :dead", values={":g": generation, ":dead": "dead"})
        return await self._write(receipt, change, condition)

    async def list_damaged(self, receipt: str, queue_name: str, died: int) -> None:
        """List as dead, in a queue, a message whose item cannot be read: nobody would see it otherwise.

        Nothing changes if it is listed already, or its letter was spent. All else in the item stays as it is, so that
        it can be mended.

        Args:
            receipt: The message receipt id.
            queue_name: The queue it died in.
            died: Its place in the order of deaths, Unix microseconds.
        """
        change = Expression(
            text="SET dq = :dq, dt = :dt, #ttl = :ttl",
            names=_NAMES,
            values={":dq": partition_of(queue_name, receipt), ":dt": died, ":ttl": self._ttl()},
        )
        condition = Expression(text=_UNLISTED, values={":redriven": "redriven", ":discarded": "discarded"})
        with suppress(ConditionFailedError), _whatever_was_there():
            await self._table.update(item_key(receipt), ONLY, change, condition=condition)

    async def discard_damaged(self, receipt: str, queue_name: str) -> bool:
        """End for good a listed letter whose item cannot be read; False if the queue does not list it.

        The whole item is replaced: one that is discarded refuses every generation, so which one it was does not matter.
        """
        listed: dict[str, Value] = {f":dq{shard}": name for shard, name in enumerate(partitions_of(queue_name))}
        condition = Expression(text=f"dq IN ({', '.join(listed)})", values=listed)
        ended: Item = {"pk": item_key(receipt), "sk": ONLY, "g": 0, "n": 0, "st": "discarded", "ttl": self._ttl()}
        with suppress(ConditionFailedError), _whatever_was_there():
            await self._table.put(ended, condition=condition)
        item: MessageItem | None = None
        with _whatever_was_there():
            item = await self.read(receipt)
        return item is not None and item.state == "discarded"

    async def _die(
        self,
        receipt: str,
        death: MessageItem,
        sets: str,
        more: Mapping[str, Value],
        removed: tuple[str, ...],
        condition: Expression,
    ) -> Refusal | None:
        is_linked = isinstance(death.letter, BlobLink)
        kept, gone = ("el", "e") if is_linked else ("e", "el")
        values: dict[str, Value] = {
            ":g": death.generation,
            ":n": death.failed,
            ":dead": "dead",
            ":dq": partition_of(death.queue or "", receipt),
            ":dt": death.died,
            ":letter": link_value(death.letter) if isinstance(death.letter, BlobLink) else death.letter,
            ":ttl": self._ttl(),
            **more,
        }
        change = Expression(
            text=f"SET g = :g, st = :dead, dq = :dq, dt = :dt, #ttl = :ttl, {kept} = :letter, {sets} "
            f"REMOVE {', '.join(('nb', gone, *removed))}",
            names=_NAMES,
            values=values,
        )
        return await self._write(receipt, change, condition)

    async def _write(self, receipt: str, change: Expression, condition: Expression) -> Refusal | None:
        try:
            await self._table.update(item_key(receipt), ONLY, change, condition=condition)
        except ConditionFailedError as error:
            return Refusal(None if error.item is None else item_of(error.item))
        return None

    def _ttl(self) -> int:
        return (self._clock.now_ms() + KEPT // timedelta(milliseconds=1)) // 1000


@contextmanager
def _whatever_was_there() -> Iterator[None]:
    """Go on where the answer to a request holds an item that cannot be read."""
    try:
        yield
    except StoreError as error:
        if error.code != "store_corrupt":
            raise


def item_key(receipt: str) -> str:
    """Return the partition key of a message's item."""
    return _PREFIX + receipt


def receipt_of(key: str) -> str:
    """Return whose item has this partition key."""
    return key.removeprefix(_PREFIX)


def partition_of(queue_name: str, receipt: str) -> str:
    """Return under which key of the index `letters` a letter of a queue is listed."""
    return f"{queue_name}#{zlib.crc32(receipt.encode('utf-8')) % SHARDS}"


def partitions_of(queue_name: str) -> list[str]:
    """Return all keys of the index `letters` under which letters of a queue are listed."""
    return [f"{queue_name}#{shard}" for shard in range(SHARDS)]


def item_of(item: Item) -> MessageItem:
    """Return what a stored item says.

    Raises:
        StoreError: `store_corrupt`.
    """
    with reading(item_named(item)):
        partition = optional(item, "dq", str)
        link = link_of(item.get("el"))
        return MessageItem(
            generation=integer(item, "g"),
            token=optional(item, "tok", str),
            failed=integer(item, "n"),
            not_before_ms=optional(item, "nb", int) or 0,
            state=one_of(item, "st", _STATES) if "st" in item else "alive",
            errors=_errors_of(item),
            letter=optional(item, "e", str) if link is None else link,
            queue=None if partition is None else partition.rsplit("#", 1)[0],
            died=optional(item, "dt", int) or 0,
        )


def _kept(attempt: int, error: ErrorRecord) -> tuple[str, str]:
    """Return the attribute a failed attempt is kept in, in place of one that is too old by now, and its text."""
    return _ERRORS[attempt % KEPT_ERRORS], encode_errors(with_error((), attempt, error))


def _errors_of(item: Item) -> ErrorLog:
    kept = [entry for name in _ERRORS if name in item for entry in decode_errors(text(item, name))]
    return tuple(sorted(kept, key=lambda entry: entry[0]))


def _unchanged(seen: MessageItem | None) -> Expression:
    if seen is None:
        return Expression(text="attribute_not_exists(pk)")
    values: dict[str, Value] = {":seen_g": seen.generation, ":seen_n": seen.failed}
    if seen.state == "alive":
        return Expression(text="g = :seen_g AND n = :seen_n AND attribute_not_exists(st)", values=values)
    return Expression(text="g = :seen_g AND n = :seen_n AND st = :seen_st", values={**values, ":seen_st": seen.state})
