"""Blobs in a dict."""

from __future__ import annotations

from iii_runtime.core.errors import StoreError


class MemoryBlobStore:
    """Immutable texts by key."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    async def put(self, key: str, text: str) -> None:
        """Store `text`."""
        self._texts[key] = text

    async def get(self, key: str) -> str:
        """Return the text.

        Raises:
            StoreError: `blob_missing`.
        """
        if key not in self._texts:
            raise StoreError(f"blob {key} is missing: it was never stored here.", code="blob_missing")
        return self._texts[key]
