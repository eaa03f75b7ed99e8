"""`apply_ops` against a second, naive implementation, and the laws that must hold for any input."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from iii_runtime.core.payload import Json
from iii_runtime.core.update_ops import apply_ops

KEYS = st.sampled_from(["a", "b", "a.b", "", "__proto__", "k" * 257])
SCALARS: st.SearchStrategy[Json] = (
    st.none() | st.booleans() | st.integers(-5, 5) | st.integers(2**63 - 3, 2**63 - 1) | st.sampled_from(["x", 0.5])
)
VALUES: st.SearchStrategy[Json] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b", "a.b"]), inner, max_size=3),
    max_leaves=8,
)
PATHS = KEYS | st.lists(KEYS, max_size=3) | st.none() | st.integers(0, 1)
OPS = st.fixed_dictionaries(
    {"type": st.sampled_from(["set", "increment", "decrement", "append", "merge", "remove", "rename"])},
    optional={"path": PATHS, "value": VALUES, "by": st.integers(-3, 3) | st.just(2**63) | SCALARS},
)


class Refused(Exception):  # noqa: N818
    """The model's own signal."""


def model(document: Any, op: dict[str, Any]) -> Any:  # noqa: C901, PLR0912
    """Apply one operation to a private copy, in the plainest words."""
    kind = op["type"]
    if kind == "rename":
        raise Refused("op.unknown")
    given_path = op.get("path")
    if kind in ("append", "merge") and given_path is None:
        given_path = ""
    if isinstance(given_path, str):
        keys = [] if given_path == "" else [given_path]
    elif isinstance(given_path, list) and kind not in ("increment", "decrement"):
        keys = given_path
    else:
        raise Refused("op.invalid")
    for key in keys:
        if key == "":
            raise Refused(kind + ".path.empty_segment")
        if key == "__proto__":
            raise Refused(kind + ".path.proto_polluted")
        if len(key) > 256:
            raise Refused(kind + ".path.segment_too_long")
    if kind in ("set", "append", "merge") and "value" not in op:
        raise Refused("op.invalid")
    if kind in ("increment", "decrement"):
        if "by" not in op:
            raise Refused("op.invalid")
        if type(op["by"]) is not int or op["by"] >= 2**63:
            raise Refused(kind + ".by.not_an_integer")
    if kind == "merge" and type(op["value"]) is not dict:
        raise Refused("merge.value.not_an_object")

    if kind == "remove":
        if not keys or document is None:
            return None
        here = document
        for position, key in enumerate(keys):
            if type(here) is not dict:
                raise Refused("remove.path.not_object" if position else "remove.target_not_object")
            if key not in here:
                return document
            if position == len(keys) - 1:
                del here[key]
            else:
                here = here[key]
        return document

    # A holder makes the root an ordinary slot.
    holder: dict[str, Any] = {} if document is None else {"root": document}
    slots = ["root", *keys]
    here = holder
    for position, slot in enumerate(slots[:-1]):
        if slot not in here:
            here[slot] = {}
        if type(here[slot]) is not dict:
            if kind != "merge":
                raise Refused(kind + (".path.not_object" if position else ".target_not_object"))
            here[slot] = {}
        here = here[slot]
    last = slots[-1]
    if kind == "set":
        here[last] = op["value"]
    elif kind == "merge":
        if type(here.get(last)) is not dict:
            here[last] = {}
        here[last].update(op["value"])
    elif kind == "append":
        old = here.get(last)
        if last not in here:
            joins = type(op["value"]) is str and not (isinstance(op.get("path"), list) and keys)
            here[last] = op["value"] if joins else [op["value"]]
        elif type(old) is list:
            old.append(op["value"])
        elif type(old) is str and type(op["value"]) is str:
            here[last] = old + op["value"]
        else:
            raise Refused("append.type_mismatch")
    else:
        old = here.get(last, 0)
        if type(old) not in (int, float):
            raise Refused(kind + ".not_number")
        new = old + op["by"] if kind == "increment" else old - op["by"]
        if type(new) is int and not -(2**63) <= new < 2**63:
            raise Refused(kind + ".overflow")
        here[last] = new
    return holder["root"]


@given(VALUES, st.lists(OPS, max_size=6))
def test_any_operations_agree_with_the_naive_model(document: Json, ops: list[dict[str, Any]]) -> None:
    expected = copy.deepcopy(document)
    refusals = []
    for index, op in enumerate(ops):
        try:
            expected = model(copy.deepcopy(expected), copy.deepcopy(op))
        except Refused as refused:
            refusals.append((index, str(refused)))
    outcome = apply_ops(document, ops)
    assert outcome.value == expected
    assert [(error.op_index, error.code) for error in outcome.errors] == refusals


@given(VALUES, st.lists(OPS | VALUES, max_size=6))
def test_neither_the_document_nor_the_operations_are_changed(document: Json, ops: list[object]) -> None:
    before = copy.deepcopy((document, ops))
    apply_ops(document, ops)
    assert (document, ops) == before


@given(VALUES, st.lists(OPS | VALUES, max_size=6))
def test_leaving_out_the_refused_operations_gives_the_same_document(document: Json, ops: list[object]) -> None:
    outcome = apply_ops(document, ops)
    refused = {error.op_index for error in outcome.errors}
    kept = [op for index, op in enumerate(ops) if index not in refused]
    again = apply_ops(document, kept)
    assert (again.value, again.errors) == (outcome.value, ())


@given(VALUES, st.lists(OPS, max_size=6), st.integers(0, 6))
def test_two_updates_in_a_row_equal_one_with_both(document: Json, ops: list[object], cut: int) -> None:
    first = apply_ops(document, ops[:cut])
    assert apply_ops(first.value, ops[cut:]).value == apply_ops(document, ops).value


@given(
    st.dictionaries(st.sampled_from(["a", "b"]), st.integers(-100, 100)),
    st.lists(st.tuples(st.sampled_from(["increment", "decrement"]), st.sampled_from(["a", "b"]), st.integers(-9, 9))),
    st.randoms(use_true_random=False),
)
def test_increments_and_decrements_commute(
    document: dict[str, Json], steps: list[tuple[str, str, int]], random: Any
) -> None:
    ops = [{"type": kind, "path": path, "by": by} for kind, path, by in steps]
    shuffled = list(ops)
    random.shuffle(shuffled)
    assert apply_ops(document, ops).value == apply_ops(document, shuffled).value


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_a_decrement_undoes_the_increment_unless_that_was_refused(start: int, by: int) -> None:
    ops = [{"type": kind, "path": "", "by": by} for kind in ("increment", "decrement")]
    outcome = apply_ops(start, ops[:1])
    if outcome.errors:
        assert not -(2**63) <= start + by < 2**63
        assert outcome.value == start
    else:
        assert apply_ops(outcome.value, ops[1:]).value == start
