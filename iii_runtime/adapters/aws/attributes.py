"""Attribute values of DynamoDB, as plain values: text, whole numbers, truth, bytes, lists, maps and null."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from iii_runtime.core.errors import StoreError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

Value: TypeAlias = "None | bool | int | str | bytes | list[Value] | dict[str, Value]"
"""What an attribute holds. Numbers are whole; a fraction is kept as text."""

Item: TypeAlias = dict[str, Value]
"""The attributes of an item by name."""

_MAP_BYTES = 3

_FAULTS = (LookupError, TypeError, ValueError, AttributeError, RecursionError, ArithmeticError)
"""What code raises that reads a stored thing which is not as the runtime writes it."""


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn what the block raises about a stored thing into an error of the store; its content is in no message.

    Args:
        what: What is read, such as `the item at M#1 / @ of table orders-dev`.

    Raises:
        StoreError: `store_corrupt`: it is damaged, edited by hand, or of a later version.
    """
    try:
        yield
    except _FAULTS as error:
        raise StoreError(
            f"{what} cannot be read: {type(error).__name__}. It is damaged, was edited by hand, or was written by a "
            "later version: mend or delete it, or deploy that version.",
            code="store_corrupt",
        ) from error


def item_named(item: Mapping[str, Value]) -> str:
    """Return what an item is called in messages."""
    return f"the item at {item.get('pk')!s} / {item.get('sk')!s}"


def to_attributes(item: Mapping[str, Value]) -> dict[str, AttributeValueTypeDef]:
    """Return the wire form of an item's attributes."""
    return {name: to_attribute(value) for name, value in item.items()}


def from_attributes(attributes: Mapping[str, object]) -> Item:
    """Return the attributes of an item on the wire, also of one in a stream record.

    Raises:
        ValueError: An attribute has a form that this runtime never writes.
    """
    return {name: from_attribute(attribute) for name, attribute in attributes.items()}


def to_attribute(value: Value) -> AttributeValueTypeDef:
    """Return the wire form of a value."""
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, int):
        return {"N": str(value)}
    if isinstance(value, bytes):
        return {"B": value}
    if isinstance(value, dict):
        return {"M": to_attributes(value)}
    if isinstance(value, list):
        return {"L": [to_attribute(item) for item in value]}
    return {"NULL": True}


def from_attribute(attribute: object) -> Value:
    """Return the value of its wire form.

    Raises:
        ValueError: It has a form that this runtime never writes.
    """
    match attribute:
        case {"S": str(value)} | {"B": bytes(value)} | {"BOOL": bool(value)}:
            return value
        case {"N": str(digits)}:
            return int(digits)
        case {"M": dict(members)}:
            return from_attributes(members)
        case {"L": list(items)}:
            return [from_attribute(item) for item in items]
        case {"NULL": True}:
            return None
        case _:
            raise ValueError("an attribute has a form that this runtime does not write")


def stored_bytes(value: Value) -> int:
    """Return what a value takes of the 400 KB of an item, its name not counted; never less than DynamoDB counts."""
    if isinstance(value, str):
        return len(value.encode("utf-8"))
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, dict):
        return _MAP_BYTES + sum(1 + len(name.encode("utf-8")) + stored_bytes(item) for name, item in value.items())
    if isinstance(value, list):
        return _MAP_BYTES + sum(1 + stored_bytes(item) for item in value)
    return 1 if value is None or isinstance(value, bool) else len(str(value))
