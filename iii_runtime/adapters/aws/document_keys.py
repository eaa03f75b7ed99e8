"""Where state values and stream items are in the table, and how their names are listed.

A state value is at `S#<scope>` / `<key>`, a stream item at `T#<stream>#<group>` / `<item>`. A key that is too long for
DynamoDB is replaced by its hash; the plain names are then in `nm`. NUL stands before a hash, for no name contains it.

The index `names` orders all values by their names, so that a reader can skip from one scope to the next.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from iii_runtime.adapters.aws.attributes import Value

STATE, STREAM, EVENT, RUN = "S#", "T#", "E#", "W#"
"""What partition keys begin with; the last one is of runs, see `run_item`."""

NAME_SHARDS = 4
"""Over how many partitions the index `names` is spread."""

INDEX_FLOOR = "\0"
"""A sort key of the index before all others."""

_PARTITION_BYTES, _SORT_BYTES = 2048, 1024
_INDEX_BYTES = 1024
_NUL = "\0"
_AFTER_NUL = "\1"


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentKey:
    """Where one document is.

    Attributes:
        pk: Partition key.
        sk: Sort key.
        names: The attributes that list it: those of the index, and the plain names where the keys are hashes.
    """

    pk: str
    sk: str
    names: Mapping[str, Value]


def state_key(scope: str, key: str) -> DocumentKey:
    """Return where a state value is."""
    return _document(STATE, state_partition(scope), (scope, key))


def stream_key(stream_name: str, group_id: str, item_id: str) -> DocumentKey:
    """Return where a stream item is."""
    return _document(STREAM, group_partition(STREAM, stream_name, group_id), (stream_name, group_id, item_id))


def state_partition(scope: str) -> str:
    """Return the partition key of a scope."""
    return fitted_key(STATE, scope)


def group_partition(prefix: str, stream_name: str, group_id: str) -> str:
    """Return the partition key of what belongs to a group of a stream; `prefix` says of which kind it is."""
    return fitted_key(prefix, f"{_quoted(stream_name)}#{_quoted(group_id)}")


def fitted_key(prefix: str, text: str) -> str:
    """Return a partition key that begins with `prefix`: `text` itself, or its hash if it is too long."""
    return prefix + _fitted(text, _PARTITION_BYTES - len(prefix))


def fitted_sort_key(text: str) -> str:
    """Return a part of a sort key: `text` itself, or its hash if it is too long to have another part beside it."""
    return _fitted(text, _SORT_BYTES // 2)


def names_of(item: Mapping[str, Value]) -> tuple[str, ...] | None:
    """Return the names of a document: scope and key, or stream, group and item.

    None if the keys of `item` are hashes and its other attributes are not there, as in a row of the index.

    Raises:
        KeyError: It has no keys.
        TypeError: It is no document.
    """
    pk, sk = item["pk"], item["sk"]
    if not isinstance(pk, str) or not isinstance(sk, str):
        raise TypeError("the keys of a document are texts")
    plain = item.get("nm")
    if isinstance(plain, list):
        return tuple(str(name) for name in plain)
    if _NUL in pk or sk.startswith(_NUL):
        return None
    if pk.startswith(STATE):
        return pk.removeprefix(STATE), sk
    stream_name, _, group_id = pk.removeprefix(STREAM).partition("#")
    return unquote(stream_name), unquote(group_id), sk


def index_partition(prefix: str, shard: int) -> str:
    """Return the partition key of one shard of the index `names`; `prefix` is that of the documents."""
    return f"{prefix}{shard}"


def index_start(*names: str, of: int) -> str:
    """Return what the sort keys of the index begin with, for all documents under `names`, which have `of` names."""
    return "".join(_fitted(name, _part_bytes(of)) + _NUL for name in names)


def index_after(row: str, *, of: int) -> str:
    """Return a sort key of the index behind all rows that have the same names as `row`, the last name aside."""
    end = 0
    for _ in range(of - 1):
        end = row.index(_NUL, end + 1) + 1  # the first letter of a name may be the NUL before a hash
    return row[: end - 1] + _AFTER_NUL


def _document(prefix: str, pk: str, names: tuple[str, ...]) -> DocumentKey:
    sk = _fitted(names[-1], _SORT_BYTES)
    row = index_start(*names[:-1], of=len(names)) + _fitted(names[-1], _part_bytes(len(names)))
    shard = zlib.crc32(row.encode("utf-8")) % NAME_SHARDS
    listed: dict[str, Value] = {"nk": index_partition(prefix, shard), "nr": row}
    if _NUL in pk or sk.startswith(_NUL):
        listed["nm"] = list(names)
    return DocumentKey(pk=pk, sk=sk, names=listed)


def _part_bytes(parts: int) -> int:
    return _INDEX_BYTES // parts - len(_NUL)


def _fitted(text: str, limit: int) -> str:
    encoded = text.encode("utf-8")
    return text if len(encoded) <= limit else _NUL + hashlib.sha256(encoded).hexdigest()


def _quoted(name: str) -> str:
    return name.replace("%", "%25").replace("#", "%23")
