"""The files below a folder, and what they are together."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

COMPILED = "__pycache__"
"""Folder that Python puts beside what it imports. It differs from one machine to the next, and nothing needs it."""


def files_below(folder: Path) -> dict[str, Path]:
    """Return the files below a folder, sorted, by their names from there with `/`; none that Python has compiled."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: found[name] for name in sorted(found) if COMPILED not in name.split("/")}


def digest_of(files: Mapping[str, Path]) -> str:
    """Return the SHA-256 over names and contents of files, in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(files):
        content = files[name].read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
