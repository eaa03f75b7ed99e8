"""The workers that a module has."""

from __future__ import annotations

from iii_runtime.core.worker import Worker


def workers_in(module: object) -> list[Worker]:
    """Return the workers among the names of a module, or of what user code has put in its place.

    The type of a value is looked at and not the value: one that stands for another, such as the current request of a
    web framework, may raise when it is asked what it is.
    """
    values = list(getattr(module, "__dict__", {}).values())
    return [value for value in values if issubclass(type(value), Worker)]
