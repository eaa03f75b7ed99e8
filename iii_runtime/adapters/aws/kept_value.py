"""The value of a document in its item, or in an object of the bucket if it is large."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from iii_runtime.adapters.aws.attributes import Item, Value, item_named, reading, stored_bytes
from iii_runtime.adapters.aws.blob_store import S3Blobs, link_of, link_value
from iii_runtime.adapters.aws.document_codec import decode_document, encode_document
from iii_runtime.core.message import BlobLink
from iii_runtime.core.payload import Json, PayloadTooLargeError, decode_stored, render_json, to_json
from iii_runtime.ports.clock import IdSource
from iii_runtime.ports.state_store import Notice

Follow: TypeAlias = Callable[[BlobLink], Awaitable[bytes]]
"""Reads what a link leads to, as `S3Blobs.follow` does."""

VALUES = "state/"
"""Prefix of the objects that documents link to."""

INLINE_BYTES = 350 * 1024
"""Largest value kept in an item of 400 KB, as DynamoDB counts it; the rest is for keys and a notice."""

RIDING_BYTES = 16 * 1024
"""Largest data of a notice kept in the item of the document whose write it rides on."""

LONGEST_INLINE_TEXT = 6 * 400 * 1024
"""No value in an item is longer than this as JSON text, in which one byte takes up to six."""


class ValueKeeper:
    """Decides where a value is kept."""

    def __init__(self, blobs: S3Blobs, ids: IdSource, *, max_value_bytes: int | None = None) -> None:
        """Refuse values of more than `max_value_bytes` as JSON text; None leaves only the limit of every payload."""
        self.blobs = blobs
        self._ids = ids
        self._max_value_bytes = max_value_bytes

    @property
    def bounds_inline_values(self) -> bool:
        """Whether a value that fits in an item can be too large all the same, so that its whole must be known."""
        return self._max_value_bytes is not None and self._max_value_bytes < LONGEST_INLINE_TEXT

    async def keep(self, value: Json) -> dict[str, Value]:
        """Return the attributes of `value`; a large one is stored as an object before.

        Raises:
            PayloadTooLargeError: `VALUE_TOO_LARGE`.
            PayloadError: Not JSON.
            StoreError: See `failures`.
        """
        checked = to_json(value, "value")
        stored = encode_document(checked)
        is_large = stored_bytes(stored) > INLINE_BYTES
        text = render_json(checked, "value") if is_large or self.bounds_inline_values else ""
        if self._max_value_bytes is not None and len(text) > self._max_value_bytes:
            raise PayloadTooLargeError(
                f"the value is {len(text):,} bytes as JSON; the limit is {self._max_value_bytes:,}. "
                "Store the data elsewhere and keep a reference.",
                code="VALUE_TOO_LARGE",
            )
        if not is_large:
            return {"v": stored}
        return {"vl": link_value(await self.blobs.put(VALUES + self._ids.new_id(), text.encode("ascii")))}

    async def keep_notice(self, notice: Notice, limit: int = RIDING_BYTES) -> dict[str, Value]:
        """Return the attribute value of an event; data above `limit` bytes is stored as an object before.

        Raises:
            PayloadError: Its data is not JSON.
            StoreError: See `failures`.
        """
        body = render_json(to_json(notice.data, "data"), "data")
        event: dict[str, Value] = {
            "id": self._ids.new_id(),
            "s": notice.stream_name,
            "g": notice.group_id,
            "i": notice.item_id,
            "t": notice.type,
        }
        if len(body) <= limit:
            return event | {"d": body}
        link = await self.blobs.put(VALUES + self._ids.new_id(), body.encode("ascii"), expires=True)
        return event | {"dl": link_value(link)}

    async def load(self, item: Item | None) -> Json:
        """Return the value of a document's item, None if there is none.

        Raises:
            StoreError: `store_corrupt`: the item is no document; else see `S3Blobs.follow`.
        """
        if item is None:
            return None
        with reading(item_named(item)):
            return await read_value(item, self.blobs.follow)


async def read_value(item: Mapping[str, Value], follow: Follow) -> Json:
    """Return the value of a document's item.

    Raises:
        LookupError, TypeError, ValueError: The item is no document.
    """
    link = link_of(item.get("vl"))
    return decode_document(item["v"]) if link is None else decode_stored((await follow(link)).decode("ascii"))


async def read_data(event: Mapping[str, Value], follow: Follow) -> Json:
    """Return the data of an event.

    Raises:
        LookupError, TypeError, ValueError: It is no event.
    """
    link = link_of(event.get("dl"))
    body = event["d"] if link is None else (await follow(link)).decode("ascii")
    if not isinstance(body, str):
        raise TypeError("the data of an event is a text")
    return decode_stored(body)
