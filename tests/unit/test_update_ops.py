"""`apply_ops`: what each operation does, and which code each refusal carries."""

from __future__ import annotations

import pytest

from iii_runtime.core.payload import MAX_DEPTH, Json, to_json
from iii_runtime.core.update_ops import apply_ops, doc_url


def nested(levels: int) -> Json:
    value: Json = 1
    for _ in range(levels):
        value = [value]
    return value


APPLIED: list[tuple[str, Json, dict[str, Json], Json]] = [
    ("set replaces a key", {"a": 1}, {"type": "set", "path": "a", "value": 2}, {"a": 2}),
    ("set starts a missing document", None, {"type": "set", "path": "a", "value": 1}, {"a": 1}),
    ("set takes null as a value", {"a": 1}, {"type": "set", "path": "a", "value": None}, {"a": None}),
    ("set replaces the root", [1], {"type": "set", "path": "", "value": "x"}, "x"),
    ("set with no segments replaces the root", {"a": 1}, {"type": "set", "path": [], "value": 1}, 1),
    (
        "set keeps a dotted path as one literal key",
        {"a": {"b": 1}},
        {"type": "set", "path": "a.b", "value": 2},
        {"a": {"b": 1}, "a.b": 2},
    ),
    (
        "set creates the objects of a list path",
        {"z": 0},
        {"type": "set", "path": ["a", "b.c"], "value": 1},
        {"z": 0, "a": {"b.c": 1}},
    ),
    (
        "set may replace a non-object leaf",
        {"a": {"b": 1}},
        {"type": "set", "path": ["a", "b"], "value": []},
        {"a": {"b": []}},
    ),
    ("increment adds", {"n": 2}, {"type": "increment", "path": "n", "by": 3}, {"n": 5}),
    ("increment starts at by", {}, {"type": "increment", "path": "n", "by": 3}, {"n": 3}),
    ("increment of a float", {"n": 0.5}, {"type": "increment", "path": "n", "by": 1}, {"n": 1.5}),
    ("increment of the root", 4, {"type": "increment", "path": "", "by": 1}, 5),
    ("increment starts a missing document", None, {"type": "increment", "path": "n", "by": -1}, {"n": -1}),
    ("decrement subtracts", {"n": 2}, {"type": "decrement", "path": "n", "by": 3}, {"n": -1}),
    ("decrement starts at minus by", {}, {"type": "decrement", "path": "n", "by": 3}, {"n": -3}),
    ("append pushes one element", {"a": [1]}, {"type": "append", "path": "a", "value": [2]}, {"a": [1, [2]]}),
    ("append concatenates strings", {"a": "x"}, {"type": "append", "path": "a", "value": "y"}, {"a": "xy"}),
    ("append of a string to a missing key", {}, {"type": "append", "path": "a", "value": "y"}, {"a": "y"}),
    ("append to a missing key", {}, {"type": "append", "path": "a", "value": 1}, {"a": [1]}),
    ("append to a missing nested place", {}, {"type": "append", "path": ["a", "b"], "value": "y"}, {"a": {"b": ["y"]}}),
    (
        "append to a nested string",
        {"a": {"b": "x"}},
        {"type": "append", "path": ["a", "b"], "value": "y"},
        {"a": {"b": "xy"}},
    ),
    ("append to the root without a path", [1], {"type": "append", "value": 2}, [1, 2]),
    ("append to the root by an empty path", "a", {"type": "append", "path": "", "value": "b"}, "ab"),
    ("append to the root by no segments", [1], {"type": "append", "path": [], "value": 2}, [1, 2]),
    ("append to a missing document", None, {"type": "append", "value": 2}, [2]),
    (
        "merge at the root",
        {"a": 1, "b": {"x": 1}},
        {"type": "merge", "value": {"b": {}, "c": 2}},
        {"a": 1, "b": {}, "c": 2},
    ),
    ("merge at a key", {"a": {"x": 1}}, {"type": "merge", "path": "a", "value": {"y": 2}}, {"a": {"x": 1, "y": 2}}),
    (
        "merge at a missing nested place",
        None,
        {"type": "merge", "path": ["a", "b"], "value": {"y": 2}},
        {"a": {"b": {"y": 2}}},
    ),
    (
        "merge replaces what is no object",
        {"a": 1},
        {"type": "merge", "path": ["a", "b"], "value": {}},
        {"a": {"b": {}}},
    ),
    ("merge replaces a root that is no object", [1], {"type": "merge", "value": {"a": 1}}, {"a": 1}),
    ("remove drops a key", {"a": 1, "b": 2}, {"type": "remove", "path": "a"}, {"b": 2}),
    ("remove of a missing key", {"b": 2}, {"type": "remove", "path": "a"}, {"b": 2}),
    ("remove from a missing document", None, {"type": "remove", "path": "a"}, None),
    ("remove of the root", {"a": 1}, {"type": "remove", "path": ""}, None),
    ("remove of a nested key", {"a": {"b": 1, "c": 2}}, {"type": "remove", "path": ["a", "b"]}, {"a": {"c": 2}}),
    ("remove below a missing key", {"a": 1}, {"type": "remove", "path": ["x", "y"]}, {"a": 1}),
    ("set at the depth limit", None, {"type": "set", "path": "", "value": nested(MAX_DEPTH)}, nested(MAX_DEPTH)),
    ("set with a path at the limit", None, {"type": "set", "path": "é" * 128, "value": 1}, {"é" * 128: 1}),
]

