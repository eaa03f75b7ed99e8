"""JSON documents as attribute values: objects are native maps, so that DynamoDB can change one member by its path.

What is no object (a number, a text, an array, null) is one text, its JSON; so is an object below `MAP_DEPTH` levels,
and one with a member whose name DynamoDB does not take. So every value comes back exactly as it was; only the order of
the members of an object is not kept, which JSON does not promise either.
"""

from __future__ import annotations

import json

from iii_runtime.adapters.aws.attributes import Value
from iii_runtime.core.payload import Json, decode_stored

MAP_DEPTH = 24
"""How deep objects are native maps, the document itself being the first; DynamoDB takes 32 levels in all."""

_LONGEST_NAME = 60_000
"""Bytes of a member's name; DynamoDB takes a little more."""


def encode_document(value: Json, *, depth: int = 0) -> Value:
    """Return the attribute value of a checked JSON value that lies `depth` objects below its document."""
    if isinstance(value, dict) and depth < MAP_DEPTH and all(_is_name(name) for name in value):
        return {name: encode_document(item, depth=depth + 1) for name, item in value.items()}
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def decode_document(stored: Value) -> Json:
    """Return the JSON value of an attribute value that `encode_document` returned.

    Raises:
        ValueError: It is none.
    """
    if isinstance(stored, dict):
        return {name: decode_document(item) for name, item in stored.items()}
    if isinstance(stored, str):
        return decode_stored(stored)
    raise ValueError(f"a stored document holds a {type(stored).__name__}, which this runtime does not write")


def _is_name(name: str) -> bool:
    return bool(name) and (len(name) < 256 or len(name.encode("utf-8")) <= _LONGEST_NAME)
