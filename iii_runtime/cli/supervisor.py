"""Keeps a host running in a child process, and replaces it when its code changes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from tempfile import TemporaryFile
from typing import Any

from iii_runtime.cli.code_watch import Watched, watching
from iii_runtime.cli.failure import CALL_FAILED, CANNOT_RUN, OUTPUT_LOST
from iii_runtime.cli.main import INTERRUPTED, PIPE_CLOSED
from iii_runtime.cli.output import say
from iii_runtime.cli.stdout_reader import on_reader_gone

HostCommand = Callable[[int, int], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a supervisor runs.

    Attributes:
        host: Returns the command of the host, given two descriptors: by one it notices that the supervisor is gone, the
            other is a file for the hosts that follow one another (see `LastBanner`).
        check: The command that tells by exit code 0 that the code can be started, and says what is wrong otherwise.
        watched: The files that count.
        patience: How long a host may take to drain before it is killed.
        check_patience: How long the check may take before it is killed.
    """

    host: HostCommand
    check: Sequence[str]
    watched: Watched
    patience: timedelta
    check_patience: timedelta


async def supervise(plan: Plan) -> int:
    """Run a host until SIGINT or SIGTERM, starting it anew whenever its code has changed; returns the exit code.

    Changed code is checked first; while it is broken, or hangs, the old host goes on. The first signal drains the host
    (0), a second one kills it (130). So does the end of whoever reads stdout (141). A host that cannot start the first
    time ends everything with its own code (2), and so does one that cannot print (1); one that ends later is reported,
    and started again after the next change.
    """
    with TemporaryFile() as banner:
        return await _Supervisor(plan, banner.fileno()).run()


class _Supervisor:
    def __init__(self, plan: Plan, banner: int) -> None:
        self._plan = plan
        self._banner = banner
        self._stopping = asyncio.Event()
        self._killing = asyncio.Event()
        self._is_unread = False

    async def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        on_reader_gone(self._on_reader_gone)
        async with watching(self._plan.watched) as changed:
            child: _Child | None = await _Child.start(self._plan.host, self._banner)
            is_first = True
            while not self._stopping.is_set():
                ended = [] if child is None else [child.wait()]
                await _first_of(self._stopping.wait(), changed.wait(), *ended)
                if child is not None and child.code is not None and not self._stopping.is_set():
                    final = _final(child.code, is_first=is_first)
                    if final is not None:
                        return final
                    say(f"notice: the host ended with {_describe(child.code)}; the next change starts it again")
                    child = None
                if changed.is_set() and not self._stopping.is_set():
                    is_first = False
                    child = await self._replace(child, changed)
            return await self._end(child)

    def _on_signal(self) -> None:
        if self._stopping.is_set():
            self._killing.set()
        else:
            say("notice: draining; Ctrl-C again stops at once")
        self._stopping.set()

    def _on_reader_gone(self) -> None:
        self._is_unread = True
        self._stopping.set()

    async def _replace(self, old: _Child | None, changed: asyncio.Event) -> _Child | None:
        if not await self._is_sound(changed):
            if not self._stopping.is_set():
                goes_on = "the host goes on with the old code" if old else "no host is running"
                say(f"notice: the changed code cannot be started; {goes_on}")
            return old
        say("notice: the code has changed; starting the host anew")
        if old is not None:
            await self._drain(old)
        return None if self._stopping.is_set() else await _Child.start(self._plan.host, self._banner)

    async def _is_sound(self, changed: asyncio.Event) -> bool:
        """Check the code as it is now; a change during the check begins it anew."""
        is_passed = False
        while changed.is_set() and not self._stopping.is_set():
            changed.clear()
            is_passed = await self._passes(changed)
        return is_passed and not self._stopping.is_set()

    async def _passes(self, changed: asyncio.Event) -> bool:
        process = await _start(self._plan.check)
        limit_s = self._plan.check_patience.total_seconds()
        try:
            async with asyncio.timeout(limit_s):
                await _first_of(process.wait(), self._stopping.wait(), changed.wait())
        except TimeoutError:
            say(
                f"notice: the check of the changed code took longer than {limit_s:g} s and is killed; "
                "does a module wait for something while it is imported?"
            )
        finally:
            _kill(process)
        return await process.wait() == 0

    async def _drain(self, child: _Child) -> None:
        child.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self._plan.patience.total_seconds()):
                await _first_of(child.wait(), self._killing.wait())
        except TimeoutError:
            say(f"notice: the host did not drain within {self._plan.patience.total_seconds():g} s; it is killed")
        if child.code is None:
            child.signal(signal.SIGKILL)
            await child.wait()

    async def _end(self, child: _Child | None) -> int:
        if child is None:
            return PIPE_CLOSED if self._is_unread else 0
        await self._drain(child)
        if self._killing.is_set():
            return INTERRUPTED
        if self._is_unread:
            return PIPE_CLOSED
        # SIGTERM ends it as well while it still imports, when there is nothing to drain.
        return 0 if child.code in {0, -signal.SIGTERM} else 1


class _Child:
    """A host in a process group of its own: what the terminal sends to the supervisor does not reach it."""

    def __init__(self, process: asyncio.subprocess.Process, lifeline: int) -> None:
        self._process = process
        self._lifeline: int | None = lifeline

    @classmethod
    async def start(cls, command: HostCommand, banner: int) -> _Child:
        read_end, write_end = os.pipe()
        try:
            process = await _start(command(read_end, banner), read_end, banner)
        except BaseException:
            os.close(write_end)
            raise
        finally:
            os.close(read_end)
        return cls(process, write_end)

    @property
    def code(self) -> int | None:
        """Its exit code once it has ended, a negative signal number if it was killed."""
        return self._process.returncode

    async def wait(self) -> None:
        await self._process.wait()
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    def signal(self, number: signal.Signals) -> None:
        if number is signal.SIGKILL:
            _kill(self._process)
        else:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


async def _start(command: Sequence[str], *inherited: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, pass_fds=inherited, process_group=0
    )


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill a process unless it has ended, and whatever its code has started."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


async def _first_of(*works: Coroutine[Any, Any, object]) -> None:
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _final(code: int, *, is_first: bool) -> int | None:
    """Return what to end with after a host has ended by itself with `code`; None to go on."""
    if code == PIPE_CLOSED:
        return PIPE_CLOSED
    if not is_first:
        return None
    return {CANNOT_RUN: CANNOT_RUN, OUTPUT_LOST: CALL_FAILED}.get(code)


def _describe(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