REFUSED: list[tuple[Json, object, str]] = [
    ({}, "set", "op.invalid"),
    ({}, None, "op.invalid"),
    ({}, {"path": "a", "value": 1}, "op.invalid"),
    ({}, {"op": "set", "path": "a", "value": 1}, "op.invalid"),
    ({}, {"type": "rename", "path": "a"}, "op.unknown"),
    ({}, {"type": "set", "path": "a"}, "op.invalid"),
    ({}, {"type": "set", "value": 1}, "op.invalid"),
    ({}, {"type": "set", "path": None, "value": 1}, "op.invalid"),
    ({}, {"type": "set", "path": ["a", 1], "value": 1}, "op.invalid"),
    ({}, {"type": "remove"}, "op.invalid"),
    ({}, {"type": "append", "path": "a"}, "op.invalid"),
    ({}, {"type": "append", "path": 1, "value": 1}, "op.invalid"),
    ({}, {"type": "merge", "path": "a"}, "op.invalid"),
    ({}, {"type": "increment", "path": "a"}, "op.invalid"),
    ({}, {"type": "increment", "path": ["a"], "by": 1}, "op.invalid"),
    ([], {"type": "set", "path": "a", "value": 1}, "set.target_not_object"),
    ("x", {"type": "increment", "path": "a", "by": 1}, "increment.target_not_object"),
    (1, {"type": "decrement", "path": "a", "by": 1}, "decrement.target_not_object"),
    ([], {"type": "append", "path": "a", "value": 1}, "append.target_not_object"),
    (True, {"type": "remove", "path": "a"}, "remove.target_not_object"),
    ({"a": 1}, {"type": "set", "path": ["a", "b"], "value": 1}, "set.path.not_object"),
    ({"a": None}, {"type": "set", "path": ["a", "b"], "value": 1}, "set.path.not_object"),
    ({"a": []}, {"type": "append", "path": ["a", "b"], "value": 1}, "append.path.not_object"),
    ({"a": "x"}, {"type": "remove", "path": ["a", "b"]}, "remove.path.not_object"),
    ({}, {"type": "set", "path": ["a"] * 33, "value": 1}, "set.path.too_deep"),
    ({}, {"type": "merge", "path": ["a"] * 33, "value": {}}, "merge.path.too_deep"),
    ({}, {"type": "set", "path": "é" * 129, "value": 1}, "set.path.segment_too_long"),
    ({}, {"type": "increment", "path": "a" * 257, "by": 1}, "increment.path.segment_too_long"),
    ({}, {"type": "append", "path": ["a", ""], "value": 1}, "append.path.empty_segment"),
    ({}, {"type": "remove", "path": [""]}, "remove.path.empty_segment"),
    ({}, {"type": "set", "path": "__proto__", "value": 1}, "set.path.proto_polluted"),
    ({}, {"type": "merge", "path": ["a", "constructor"], "value": {}}, "merge.path.proto_polluted"),
    ({}, {"type": "remove", "path": "prototype"}, "remove.path.proto_polluted"),
    ({}, {"type": "increment", "path": "a", "by": 1.0}, "increment.by.not_an_integer"),
    ({}, {"type": "increment", "path": "a", "by": True}, "increment.by.not_an_integer"),
    ({}, {"type": "decrement", "path": "a", "by": "1"}, "decrement.by.not_an_integer"),
    ({}, {"type": "increment", "path": "a", "by": 2**63}, "increment.by.not_an_integer"),
    ({"a": True}, {"type": "increment", "path": "a", "by": 1}, "increment.not_number"),
    ({"a": None}, {"type": "increment", "path": "a", "by": 1}, "increment.not_number"),
    ({"a": "1"}, {"type": "decrement", "path": "a", "by": 1}, "decrement.not_number"),
    ({"a": 2**63 - 1}, {"type": "increment", "path": "a", "by": 1}, "increment.overflow"),
    ({}, {"type": "decrement", "path": "a", "by": -(2**63)}, "decrement.overflow"),
    ({"a": 1}, {"type": "append", "path": "a", "value": 1}, "append.type_mismatch"),
    ({"a": "x"}, {"type": "append", "path": "a", "value": 1}, "append.type_mismatch"),
    ({"a": None}, {"type": "append", "path": "a", "value": 1}, "append.type_mismatch"),
    ({"a": None}, {"type": "append", "path": ["a"], "value": "x"}, "append.type_mismatch"),
    ({}, {"type": "append", "value": 1}, "append.type_mismatch"),
    ({}, {"type": "merge", "value": [1]}, "merge.value.not_an_object"),
    ({}, {"type": "merge", "value": None}, "merge.value.not_an_object"),
    ({}, {"type": "merge", "value": {str(n): n for n in range(1025)}}, "merge.value.too_many_keys"),
    ({}, {"type": "merge", "value": {"__proto__": 1}}, "merge.value.proto_polluted"),
    ({}, {"type": "merge", "value": {"a": nested(16)}}, "merge.value.too_deep"),
    ({}, {"type": "set", "path": "a", "value": nested(MAX_DEPTH)}, "set.value.too_deep"),
    ({}, {"type": "append", "path": "a", "value": nested(MAX_DEPTH - 1)}, "append.value.too_deep"),
]


