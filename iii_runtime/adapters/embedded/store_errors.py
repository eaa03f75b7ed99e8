"""What SQLite and the file system say, in the words of `StoreError`."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from pathlib import Path

from iii_runtime.core.errors import StoreError

_FULL_BELOW_BYTES = 1024 * 1024

_REMEDIES = {
    "store_full": "the disk is full, or the store has reached its size limit. Free space; the host goes on by itself.",
    "store_locked": "another program holds the file locked. Close it (a database browser, a backup) and try again.",
    "store_corrupt": "this is not a database of this runtime, or it is damaged. Restore it, or choose another --data.",
    "store_unavailable": "check that the directory exists, is writable, and is on a healthy local disk.",
}

_CODES = {
    sqlite3.SQLITE_FULL: "store_full",
    sqlite3.SQLITE_BUSY: "store_locked",
    sqlite3.SQLITE_LOCKED: "store_locked",
    sqlite3.SQLITE_CORRUPT: "store_corrupt",
    sqlite3.SQLITE_NOTADB: "store_corrupt",
    sqlite3.SQLITE_CANTOPEN: "store_unavailable",
    sqlite3.SQLITE_READONLY: "store_unavailable",
    sqlite3.SQLITE_PERM: "store_unavailable",
    sqlite3.SQLITE_AUTH: "store_unavailable",
    sqlite3.SQLITE_IOERR: "store_unavailable",
}


def from_sqlite(error: sqlite3.Error, path: Path) -> StoreError | None:
    """Return the store error that `error` is; None if it is a mistake of the caller, such as a constraint or a typo."""
    primary = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    code = _CODES.get(primary)
    if code is None:
        return None
    if primary == sqlite3.SQLITE_IOERR and _is_disk_full(path):
        code = "store_full"
    name = getattr(error, "sqlite_errorname", "SQLITE_ERROR")
    return StoreError(f"{path}: {error} ({name}): {_REMEDIES[code]}", code=code)


def from_os(error: OSError, path: Path) -> StoreError:
    """Return the store error for a failed file operation."""
    code = "store_full" if error.errno in {errno.ENOSPC, errno.EDQUOT} else "store_unavailable"
    reason = "a file is where a directory should be" if isinstance(error, FileExistsError) else error.strerror or error
    return StoreError(f"{path}: {reason}: {_REMEDIES[code]}", code=code)


def not_ours(path: Path, found: str) -> StoreError:
    """Return the error for a file that holds something else."""
    return StoreError(f"{path}: {found}: {_REMEDIES['store_corrupt']}", code="store_corrupt")


def _is_disk_full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < _FULL_BELOW_BYTES
    except OSError:
        return False
