"""The `Prefer` header of RFC 7240, as far as it says how long a client waits."""

from __future__ import annotations

import re
from datetime import timedelta

MAX_WAIT = timedelta(minutes=5)
"""Longest wait for an answer; a preference for a longer one is cut to it."""

_WAIT = re.compile(r"\s*wait\s*=\s*\"?(\d{1,9})\"?\s*(?:;.*)?", re.IGNORECASE)


def preferred_wait(prefer: str | None) -> timedelta | None:
    """Return how long a client prefers to wait for a result; None if its header says nothing about it."""
    for preference in (prefer or "").split(","):
        if found := _WAIT.fullmatch(preference):
            return min(timedelta(seconds=int(found[1])), MAX_WAIT)
    return None


def applied_wait(wait: timedelta) -> tuple[str, str]:
    """Return the header that says that the preference was honoured."""
    return "Preference-Applied", f"wait={wait // timedelta(seconds=1)}"
