"""JSON as the runtime accepts it: one strict codec at every boundary.

What goes in comes out the same on every backend, so whatever one of them could not keep is refused here: NaN and
infinities, integers beyond 64 bits, lone surrogates, keys that are not strings, values that JSON does not have.
NUL is legal inside a string and round-trips; it is refused in names (`check_name`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TypeAlias, TypeGuard, cast

from iii_runtime.core.errors import IiiError

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"

MAX_PAYLOAD_BYTES = 32 * 1024 * 1024
"""Largest payload, encoded. Above it one error, `payload_too_large`."""

LARGE_BYTES = 64 * 1024
"""Encoded values above this are decoded apart from an event loop: below, a thread costs more than the decoding."""

MAX_DEPTH = 64
"""Deepest nesting of arrays and objects."""

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**64 - 1
"""Integers that every JSON reader of the field keeps exactly: i64 and u64."""

_ARRAY, _OBJECT = (list, tuple), (dict, Mapping)
_SURROGATE = re.compile("[\ud800-\udfff]")

_Place: TypeAlias = "str | tuple[_Place, str | int]"
"""Where a value is: its name, or a member or element of another place. Written out only in an error."""


class PayloadError(IiiError):
    """A value is not JSON as the runtime keeps it. Names the path of the offending part."""

    code = "payload_not_json"


class PayloadTooLargeError(PayloadError):
    """An encoded value exceeds `MAX_PAYLOAD_BYTES`."""

    code = "payload_too_large"


def encode_json(value: object, where: str = "payload") -> str:
    """Return `value` as compact ASCII JSON text.

    Tuples become arrays; objects with `model_dump` (pydantic models) become objects. `value` is not changed.

    Args:
        value: What to encode.
        where: Name of the value in error messages, such as `payload`.

    Raises:
        PayloadError: `value` is not JSON; the message names the path, such as `payload.items[3].price`.
        PayloadTooLargeError: The text is longer than `MAX_PAYLOAD_BYTES`.
    """
    return render_json(to_json(value, where), where)


def render_json(value: Json, where: str = "payload") -> str:
    """Return the text of a value that `to_json` or `decode_json` has checked already.

    Raises:
        PayloadTooLargeError: The text is longer than `MAX_PAYLOAD_BYTES`.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    if len(text) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLargeError(
            f"{where} is {len(text):,} bytes as JSON; the limit is {MAX_PAYLOAD_BYTES:,}. "
            "Store the data elsewhere and pass a reference."
        )
    return text


def decode_json(raw: str | bytes, where: str = "payload") -> Json:
    """Parse JSON text strictly.

    Raises:
        PayloadError: Not JSON, not UTF-8, or a value the runtime does not keep.
        PayloadTooLargeError: More than `MAX_PAYLOAD_BYTES`.
    """
    if len(raw) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLargeError(f"{where} is {len(raw):,} bytes; the limit is {MAX_PAYLOAD_BYTES:,}.")
    try:
        text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
        value = json.loads(text, parse_constant=_refuse_constant, parse_int=_parse_integer)
    except UnicodeDecodeError as error:
        raise PayloadError(f"{where} is not UTF-8: byte {error.start} cannot be decoded.") from error
    except json.JSONDecodeError as error:
        raise PayloadError(f"{where} is not JSON: {error.msg} at line {error.lineno} column {error.colno}.") from error
    except RecursionError as error:
        raise PayloadError(f"{where} is nested deeper than {MAX_DEPTH} levels.") from error
    return to_json(value, where)


def decode_stored(text: str) -> Json:
    """Parse text that `encode_json` wrote; no checks are repeated."""
    return cast(Json, json.loads(text))


def copy_json(value: Json) -> Json:
    """Return a deep copy of a value that was checked already, however deep what was put around it has made it."""
    return cast(Json, json.loads(json.dumps(value)))


def to_json(value: object, where: str = "payload") -> Json:
    """Return a deep copy of `value` made of JSON types only.

    Raises:
        PayloadError: See `encode_json`.
    """
    return _copy(value, where, 0)


