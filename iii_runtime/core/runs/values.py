"""Values of Python as a journal keeps them: JSON, and tagged objects for what JSON does not have.

A value is used only as it comes back from its stored form, on the first run as on a replay, so both see the same:

- None, bool, int of any size, float with NaN and infinities, str, Decimal, bytes, datetime, date, time, timedelta,
  UUID, set, frozenset, list and dict come back as they were. A time zone comes back as its offset at that moment.
- A tuple comes back as a list (within a set as a tuple); other mappings come back as a dict, a bytearray as bytes, an
  object of a subclass of one of these types as one of that type.
- A dataclass and a pydantic model are stored as their fields, a TypedDict and a NamedTuple as dict and list, an Enum as
  its value. They come back as that, or as what a type annotation says, see `value_hints`.

A tagged object has one member, `$`: `{"$":["decimal","1.50"]}`. A dict that looks like it is tagged itself.
What cannot be kept is refused, with the path of the part.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import math
import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias, cast
from uuid import UUID

from iii_runtime.core.errors import IiiError, NonRetryableError
from iii_runtime.core.payload import MAX_DEPTH, MAX_INTEGER, MIN_INTEGER, Json, PayloadError
from iii_runtime.core.runs.value_hints import by_name, rebuild

TAG = "$"
_SURROGATE = re.compile("[\ud800-\udfff]")
_PLACES = frozenset({str, int, bool, float, type(None)})

_Place: TypeAlias = "str | tuple[_Place, str | int]"


class ValueNotKeptError(PayloadError, NonRetryableError):
    """A value cannot be kept in a journal. Another attempt would return the same. Names the path of the part."""

    code = "value_not_kept"

    def __init__(self, message: str) -> None:
        IiiError.__init__(self, message)


class ValueUnreadableError(PayloadError):
    """A stored value has a form that this version does not know."""

    code = "value_unreadable"


def encode_value(value: object, where: str) -> Json:
    """Return a value as JSON that shares nothing with it.

    Args:
        value: What to keep.
        where: What it is, for errors, such as `the result of step 'charge'`.

    Raises:
        ValueNotKeptError: A part of it cannot be kept.
    """
    return _encode(value, where, 0)


def decode_value(value: Json, hint: Any = None, where: str = "a stored value") -> Any:
    """Return what `encode_value` wrote, sharing nothing with it.

    Args:
        value: The stored form.
        hint: A type annotation; classes that it names are made again.
        where: What it is, for errors.

    Raises:
        ValueUnreadableError: The stored form is not of this version.
        ValueUnfitError: The value does not fit a class that the hint names.
    """
    plain = _decode(value)
    return plain if hint is None else rebuild(plain, hint, where)


def _encode(value: object, where: _Place, depth: int) -> Json:
    if _is_plain(value):
        return cast(Json, value)
    kind = type(value)
    if depth >= MAX_DEPTH:
        raise ValueNotKeptError(f"{_path(where)} is nested deeper than {MAX_DEPTH} levels.")
    if kind is dict:
        return _encode_mapping(cast("dict[Any, Any]", value), where, depth)
    if kind is list or kind is tuple:
        return [
            cast(Json, item) if _is_plain(item) else _encode(item, (where, index), depth + 1)
            for index, item in enumerate(cast("list[Any]", value))
        ]
    return _encode_special(value, where, depth)


def _is_plain(value: object) -> bool:
    """Return whether a value is its own stored form. What most are, at a fraction of the cost of `_encode`."""
    kind = type(value)
    if kind is str:
        return cast(str, value).isascii()
    if kind is int:
        return MIN_INTEGER <= cast(int, value) <= MAX_INTEGER
    return value is None or value is True or value is False


def _encode_mapping(value: Mapping[Any, Any], where: _Place, depth: int) -> Json:
    members: dict[str, Json] = {
        (key if type(key) is str and key.isascii() else _key(key, where)): (
            cast(Json, item) if _is_plain(item) else _encode(item, (where, key), depth + 1)
        )
        for key, item in value.items()
    }
    return {TAG: ["object", members]} if len(members) == 1 and TAG in members else members


def _encode_special(value: object, where: _Place, depth: int) -> Json:
    if isinstance(value, enum.Enum):  # before str and int, which it may be as well
        return _encode(value.value, where, depth)
    for kind, write in _WRITERS:
        if isinstance(value, kind):
            return write(value, where)
    if isinstance(value, set | frozenset):
        name = "set" if isinstance(value, set) else "frozenset"
        return {TAG: [name, _encode_elements(value, where, depth)]}
    if isinstance(value, Mapping):
        return _encode_mapping(value, where, depth)
    if isinstance(value, list | tuple):
        return [_encode(item, (where, index), depth + 1) for index, item in enumerate(value)]
    return _encode_instance(value, where, depth)


def _encode_instance(value: object, where: _Place, depth: int) -> Json:
    if not isinstance(value, type):
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
            return _encode_mapping({name: getattr(value, name) for name in names}, where, depth)
        if callable(getattr(type(value), "model_dump", None)):
            return _encode_model(value, where, depth)
    raise ValueNotKeptError(
        f"{_path(where)} is of type {type(value).__name__}, which cannot be kept. Return plain data, a dataclass or a "
        "pydantic model."
    )


def _encode_model(value: Any, where: _Place, depth: int) -> Json:
    """Encode a pydantic model: its Python values if they can be kept, else what it writes as JSON if that is enough."""
    is_by_alias = not by_name()
    try:
        return _encode(value.model_dump(mode="python", round_trip=True, by_alias=is_by_alias), where, depth)
    except Exception as error:  # noqa: BLE001 - code of the model's own, or a type that only its JSON form has
        refusal = error
    try:
        dumped = value.model_dump(mode="json", round_trip=True, by_alias=is_by_alias)
        stored = _encode(dumped, where, depth)
        is_same = bool(rebuild(_decode(stored), type(value), _path(where)) == value)
    except Exception as error:
        raise ValueNotKeptError(f"{_path(where)} is a {type(value).__name__} that cannot be kept: {error}") from error
    if not is_same:
        raise ValueNotKeptError(
            f"{_path(where)} is a {type(value).__name__} that would not come back the same: {refusal}"
        ) from refusal
    return stored


def _encode_elements(value: AbstractSet[Any], where: _Place, depth: int) -> list[Json]:
    """Encode the elements of a set, sorted by their text so that equal sets have one form."""
    encoded = [_encode_element(item, (where, "{element}"), depth + 1) for item in value]
    return sorted(encoded, key=repr)


def _encode_element(item: object, where: _Place, depth: int) -> Json:
    if type(item) is tuple:
        if depth >= MAX_DEPTH:
            raise ValueNotKeptError(f"{_path(where)} is nested deeper than {MAX_DEPTH} levels.")
        return {TAG: ["tuple", [_encode_element(each, (where, index), depth + 1) for index, each in enumerate(item)]]}
    encoded = _encode(item, where, depth)
    is_tagged = isinstance(encoded, dict) and len(encoded) == 1 and TAG in encoded
    if type(encoded) not in _PLACES and not is_tagged:
        raise ValueNotKeptError(
            f"{_path(where)} is of type {type(item).__name__}, which cannot come back within a set. Return a list."
        )
    return encoded


def _write_moment(value: datetime, where: _Place) -> Json:
    try:
        text = datetime.isoformat(value)
        if value.tzinfo is not None and datetime.fromisoformat(text).tzinfo is None:
            raise ValueNotKeptError(f"{_path(where)} has a time zone without an offset.")
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ValueNotKeptError(f"{_path(where)} is a datetime that cannot be kept: {error}") from error
    return {TAG: ["datetime", text, 1] if value.tzinfo is None and value.fold else ["datetime", text]}


def _write_time(value: time, where: _Place) -> Json:
    if value.tzinfo is not None and time.utcoffset(value) is None:
        raise ValueNotKeptError(f"{_path(where)} is a time of a zone whose offset depends on the date.")
    text = time.isoformat(value)
    return {TAG: ["time", text, 1] if value.fold else ["time", text]}


def _write_bytes(value: bytes | bytearray | memoryview, where: _Place) -> Json:
    return {TAG: ["bytes", base64.b64encode(bytes(value)).decode("ascii")]}


def _write_integer(value: int, where: _Place) -> Json:
    number = int.__int__(value)
    return number if MIN_INTEGER <= number <= MAX_INTEGER else {TAG: ["int", hex(number)]}


def _write_float(value: float, where: _Place) -> Json:
    number = float.__float__(value)
    return number if math.isfinite(number) else {TAG: ["float", float.__repr__(number)]}


_WRITERS: tuple[tuple[Any, Callable[[Any, _Place], Json]], ...] = (
    (str, lambda value, where: _text(str.__str__(value), where)),
    (int, _write_integer),
    (float, _write_float),
    (Decimal, lambda value, where: {TAG: ["decimal", Decimal.__str__(value)]}),
    (bytes | bytearray | memoryview, _write_bytes),
    (datetime, _write_moment),  # before date, which it is as well
    (date, lambda value, where: {TAG: ["date", date.isoformat(value)]}),
    (time, _write_time),
    (timedelta, lambda value, where: {TAG: ["timedelta", value.days, value.seconds, value.microseconds]}),
    (UUID, lambda value, where: {TAG: ["uuid", value.hex]}),
)


def _decode(value: Json) -> Any:
    if type(value) is dict:
        if len(value) == 1 and TAG in value:
            return _decode_tagged(value[TAG])
        return {key: _decode(item) if type(item) is dict or type(item) is list else item for key, item in value.items()}
    if type(value) is list:
        return [_decode(item) if type(item) is dict or type(item) is list else item for item in value]
    return value


def _decode_tagged(content: Json) -> Any:
    try:
        tag, *parts = cast("list[Any]", content)
        return _READERS[tag](*parts)
    except ValueUnreadableError:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise ValueUnreadableError(
            f"a stored value is tagged {str(content)[:60]!a}, which this version cannot read."
        ) from error


_READERS: Mapping[str, Callable[..., Any]] = {
    "object": lambda members: {key: _decode(item) for key, item in members.items()},
    "int": lambda text: int(text, 16),
    "float": float,
    "decimal": Decimal,
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "datetime": lambda text, fold=0: datetime.fromisoformat(text).replace(fold=fold),
    "date": date.fromisoformat,
    "time": lambda text, fold=0: time.fromisoformat(text).replace(fold=fold),
    "timedelta": timedelta,
    "uuid": lambda text: UUID(hex=text),
    "set": lambda items: {_decode(item) for item in items},
    "frozenset": lambda items: frozenset(_decode(item) for item in items),
    "tuple": lambda items: tuple(_decode(item) for item in items),
}


def _text(text: str, where: _Place) -> str:
    if not text.isascii() and _SURROGATE.search(text):
        raise ValueNotKeptError(f"{_path(where)} contains a lone surrogate, which is not a character.")
    return text


def _key(key: object, where: _Place) -> str:
    if not isinstance(key, str):
        raise ValueNotKeptError(f"{_path(where)} has the key {key!r:.60}; keys must be strings.")
    return _text(str.__str__(key), (where, "{key}"))


def _path(where: _Place) -> str:
    if isinstance(where, str):
        return where
    outer, step = where
    if isinstance(step, int):
        return f"{_path(outer)}[{step}]"
    return f"{_path(outer)}.{step.encode('ascii', 'backslashreplace').decode():.60}"
