"""A letter whose payload is gone from the store says so in the same words on every host, and hides no other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from iii_runtime import InvocationError, TriggerAction, Worker
from iii_runtime.core.errors import StoreError
from iii_runtime.engine.stores import Stores
from iii_runtime.testing import Harness

LARGE = "x" * 300 * 1024


class Emptied:
    """The blobs of a store, which are gone as soon as `is_empty`."""

    is_empty = False

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.put = inner.put

    async def get(self, key: str) -> str:
        if Emptied.is_empty:
            raise StoreError(f"blob {key} is missing.", code="blob_missing")
        return str(await self._inner.get(key))


async def test_a_letter_whose_payload_is_gone_is_listed_and_to_show_it_is_an_error_that_says_what_to_do(
    worker: Worker, host: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Any) -> None:
        raise ValueError("no")

    def wrap(stores: Stores) -> Stores:
        return dataclasses.replace(stores, blobs=Emptied(stores.blobs))

    worker.register_function("mail::send", fail)
    async with host(wrap=wrap) as harness:
        receipts = []
        for payload in (LARGE, "small"):
            request = {"function_id": "mail::send", "payload": payload, "action": TriggerAction.Enqueue(queue="mail")}
            receipts.append((await harness.trigger(request))["messageReceiptId"])
            await harness.settle()
        monkeypatch.setattr(Emptied, "is_empty", True)
        listing = {"function_id": "engine::queue::dlq_messages", "payload": {"queue": "mail"}}
        letters = await harness.trigger(listing)
        assert [(letter["id"], letter["payload_omitted"]) for letter in letters] == [
            (receipts[0], True),
            (receipts[1], False),
        ]
        with pytest.raises(InvocationError) as caught:
            await harness.trigger({"function_id": "engine::queue::dlq_message", "payload": {"message_id": receipts[0]}})
        assert caught.value.code == "dlq_failed"
        assert caught.value.message == (
            f"dead letter {receipts[0]} is not complete: blob {receipts[0]} is missing. If that is not possible, "
            f"discard the letter: iii-runtime dlq discard mail {receipts[0]} (blob_missing)"
        )
