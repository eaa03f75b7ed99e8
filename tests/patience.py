"""Waits for what happens in another process: polling with a deadline, in real time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 60.0
"""How long something may take that a busy machine does within seconds."""

_INTERVAL_S = 0.02


def eventually(look: Callable[[], T | None], what: str, *, within_s: float = PATIENCE_S) -> T:
    """Return what `look` returns as soon as it is neither None nor False; fail after `within_s`.

    Args:
        look: Looks once; called again and again.
        what: What is waited for, for the failure; the last thing that was seen is added.
        within_s: Seconds.
    """
    deadline = time.monotonic() + within_s
    while True:
        found = look()
        if found is not None and found is not False:
            return found
        assert time.monotonic() < deadline, f"waited {within_s:g} s in vain for {what}"
        time.sleep(_INTERVAL_S)
