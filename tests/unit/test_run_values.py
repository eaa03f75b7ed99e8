"""Values in a journal: what comes back, what comes back as a class, and what is refused."""

from __future__ import annotations

import enum
import functools
import json
from collections import OrderedDict
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NewType, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from pydantic import BaseModel, ConfigDict, Field, HttpUrl, SecretStr

from iii_runtime.core.errors import NonRetryableError
from iii_runtime.core.payload import MAX_DEPTH, PayloadError
from iii_runtime.core.runs.value_hints import ValueUnfitError, hint_of
from iii_runtime.core.runs.values import ValueNotKeptError, ValueUnreadableError, decode_value, encode_value

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


class Color(enum.Enum):
    RED = "red"
    PAIR = (1, 2)


class Size(str, enum.Enum):  # noqa: UP042 - its `str()` is not its value
    SMALL = "small"


@dataclass
class Line:
    sku: str
    price: Decimal
    size: Size | None = None


@dataclass
class Crate(Line):
    weight: int = 0


@dataclass(frozen=True, slots=True)
class Order:
    lines: list[Line]
    color: Color
    due: datetime | None = None
    note: str = ""


@dataclass
class Priced:
    net: int
    gross: int = field(init=False)

    def __post_init__(self) -> None:
        self.net += 1
        self.gross = self.net * 2


class Point(NamedTuple):
    x: int
    color: Color


class Parcel(TypedDict):
    line: Line


class Payment(BaseModel):
    amount: Decimal
    paid_at: datetime
    tags: set[str] = set()
    raw: bytes = b"\xff"
    line: Line | None = None


class Camel(BaseModel):
    model_config = ConfigDict(strict=True)
    user_name: str = Field(alias="userName")
    color: Color = Color.RED
    out: int = Field(1, serialization_alias="outNumber")


class Link(BaseModel):
    url: HttpUrl


class Secret(BaseModel):
    key: SecretStr


OrderId = NewType("OrderId", str)


def stored(value: object, hint: Any = None) -> Any:
    """Return a value as a workflow sees it: through the text of the journal."""
    return decode_value(json.loads(json.dumps(encode_value(value, "the result"), allow_nan=False)), hint)


SAME = [
    None,
    True,
    0,
    2**53 + 1,
    2**64,
    -(10**5000),
    1.5,
    -0.0,
    float("inf"),
    float("-inf"),
    "\0☃\U0001f600",
    Decimal("1.50"),
    Decimal("NaN"),
    Decimal("1E+400000"),
    b"",
    b"\xff\0",
    datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001
    datetime(2026, 10, 25, 2, 30, fold=1),  # noqa: DTZ001
    datetime(2026, 1, 2, tzinfo=UTC),
    datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=-3, seconds=-7))),
    date(2026, 1, 2),
    time(1, 2, 3, 4),
    time(1, tzinfo=UTC),
    timedelta.max,
    timedelta(days=-1, microseconds=1),
    UUID(int=7),
    {1, 2},
    set(),
    frozenset({"a", b"b"}),
    {(1, (2, frozenset({3}))), Decimal(1)},
    [],
    {},
    {"$": 1},
    {"$": ["decimal", "1"]},
    {"$": {"$": {"$": None}}},
    {"$": 1, "a": {"$": [b"x"]}},
    [[{"a": [date(2026, 1, 1), {1}]}]],
]


@pytest.mark.parametrize("value", SAME, ids=lambda value: type(value).__name__)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    back = stored(value)
    assert type(back) is type(value)
    assert back == value or repr(back) == repr(value)
    if isinstance(value, datetime | time):
        assert (back.fold, back.utcoffset()) == (value.fold, value.utcoffset())


def test_not_a_number_comes_back_as_such() -> None:
    assert stored(float("nan")) != stored(float("nan"))


@pytest.mark.parametrize(
    ("value", "back"),
    [
        ((1, ("a",)), [1, ["a"]]),
        (OrderedDict(a=1), {"a": 1}),
        (MappingProxyType({"a": (1,)}), {"a": [1]}),
        (bytearray(b"x"), b"x"),
        (Size.SMALL, "small"),
        ({Size.SMALL: Size.SMALL}, {"small": "small"}),
        (Color.PAIR, [1, 2]),
        (Line("a", Decimal(1), Size.SMALL), {"sku": "a", "price": Decimal(1), "size": "small"}),
        (Point(1, Color.RED), [1, "red"]),
        ({Color.RED}, {"red"}),
    ],
)
def test_without_a_hint_classes_come_back_as_plain_data(value: object, back: object) -> None:
    found = stored(value)
    assert found == back
    assert type(found) is type(back)


def test_a_time_zone_comes_back_as_its_offset() -> None:
    summer = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    assert stored(summer) == summer
    assert stored(summer).utcoffset() == timedelta(hours=2)


