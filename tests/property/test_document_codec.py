"""Laws of documents as attribute values."""

from __future__ import annotations

from typing import Any

from boto3.dynamodb.types import TypeDeserializer
from hypothesis import given
from hypothesis import strategies as st

from iii_runtime.adapters.aws.attributes import Value, from_attributes, stored_bytes, to_attribute, to_attributes
from iii_runtime.adapters.aws.document_codec import MAP_DEPTH, decode_document, encode_document
from iii_runtime.adapters.aws.native_update import is_native, set_expressions, set_ops
from iii_runtime.core.payload import Json, encode_json, to_json
from iii_runtime.core.update_ops import apply_ops

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES: st.SearchStrategy[Json] = st.recursive(
    LEAVES | TEXTS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=20
)
NAMES = st.sampled_from(["a", "b", "c", "#n", "a.b", "é"])
OBJECTS: st.SearchStrategy[Json] = st.recursive(
    LEAVES, lambda inner: st.dictionaries(NAMES, inner, max_size=3), max_leaves=12
).filter(lambda value: isinstance(value, dict))
SETS = st.builds(
    lambda path, value: {"type": "set", "path": path, "value": value}, st.lists(NAMES, min_size=1, max_size=4), VALUES
)
ATTRIBUTES: st.SearchStrategy[Value] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | TEXTS | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def same(one: object, other: object) -> bool:
    """Whether two values are equal, their types included: 1, 1.0 and True are three values."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and repr(one) == repr(other)


@given(VALUES)
def test_a_document_comes_back_exactly(value: Json) -> None:
    checked = to_json(value)
    assert same(decode_document(encode_document(checked)), checked)


@given(VALUES)
def test_a_document_is_made_of_maps_and_texts_that_dynamodb_takes(value: Json) -> None:
    def check(stored: Value, depth: int) -> None:
        if isinstance(stored, dict):
            assert depth < MAP_DEPTH
            assert "" not in stored
            for item in stored.values():
                check(item, depth + 1)
        else:
            assert isinstance(stored, str)
            assert stored

    check(encode_document(to_json(value)), 0)


@given(st.integers(1, 60), LEAVES)
def test_no_document_is_too_deep(depth: int, leaf: Json) -> None:
    value = leaf
    for _ in range(depth):
        value = {"a": value}
    stored = encode_document(value)
    assert same(decode_document(stored), value)
    levels = 0
    while isinstance(stored, dict):
        stored, levels = stored["a"], levels + 1
    assert levels == min(depth, MAP_DEPTH)


@given(st.integers(1, 32), st.integers(0, 30))
def test_no_update_makes_a_document_too_deep(length: int, depth: int) -> None:
    value: Json = 1
    for _ in range(depth):
        value = {"a": value}
    sets = set_ops([{"type": "set", "path": ["a"] * length, "value": value}])
    assert sets is not None
    change, _ = set_expressions(sets)
    stored, levels = change.values[":p0"], length
    while isinstance(stored, dict):
        stored, levels = stored["a"], levels + 1
    assert levels == max(length, min(length + depth, MAP_DEPTH))


@given(VALUES)
def test_the_size_in_the_item_bounds_the_json_text(value: Json) -> None:
    """Six bytes of text for one in the item, and punctuation: what lets a large limit go unchecked."""
    checked = to_json(value)
    assert len(encode_json(checked)) <= 6 * max(1, stored_bytes(encode_document(checked)))


@given(ATTRIBUTES)
def test_an_attribute_comes_back_exactly_and_is_what_the_sdk_reads(value: Value) -> None:
    wire: Any = to_attribute(value)
    assert same(from_attributes(to_attributes({"x": value}))["x"], value)
    assert TypeDeserializer().deserialize(wire) == _as_sdk(value)


@given(OBJECTS, st.lists(SETS, min_size=1, max_size=4))
def test_a_native_update_does_to_the_item_what_the_operations_do_to_the_document(
    document: Json, ops: list[Json]
) -> None:
    """Where the condition holds, carrying out the clauses gives the item of the new document."""
    sets = set_ops(ops)
    assert sets is not None
    if not is_native(sets):
        return
    change, condition = set_expressions(sets)
    item: dict[str, Value] = {"v": encode_document(to_json(document))}
    parents = [text.removeprefix("attribute_type(").removesuffix(", :map)") for text in condition.text.split(" AND ")]
    holds = all(isinstance(_at(item, change.names, parent), dict) for parent in parents)
    outcome = apply_ops(document, ops)
    if not holds:
        return
    for clause in change.text.removeprefix("SET ").split(", "):
        place, _, name = clause.partition(" = ")
        parent, _, last = place.rpartition(".")
        target = _at(item, change.names, parent)
        assert isinstance(target, dict)
        target[change.names[last]] = change.values[name]
    assert outcome.errors == ()
    assert same(decode_document(item["v"]), to_json(outcome.value))


def test_the_law_of_native_updates_is_not_empty() -> None:
    sets = set_ops([{"type": "set", "path": ["a", "b"], "value": 1}, {"type": "set", "path": "c", "value": {}}])
    assert sets is not None
    change, condition = set_expressions(sets)
    assert change.text == "SET #v.#p0s0.#p0s1 = :p0, #v.#p1s0 = :p1"
    assert condition.text == "attribute_type(#v.#p0s0, :map) AND attribute_type(#v, :map)"
    assert is_native(sets)


def _at(item: dict[str, Value], names: Any, place: str) -> Value:
    value: Value = item
    for step in place.split("."):
        value = value.get(names[step]) if isinstance(value, dict) else None
    return value


def _as_sdk(value: Value) -> object:
    if isinstance(value, dict):
        return {name: _as_sdk(item) for name, item in value.items()}
    return [_as_sdk(item) for item in value] if isinstance(value, list) else value
