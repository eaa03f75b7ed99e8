"""W3C trace context: read it, continue it. Identities are passed in."""

from __future__ import annotations

import re
from typing import TypeGuard

_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
_MAX_BAGGAGE_BYTES = 8192


def child_traceparent(parent: str | None, new_id: str) -> str:
    """Return a traceparent for new work: in `parent`'s trace if that is valid, in a trace of its own otherwise.

    Args:
        parent: The traceparent received, if any; a malformed one is ignored, as the W3C specification asks.
        new_id: A fresh uuid4 text, from which the span id (and a new trace id) is taken.
    """
    digits = new_id.replace("-", "")
    match = _TRACEPARENT.fullmatch(parent or "")
    if match:
        return f"00-{match[1]}-{digits[-16:]}-{match[3]}"
    return f"00-{digits}-{digits[-16:]}-01"


def is_traceparent(value: str | None) -> TypeGuard[str]:
    """Return whether `value` is a version 00 traceparent."""
    return bool(_TRACEPARENT.fullmatch(value or ""))


def usable_baggage(value: str | None) -> str | None:
    """Return a baggage header that can travel with messages: ASCII, at most 8192 bytes; None for any other."""
    return value if value and value.isascii() and value.isprintable() and len(value) <= _MAX_BAGGAGE_BYTES else None
