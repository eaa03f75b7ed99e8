"""Values of runs that are too large for the record: items of their own, objects of the bucket above that."""

from __future__ import annotations

import hashlib

from iii_runtime.adapters.aws.attributes import Item, item_named, reading
from iii_runtime.adapters.aws.blob_store import S3Blobs, link_of, link_value
from iii_runtime.adapters.aws.run_item import partition, payload_key
from iii_runtime.adapters.aws.table import Table
from iii_runtime.core.errors import StoreError
from iii_runtime.core.members import text

OBJECTS = "runs/"
"""Prefix of the objects. They are removed with the runs they belong to, not by their age: a run may last a year."""

ITEM_BYTES = 32 * 1024
"""Largest payload that is an item: 32 write units, about as much as an object costs."""


class RunPayloads:
    """Payloads by workflow id and name. The same name always has the same text, so storing it again does no harm."""

    def __init__(self, table: Table, blobs: S3Blobs) -> None:
        self._table = table
        self._blobs = blobs

    async def put(self, workflow_id: str, name: str, content: str) -> None:
        """Store a payload.

        Raises:
            StoreError: See `failures`.
        """
        item: Item = {"pk": partition(workflow_id), "sk": payload_key(name)}
        body = content.encode("utf-8")
        if len(body) <= ITEM_BYTES:
            await self._table.put({**item, "t": content})
            return
        link = await self._blobs.put(object_key(workflow_id, name), body)
        await self._table.put({**item, "l": link_value(link)})

    async def get(self, workflow_id: str, name: str) -> str:
        """Return a payload.

        Raises:
            StoreError: `blob_missing`: there is none; else see `failures`.
        """
        item = await self._table.get(partition(workflow_id), payload_key(name))
        if item is None:
            raise StoreError(f"payload {name} of workflow id '{workflow_id}' is missing.", code="blob_missing")
        with reading(item_named(item)):
            link = link_of(item.get("l"))
            return text(item, "t") if link is None else (await self._blobs.follow(link)).decode("utf-8")


def object_key(workflow_id: str, name: str) -> str:
    """Return where the object of a payload is."""
    return f"{objects_of(workflow_id)}{_digest(name)}"


def objects_of(workflow_id: str) -> str:
    """Return what the keys of a workflow id's objects begin with."""
    return f"{OBJECTS}{_digest(workflow_id)}/"


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8")).hexdigest()[:40]
