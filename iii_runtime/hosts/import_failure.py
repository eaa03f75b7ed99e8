"""What an import of user code that raised comes to: one error with file and line."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

from iii_runtime.core.errors import HostError, message_of

MAX_MESSAGE = 2000
"""Characters of the error's own text that are told; there may be megabytes of them."""

_INSTALLED = ("site-packages", "dist-packages")


def import_failed(target: str, error: BaseException) -> HostError:
    """Return the `worker_import_failed` error of an import. It does not raise, whatever the error's own methods do.

    Args:
        target: What was imported: named if no line of the user's is known.
        error: What the import raised.
    """
    text = message_of(error)
    if len(text) > MAX_MESSAGE:
        text = f"{text[:MAX_MESSAGE]}... ({len(text)} characters)"
    place = _place_in_source(error) or _place_in_stack(error) or target
    return HostError(f"{place}: {type(error).__name__}: {text}", code="worker_import_failed")


def innermost_place(places: Iterable[tuple[str, int]]) -> str | None:
    """Return the first line of the user's among files and lines; if there is none, of whatever library is the first."""
    others = [place for place in places if not _is_ours(place[0])]
    own = [place for place in others if not _is_library(place[0])]
    return next((f"{file}:{line}" for file, line in own or others), None)


def _place_in_source(error: BaseException) -> str | None:
    """Return where Python could not read a file as source, if that is what the error says."""
    if not isinstance(error, SyntaxError):
        return None
    if error.filename is not None and error.lineno is not None:
        return f"{error.filename}:{error.lineno}"
    # Of a file with a zero byte Python does not say which it is; the import system, which read it, knows.
    for frame in _frames(error.__traceback__):
        path = frame.tb_frame.f_locals.get("source_path") if frame.tb_frame.f_code.co_name == "get_code" else None
        if isinstance(path, str) and Path(path).is_file():
            before = Path(path).read_bytes().partition(b"\0")[0].splitlines()
            return f"{path}:{len(before)}"
    return None


def _place_in_stack(error: BaseException) -> str | None:
    """Return the innermost line of the user's; if there is none, of whatever library raised."""
    places = [(each.tb_frame.f_code.co_filename, each.tb_lineno) for each in _frames(error.__traceback__)]
    return innermost_place(reversed(places))


def _frames(start: TracebackType | None) -> Iterator[TracebackType]:
    while start is not None:
        yield start
        start = start.tb_next


def _is_ours(filename: str) -> bool:
    package = str(Path(__file__).resolve().parents[1])
    finder = Path(importlib.__file__).parent.parent / "pkgutil.py"
    return filename.startswith((package, "<")) or filename in {importlib.__file__, str(finder)}


def _is_library(filename: str) -> bool:
    return filename.startswith(f"{Path(os.__file__).parent}{os.sep}") or any(
        part in _INSTALLED for part in Path(filename).parts
    )
