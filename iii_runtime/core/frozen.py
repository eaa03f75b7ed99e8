"""Values that never change: `@frozen` is `@dataclass(frozen=True, slots=True)`, made in a quarter of the time.

A dataclass writes the text of six methods for each class and compiles it. That was most of what this package cost at
import, which every cold start of a Lambda pays. Here the constructor alone is made for the class, and the others are
shared by all classes.

It has a price: a field that is set is looked at first. Where a value of many fields is made for each message or call
(`Call`, `Envelope`), it stays a dataclass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields
from reprlib import recursive_repr
from typing import Any, TypeVar, cast, dataclass_transform, overload

T = TypeVar("T")


@overload
def frozen(cls: type[T], /) -> type[T]: ...


@overload
def frozen(*, kw_only: bool = False, init: bool = True) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(
    cls: type[T] | None = None, /, *, kw_only: bool = False, init: bool = True
) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a dataclass of a class, with slots, whose fields are set once and never again.

    It has what a frozen dataclass has: equality and hash over the fields that are compared, a text, `fields`,
    `replace`, `asdict`. A method that the class has itself stays. `__post_init__` may set a field again with
    `object.__setattr__`.

    Args:
        cls: The class.
        kw_only: Whether the constructor takes its fields by name alone.
        init: Whether a constructor is made.

    Raises:
        FrozenInstanceError: In the class that is returned: a field is set again, or deleted.
    """

    def made(given: type[T]) -> type[T]:
        for name in _SHARED:
            if name not in vars(given):
                setattr(given, name, vars(_Methods)[name])
        return dataclass(slots=True, kw_only=kw_only, init=init, eq=False, repr=False)(given)

    return made if cls is None else made(cls)


class _Methods:
    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _compared(self) == _compared(other)

    def __hash__(self) -> int:
        return hash(_compared(self))

    @recursive_repr("...")
    def __repr__(self) -> str:
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(cast(Any, self)) if each.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, name):
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


_SHARED = ("__eq__", "__hash__", "__repr__", "__setattr__", "__delattr__")


def _compared(value: Any) -> tuple[object, ...]:
    return tuple(getattr(value, each.name) for each in fields(value) if each.compare)
