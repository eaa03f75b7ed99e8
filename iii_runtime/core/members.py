"""The members of a stored JSON object, read as the types they must have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")

_DIGITS = re.compile(r"[0-9]{1,15}")
_LARGEST_SHOWN = 1_000_000


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


def digits(fields: Mapping[str, object], name: str) -> int:
    """Return a required whole number that is written as a text of 1 to 15 digits.

    Raises:
        KeyError: It is missing.
        TypeError: It is of another form.
    """
    value = text(fields, name)
    if not _DIGITS.fullmatch(value):
        raise TypeError(f"member {name!r} is not a whole number")
    return int(value)


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
    """Return what `known` has for a required text. Its errors name the member, not what it holds.

    Raises:
        KeyError: It is missing, or not in `known`.
        TypeError: It is of another type.
    """
    value = text(fields, name)
    if value not in known:
        raise KeyError(name)
    return known[value]


def fault(error: Exception) -> str:
    """Return what is wrong with an object whose members could not be read. Nothing that it holds is in the text."""
    if isinstance(error, KeyError):
        return f"member {error.args[0]!r:.60} is missing, or none that is known"
    return str(error) if type(error) is TypeError else type(error).__name__


def shown_version(version: object) -> str:
    """Return a version for a message; of anything but a small number only the type, for it may be anybody's data."""
    if type(version) is int and abs(version) <= _LARGEST_SHOWN:
        return str(version)
    return f"of type {type(version).__name__}"
