"""moto on the virtual clock.

Every backend of moto asks `moto.core.utils.utcnow` for the time: directly, or through `unix_time` and
`unix_time_millis` of the same module. Some import the function by name. So the name is replaced in each loaded module
of moto that has it, and put back afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from types import ModuleType

import moto.core.utils

from iii_runtime.ports.clock import Clock

_REAL = moto.core.utils.utcnow


@contextmanager
def moto_follows(clock: Clock) -> Iterator[None]:
    """Let moto take its time from `clock`: sent and visible times of SQS, of stream records, of objects.

    Backends that are imported inside the block follow too, and go back to real time at its end like the others.
    """

    def now() -> datetime:
        return clock.now().replace(tzinfo=None)

    _replace(_REAL, now)
    try:
        yield
    finally:
        _replace(now, _REAL)


def _replace(old: Callable[[], datetime], new: Callable[[], datetime]) -> None:
    for module in _moto_modules():
        if module.__dict__.get("utcnow") is old:
            module.__dict__["utcnow"] = new


def _moto_modules() -> list[ModuleType]:
    return [module for name, module in list(sys.modules.items()) if name.startswith("moto.")]