def check_name(value: object, what: str, *, limit: int = 256) -> str:
    """Return `value` if it is usable as a name (function id, scope, key, stream, group, item, topic).

    Raises:
        PayloadError: Not a string, empty, longer than `limit` characters, or with NUL or a lone surrogate.
    """
    if not isinstance(value, str):
        raise PayloadError(f"{what} must be a string, found {_kind(value)}.", code="name_invalid")
    if not value or len(value) > limit:
        raise PayloadError(f"{what} must have 1 to {limit} characters, found {len(value)}.", code="name_invalid")
    if "\0" in value or _SURROGATE.search(value):
        raise PayloadError(f"{what} must not contain NUL or a lone surrogate: {value!a}.", code="name_invalid")
    return value


def _copy(value: object, where: _Place, depth: int) -> Json:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _checked_text(str.__str__(value), where)
    if isinstance(value, int):
        return _checked_integer(int.__int__(value), where)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise PayloadError(f"{_path(where)} is {float.__repr__(value)}, which JSON does not have.")
        return float.__float__(value)
    if depth >= MAX_DEPTH:
        raise PayloadError(f"{_path(where)} is nested deeper than {MAX_DEPTH} levels.")
    if isinstance(value, _ARRAY):
        return [item if _is_plain(item) else _copy(item, (where, index), depth + 1) for index, item in enumerate(value)]
    if isinstance(value, _OBJECT):
        return {
            (key if type(key) is str and key.isascii() else _key(key, where)): (
                item if _is_plain(item) else _copy(item, (where, key), depth + 1)
            )
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [item if _is_plain(item) else _copy(item, (where, index), depth + 1) for index, item in enumerate(value)]
    return _copy_model(value, where, depth)


def _is_plain(item: object) -> TypeGuard[Json]:
    """Return whether `item` can be taken over as it is. What most items are, at a fraction of the cost of `_copy`."""
    if type(item) is str:
        return item.isascii()
    if type(item) is int:
        return MIN_INTEGER <= item <= MAX_INTEGER
    return item is None or item is True or item is False


def _copy_model(value: object, where: _Place, depth: int) -> Json:
    dump = None if isinstance(value, type) else getattr(value, "model_dump", None)
    if not callable(dump):
        raise PayloadError(f"{_path(where)} is {_kind(value)}, which JSON does not have.")
    try:
        dumped = dump(mode="json", by_alias=True)
    except Exception as error:
        raise PayloadError(f"{_path(where)} is {_kind(value)}, which cannot be dumped: {error!r:.500}") from error
    if hasattr(dumped, "model_dump"):
        raise PayloadError(f"{_path(where)} is {_kind(value)}, whose model_dump does not return JSON.")
    return _copy(dumped, where, depth)


def _key(key: object, where: _Place) -> str:
    if not isinstance(key, str):
        raise PayloadError(f"{_path(where)} has the key {key!r:.60}; keys of an object must be strings.")
    if not key.isascii() and _SURROGATE.search(key):
        raise PayloadError(f"a key of {_path(where)} contains a lone surrogate, which is not a character.")
    return str.__str__(key)


def _checked_text(text: str, where: _Place) -> str:
    if not text.isascii() and _SURROGATE.search(text):
        raise PayloadError(f"{_path(where)} contains a lone surrogate, which is not a character.")
    return text


def _checked_integer(number: int, where: _Place) -> int:
    if not MIN_INTEGER <= number <= MAX_INTEGER:
        raise PayloadError(f"{_path(where)} is an integer beyond 64 bits; send it as a string.")
    return number


def _path(where: _Place) -> str:
    if isinstance(where, str):
        return where
    outer, step = where
    return f"{_path(outer)}[{step}]" if isinstance(step, int) else f"{_path(outer)}.{step:.60}"


def _parse_integer(digits: str) -> int:
    if len(digits) > 40:
        raise PayloadError("the payload holds an integer beyond 64 bits; send it as a string.")
    return int(digits)


def _refuse_constant(name: str) -> float:
    raise PayloadError(f"the payload holds {name}, which JSON does not have.")


def _kind(value: object) -> str:
    return "null" if value is None else f"a value of type {type(value).__name__}"