ORDER = Order(
    [Line("a", Decimal("1.10"), Size.SMALL), Line("b", Decimal(2))], Color.RED, datetime(2026, 1, 1, tzinfo=UTC)
)
PAYMENT = Payment(amount=Decimal("1.10"), paid_at=datetime(2026, 1, 1, tzinfo=UTC), tags={"a"}, line=ORDER.lines[0])


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (ORDER, Order),
        (ORDER, Order | None),
        (None, Order),
        ([ORDER], list[Order]),
        ([ORDER], Sequence[Order]),
        ({"a": ORDER}, dict[str, Order]),
        ({Size.SMALL: 1}, dict[Size, int]),
        ((1, ORDER), tuple[int, Order]),
        ((ORDER, ORDER), tuple[Order, ...]),
        ((), tuple[()]),
        (ORDER, Annotated[Order, "the order"]),
        (PAYMENT, Payment),
        ([PAYMENT], list[Payment | None]),
        (PAYMENT, Order | Payment),
        (ORDER, Payment | Order),
        (ORDER, Line | Order),
        (ORDER.lines[0], Order | Line),
        (Crate("a", Decimal(1), None, 7), Line | Crate),
        (Point(1, Color.PAIR), Point),
        ({"line": ORDER.lines[0]}, Parcel),
        (Color.PAIR, Color),
        (Color.RED, Literal[Color.RED]),
        ({Color.RED}, set[Color]),
        ("red", str | Color),
        (OrderId("a"), OrderId),
        (Priced(1), Priced),
        (Camel(userName="a"), Camel),
        (Link(url=HttpUrl("https://a.example")), Link),
    ],
)
def test_a_hint_makes_the_class_again(value: object, hint: Any) -> None:
    found = stored(value, hint)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(("value", "hint"), [(1, str), ("1", int), ({"a": 1}, list[Order]), ([1], Any), (1, "Order")])
def test_a_hint_never_changes_plain_values(value: object, hint: Any) -> None:
    assert stored(value, hint) == value


def test_members_that_a_class_does_not_have_any_more_are_passed_over_and_new_ones_take_their_default() -> None:
    assert decode_value({"sku": "a", "price": 1, "gone": 2}, Line) == Line("a", 1, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "hint", "says"),
    [
        ({"sku": "a"}, Line, "has no price"),
        ({"lines": [{}], "color": "red"}, Order, r"result\.lines\[0\]"),
        ("blue", Color, "blue"),
        ({"amount": "x"}, Payment, "Payment"),
        (3, Line, "type int"),
        ([1, "red", 3], Point, "3 items"),
    ],
)
def test_what_does_not_fit_a_class_is_an_error_that_names_the_place(value: Any, hint: Any, says: str) -> None:
    with pytest.raises(ValueUnfitError, match=says):
        decode_value(value, hint, "the result")


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"a": [object()]}, r"the result\.a\[0\] is of type object"),
        ({1: 2}, "has the key 1"),
        ("\ud800", "lone surrogate"),
        ({"\ud800": 1}, "lone surrogate"),
        (endless(), f"deeper than {MAX_DEPTH}"),
        (Path("a"), "type PosixPath"),
        (Order, "type type"),
        ((each for each in [1]), "type generator"),
        ({Point(1, Color.RED)}, "within a set"),
        (time(1, tzinfo=ZoneInfo("Europe/Berlin")), "depends on the date"),
        (Secret(key=SecretStr("x")), "would not come back"),
        (1j, "type complex"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_its_path(value: object, says: str) -> None:
    with pytest.raises(ValueNotKeptError, match=says) as refused:
        encode_value(value, "the result")
    assert isinstance(refused.value, PayloadError)
    assert isinstance(refused.value, NonRetryableError)


@pytest.mark.parametrize("content", [1, [], ["later", 1], ["decimal", "x"], ["bytes", "é"], ["set", [[]]], ["int", 3]])
def test_a_form_of_a_later_version_is_an_error(content: Any) -> None:
    with pytest.raises(ValueUnreadableError):
        decode_value([{"$": content}])


def test_equal_sets_have_one_form() -> None:
    assert encode_value({"c", "a", "d", "b", "e"}, "x") == {"$": ["set", ["a", "b", "c", "d", "e"]]}


def test_what_comes_back_shares_nothing_with_what_was_given() -> None:
    value: dict[str, Any] = {"a": [1, {"b": [2]}]}
    form = encode_value(value, "x")
    first, second = decode_value(form), decode_value(form)
    value["a"][1]["b"].append(3)
    first["a"][1]["b"].append(4)
    assert second == {"a": [1, {"b": [2]}]} == form


def returns_order() -> Order:
    raise NotImplementedError


async def returns_later(order: Order, other: Unknown) -> list[Order]:
    raise NotImplementedError


def returns_unknown() -> Unknown:
    raise NotImplementedError


def returns_awaitable() -> Awaitable[Order]:
    raise NotImplementedError


class Shop:
    def order(self) -> Order:
        raise NotImplementedError

    def __call__(self) -> Line:
        raise NotImplementedError


def test_a_hint_is_the_annotation_of_a_function_or_none() -> None:
    assert hint_of(returns_order) is Order
    assert hint_of(functools.partial(functools.partial(returns_order))) is Order
    assert hint_of(returns_later) == list[Order]  # another annotation that nobody can resolve is not in the way
    assert hint_of(returns_later, "order") is Order
    assert hint_of(returns_awaitable) is Order
    assert hint_of(Shop().order) is Order
    assert hint_of(Shop()) is Line
    for without in (returns_unknown, lambda: 1, len, print, functools.partial(len), Shop, 3):
        assert hint_of(without) is None  # type: ignore[arg-type]
