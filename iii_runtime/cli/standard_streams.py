"""Stdout and stderr as streams that say so when nobody can read what is written."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO


class OutputLostError(Exception):
    """What a command printed cannot be written. Not an `OSError`: that could be about anything.

    Attributes:
        reason: What the system said.
        descriptor: Of the stream.
    """

    def __init__(self, reason: OSError, descriptor: int) -> None:
        super().__init__(reason.strerror or str(reason))
        self.reason = reason
        self.descriptor = descriptor

    @property
    def is_unread(self) -> bool:
        """Whether the reader has gone, such as `head`, which has had enough."""
        return isinstance(self.reason, BrokenPipeError)


def guard_streams() -> None:
    """Let stdout and stderr raise `OutputLostError`, and escape what their encoding lacks. A closed one takes all."""
    sys.stdout, sys.stderr = _guarded(sys.stdout), _guarded(sys.stderr)


def forget_stream(descriptor: int) -> None:
    """Send what is still buffered and what comes nowhere, so that no later write or flush fails.

    Stdout and stderr go together if they are one and the same pipe or file.
    """
    lost = os.fstat(descriptor)
    same = [each for each in (1, 2) if each == descriptor or os.path.samestat(os.fstat(each), lost)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for each in same:
        os.dup2(nowhere, each)
    os.close(nowhere)


def _guarded(stream: TextIO | None) -> TextIO:
    if stream is None:
        # The process was started with the stream closed.
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - it stays open, and is no path of ours
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    raw = _Guarded(stream.fileno(), "wb", closefd=False)
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _Guarded(io.FileIO):
    def write(self, data: Any, /) -> int | None:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError as error:
            raise OutputLostError(error, self.fileno()) from error
