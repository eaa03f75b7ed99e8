"""What an import of user code that raised comes to: one error with file and line."""

from __future__ import annotations

import importlib
import traceback
from pathlib import Path

from iii_runtime.core.errors import HostError


def import_failed(target: str, error: BaseException) -> HostError:
    """Return the `worker_import_failed` error of an import.

    Args:
        target: What was imported: named if no line of the user's is known.
        error: What the import raised.
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame.filename)]
    if isinstance(error, SyntaxError):
        where = f"{error.filename}:{error.lineno}"
    else:
        where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else target
    return HostError(f"{where}: {type(error).__name__}: {error}", code="worker_import_failed")


def _is_ours(filename: str) -> bool:
    package = str(Path(__file__).resolve().parents[1])
    finder = Path(importlib.__file__).parent.parent / "pkgutil.py"
    return filename.startswith((package, "<")) or filename in {importlib.__file__, str(finder)}
