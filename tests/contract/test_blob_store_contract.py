"""What every blob store does."""

from __future__ import annotations

import pytest

from iii_runtime.core.errors import StoreError
from iii_runtime.engine.stores import Stores


@pytest.mark.parametrize("text", ["", "x" * (2 * 1024 * 1024), "nul \0, é, 漢字, \U0001f600, \r\n\n"], ids=range(3))
async def test_a_blob_comes_back_as_it_was(stores: Stores, text: str) -> None:
    await stores.blobs.put("key", text)
    assert await stores.blobs.get("key") == text


@pytest.mark.parametrize("key", ["../../escape", "a/b", "漢" * 200, "nul \0", "."])
async def test_any_text_can_be_a_key(stores: Stores, key: str) -> None:
    await stores.blobs.put(key, "one")
    await stores.blobs.put(key + "2", "two")
    assert [await stores.blobs.get(key), await stores.blobs.get(key + "2")] == ["one", "two"]


async def test_a_missing_blob_is_a_store_error(stores: Stores) -> None:
    with pytest.raises(StoreError, match="blob nothing is missing") as caught:
        await stores.blobs.get("nothing")
    assert caught.value.code == "blob_missing"
