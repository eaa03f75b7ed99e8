"""How an attempt of a step ended."""

from __future__ import annotations

from typing import Any

from iii_runtime.core.frozen import frozen


@frozen(kw_only=True)
class Outcome:
    """What a body came to: its value, or its error.

    Attributes:
        value: What it returned.
        error: What it raised; None if it returned.
        elapsed_ms: How long it took.
    """

    value: Any = None
    error: Exception | None = None
    elapsed_ms: int = 0
