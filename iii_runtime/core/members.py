"""The members of a stored JSON object, read as the types they must have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def text(fields: Mapping[str, object], name: str) -> str:
    """Return a required text.

    Raises:
        KeyError: It is missing.
        TypeError: It is of another type.
    """
    value = fields[name]
    if not isinstance(value, str):
        raise TypeError(f"member {name!r} is not a string")
    return value


def integer(fields: Mapping[str, object], name: str) -> int:
    """Return a required integer.

    Raises:
        KeyError: It is missing.
        TypeError: It is of another type.
    """
    value = fields[name]
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"member {name!r} is not an integer")
    return value


def optional(fields: Mapping[str, object], name: str, kind: type[T]) -> T | None:
    """Return a member, None if it is missing or null.

    Raises:
        TypeError: It is of another type than `kind`.
    """
    value = fields.get(name)
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"member {name!r} is not of type {kind.__name__}")
    return value


def one_of(fields: Mapping[str, object], name: str, known: Mapping[str, T]) -> T:
    """Return what `known` has for a required text.

    Raises:
        KeyError: It is missing, or not in `known`.
        TypeError: It is of another type.
    """
    return known[text(fields, name)]
