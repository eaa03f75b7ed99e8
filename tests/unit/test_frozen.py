"""A frozen value is to its users what a frozen dataclass is."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Generic, TypeVar

import pytest

from iii_runtime.core.frozen import frozen

T = TypeVar("T")


@frozen
class Point:
    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list, kw_only=True)
    note: str = field(default="", kw_only=True, compare=False)
    token: str = field(default="", kw_only=True, repr=False)

    @property
    def sum(self) -> int:
        return self.x + self.y


@dataclass(frozen=True, slots=True)
class Twin:
    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list, kw_only=True)
    note: str = field(default="", kw_only=True, compare=False)
    token: str = field(default="", kw_only=True, repr=False)


@frozen(kw_only=True)
class Box(Generic[T]):
    content: T
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", {name.lower(): label for name, label in self.labels.items()})


@frozen(init=False)
class Celsius:
    degrees: float

    def __init__(self, fahrenheit: float) -> None:
        object.__setattr__(self, "degrees", (fahrenheit - 32) / 1.8)

    def __repr__(self) -> str:
        return f"{self.degrees:.1f} C"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Celsius) and round(self.degrees) == round(other.degrees)

    def __hash__(self) -> int:
        return hash(round(self.degrees))


@frozen
class Scope:
    name: str
    inner: dict[str, object]


ALIKE = [((1,), {}), ((1, 2), {"tags": ["a"], "note": "n", "token": "t"}), ((1, 2), {"tags": ["a"], "token": "u"})]


@pytest.mark.parametrize(("positional", "named"), ALIKE)
def test_it_shows_itself_as_a_dataclass_does(positional: tuple[int, ...], named: dict[str, Any]) -> None:
    shown = repr(Twin(*positional, **named))
    assert repr(Point(*positional, **named)) == shown.replace("Twin", "Point")


@pytest.mark.parametrize(("positional", "named"), ALIKE)
@pytest.mark.parametrize(("others", "others_named"), ALIKE)
def test_it_equals_what_a_dataclass_would_equal(
    positional: tuple[int, ...], named: dict[str, Any], others: tuple[int, ...], others_named: dict[str, Any]
) -> None:
    are_equal = Twin(*positional, **named) == Twin(*others, **others_named)
    assert (Point(*positional, **named) == Point(*others, **others_named)) is are_equal


def test_values_of_two_classes_are_never_equal() -> None:
    assert Point(1) != Twin(1)
    assert Point(1) != 1


def test_the_hash_follows_the_fields_that_are_compared() -> None:
    one, same = Celsius(32), Celsius(32.1)
    assert len({one, same}) == 1
    assert hash(Scope("a", {})._replace_inner()) if hasattr(Scope, "_replace_inner") else True
