"""What a record of the table's stream tells: changes of state values and stream items, and events."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import cast

from iii_runtime.adapters.aws.attributes import Item, Value, from_attributes, reading
from iii_runtime.adapters.aws.document_keys import EVENT, RUN, STATE, STREAM, names_of
from iii_runtime.adapters.aws.kept_value import Follow, read_data, read_value
from iii_runtime.adapters.aws.table import ONLY, place_of
from iii_runtime.core.change import Change, StateChange, StreamChange
from iii_runtime.core.members import integer, optional, text
from iii_runtime.core.payload import Json, to_json


async def changes_of(record: Mapping[str, object], follow: Follow) -> list[Change]:
    """Return the changes of one record, in order: that of the document, then the notice that rode on the write.

    A write of the same value is a change as well. The removal of a value is one whoever removed it, also the table's
    own expiry; that of an event's item is none, nor is any record of another kind of item. The record of a run tells
    what has become of the run, if viewers are to know.

    Args:
        record: A record as a Lambda receives it, or as `GetRecords` returns it: `eventName` and `dynamodb` with `Keys`,
            `NewImage`, `OldImage`, `ApproximateCreationDateTime`.
        follow: Reads the values that are kept beside the table, such as `S3Blobs.follow`.

    Raises:
        StoreError: `store_corrupt`: the record cannot be read; else what `follow` raises.
        PayloadError: It holds what is not JSON as the runtime keeps it, such as an infinite number.
    """
    with reading(f"the record of {_place(record)} in the table's stream"):
        told = cast(Mapping[str, Mapping[str, object]], record["dynamodb"])
        keys = from_attributes(told["Keys"])
        prefix = str(keys["pk"])[:2]
        if prefix not in {STATE, STREAM, EVENT, RUN}:
            return []
        old, new = _image(told, "OldImage"), _image(told, "NewImage")
        if prefix == RUN:
            # Loaded here: an app without workflows has no such records.
            from iii_runtime.adapters.aws.run_records import run_changes  # noqa: PLC0415

            return run_changes(old, new, _at_ms(told, None)) if keys["sk"] == ONLY else []
        changes: list[Change] = []
        if prefix != EVENT and not _is_repetition(old, new):
            changes.append(await _document_change(prefix, old, new, _at_ms(told, new), follow))
        if new is not None and _event_id(new) not in {None, _event_id(old)}:
            changes.append(await _event(new, follow))
        return changes


async def _document_change(prefix: str, old: Item | None, new: Item | None, at_ms: int, follow: Follow) -> Change:
    image = new if new is not None else old
    names = None if image is None else names_of(image)
    if image is None or names is None:
        raise LookupError("neither image names the document")
    if prefix == STATE:
        scope, key = names
        return StateChange(
            at_ms=at_ms,
            event_type="state:deleted" if new is None else "state:created" if old is None else "state:updated",
            scope=scope,
            key=key,
            old_value=await _value(old, follow),
            new_value=await _value(new, follow),
        )
    stream_name, group_id, item_id = names
    return StreamChange(
        at_ms=at_ms,
        kind="delete" if new is None else "create" if old is None else "update",
        stream_name=stream_name,
        group_id=group_id,
        item_id=item_id,
        data=await _value(image, follow),
    )


async def _event(item: Item, follow: Follow) -> Change:
    event = _event_of(item)
    return StreamChange(
        at_ms=integer(item, "at"),
        kind="event",
        stream_name=text(event, "s"),
        group_id=text(event, "g"),
        item_id=optional(event, "i", str),
        data=to_json(await read_data(event, follow), "data"),
        event_type=text(event, "t"),
    )


async def _value(item: Item | None, follow: Follow) -> Json:
    # Checked, for what somebody has written by hand would fail at the first who passes it on, with all its batch.
    return None if item is None else to_json(await read_value(item, follow), "value")


def _is_repetition(old: Item | None, new: Item | None) -> bool:
    """Return whether this is the same write again, whose reply was lost, with another object; the first was told."""
    if old is None or new is None or "vl" not in old or "vl" not in new:
        return False
    return old.get("n") == new.get("n")


def _event_id(item: Item | None) -> Value:
    return None if item is None else _event_of(item).get("id")


def _event_of(item: Item) -> dict[str, Value]:
    return optional(item, "ev", dict) or {}


def _place(record: Mapping[str, object]) -> str:
    told = record.get("dynamodb")
    keys = told.get("Keys") if isinstance(told, Mapping) else None
    return place_of(keys) if isinstance(keys, Mapping) else "an item without keys"


def _image(told: Mapping[str, Mapping[str, object]], name: str) -> Item | None:
    """Return an image, None if the record has none; some emulators send it empty."""
    return from_attributes(told[name]) if told.get(name) else None


def _at_ms(told: Mapping[str, object], new: Item | None) -> int:
    """Return when the change happened; for a removal as exactly as the stream knows."""
    if new is not None:
        return integer(new, "at")
    created = told["ApproximateCreationDateTime"]
    seconds = created.timestamp() if isinstance(created, datetime) else float(cast(float, created))
    return round(seconds * 1000)
