"""The operations of `state::update` and `stream::update`, as one pure function.

Operations apply in order. One that cannot apply is skipped and reported; the others still apply.
An operation is an object whose `type` names it:

| type | fields | effect |
|---|---|---|
| `set` | `path`, `value` | replaces the value at the path |
| `increment`, `decrement` | `path`, `by` | adds or subtracts; a missing number counts as 0 |
| `append` | `path`?, `value` | pushes to an array, concatenates two strings, or starts one |
| `merge` | `path`?, `value` | shallow merge of an object |
| `remove` | `path` | removes a key; a missing key is no error; the root becomes null |

A string path is one literal first-level key (`"a.b"` is a key named `a.b`), `""` is the whole document. `append` and
`merge` also take a list of segments (nested) or no path (the document). `set` and `remove` take a list of segments
too, which is an addition to iii. A document of null is a missing one and starts as `{}` where a key is needed; a null
inside it is a value like any other. `append` at a missing place makes `[value]`, except that a string appended by a
string path stays a string. `merge` replaces whatever is no object on its way, the document included; no other
operation overwrites what it walks through.

Error codes, `<op>` being the operation's type:

- `op.invalid`: not an object, or a field is missing or of the wrong type
- `op.unknown`: no operation has this type
- `<op>.target_not_object`: the path names a key, the document is no object (never for `merge`)
- `<op>.path.not_object`: a segment before the last holds no object (`set`, `append`, `remove`)
- `<op>.path.too_deep`: more than 32 segments
- `<op>.path.segment_too_long`: a segment of more than 256 bytes
- `<op>.path.empty_segment`: an empty segment in a list
- `<op>.path.proto_polluted`: a segment is `__proto__`, `constructor` or `prototype`
- `<op>.by.not_an_integer`: `by` is not an integer of 64 bits (`increment`, `decrement`)
- `<op>.not_number`: the present value is no number (`increment`, `decrement`)
- `<op>.overflow`: the result does not fit in 64 bits (`increment`, `decrement`)
- `append.type_mismatch`: the present value is neither an array nor a string to extend by a string
- `merge.value.not_an_object`, `merge.value.too_many_keys` (1024), `merge.value.proto_polluted`
- `<op>.value.too_deep`: nested deeper than 16 levels (`merge`), or deeper than a document may be (`set`, `append`)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TypeAlias, cast

from iii_runtime.core.frozen import frozen
from iii_runtime.core.payload import MAX_DEPTH, Json

MAX_PATH_SEGMENTS = 32
MAX_SEGMENT_BYTES = 256
MAX_MERGE_DEPTH = 16
MAX_MERGE_KEYS = 1024
REFUSED_NAMES = frozenset({"__proto__", "constructor", "prototype"})

_MIN_I64, _MAX_I64 = -(2**63), 2**63 - 1


@frozen(kw_only=True)
class OpError:
    """One operation that was skipped.

    Attributes:
        op_index: Its position in the list, from 0.
        code: `<op>.<reason>`, see the module.
        message: What was wrong and what would do.
        doc_url: Where the code is explained.
    """

    op_index: int
    code: str
    message: str
    doc_url: str

    def to_json(self) -> dict[str, Json]:
        """Return the entry of `errors` in the result of `state::update`."""
        return {"op_index": self.op_index, "code": self.code, "message": self.message, "doc_url": self.doc_url}


@frozen(kw_only=True)
class UpdateOutcome:
    """The document after an update, and the operations that were skipped.

    Attributes:
        value: The new document. It shares its unchanged parts with the old one; do not change it.
        errors: In the order of the operations; empty when all applied.
    """

    value: Json
    errors: tuple[OpError, ...] = ()


def apply_ops(document: Json | None, ops: Sequence[object]) -> UpdateOutcome:
    """Apply `ops` to `document` in order and return the new document.

    Args:
        document: The stored JSON value, None when there is none. It is not changed.
        ops: The operations, JSON values as the caller sent them.

    Returns:
        The new document and an error for each operation that was skipped. Nothing is raised.
    """
    errors: list[OpError] = []
    for index, op in enumerate(ops):
        try:
            document = _apply(document, op)
        except _RefusedError as refused:
            url = doc_url(refused.code)
            errors.append(OpError(op_index=index, code=refused.code, message=refused.message, doc_url=url))
    return UpdateOutcome(value=document, errors=tuple(errors))


def doc_url(code: str) -> str:
    """Return where the documentation explains an error code."""
    return f"docs/reference/state.md#{code}"


class _RefusedError(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class _Missing(Enum):
    MISSING = "missing"


_MISSING = _Missing.MISSING
_Found: TypeAlias = "Json | _Missing"
_Op: TypeAlias = Mapping[str, object]


def _apply(document: Json, op: object) -> Json:
    if not isinstance(op, Mapping):
        raise _RefusedError("op.invalid", f"An operation is an object, found {_kind(op)}.")
    name = op.get("type")
    if not isinstance(name, str):
        raise _RefusedError("op.invalid", f"`type` must be one of {', '.join(_OPS)}, found {_kind(name)}.")
    apply = _OPS.get(name)
    if apply is None:
        raise _RefusedError("op.unknown", f"No operation has the type {name[:32]!a}; there are {', '.join(_OPS)}.")
    return apply(name, document, op)


def _set(name: str, document: Json, op: _Op) -> Json:
    path = _path(name, op, takes_list=True)
    value = _value(name, op)
    _check_depth(name, value, MAX_DEPTH - len(path))
    return _changed(name, document, path, lambda _: value)


def _add(name: str, document: Json, op: _Op) -> Json:
    path = _path(name, op)
    if "by" not in op:
        raise _RefusedError("op.invalid", f"`{name}` needs `by`.")
    by = op["by"]
    if isinstance(by, bool) or not isinstance(by, int) or not _MIN_I64 <= by <= _MAX_I64:
        raise _RefusedError(f"{name}.by.not_an_integer", f"`by` must be an integer of 64 bits, found {_kind(by)}.")
    delta = -by if name == "decrement" else by

    def change(found: _Found) -> Json:
        number = 0 if found is _MISSING else found
        if isinstance(number, bool) or not isinstance(number, int | float):
            message = f"{_where(path)} is {_kind(number)}, not a number; `set` it to a number first."
            raise _RefusedError(f"{name}.not_number", message)
        result = number + delta
        if isinstance(result, int) and not _MIN_I64 <= result <= _MAX_I64:
            raise _RefusedError(f"{name}.overflow", f"{_where(path)} would leave the range of 64-bit integers.")
        return result

    return _changed(name, document, path, change)


def _append(name: str, document: Json, op: _Op) -> Json:
    path = _path(name, op, takes_list=True, is_optional=True)
    value = _value(name, op)
    is_nested = bool(path) and not isinstance(op.get("path"), str)
    _check_depth(name, value, MAX_DEPTH - len(path) - 1)

    def change(found: _Found) -> Json:
        if found is _MISSING:
            return value if isinstance(value, str) and not is_nested else [value]
        if isinstance(found, list):
            return [*found, value]
        if isinstance(found, str) and isinstance(value, str):
            return found + value
        message = f"{_where(path)} is {_kind(found)} and cannot take {_kind(value)}"
        raise _RefusedError("append.type_mismatch", f"{message}; append to an array, or a string to a string.")

    return _changed(name, document, path, change)


def _merge(name: str, document: Json, op: _Op) -> Json:
    path = _path(name, op, takes_list=True, is_optional=True)
    value = _value(name, op)
    if not isinstance(value, dict):
        raise _RefusedError("merge.value.not_an_object", f"`value` must be an object, found {_kind(value)}.")
    if len(value) > MAX_MERGE_KEYS:
        message = f"`value` has {len(value)} keys, the limit is {MAX_MERGE_KEYS}; use several updates."
        raise _RefusedError("merge.value.too_many_keys", message)
    for key in sorted(REFUSED_NAMES & value.keys()):
        raise _RefusedError("merge.value.proto_polluted", f"`value` has the refused key `{key}`.")
    _check_depth(name, value, MAX_MERGE_DEPTH)

    def change(found: _Found) -> Json:
        return {**found, **value} if isinstance(found, dict) else value

    return _changed(name, document, path, change, overwrites=True)


def _remove(name: str, document: Json, op: _Op) -> Json:
    path = _path(name, op, takes_list=True)
    if not path or document is None:
        return None
    return _without(name, document, path, 0)


_OPS: Mapping[str, Callable[[str, Json, _Op], Json]] = {
    "set": _set,
    "increment": _add,
    "decrement": _add,
    "append": _append,
    "merge": _merge,
    "remove": _remove,
}


def _path(name: str, op: _Op, *, takes_list: bool = False, is_optional: bool = False) -> tuple[str, ...]:
    path = op.get("path")
    if path is None and is_optional:
        return ()
    if isinstance(path, str):
        segments: tuple[object, ...] = (path,) if path else ()
    elif isinstance(path, list | tuple) and takes_list:
        segments = tuple(path)
    else:
        expected = "a string or a list of strings" if takes_list else "a string"
        raise _RefusedError("op.invalid", f"`path` of `{name}` must be {expected}.")
    if len(segments) > MAX_PATH_SEGMENTS:
        message = f"`path` has {len(segments)} segments, the limit is {MAX_PATH_SEGMENTS}."
        raise _RefusedError(f"{name}.path.too_deep", message)
    return tuple(_segment(name, segment) for segment in segments)


def _segment(name: str, segment: object) -> str:
    if not isinstance(segment, str):
        raise _RefusedError("op.invalid", f"A segment of `path` must be a string, found {_kind(segment)}.")
    if not segment:
        raise _RefusedError(f"{name}.path.empty_segment", "A segment of `path` is empty.")
    if segment in REFUSED_NAMES:
        raise _RefusedError(f"{name}.path.proto_polluted", f"The segment `{segment}` is refused; use another name.")
    if len(segment.encode("utf-8", "surrogatepass")) > MAX_SEGMENT_BYTES:
        message = f"A segment of `path` is longer than {MAX_SEGMENT_BYTES} bytes: {segment[:32]!a}..."
        raise _RefusedError(f"{name}.path.segment_too_long", message)
    return segment


def _value(name: str, op: _Op) -> Json:
    if "value" not in op:
        raise _RefusedError("op.invalid", f"`{name}` needs `value`.")
    return cast("Json", op["value"])


def _check_depth(name: str, value: Json, levels: int) -> None:
    if _is_deeper(value, levels):
        raise _RefusedError(f"{name}.value.too_deep", f"`value` is nested deeper than {levels} levels.")


def _is_deeper(value: Json, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels <= 0 or any(_is_deeper(item, levels - 1) for item in inner)


def _changed(
    name: str, document: Json, path: tuple[str, ...], change: Callable[[_Found], Json], *, overwrites: bool = False
) -> Json:
    """Return the document with the value at `path` changed, copying only the objects on the way.

    What is missing on the way becomes an object; so does whatever else is none if it `overwrites`, and is refused if
    not.
    """

    def at(found: _Found, depth: int) -> Json:
        if depth == len(path):
            return change(found)
        if found is _MISSING or (overwrites and not isinstance(found, dict)):
            found = {}
        parent = _object(name, found, path, depth)
        key = path[depth]
        return {**parent, key: at(parent.get(key, _MISSING), depth + 1)}

    return at(_MISSING if document is None else document, 0)


def _without(name: str, found: Json, path: tuple[str, ...], depth: int) -> Json:
    parent = _object(name, found, path, depth)
    key, is_last = path[depth], depth == len(path) - 1
    if key not in parent:
        return parent
    if is_last:
        return {other: item for other, item in parent.items() if other != key}
    return {**parent, key: _without(name, parent[key], path, depth + 1)}


def _object(name: str, found: Json, path: tuple[str, ...], depth: int) -> dict[str, Json]:
    if isinstance(found, dict):
        return found
    code = f"{name}.path.not_object" if depth else f"{name}.target_not_object"
    raise _RefusedError(code, f"{_where(path[:depth])} is {_kind(found)}, which has no key {path[depth]!a}.")


def _where(path: tuple[str, ...]) -> str:
    return f"the value at {list(path)!a}" if path else "the document"


def _kind(value: object) -> str:
    for kind, name in _KINDS:
        if isinstance(value, kind):
            return name
    return f"a {type(value).__name__}"


_KINDS: tuple[tuple[type, str], ...] = (
    (type(None), "null"),
    (bool, "a boolean"),
    (int, "an integer"),
    (float, "a number"),
    (str, "a string"),
    (list, "an array"),
    (dict, "an object"),
)
