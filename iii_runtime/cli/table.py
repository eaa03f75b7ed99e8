"""Lists for people: a table where it fits, records where it does not. What can be copied is never folded or cut."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TextIO

from rich.cells import cell_len

from iii_runtime.cli.output import say, visible

Row = Sequence[object]

_GAP = "  "
_INDENT = "    "


def print_list(columns: Sequence[str], rows: Sequence[Row], *, empty: str, has_text: bool = False) -> None:
    """Print a list on stdout, or the sentence `empty` on stderr if there is nothing to list; see `layout`."""
    if rows:
        print_table(columns, rows, sys.stdout, has_text=has_text)
    else:
        say(empty)


def print_table(columns: Sequence[str], rows: Sequence[Row], file: TextIO, *, has_text: bool = False) -> None:
    """Print rows as wide as the terminal allows, or as they need to be if `file` is none; see `layout`."""
    width = shutil.get_terminal_size().columns if file.isatty() else None
    print("\n".join(layout(columns, rows, width=width, has_text=has_text)), file=file)


def layout(columns: Sequence[str], rows: Sequence[Row], *, width: int | None, has_text: bool = False) -> list[str]:
    """Return the lines of a table, or of one record for each row if the table is too wide.

    Args:
        columns: Names of the columns.
        rows: The cells. Those with line breaks take several lines.
        width: Of the terminal; None is without limit.
        has_text: Whether the last column is running text: it may stand below its row, and is folded between words.
    """
    blocks = _table(columns, rows)
    if width is None or _fits(blocks, width):
        return _joined(blocks)
    if has_text:
        blocks = _table(columns[:-1], [row[:-1] for row in rows])
        if _fits(blocks, width):
            below = [[], *([_INDENT + line for line in _folded(row[-1], width - len(_INDENT))] for row in rows)]
            return _joined([block + text for block, text in zip(blocks, below, strict=True)])
    records = [_record(columns, row, width, has_text=has_text) for row in rows]
    return _joined([records[0], *(["", *record] for record in records[1:])])


def _table(columns: Sequence[str], rows: Sequence[Row]) -> list[list[str]]:
    """Return the lines of the header, and those of each row."""
    cells = [[_lines(cell) for cell in row] for row in rows]
    widths = [
        max(cell_len(line) for cell in ([name], *column) for line in cell)
        for name, *column in zip(columns, *cells, strict=True)
    ]
    is_number = [all(isinstance(cell, int) for cell in column) for column in zip(*rows, strict=True)]
    header = [[name] for name in columns]
    rule = [["-" * width] for width in widths]
    return [
        [*_aligned(header, widths, is_number), *_aligned(rule, widths, is_number)],
        *(list(_aligned(row, widths, is_number)) for row in cells),
    ]


def _aligned(row: Sequence[list[str]], widths: Sequence[int], is_number: Sequence[bool]) -> Iterator[str]:
    for parts in zip_longest(*row, fillvalue=""):
        spaces = [" " * (width - cell_len(part)) for part, width in zip(parts, widths, strict=True)]
        padded = [
            space + part if is_right else part + space
            for part, space, is_right in zip(parts, spaces, is_number, strict=True)
        ]
        yield _GAP.join(padded).rstrip()


def _record(columns: Sequence[str], row: Row, width: int, *, has_text: bool) -> list[str]:
    indent = max(len(name) for name in columns) + len(_GAP)
    lines: list[str] = []
    for name, cell in zip(columns, row, strict=True):
        is_text = has_text and name == columns[-1]
        values = _folded(cell, width - indent) if is_text else _lines(cell)
        lines += [f"{label:<{indent}}{value}" for label, value in zip_longest([name], values, fillvalue="") if value]
    return lines


def _lines(cell: object) -> list[str]:
    return visible("" if cell is None else str(cell)).split("\n")


def _folded(cell: object, width: int) -> list[str]:
    text = visible(str(cell))
    # Names within the text are not broken: they may be longer than the line.
    return textwrap.wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False)


def _fits(blocks: list[list[str]], width: int) -> bool:
    return all(cell_len(line) <= width for line in _joined(blocks))


def _joined(blocks: list[list[str]]) -> list[str]:
    return [line for block in blocks for line in block]
