"""Runs `iii-runtime dev` as a real process, and waits for what it does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.request import Request, urlopen

from iii_runtime.hosts.host_file import HostFile, RunningHost
from tests.patience import PATIENCE_S, eventually


class DevProcess:
    """A running `iii-runtime dev`, with everything it prints. A context manager: what is left of it is killed."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.lines: list[str] = []
        self._arrived = threading.Condition()
        # -P, as the script `iii-runtime`: the folder of the workers is not on the path from the start.
        command = [sys.executable, "-P", "-m", "iii_runtime.cli", "dev", "--data", str(self.data)]
        ports = ["--http-port", "0", "--stream-port", "0"]
        self.process = subprocess.Popen(
            [*command, *ports, *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The host is a child of its own process group, and ends when its supervisor is gone.
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE_S)
        assert not self._reader.is_alive(), "the host did not end with its supervisor"
        if self.process.stdout is not None:
            self.process.stdout.close()

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def wait_for(self, text: str, *, after: int = 0) -> int:
        """Wait for a line with `text`, and return the number of the line after it."""
        deadline = time.monotonic() + PATIENCE_S
        with self._arrived:
            while True:
                for number, line in enumerate(self.lines[after:], after):
                    if text in line:
                        return number + 1
                self._arrived.wait(1)
                assert time.monotonic() < deadline, f"waited in vain for {text!r} in:\n{self.output}"

    def address(self) -> RunningHost:
        """Wait until the host can be reached, and return where."""
        return eventually(HostFile(self.data).running, f"the host; it printed:\n{self.output}")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for the end and return the exit code."""
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._arrived:
                self.lines.append(line)
                self._arrived.notify_all()


def post(address: str, path: str, body: object = None) -> Any:
    """Return the JSON that a POST answers."""
    headers = {"Content-Type": "application/json"}
    request = Request(f"http://{address}{path}", json.dumps(body).encode(), headers)
    with urlopen(request, timeout=PATIENCE_S) as response:
        return json.load(response)
