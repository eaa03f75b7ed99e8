"""Which updates DynamoDB can carry out by itself, and how they are said to it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from iii_runtime.adapters.aws.attributes import Value
from iii_runtime.adapters.aws.document_codec import encode_document
from iii_runtime.adapters.aws.table import Expression
from iii_runtime.core.payload import Json, to_json
from iii_runtime.core.update_ops import apply_ops


class SetOp(NamedTuple):
    """A `set` operation that is valid whatever the document is, as long as its path leads through objects."""

    path: tuple[str, ...]
    value: Json


def set_ops(ops: Sequence[Json]) -> list[SetOp] | None:
    """Return the operations of an update if all of them are valid `set` operations, else None.

    Raises:
        PayloadError: A value is not JSON.
    """
    found: list[SetOp] = []
    for op in ops:
        if not isinstance(op, dict) or op.get("type") != "set" or apply_ops(None, [op]).errors:
            return None
        path = op["path"]
        segments = path if isinstance(path, list) else [path] if path else []
        found.append(SetOp(tuple(str(segment) for segment in segments), to_json(op["value"], "value")))
    return found


def is_native(sets: Sequence[SetOp]) -> bool:
    """Whether DynamoDB can carry them out in one update: each below the document, and none inside of another."""
    paths = sorted(op.path for op in sets)
    return bool(paths) and bool(paths[0]) and not any(_begins(later, path) for path, later in pairwise(paths))


def set_expressions(sets: Sequence[SetOp]) -> tuple[Expression, Expression]:
    """Return the `SET` expression, and the condition that each path leads through objects of the document's item."""
    names: dict[str, str] = {"#v": "v"}
    values: dict[str, Value] = {}
    clauses: list[str] = []
    parents: list[str] = []
    for index, (path, value) in enumerate(sets):
        steps = ["#v"]
        for step, segment in enumerate(path):
            names[f"#p{index}s{step}"] = segment
            steps.append(f"#p{index}s{step}")
        clauses.append(f"{'.'.join(steps)} = :p{index}")
        parents.append(f"attribute_type({'.'.join(steps[:-1])}, :map)")
        values[f":p{index}"] = encode_document(value, depth=len(path))
    return (
        Expression(text="SET " + ", ".join(clauses), names=names, values=values),
        Expression(text=" AND ".join(dict.fromkeys(parents)), values={":map": "M"}),
    )


def _begins(path: tuple[str, ...], start: tuple[str, ...]) -> bool:
    return path[: len(start)] == start
