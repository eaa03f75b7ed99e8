"""Notices that whoever reads stdout has gone, without writing to it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TextIO

from iii_runtime.cli.standard_streams import forget_stream


def on_reader_gone(callback: Callable[[], None]) -> None:
    """Call back in the running loop once nobody can read stdout any more. It is forgotten then.

    Only a pipe or a socket has a reader; a terminal hangs up by signal.
    """
    loop = asyncio.get_running_loop()

    def look() -> None:
        loop.remove_reader(descriptor)
        if _is_unread(descriptor):
            forget_stream(descriptor)
            callback()

    for descriptor in _watchable(sys.stdout):
        # An error on the write end counts as readable.
        loop.add_reader(descriptor, look)


def _watchable(stream: TextIO) -> Iterator[int]:
    with suppress(OSError, ValueError):
        descriptor = stream.fileno()
        mode = os.fstat(descriptor).st_mode
        is_write_end = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
        if stat.S_ISSOCK(mode) or (stat.S_ISFIFO(mode) and is_write_end):
            yield descriptor


def _is_unread(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, 0)
    return bool(poll.poll(0))
