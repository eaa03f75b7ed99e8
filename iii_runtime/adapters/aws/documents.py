"""JSON documents as items; what state and streams have in common.

Attributes: `v` the value, or `vl` the link to it; `n` a fresh id for each write; `at` when it was written, Unix
milliseconds; `ev` the notice that rode on the last write; `nk`, `nr` and `nm` see `document_keys`.

Every write changes `n`, so the stream of the table has a record for each, even if the value stays the same. A request
that DynamoDB carried out, whose reply was lost, is sent again with the same `n`: it makes no second record, or one that
`records` knows by it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from iii_runtime.adapters.aws.attributes import Item, Value, reading
from iii_runtime.adapters.aws.blob_store import S3Blobs, link_of
from iii_runtime.adapters.aws.document_keys import DocumentKey, names_of
from iii_runtime.adapters.aws.failures import ATTEMPTS, PATIENCE, ServiceError, pause
from iii_runtime.adapters.aws.kept_value import ValueKeeper
from iii_runtime.adapters.aws.native_update import SetOp, is_native, set_expressions, set_ops
from iii_runtime.adapters.aws.table import ConditionFailedError, Expression, Table
from iii_runtime.core.errors import StoreError
from iii_runtime.core.payload import Json
from iii_runtime.core.update_ops import apply_ops
from iii_runtime.ports.clock import Clock, IdSource
from iii_runtime.ports.state_store import Notice, Written

_log = logging.getLogger(__name__)

UPDATE_ATTEMPTS = 20
"""How often an update reads the document anew because somebody else wrote it in between."""


class Documents:
    """The documents of a table."""

    def __init__(
        self, table: Table, blobs: S3Blobs, clock: Clock, ids: IdSource, *, max_value_bytes: int | None = None
    ) -> None:
        """See `ValueKeeper` for `max_value_bytes`."""
        self._table = table
        self._values = ValueKeeper(blobs, ids, max_value_bytes=max_value_bytes)
        self._clock = clock
        self._ids = ids

    async def get(self, key: DocumentKey) -> Json:
        """Return the value, None if there is none."""
        return await self._values.load(await self._table.get(key.pk, key.sk))

    async def list_under(self, pk: str) -> list[Json]:
        """Return the values of a partition, ordered by the last of their names."""
        condition = Expression(text="pk = :pk", values={":pk": pk})
        items = [item async for item in self._table.query(condition)]
        items.sort(key=lambda item: names_of(item) or ())  # a name that was hashed is not where it belongs
        return [await self._values.load(item) for item in items]

    async def set(self, key: DocumentKey, value: Json, notice: Notice | None = None) -> Written:
        """Replace the value."""
        stamp = await self._stamp(notice)
        old = await self._replace(key, value, stamp)
        if old is not None and old.get("n") == stamp["n"]:
            # The reply to this very write was lost. What was there before nobody knows; its object stays in the bucket.
            written = Written(old_value=value, new_value=value, existed=True)
        else:
            written = Written(old_value=await self._values.load(old), new_value=value, existed=old is not None)
        await self._let_go(old)
        return written

    async def _replace(self, key: DocumentKey, value: Json, stamp: Item) -> Item | None:
        """Write a value over what is there, and return that.

        Each repetition of a write that links to an object has an object of its own: if the reply to the first one was
        lost, somebody may have replaced it since, and have let its object expire.
        """
        attempt, ends = 0, self._clock.now() + PATIENCE
        while True:
            attempt += 1
            item = self._item(key, await self._values.keep(value), stamp)
            if "vl" not in item:
                return await self._put(item)
            try:
                return await self._put(item, attempts=1)
            except ServiceError as error:
                if attempt >= ATTEMPTS or self._clock.now() >= ends or not error.failure.is_transient:
                    raise
            await pause(self._clock, attempt)

    async def delete(self, key: DocumentKey) -> Written:
        """Remove the value."""
        old = await self._table.delete(key.pk, key.sk)
        written = Written(old_value=await self._values.load(old), new_value=None, existed=old is not None)
        await self._let_go(old)
        return written

    async def update(self, key: DocumentKey, ops: Sequence[Json], notice: Notice | None = None) -> Written:
        """Apply update operations. If none of them applies, nothing is written."""
        sets = set_ops(ops) or []
        if sets and not sets[0].path:
            outcome = apply_ops(None, ops)
            if not outcome.errors:
                return await self.set(key, outcome.value, notice)
        stamp = await self._stamp(notice)
        if is_native(sets) and not self._values.bounds_inline_values:
            return await self._set_members(key, ops, sets, stamp)
        return await self._write_over(key, await self._table.get(key.pk, key.sk), ops, stamp)

    async def _set_members(self, key: DocumentKey, ops: Sequence[Json], sets: Sequence[SetOp], stamp: Item) -> Written:
        """Set members without reading the document, if it is one in which DynamoDB can.

        Where the document, or an object on a path, is missing, a second request makes it. One alone cannot: the paths
        of an update expression must not overlap, so it either creates an object or sets a member of one, and which of
        both is needed is not known before. The refusal has the item with it, so nothing is read in between.
        """
        change, condition = set_expressions(sets)
        try:
            old = await self._table.update(key.pk, key.sk, _stamped(change, stamp), condition=condition)
        except ConditionFailedError as refused:
            return await self._write_over(key, refused.item, ops, stamp)
        except ServiceError as error:
            if error.failure.aws_code != "ValidationException":  # it would be too large, or the paths too long
                raise
            return await self._write_over(key, await self._table.get(key.pk, key.sk), ops, stamp)
        old_value = await self._values.load(old)
        return Written(old_value=old_value, new_value=apply_ops(old_value, ops).value, existed=True)

    async def _write_over(self, key: DocumentKey, found: Item | None, ops: Sequence[Json], stamp: Item) -> Written:
        """Apply the operations to the document as it was found, and write it if nobody else has."""
        for attempt in range(1, UPDATE_ATTEMPTS + 1):
            old_value = await self._values.load(found)
            outcome = apply_ops(old_value, ops)
            is_void = len(outcome.errors) == len(ops)
            written = Written(
                old_value=old_value,
                new_value=old_value if is_void else outcome.value,
                existed=found is not None,
                errors=outcome.errors,
            )
            if is_void:
                return written
            kept = await self._values.keep(outcome.value)
            try:
                await self._put(self._item(key, kept, stamp), condition=_unchanged(found))
            except ConditionFailedError as refused:
                if refused.item is None or refused.item.get("n") != stamp["n"]:
                    await self._let_go(kept)
                    await pause(self._clock, attempt)
                    found = refused.item
                    continue
            await self._let_go(found)
            return written
        raise StoreError(
            f"table {self._table.name}: a document was written by others {UPDATE_ATTEMPTS} times in a row while it "
            "was updated. Try again; spread the writes over more keys if it happens often.",
            code="store_conflict",
        )

    async def _put(self, item: Item, condition: Expression | None = None, *, attempts: int = ATTEMPTS) -> Item | None:
        """Write an item. If it was refused for certain, the object it links to expires."""
        try:
            return await self._table.put(item, condition=condition, attempts=attempts)
        except ServiceError as error:
            if not error.may_be_done:
                await self._let_go(item)
            elif "vl" in item:
                _log.warning("an object stays in the bucket: whether it is the value is not known: %s", error.message)
            raise

    async def _stamp(self, notice: Notice | None) -> Item:
        """Return the attributes that tell of one write."""
        stamp: Item = {"n": self._ids.new_id(), "at": self._clock.now_ms()}
        return stamp if notice is None else stamp | {"ev": await self._values.keep_notice(notice)}

    def _item(self, key: DocumentKey, kept: Item, stamp: Item) -> Item:
        return {"pk": key.pk, "sk": key.sk, **key.names, **kept, **stamp}

    async def _let_go(self, item: Mapping[str, Value] | None) -> None:
        """Let the object expire that an item links to which was replaced, or never written."""
        try:
            with reading("what an item links to"):
                link = None if item is None else link_of(item.get("vl"))
            if link is not None:
                await self._values.blobs.expire(link.key)
        except StoreError as error:  # the write is done or refused, and stays so; an object costs its storage
            _log.warning("an object that is not linked any more stays in the bucket: %s", error.message)


def _stamped(change: Expression, stamp: Item) -> Expression:
    """Return `change` with the attributes of the write; a notice of an earlier write goes."""
    sets = "".join(f", #{name} = :{name}" for name in stamp)
    return Expression(
        text=change.text + sets + ("" if "ev" in stamp else " REMOVE #ev"),
        names={**change.names, "#ev": "ev", **{f"#{name}": name for name in stamp}},
        values={**change.values, **{f":{name}": value for name, value in stamp.items()}},
    )


def _unchanged(found: Item | None) -> Expression:
    if found is None:
        return Expression(text="attribute_not_exists(pk)")
    if "n" not in found:
        return Expression(text="attribute_exists(pk) AND attribute_not_exists(#n)", names={"#n": "n"})
    return Expression(text="#n = :n", names={"#n": "n"}, values={":n": found["n"]})
