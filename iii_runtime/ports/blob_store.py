"""Blobs: payloads too large for a message."""

from __future__ import annotations

from typing import Protocol


class BlobStore(Protocol):
    """Immutable texts by key. A blob is stored before the message that links to it."""

    async def put(self, key: str, text: str) -> None:
        """Store `text` durably under a fresh key."""
        ...

    async def get(self, key: str) -> str:
        """Return the text.

        Raises:
            StoreError: `blob_missing`: there is no such blob.
        """
        ...
