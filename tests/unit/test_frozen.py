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
    place: str

    def __init__(self, fahrenheit: float) -> None:
        self.degrees = (fahrenheit - 32) / 1.8  # type: ignore[misc]
        self.place = ""  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"{self.degrees:.1f} C"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Celsius) and round(self.degrees) == round(other.degrees)

    def __hash__(self) -> int:
        return hash(round(self.degrees))


@frozen
class Key:
    name: str
    note: str = field(default="", kw_only=True, compare=False)


ARGUMENTS: list[dict[str, Any]] = [
    {"x": 1},
    {"x": 1, "y": 2, "tags": ["a"], "note": "n", "token": "t"},
    {"x": 1, "y": 2, "tags": ["a"], "note": "other", "token": "t"},
    {"x": 1, "y": 2, "tags": ["a"], "note": "n", "token": "other"},
    {"x": 1, "y": 2, "tags": ["b"], "token": "t"},
]


@pytest.mark.parametrize("given", ARGUMENTS)
def test_it_shows_itself_as_a_dataclass_does(given: dict[str, Any]) -> None:
    assert repr(Point(**given)) == repr(Twin(**given)).replace("Twin", "Point", 1)


@pytest.mark.parametrize("one", ARGUMENTS)
@pytest.mark.parametrize("other", ARGUMENTS)
def test_it_equals_what_a_dataclass_would_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert (Point(**one) == Point(**other)) is (Twin(**one) == Twin(**other))


def test_values_of_two_classes_are_never_equal() -> None:
    others: list[object] = [Twin(1), 1, None]
    assert Point(1) not in others


def test_equal_values_are_one_key() -> None:
    assert {Key("a", note="one"): 1}[Key("a", note="another")] == 1
    assert Key("b") not in {Key("a")}


def test_a_value_with_a_list_in_it_is_no_key() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point(1))


def test_a_field_is_not_set_again_nor_deleted() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match="'x'"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="'x'"):
        del point.x
    assert point == Point(1)


def test_it_has_no_room_for_what_is_no_field() -> None:
    with pytest.raises(AttributeError):
        Point(1).z = 2  # type: ignore[attr-defined]


def test_its_constructor_takes_what_it_would_of_a_dataclass() -> None:
    with pytest.raises(TypeError, match="positional"):
        Box(1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="missing"):
        Point()  # type: ignore[call-arg]
    assert Point(1).tags is not Point(1).tags


def test_a_field_may_be_set_again_while_the_value_is_made() -> None:
    assert Box(content=1, labels={"A": "a"}).labels == {"a": "a"}


def test_what_a_class_has_itself_stays() -> None:
    assert repr(Celsius(212)) == "100.0 C"
    assert Celsius(212) == Celsius(212.1)
    assert len({Celsius(212), Celsius(212.1)}) == 1
    with pytest.raises(FrozenInstanceError):
        Celsius(212).degrees = 0  # type: ignore[misc]


def test_the_functions_for_dataclasses_know_it() -> None:
    point = Point(1, tags=["a"])
    assert is_dataclass(point)
    assert [each.name for each in fields(point)] == ["x", "y", "tags", "note", "token"]
    assert asdict(point) == {"x": 1, "y": 0, "tags": ["a"], "note": "", "token": ""}
    assert replace(point, y=3) == Point(1, 3, tags=["a"])
    match point:
        case Point(x, y):
            assert (x, y) == (1, 0)


def pickled(value: object) -> object:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - what this test has just made


@pytest.mark.parametrize("through", [copy.copy, copy.deepcopy, pickled])
def test_a_copy_is_equal_and_as_frozen(through: Any) -> None:
    point = through(Point(1, tags=["a"]))
    assert point == Point(1, tags=["a"])
    with pytest.raises(FrozenInstanceError):
        point.x = 2


def test_a_value_that_holds_itself_can_be_shown() -> None:
    inner: dict[str, object] = {}
    box = Box(content=inner)
    inner["box"] = box
    assert repr(box) == "Box(content={'box': ...}, labels={})"
