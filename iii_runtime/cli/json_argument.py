"""JSON on the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from iii_runtime.core.payload import Json, decode_json


def read_json(text: str, what: str) -> Json:
    """Return the JSON in `text`; `-` reads stdin, `@FILE` reads a file.

    Raises:
        PayloadError: It is not JSON.
        click.UsageError: The file cannot be read.
    """
    if text == "-":
        return decode_json(sys.stdin.buffer.read(), f"{what} on stdin")
    if text.startswith("@"):
        return read_json_file(Path(text[1:]))
    return decode_json(text.encode("utf-8", "surrogateescape"), what)


def read_json_file(path: Path) -> Json:
    """Return the JSON in a file.

    Raises:
        PayloadError: It is not JSON.
        click.UsageError: The file cannot be read.
    """
    try:
        raw = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise click.UsageError(f"{path} cannot be read: {reason}.") from error
    return decode_json(raw, str(path))
