"""The record of a run as an item of the table, and back.

All items of a workflow id are under `pk` = `W#<workflow id>`:

| `sk` | item |
|---|---|
| `@` | the record of the current run |
| `A#<run id>` | the final record of an earlier run |
| `J#<run id>#<n>` | chunk `n` of a journal: `f` its facts, `ep` the epoch that wrote it |
| `P#<name>` | a payload: `t` its text |

Names of attributes are short, because a record that stays below 1,024 bytes costs one write unit:

| attribute | of `RunRecord` |
|---|---|
| `st` | `status`; `run` while it is open |
| `rid`, `fr`, `ty`, `ver`, `inp`, `cr` | `run_id`, `first_run_id`, `workflow`, `version`, `input`, `created_ms` |
| `ep`, `own`, `lu`, `ac` | `epoch`, `owner`, `lease_until_ms`, `acquisitions` |
| `wa`, `ws` | `wake_at_ms` and its shard: keys of the index `wake`, both present or both absent |
| `ib` | `inbox`: maps of `i` id, `k` kind, `a` at_ms, `n` name, `d` payload |
| `jt`, `js`, `jc` | `tail`, `sequence`, `chunks` |
| `cx`, `dl`, `sa`, `tp` | `cancel_requested_ms`, `deadline_ms`, `start_at_ms`, `traceparent` |
| `why`, `res`, `cl`, `du` | `parked`, `outcome`, `closed_ms`, `duties` |
| `ttl` | when it may go, seconds; set at the end of a run |
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from datetime import timedelta
from typing import cast, get_args

from iii_runtime.adapters.aws.attributes import Item, Value, item_named, reading
from iii_runtime.adapters.aws.document_keys import RUN, fitted_sort_key
from iii_runtime.adapters.aws.table import ONLY
from iii_runtime.core.members import integer, one_of, optional, text
from iii_runtime.core.runs.record import InboxItem, ItemKind, RunRecord, Status
from iii_runtime.ports.run_store import CLOSED_RUN_RETENTION

WAKE_SHARDS = 4
"""Over how many partitions the index `wake` is spread."""

OPEN = "run"
"""Status of a run that has not ended."""

EARLIER, CHUNK, PAYLOAD = "A#", "J#", "P#"

_STATUSES: Mapping[str, Status] = {name: name for name in get_args(Status)}
_KINDS: Mapping[str, ItemKind] = {name: name for name in get_args(ItemKind)}
_OPTIONAL_NUMBERS = {
    "lu": "lease_until_ms",
    "wa": "wake_at_ms",
    "cx": "cancel_requested_ms",
    "dl": "deadline_ms",
    "sa": "start_at_ms",
    "cl": "closed_ms",
}
_OPTIONAL_TEXTS = {"own": "owner", "tp": "traceparent", "why": "parked", "res": "outcome"}


def partition(workflow_id: str) -> str:
    """Return the partition key of a workflow id, which has 256 characters at most and so always fits."""
    return RUN + workflow_id


def workflow_id_of(pk: object) -> str:
    """Return the workflow id of a partition key.

    Raises:
        ValueError: It is none of a run.
    """
    if not isinstance(pk, str) or not pk.startswith(RUN):
        raise ValueError("no partition key of a run")
    return pk.removeprefix(RUN)


def earlier_key(run_id: str) -> str:
    """Return the sort key of an earlier run."""
    return EARLIER + fitted_sort_key(run_id)


def chunk_key(run_id: str, number: int) -> str:
    """Return the sort key of a chunk; the chunks of a run are in order."""
    return f"{chunks_of(run_id)}{number:08}"


def chunks_of(run_id: str) -> str:
    """Return what the sort keys of a run's chunks begin with."""
    return f"{CHUNK}{fitted_sort_key(run_id)}#"


def payload_key(name: str) -> str:
    """Return the sort key of a payload."""
    return PAYLOAD + fitted_sort_key(name)


