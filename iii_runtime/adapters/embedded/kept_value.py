"""A JSON value in a row, or beside it if it is large."""

from __future__ import annotations

from typing import NamedTuple

from iii_runtime.adapters.embedded.blob_store import FileBlobStore
from iii_runtime.core.message import INLINE_LIMIT
from iii_runtime.core.payload import Json, PayloadTooLargeError, decode_stored, encode_json
from iii_runtime.ports.clock import IdSource


class KeptValue(NamedTuple):
    """The two columns of a value: its JSON text, or the key of the blob that holds it; neither if there is none."""

    text: str | None
    blob: str | None


NOTHING = KeptValue(None, None)


class ValueKeeper:
    """Decides where a value is kept."""

    def __init__(self, blobs: FileBlobStore, ids: IdSource, *, max_value_bytes: int | None = None) -> None:
        """Refuse values of more than `max_value_bytes` as JSON text; None leaves only the limit of every payload."""
        self._blobs = blobs
        self._ids = ids
        self._max_value_bytes = max_value_bytes

    async def keep(self, value: Json) -> KeptValue:
        """Return the columns of `value`; a large one is stored as a blob before.

        Raises:
            PayloadTooLargeError: `VALUE_TOO_LARGE`.
            PayloadError: Not JSON.
        """
        text = self._encode(value)
        if len(text) <= INLINE_LIMIT:
            return KeptValue(text, None)
        key = self._ids.new_id()
        await self._blobs.put(key, text)
        return KeptValue(None, key)

    def keep_now(self, value: Json) -> KeptValue:
        """Do what `keep` does, on a thread that may block."""
        text = self._encode(value)
        if len(text) <= INLINE_LIMIT:
            return KeptValue(text, None)
        key = self._ids.new_id()
        self._blobs.write(key, text)
        return KeptValue(None, key)

    def load(self, kept: KeptValue) -> Json:
        """Return the value, None if there is none; on a thread that may block."""
        text = kept.text if kept.blob is None else self._blobs.load(kept.blob)
        return None if text is None else decode_stored(text)

    def _encode(self, value: Json) -> str:
        text = encode_json(value, "value")
        if self._max_value_bytes is not None and len(text) > self._max_value_bytes:
            raise PayloadTooLargeError(
                f"the value is {len(text):,} bytes as JSON; the limit is {self._max_value_bytes:,}. "
                "Store the data elsewhere and keep a reference.",
                code="VALUE_TOO_LARGE",
            )
        return text
