"""Every error code of an update operation is explained where its `doc_url` leads."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from iii_runtime.core import update_ops
from iii_runtime.core.payload import Json
from iii_runtime.core.update_ops import apply_ops, doc_url

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference" / "state.md"
OPERATIONS = ("set", "increment", "decrement", "append", "merge", "remove")


def nested(levels: int) -> Json:
    value: Json = 1
    for _ in range(levels):
        value = {"k": value}
    return value


DOCUMENTS: tuple[Json, ...] = (None, {}, [1], {"a": 1}, {"a": "x"}, {"a": 2**63 - 1}, {"a": -(2**63)})
PATHS: tuple[Json, ...] = (None, "", "a", ["a", "b"], ["a", ""], ["a"] * 33, "a" * 257, "__proto__")
VALUES: tuple[Json, ...] = (1, "x", {"a": 1}, {str(n): n for n in range(1025)}, {"__proto__": 1}, nested(70))
STEPS: tuple[Json, ...] = (1, -1, "x")


def reported_codes() -> set[str]:
    """Return every code that some operation on some document reports."""
    ops: list[object] = [7, {"type": "rename"}]
    for name, path, value, by in itertools.product(OPERATIONS, PATHS, VALUES, STEPS):
        ops.append({"type": name, "path": path, "value": value, "by": by})
    return {error.code for document in DOCUMENTS for op in ops for error in apply_ops(document, [op]).errors}


def reasons_in_the_source() -> set[str]:
    """Return the codes as they are written in the module, without the name of an operation."""
    source = Path(update_ops.__file__).read_text()
    written = re.findall(r'f?"((?:\{name\}|op|append|merge)\.[a-z_.]+)"', source)
    return {reason.removeprefix("{name}.") for reason in written}


def test_each_reported_code_has_its_anchor_and_each_anchor_is_a_code() -> None:
    anchors = re.findall(r'<a id="([^"]+)"></a>', REFERENCE.read_text())
    assert sorted(anchors) == sorted(reported_codes())


def test_the_codes_looked_for_are_all_that_the_module_has() -> None:
    codes = reported_codes()
    reasons = codes | {code.partition(".")[2] for code in codes}
    assert reasons_in_the_source() - reasons == set()
    assert len(reasons_in_the_source()) > 10


def test_a_code_leads_to_the_reference() -> None:
    path, _, anchor = doc_url("increment.overflow").partition("#")
    assert (ROOT / path, anchor) == (REFERENCE, "increment.overflow")
