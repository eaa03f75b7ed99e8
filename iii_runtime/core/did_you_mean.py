"""The suggestion at the end of an error about a name nobody knows."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` with the closest of the `known` names, or all of them if none is close."""
    # Loaded here: only an error needs it.
    from difflib import get_close_matches  # noqa: PLC0415

    names = sorted(known)
    close = get_close_matches(name, names, n=1) if isinstance(name, str) else []
    return f"; did you mean '{close[0]}'?" if close else f"; known are {', '.join(names)}"