def wake_shard(workflow_id: str) -> int:
    """Return the partition of the index `wake` that has the wakes of a workflow id."""
    return zlib.crc32(workflow_id.encode("utf-8")) % WAKE_SHARDS


def expiry(closed_ms: int) -> int:
    """Return when a closed run may go, Unix seconds."""
    return (closed_ms + CLOSED_RUN_RETENTION // timedelta(milliseconds=1)) // 1000 + 1


def inbox_value(item: InboxItem) -> Value:
    """Return an item of an inbox as it is stored."""
    return {"i": item.id, "k": item.kind, "a": item.at_ms, "n": item.name, "d": item.payload}


def item_of(record: RunRecord, sk: str = ONLY) -> Item:
    """Return the item of a record. One of an earlier run is in no index."""
    item: Item = {
        "pk": partition(record.workflow_id),
        "sk": sk,
        "st": OPEN if record.is_open else record.status,
        "rid": record.run_id,
        "ty": record.workflow,
        "inp": record.input,
        "cr": record.created_ms,
        "ep": record.epoch,
        "ac": record.acquisitions,
        "ib": [inbox_value(each) for each in record.inbox],
        "jt": [*record.tail],
        "js": record.sequence,
        "jc": record.chunks,
    }
    if record.first_run_id != record.run_id:
        item["fr"] = record.first_run_id
    if record.version:
        item["ver"] = record.version
    for name, member in {**_OPTIONAL_NUMBERS, **_OPTIONAL_TEXTS}.items():
        value = cast("int | str | None", getattr(record, member))
        if value is not None:
            item[name] = value
    if record.duties:
        item["du"] = [*record.duties]
    if record.closed_ms is not None:
        item["ttl"] = expiry(record.closed_ms)
    if sk != ONLY:
        item.pop("wa", None)
    elif "wa" in item:
        item["ws"] = wake_shard(record.workflow_id)
    return item


def record_of(item: Mapping[str, Value]) -> RunRecord:
    """Return the record of an item.

    Raises:
        StoreError: `store_corrupt`: it is none.
    """
    with reading(item_named(item)):
        run_id, status = text(item, "rid"), text(item, "st")
        numbers = {member: optional(item, name, int) for name, member in _OPTIONAL_NUMBERS.items()}
        texts = {member: optional(item, name, str) for name, member in _OPTIONAL_TEXTS.items()}
        return RunRecord(
            workflow_id=workflow_id_of(item["pk"]),
            run_id=run_id,
            first_run_id=optional(item, "fr", str) or run_id,
            workflow=text(item, "ty"),
            status="running" if status == OPEN else _STATUSES[status],
            version=optional(item, "ver", str) or "",
            input=text(item, "inp"),
            created_ms=integer(item, "cr"),
            epoch=integer(item, "ep"),
            acquisitions=optional(item, "ac", int) or 0,
            inbox=tuple(map(_inbox_item, _list(item, "ib"))),
            tail=texts_of(item, "jt"),
            sequence=integer(item, "js"),
            chunks=integer(item, "jc"),
            duties=texts_of(item, "du"),
            **numbers,  # type: ignore[arg-type]
            **texts,  # type: ignore[arg-type]
        )


def texts_of(item: Mapping[str, Value], name: str) -> tuple[str, ...]:
    """Return a list of texts; none if it is not there.

    Raises:
        TypeError: One is no text.
    """
    values = _list(item, name)
    if not all(isinstance(value, str) for value in values):
        raise TypeError("a list of texts")
    return tuple(cast("list[str]", values))


def _inbox_item(value: Value) -> InboxItem:
    if not isinstance(value, dict):
        raise TypeError("an item of an inbox is a map")
    return InboxItem(
        id=text(value, "i"),
        kind=one_of(value, "k", _KINDS),
        at_ms=integer(value, "a"),
        name=text(value, "n"),
        payload=text(value, "d"),
    )


def _list(item: Mapping[str, Value], name: str) -> list[Value]:
    return optional(item, name, list) or []
