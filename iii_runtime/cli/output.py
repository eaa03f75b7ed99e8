"""What commands print: JSON on stdout, notices on stderr, and how single values look."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from typing import TextIO

from iii_runtime.core.payload import Json


def print_json(value: Json, *, compact: bool) -> None:
    """Print a value: compact ASCII on one line for programs, else as readable as stdout's encoding allows."""
    print(json_text(value, compact=compact))


def json_text(value: Json, *, compact: bool) -> str:
    """Return what `print_json` prints."""
    if compact:
        return json.dumps(value, separators=(",", ":"))
    # An encoding that lacks a character would turn it into an escape that JSON does not have.
    is_unicode = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
    return json.dumps(value, indent=2, ensure_ascii=not is_unicode)


def say(text: str) -> None:
    """Tell people something that is not a result."""
    print(text, file=sys.stderr)


def takes_colour(stream: TextIO) -> bool:
    """Whether colours help on `stream`: it is a terminal, and neither `NO_COLOR` nor a dumb `TERM` forbids them."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def visible(text: str) -> str:
    """Return `text` with its control characters escaped: what is stored must not steer a terminal."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape", "backslashreplace").decode()
        for char in text
    )


def one_line(text: str, limit: int = 200) -> str:
    """Return the first `limit` characters of `text` on one line, marked where something was left out."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def local_time(seconds: object) -> str:
    """Return Unix seconds as local date and time; anything that is no number as it is."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return str(seconds)
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
