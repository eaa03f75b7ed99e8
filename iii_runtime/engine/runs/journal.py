"""Facts and payloads of runs between values and their stored form: what is large is stored first, and linked."""

from __future__ import annotations

from iii_runtime.core.payload import Json, decode_stored
from iii_runtime.core.runs.fact_codec import (
    decode_fact,
    decode_link,
    encode_link,
    fact_link,
    link_to,
    read_linked,
    split_value,
)
from iii_runtime.core.runs.facts import Fact
from iii_runtime.core.runs.record import INLINE_BYTES, RunRecord
from iii_runtime.ports.run_store import RunStore


class Journal:
    """Reads and writes what belongs to runs."""

    def __init__(self, runs: RunStore) -> None:
        self._runs = runs

    async def facts(self, record: RunRecord) -> list[Fact]:
        """Return all facts of a run, in order, with their values."""
        if not record.sequence:
            return []
        return [await self._fact(record, text) for text in await self._runs.journal(record)]

    async def text_of(self, record: RunRecord, fact: Fact) -> str:
        """Return the text of a fact, its value stored apart if it is large."""
        text, link, value = split_value(fact, INLINE_BYTES, f"{record.run_id}.")
        if link is not None and value is not None:
            await self._runs.put_payload(record.workflow_id, link.key, value)
        return text

    async def kept(self, workflow_id: str, prefix: str, text: str) -> str:
        """Return the JSON text of a payload, or a link to where it was just stored if it is large."""
        if len(text) <= INLINE_BYTES:
            return text
        link = link_to(text, f"{prefix}.")
        await self._runs.put_payload(workflow_id, link.key, text)
        return encode_link(link)

    async def value(self, record: RunRecord, payload: str) -> Json:
        """Return what a payload, or the link in its place, stands for."""
        link = decode_link(payload)
        if link is None:
            return decode_stored(payload)
        return read_linked(link, await self._runs.get_payload(record.workflow_id, link.key))

    async def _fact(self, record: RunRecord, text: str) -> Fact:
        link = fact_link(text)
        return decode_fact(text, None if link is None else await self._runs.get_payload(record.workflow_id, link.key))
