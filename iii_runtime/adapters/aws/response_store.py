"""Stored http responses, one item for each `Idempotency-Key`; a large body is an object of the bucket.

Attributes: `fp` the fingerprint; `bg` when its first request began; `ld` until when that one is taken to run; `o` the
reservation; then `st` the status, `hd` the headers as JSON, `b` the body or `bl` the link to it. Times are Unix
milliseconds, `ttl` is in seconds.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import cast

from iii_runtime.adapters.aws.attributes import Item, Value, item_named, reading
from iii_runtime.adapters.aws.blob_store import S3Blobs, link_of, link_value
from iii_runtime.adapters.aws.table import ONLY, ConditionFailedError, Expression, Table
from iii_runtime.core.members import integer, optional, text
from iii_runtime.core.payload import decode_stored, encode_json
from iii_runtime.ports.clock import Clock, IdSource
from iii_runtime.ports.response_store import (
    RESPONSE_RETENTION,
    Begun,
    InProgress,
    Mismatch,
    Reservation,
    StoredResponse,
)

REQUEST = "I#"
BODIES = "responses/"
"""Prefix of the objects with large bodies."""

INLINE_BODY_BYTES = 300 * 1024
"""Largest body kept in the item."""

_OPEN = "attribute_not_exists(pk) OR bg <= :oldest OR (attribute_not_exists(st) AND fp = :fp AND ld <= :now)"


class DynamoResponseStore:
    """Responses by idempotency key.

    There is no host whose death could be known, so a reservation counts as one of a request that died when `lease` has
    passed, whoever holds it; until then every request with its key is told that the first one runs.
    """

    def __init__(self, table: Table, blobs: S3Blobs, clock: Clock, ids: IdSource, *, lease: timedelta) -> None:
        """Let a request run for `lease`: longer than its Lambda can."""
        self._table = table
        self._blobs = blobs
        self._clock = clock
        self._ids = ids
        self._lease = lease

    async def begin(self, key: str, fingerprint: str, holder: str) -> Reservation:
        """Reserve `key`, or say what became of the first request with it. `holder` makes no difference."""
        now = self._clock.now_ms()
        reservation = self._ids.new_id()
        item: Item = {
            "pk": _partition(key),
            "sk": ONLY,
            "fp": fingerprint,
            "bg": now,
            "ld": now + _ms(self._lease),
            "o": reservation,
            "ttl": (now + _ms(RESPONSE_RETENTION)) // 1000 + 1,
        }
        values: dict[str, Value] = {":oldest": now - _ms(RESPONSE_RETENTION), ":now": now, ":fp": fingerprint}
        try:
            await self._table.put(item, condition=Expression(text=_OPEN, values=values))
        except ConditionFailedError as refused:
            return await self._standing(refused.item or {}, fingerprint, reservation)
        return Begun()

    async def finish(self, key: str, response: StoredResponse) -> None:
        """Store the response of a reserved key. The first one stays, if a request taken for dead ends after all."""
        kept = {":st": response.status, ":hd": encode_json(response.headers, "headers"), **await self._keep(response)}
        change = "SET " + ", ".join(f"{name.removeprefix(':')} = {name}" for name in kept)
        try:
            await self._table.update(
                _partition(key),
                ONLY,
                Expression(text=change, values=kept),
                condition=Expression(text="attribute_exists(pk) AND attribute_not_exists(st)"),
            )
        except ConditionFailedError:
            return

    async def _keep(self, response: StoredResponse) -> dict[str, Value]:
        if len(response.body) <= INLINE_BODY_BYTES:
            return {":b": response.body}
        return {":bl": link_value(await self._blobs.put(BODIES + self._ids.new_id(), response.body))}

    async def _standing(self, item: Item, fingerprint: str, reservation: str) -> Reservation:
        """Return what became of a reservation that was refused."""
        if item.get("o") == reservation:
            return Begun()  # this very request has arrived before, and its reply was lost
        if item.get("fp") != fingerprint:
            return Mismatch()
        if "st" not in item:
            return InProgress()
        with reading(item_named(item)):
            link = link_of(item.get("bl"))
            body = optional(item, "b", bytes) or b"" if link is None else await self._blobs.follow(link)
            pairs = cast("list[tuple[str, str]]", decode_stored(text(item, "hd")))
            headers = tuple((_header(name), _header(value)) for name, value in pairs)
            return StoredResponse(status=integer(item, "st"), headers=headers, body=body)


def _partition(key: str) -> str:
    return REQUEST + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _header(part: object) -> str:
    if not isinstance(part, str):
        raise TypeError("a stored header is a pair of texts")
    return part


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