@pytest.mark.parametrize(("document", "op", "expected"), [case[1:] for case in APPLIED], ids=[c[0] for c in APPLIED])
def test_an_operation_applies(document: Json, op: dict[str, Json], expected: Json) -> None:
    outcome = apply_ops(document, [op])
    assert (outcome.value, outcome.errors) == (expected, ())


@pytest.mark.parametrize(("document", "op", "code"), REFUSED)
def test_a_refused_operation_is_reported_and_changes_nothing(document: Json, op: object, code: str) -> None:
    outcome = apply_ops(document, [op])
    assert [error.code for error in outcome.errors] == [code]
    assert outcome.value == document


def test_the_operations_around_a_refused_one_still_apply() -> None:
    outcome = apply_ops(
        {"name": "Ada"},
        [
            {"type": "set", "path": "n", "value": 1},
            {"type": "increment", "path": "name", "by": 1},
            {"type": "increment", "path": "n", "by": 1},
            7,
        ],
    )
    assert outcome.value == {"name": "Ada", "n": 2}
    assert [(error.op_index, error.code) for error in outcome.errors] == [
        (1, "increment.not_number"),
        (3, "op.invalid"),
    ]


def test_an_error_says_what_where_and_links_its_explanation() -> None:
    (error,) = apply_ops({"name": "Ada"}, [{"type": "increment", "path": "name", "by": 1}]).errors
    assert error.to_json() == {
        "op_index": 0,
        "code": "increment.not_number",
        "message": "the value at ['name'] is a string, not a number; `set` it to a number first.",
        "doc_url": "docs/reference/state.md#increment.not_number",
    }
    assert doc_url("op.unknown") == "docs/reference/state.md#op.unknown"


def test_what_is_exactly_at_a_limit_applies() -> None:
    keys: Json = {str(n): n for n in range(1024)}
    ops: list[dict[str, Json]] = [
        {"type": "merge", "path": "keys", "value": keys},
        {"type": "merge", "path": "deep", "value": {"a": nested(15)}},
        {"type": "set", "path": [str(n) for n in range(32)], "value": nested(MAX_DEPTH - 32)},
        {"type": "append", "path": "list", "value": nested(MAX_DEPTH - 2)},
        {"type": "set", "path": "max", "value": 2**63 - 2},
        {"type": "increment", "path": "max", "by": 1},
        {"type": "increment", "path": "min", "by": -(2**63)},
    ]
    outcome = apply_ops(None, ops)
    assert outcome.errors == ()
    assert to_json(outcome.value) == outcome.value


def test_no_operations_leave_the_document_as_it_is() -> None:
    document: Json = {"a": [1]}
    assert apply_ops(document, []).value == document


def test_every_code_of_the_table_is_documented_in_the_module() -> None:
    """A code that the module does not list is one nobody can look up."""
    import iii_runtime.core.update_ops as module

    documented = module.__doc__ or ""
    for _, _, code in REFUSED:
        operation, _, reason = code.partition(".")
        assert f"`{code}`" in documented or f"`<op>.{reason}`" in documented, (operation, reason)
