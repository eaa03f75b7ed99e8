"""Texts that lie in a blob, and the links that lead to them."""

from __future__ import annotations

import hashlib

from iii_runtime.core.errors import StoreError
from iii_runtime.core.message import BlobLink
from iii_runtime.ports.blob_store import BlobStore


async def store_text(blobs: BlobStore, key: str, text: str) -> BlobLink:
    """Store `text` under a fresh key and return its link.

    Raises:
        StoreError: See `failures`.
    """
    await blobs.put(key, text)
    body = text.encode("utf-8")
    return BlobLink(key=key, size=len(body), sha256=hashlib.sha256(body).hexdigest())


async def linked_text(blobs: BlobStore, link: BlobLink) -> str:
    """Return what a link leads to.

    Raises:
        StoreError: `blob_missing`; `store_corrupt`: it is another text than was linked; else see `failures`.
    """
    text = await blobs.get(link.key)
    if hashlib.sha256(text.encode("utf-8")).hexdigest() != link.sha256:
        raise StoreError(
            f"blob {link.key} is not what was stored: {link.size:,} bytes were. Put a copy of the object back if there "
            "is one.",
            code="store_corrupt",
        )
    return text
