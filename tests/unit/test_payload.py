"""JSON as the runtime keeps it: what is refused, and how the refusal names the place."""

from __future__ import annotations

import enum
import json
import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from iii_runtime.core import payload
from iii_runtime.core.payload import (
    MAX_DEPTH,
    PayloadError,
    PayloadTooLargeError,
    check_name,
    decode_json,
    encode_json,
    to_json,
)


class Color(enum.Enum):
    RED = "red"


class Size(str, enum.Enum):  # noqa: UP042 - its `str()` is not its value
    SMALL = "small"


class Level(enum.IntEnum):
    HIGH = 3


class Order(BaseModel):
    order_id: str
    due: datetime


class Frozen(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        return {"a": 1}[key]

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


@dataclass
class Dumps:
    """Has a `model_dump` that returns what the test says."""

    value: Any

    def model_dump(self, **_: object) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


class TestWhatIsKept:
    def test_json_is_compact_ascii(self) -> None:
        assert encode_json({"ö": [1, 2.5, None, True, "\0"]}) == '{"\\u00f6":[1,2.5,null,true,"\\u0000"]}'

    @pytest.mark.parametrize(
        ("given", "kept"),
        [
            ((1, 2), [1, 2]),
            (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
            (Frozen(), {"a": 1}),
            (Size.SMALL, "small"),
            ({Size.SMALL: Level.HIGH}, {"small": 3}),
            (Dumps({"a": (1,)}), {"a": [1]}),
            (Dumps(5), 5),
        ],
    )
    def test_what_has_a_json_form_is_kept_in_it(self, given: object, kept: object) -> None:
        copied = to_json(given)
        assert copied == kept
        assert json.loads(encode_json(given)) == kept
        assert type(copied) is type(kept)

    def test_values_of_subclasses_become_plain_values(self) -> None:
        copied = to_json([Size.SMALL, Level.HIGH, {Size.SMALL: 1}])
        assert isinstance(copied, list)
        assert [type(item) for item in copied] == [str, int, dict]
        assert [type(key) for key in copied[2]] == [str]  # type: ignore[union-attr]

    def test_a_pydantic_model_is_dumped_as_json(self) -> None:
        order = Order(order_id="o1", due=datetime(2026, 1, 1, tzinfo=UTC))
        assert to_json({"orders": [order]}) == {"orders": [{"order_id": "o1", "due": "2026-01-01T00:00:00Z"}]}

    def test_the_copy_shares_nothing_with_the_value(self) -> None:
        value = {"items": [{"n": 1}]}
        copied = to_json(value)
        value["items"][0]["n"] = 2
        assert copied == {"items": [{"n": 1}]}

    @pytest.mark.parametrize("number", [-(2**63), 2**64 - 1, 0])
    def test_integers_of_64_bits_are_exact(self, number: int) -> None:
        assert decode_json(encode_json(number)) == number

    def test_the_deepest_value_is_kept(self) -> None:
        assert decode_json(encode_json(nested(MAX_DEPTH))) == nested(MAX_DEPTH)

    def test_a_model_at_the_deepest_level_is_kept(self) -> None:
        value: Any = Dumps([1])
        for _ in range(MAX_DEPTH - 1):
            value = [value]
        assert to_json(value) == nested(MAX_DEPTH)


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        "value",
        [
            math.nan,
            math.inf,
            -math.inf,
            2**64,
            -(2**63) - 1,
            10**5000,
            "\ud800",
            {"\udfff": 1},
            b"bytes",
            bytearray(b"x"),
            {1, 2},
            {1: "a"},
            {None: 1},
            {("a",): 1},
            object(),
            Color.RED,
            Path("a"),
            datetime(2026, 1, 1, tzinfo=UTC),
            complex(1),
            Order,
            lambda: None,
            iter([1]),
            nested(MAX_DEPTH + 1),
            nested(100_000),
            Dumps(RuntimeError("broken")),
            Dumps(Dumps(1)),
            Dumps([b"x"]),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_what_is_not_json_is_a_payload_error(self, value: object) -> None:
        for form in (value, [value], {"a": {"b": value}}):
            with pytest.raises(PayloadError) as refusal:
                encode_json(form)
            assert refusal.value.code == "payload_not_json"

    def test_a_value_that_contains_itself_is_refused(self) -> None:
        circle: list[Any] = []
        circle.append(circle)
        with pytest.raises(PayloadError, match="nested deeper than 64 levels"):
            encode_json(circle)

    def test_a_model_that_dumps_itself_is_refused(self) -> None:
        dumps = Dumps(None)
        dumps.value = dumps
        with pytest.raises(PayloadError, match="does not return JSON"):
            encode_json(dumps)

    def test_the_error_names_the_place(self) -> None:
        with pytest.raises(PayloadError, match=r"^order\.items\[1\]\.price is nan, which JSON does not have"):
            encode_json({"items": [{}, {"price": math.nan}]}, "order")

    def test_the_error_names_the_type(self) -> None:
        with pytest.raises(PayloadError, match=r"^payload\.at is a value of type datetime"):
            encode_json({"at": datetime(2026, 1, 1, tzinfo=UTC)})

    def test_the_error_names_the_key(self) -> None:
        with pytest.raises(PayloadError, match=r"^payload\.a has the key 7; keys of an object must be strings"):
            encode_json({"a": {7: 1}})

    def test_a_huge_key_does_not_end_up_in_the_message(self) -> None:
        with pytest.raises(PayloadError) as refusal:
            encode_json({"k" * 1_000_000: [math.nan]})
        assert len(refusal.value.message) < 200

    def test_a_text_beyond_the_limit_is_too_large(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(payload, "MAX_PAYLOAD_BYTES", 100)
        assert encode_json("x" * 98)
        with pytest.raises(PayloadTooLargeError, match=r"payload is 101 bytes as JSON; the limit is 100") as refusal:
            encode_json("x" * 99)
        assert refusal.value.code == "payload_too_large"
        with pytest.raises(PayloadTooLargeError):
            decode_json(b" " * 101)


class TestDecoding:
    @pytest.mark.parametrize(
        ("raw", "message"),
        [
            (b"", "not JSON: Expecting value at line 1 column 1"),
            (b"{", "not JSON"),
            (b"{'a': 1}", "not JSON"),
            (b"[1,]", "not JSON"),
            (b"\xff", "not UTF-8: byte 0"),
            (b'"a\xc3"', "not UTF-8: byte 2"),
            (b"\xef\xbb\xbf1", "not JSON"),
            (b"NaN", "NaN, which JSON does not have"),
            (b"[-Infinity]", "-Infinity, which JSON does not have"),
            (b"1e999", "is inf"),
            (b"18446744073709551616", "beyond 64 bits"),
            (b"1" * 10_000, "beyond 64 bits"),
            (b'"\\ud800"', "lone surrogate"),
            (b"[" * 65 + b"]" * 65, "deeper than 64"),
            (b"[" * 200_000, "deeper than 64"),
        ],
        ids=lambda value: value[:12] if isinstance(value, bytes) else None,
    )
    def test_what_is_no_strict_json_is_refused(self, raw: bytes, message: str) -> None:
        with pytest.raises(PayloadError, match=message):
            decode_json(raw)

    def test_of_a_repeated_key_the_last_value_counts(self) -> None:
        assert decode_json('{"a": 1, "a": 2}') == {"a": 2}


class TestNames:
    @pytest.mark.parametrize("name", ["a", "orders::create", "ünïcode", " ", "a/b", "x" * 256])
    def test_usable_names_are_returned(self, name: str) -> None:
        assert check_name(name, "key") == name

    @pytest.mark.parametrize("name", ["", "x" * 257, "a\0b", "\ud800", None, 5, b"x", ["a"]])
    def test_unusable_names_are_refused(self, name: object) -> None:
        with pytest.raises(PayloadError, match=r"^key must") as refusal:
            check_name(name, "key")
        assert refusal.value.code == "name_invalid"
