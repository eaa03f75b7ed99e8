"""What commands print: JSON and tables on stdout, everything else on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TextIO

from iii_runtime.core.payload import Json

_UNLIMITED = 10_000


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


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], file: TextIO | None = None) -> None:
    """Print a table. Cells that are too long for the terminal are folded, never cut; numbers are right-aligned."""
    # Here because `--json` does without it.
    from rich import box  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    target = file or sys.stdout
    cells = [list(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, column in enumerate(columns):
        is_number = bool(cells) and all(isinstance(row[index], int) for row in cells)
        table.add_column(column, overflow="fold", justify="right" if is_number else "left")
    for row in cells:
        table.add_row(*(Text(visible("" if cell is None else str(cell))) for cell in row))
    is_fitted = target.isatty() or "COLUMNS" in os.environ
    Console(file=target, width=None if is_fitted else _UNLIMITED, highlight=False).print(table)


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
