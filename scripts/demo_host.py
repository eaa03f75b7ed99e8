"""The host of the demo as a child process, and the command line that works on it."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
CLI = (sys.executable, "-m", "iii_runtime.cli")
START_SECONDS = 30
STOP_SECONDS = 20


class DemoError(Exception):
    """The demo cannot go on; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoHost:
    """A running host.

    Attributes:
        http: Base URL of the http server.
        stream: URL of the WebSocket server.
        data: Its data directory.
        console: Where the commands are shown.
    """

    http: str
    stream: str
    data: Path
    console: Console

    async def show(self, *arguments: str) -> None:
        """Show one `iii-runtime` command, and run it on this host: it prints as it does for whoever types it.

        Raises:
            DemoError: It failed.
        """
        show_command(self.console, arguments)
        await self._run(arguments, stdout=None, stderr=STDOUT)

    async def run_quietly(self, *arguments: str) -> None:
        """Do as `show`, but without the result on stdout.

        Raises:
            DemoError: It failed.
        """
        show_command(self.console, arguments, suffix=" >/dev/null")
        await self._run(arguments, stdout=DEVNULL, stderr=PIPE)

    async def ask(self, *arguments: str) -> Any:
        """Run a command behind the scenes; returns the JSON that it prints.

        Raises:
            DemoError: It failed.
        """
        return json.loads(await self._run((*arguments, "--json"), stdout=PIPE, stderr=PIPE))

    async def _run(self, arguments: tuple[str, ...], *, stdout: int | None, stderr: int) -> str:
        process = await asyncio.create_subprocess_exec(
            *CLI, *arguments, cwd=ROOT, env=_environment(self.data), stdout=stdout, stderr=stderr
        )
        printed, complaint = await process.communicate()
        if process.returncode != 0:
            reason = (complaint or b"").decode().strip()
            raise DemoError(f"iii-runtime {arguments[0]} ended with {process.returncode}: {reason}".rstrip(": "))
        return (printed or b"").decode()


@asynccontextmanager
async def running_host(data: Path, console: Console, session: aiohttp.ClientSession) -> AsyncIterator[DemoHost]:
    """Start the host on free ports, wait until it answers, and stop it in the end, whatever happens.

    Raises:
        DemoError: It did not start.
    """
    log = data / "host.log"
    places = ("--data", str(data), "--http-port", "0", "--stream-port", "0", "--config", "iii-config.yaml")
    command = ("dev", "functions", "--no-reload", *places)
    show_command(console, command, suffix=" &")
    tether = str(Path(__file__).with_name("tether.py"))
    with log.open("wb") as output:
        # A session of its own keeps Ctrl-C from the child: the demo gets it, and stops the child in order.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, tether, *CLI, *command),
            cwd=ROOT,
            env=_environment(data),
            stdin=PIPE,
            stdout=output,
            start_new_session=True,
        )
    try:
        async with asyncio.timeout(START_SECONDS):
            addresses = await _addresses(process, data / "host.json", session)
        yield DemoHost(http=addresses[0], stream=addresses[1], data=data, console=console)
    except (TimeoutError, DemoError) as error:
        lines = log.read_text(errors="replace").splitlines()[-30:]
        reason = str(error) or f"the host did not answer within {START_SECONDS} s"
        raise DemoError("\n".join([reason, "the last lines of the host:", *(f"  {line}" for line in lines)])) from error
    finally:
        assert process.stdin is not None  # noqa: S101 - it was asked for
        process.stdin.close()
        await asyncio.wait_for(process.wait(), STOP_SECONDS)


def show_command(console: Console, arguments: tuple[str, ...], suffix: str = "") -> None:
    """Print a command as it would be typed."""
    console.print(Text(f"$ {shlex.join(('iii-runtime', *arguments))}{suffix}", style="bold"), soft_wrap=True)


async def _addresses(process: Process, file: Path, session: aiohttp.ClientSession) -> tuple[str, str]:
    while process.returncode is None:
        found = _read_host_file(file)
        if found is not None and await _answers(session, f"http://{found['http']}/orders"):
            return f"http://{found['http']}", f"ws://{found['stream']}/"
        await asyncio.sleep(0.05)
    raise DemoError(f"the host ended with {process.returncode} while it started")


def _read_host_file(file: Path) -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads(file.read_text()) if file.exists() else None
    return found


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


def _environment(data: Path) -> dict[str, str]:
    return {**os.environ, "III_DATA": str(data), "PYTHONUNBUFFERED": "1"}
