"""Type annotations of steps and workflows: which classes stored data is made into again.

A hint is never a check of plain values: an `int` where the annotation says `str` stays one. Only classes count:
dataclasses, pydantic models, Enum, NamedTuple, TypedDict, tuples and sets, alone or within one another. None stays
None wherever it is. Members that a dataclass does not have any more are passed over; new ones take their default.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import sys
import types
import typing
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, cast

from iii_runtime.core.payload import PayloadError

_UNIONS = (typing.Union, types.UnionType)
_PASSED = (Awaitable, Coroutine)


class ValueUnfitError(PayloadError):
    """A stored value does not fit the class that an annotation names. Names the path and what is wrong."""

    code = "value_unfit"


def hint_of(function: Callable[..., Any], name: str = "return") -> Any:
    """Return the annotation of a function's result, or of its parameter `name`; None if there is none that is known.

    It is worked out once, when it is first asked for. One that cannot be resolved counts as none.
    """
    target: Any = function
    while isinstance(target, functools.partial):
        target = target.func
    target = getattr(target, "__func__", target)
    if not inspect.isroutine(target) and not isinstance(target, type):
        target = getattr(type(target).__call__, "__func__", type(target).__call__)
    try:
        return _resolved(target, name)
    except TypeError:  # no hash
        return None


def by_name() -> bool:
    """Return whether pydantic reads the names of fields where they have an alias."""
    version = str(getattr(sys.modules.get("pydantic"), "VERSION", "0.0")).split(".")
    return (int(version[0]), int(version[1])) >= (2, 11)


def rebuild(value: Any, hint: Any, where: str) -> Any:
    """Return a value with the classes that a hint names.

    Raises:
        ValueUnfitError: It does not fit one of them.
    """
    hint = _bare(hint)
    if value is None or hint is None or hint is Any:
        return value
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in _UNIONS:
        return _rebuild_union(value, [part for part in parts if part is not type(None)], where)
    if origin is typing.Literal:
        return next((each for each in parts if isinstance(each, enum.Enum) and _is_value(each, value)), value)
    kind = origin or hint
    if not isinstance(kind, type):
        return value
    maker = _maker(kind)
    return value if maker is None else maker(value, kind, parts, where)


def _maker(kind: type) -> Callable[[Any, Any, tuple[Any, ...], str], Any] | None:
    if callable(getattr(kind, "model_validate", None)):
        return _rebuild_model
    if dataclasses.is_dataclass(kind):
        return _rebuild_dataclass
    if typing.is_typeddict(kind):
        return _rebuild_typed_dict
    for outer, maker in _MAKERS:
        if issubclass(kind, outer):
            return maker
    is_list = kind not in (str, bytes, object) and issubclass(list, kind)
    return _rebuild_list if is_list else None


def _rebuild_union(value: Any, parts: list[Any], where: str) -> Any:
    """Return the value as the first part that it fits, one that knows all of its members before others."""
    if len(parts) == 1:
        return rebuild(value, parts[0], where)
    bare = [_bare(part) for part in parts]
    if any(part is type(value) for part in bare):  # it is there as it is: `str | Color` leaves a text alone
        return value
    for is_exact in (True, False):
        for part in bare:
            if is_exact and not _knows_all(value, part):
                continue
            try:
                made = rebuild(value, part, where)
            except ValueUnfitError:
                continue
            if made is not value:
                return made
    return value


def _knows_all(value: Any, hint: Any) -> bool:
    kind = typing.get_origin(hint) or hint
    if not isinstance(value, dict):
        return True
    if callable(getattr(kind, "model_validate", None)):
        return set(value) <= set(kind.model_fields)
    if dataclasses.is_dataclass(kind):
        return set(value) <= {field.name for field in dataclasses.fields(kind)}
    return not typing.is_typeddict(kind) or set(value) <= set(_class_hints(cast(type, kind)))


def _rebuild_model(value: Any, kind: Any, parts: tuple[Any, ...], where: str) -> Any:
    options = {"strict": False} | ({"by_alias": True, "by_name": True} if by_name() else {})
    try:
        return kind.model_validate(value, **options)
    except Exception as error:
        raise ValueUnfitError(f"{where} does not fit {kind.__name__}: {error}") from error


def _rebuild_dataclass(value: Any, kind: Any, parts: tuple[Any, ...], where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueUnfitError(f"{where} does not fit {kind.__name__}: it is of type {type(value).__name__}.")
    hints, fields = _class_hints(kind), dataclasses.fields(kind)
    known = {
        field.name: rebuild(value[field.name], hints.get(field.name), f"{where}.{field.name}")
        for field in fields
        if field.name in value
    }
    missing = [field.name for field in fields if field.name not in known and field.init and not _has_default(field)]
    if missing:
        raise ValueUnfitError(
            f"{where} does not fit {kind.__name__}: it has no {', '.join(missing)}. Give new fields a default."
        )
    try:
        made = kind(**{field.name: known[field.name] for field in fields if field.init and field.name in known})
        for name, item in known.items():  # `__post_init__` has run before: what it makes of fields is stored already
            object.__setattr__(made, name, item)
    except Exception as error:
        raise ValueUnfitError(f"{where} does not fit {kind.__name__}: {error}") from error
    return made


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _rebuild_enum(value: Any, kind: Any, parts: tuple[Any, ...], where: str) -> Any:
    for member in kind:
        if _is_value(member, value):
            return member
    try:
        return kind(value)
    except Exception as error:
        raise ValueUnfitError(f"{where} does not fit {kind.__name__}: no member is {value!r:.60}.") from error


def _is_value(member: enum.Enum, value: Any) -> bool:
    own = list(member.value) if isinstance(member.value, tuple) else member.value
    return type(own) is type(value) and bool(own == value)


def _rebuild_typed_dict(value: Any, kind: Any, parts: tuple[Any, ...], where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueUnfitError(f"{where} does not fit {kind.__name__}: it is of type {type(value).__name__}.")
    hints = _class_hints(kind)
    return {key: rebuild(item, hints.get(key), f"{where}.{key}") for key, item in value.items()}


def _rebuild_tuple(value: Any, kind: Any, parts: tuple[Any, ...], where: str) -> Any:
    if not isinstance(value, list | tuple):
        return value
    if hasattr(kind, "_fields"):
        hints = _class_hints(kind)
        items = [
            rebuild(item, hints.get(name), f"{where}.{name}") for name, item in zip(kind._fields, value, strict=False)
        ]
        try:
            return kind(*items, *value[len(items) :])
        except TypeError as error:
            raise ValueUnfitError(f"{where} does not fit {kind.__name__}: it has {len(value)} items.") from error
    if len(parts) == 2 and parts[1] is Ellipsis:
        return tuple(rebuild(item, parts[0], f"{where}[{index}]") for index, item in enumerate(value))
    padded = [*parts, *[None] * (len(value) - len(parts))]
    return tuple(rebuild(item, padded[index], f"{where}[{index}]") for index, item in enumerate(value))


def _rebuild_set(value: Any, kind: Any, parts: tuple[Any, ...], where: str) -> Any:
    if not isinstance(value, list | set | frozenset):
        return value
    items = [rebuild(item, parts[0], f"{where}.{{element}}") for item in value] if parts else value
    try:
        return frozenset(items) if issubclass(kind, frozenset) or isinstance(value, frozenset) else set(items)
    except TypeError as error:
        raise ValueUnfitError(f"{where} does not fit a set: {error}") from error


def _rebuild_mapping(value: Any, kind: Any, parts: tuple[Any, ...], where: str) -> Any:
    if not isinstance(value, dict) or len(parts) != 2:
        return value
    key_hint, item_hint = parts
    is_enum = isinstance(key_hint, type) and issubclass(key_hint, enum.Enum)
    return {
        (rebuild(key, key_hint, where) if is_enum else key): rebuild(item, item_hint, f"{where}.{key}")
        for key, item in value.items()
    }


def _rebuild_list(value: Any, kind: Any, parts: tuple[Any, ...], where: str) -> Any:
    if not isinstance(value, list) or len(parts) != 1:
        return value
    return [rebuild(item, parts[0], f"{where}[{index}]") for index, item in enumerate(value)]


_MAKERS: tuple[tuple[type, Callable[[Any, Any, tuple[Any, ...], str], Any]], ...] = (
    (enum.Enum, _rebuild_enum),
    (tuple, _rebuild_tuple),
    (AbstractSet, _rebuild_set),
    (Mapping, _rebuild_mapping),
)


def _bare(hint: Any) -> Any:
    while True:
        if typing.get_origin(hint) in (typing.Annotated, typing.Required, typing.NotRequired):
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        else:
            return hint


@functools.lru_cache(maxsize=1024)
def _resolved(target: Any, name: str) -> Any:
    def holder() -> None: ...

    try:
        holder.__annotations__ = {name: target.__annotations__[name]}
        unwrapped = inspect.unwrap(target)
        hint = typing.get_type_hints(holder, getattr(unwrapped, "__globals__", None))[name]
    except Exception:  # noqa: BLE001 - a name that only a type checker knows: no hint, and no failure of a step
        return None
    if typing.get_origin(hint) in _PASSED:
        hint = typing.get_args(hint)[-1]
    return None if hint is type(None) else hint


@functools.lru_cache(maxsize=1024)
def _class_hints(kind: type) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except Exception:  # noqa: BLE001 - as in `_resolved`
        return {}
