"""A local emulator of AWS as a process: started for a test session, gone with all it has left at its end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import URLError
from urllib.request import urlopen

import boto3
from botocore.config import Config

from tests.patience import eventually

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv-emulator"
LOGS = ROOT / "build" / "e2e"
ACCOUNT = "000000000000"
"""The one account in which the emulator looks for an API when a request is not signed."""
REGION = "eu-west-1"

_START_S = 60.0
_GRACE_S = 5.0


class Emulator:
    """The emulator, from `with` to its end.

    Attributes:
        port: Where it answers, on the loopback interface alone.
        home: A home directory for it and for whoever calls it, so that nobody's settings or caches are used.
        log: What it printed.
    """

    def __init__(self, *, log: Path = LOGS / "emulator.log") -> None:
        self.port = _free_port()
        self.log = log
        self._folder = Path(tempfile.mkdtemp(prefix="iii-e2e-"))
        self.home = self._folder / "home"
        self._temporary = self._folder / "tmp"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where all services answer."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables under which a command, or an SDK, finds the emulator and nothing else."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": str(self._temporary),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL": self.url,
            # The command line of the CDK asks S3 by this one only. An address, because `bucket.localhost` is unknown.
            "AWS_ENDPOINT_URL_S3": self.url,
        }

    def client(self, service: str) -> Any:
        """Return a client of a service, by the name boto3 gives it."""
        # Path style: the emulator has no name for each bucket.
        config = Config(retries={"total_max_attempts": 1}, read_timeout=30, s3={"addressing_style": "path"})
        session = boto3.session.Session(
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106 - the emulator's own
            region_name=REGION,
        )
        return session.client(service, endpoint_url=self.url, config=config)  # type: ignore[call-overload]

    def http_url(self, api_id: str) -> str:
        """Return where the routes of an HTTP API are: by path, because the emulator's names of hosts are not known."""
        return f"{self.url}/_aws/execute-api/{api_id}"

    def websocket_url(self, api_id: str, stage: str) -> str:
        """Return where a WebSocket API takes connections."""
        return f"ws://127.0.0.1:{self.port}/_aws/execute-api/{api_id}/{stage}"

    def lambda_processes(self) -> Iterator[tuple[int, str]]:
        """Return process id and name of the Lambda of each process that runs one."""
        yield from _processes_in(self._temporary)

    def stop(self) -> None:
        """End it, and every process it has started, and remove what they have left."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            # Asked politely it would take seconds, and its Lambdas would outlive it; nothing in it is worth keeping.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(_GRACE_S)
            process.stdin.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> None:
        for folder in (self.home, self._temporary, self.log.parent):
            folder.mkdir(parents=True, exist_ok=True)
        command = VENV / "bin" / "ministack"
        assert command.is_file(), f"{command}: there is no emulator; run `make e2e`"
        tether = [sys.executable, str(ROOT / "scripts" / "tether.py")]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*tether, str(command)],
                cwd=self._folder,
                env={**self.environment, **_settings(self.port)},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that all of it can be ended
            )
        eventually(self._is_well, f"the emulator; see {self.log}", within_s=_START_S)

    def _is_well(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the emulator has ended:\n{self.log.read_text()[-2000:]}"
        try:
            with urlopen(f"{self.url}/_ministack/health", timeout=5):
                return True
        except (URLError, OSError):
            return False


def _settings(port: int) -> Mapping[str, str]:
    """Return the emulator's own variables."""
    return {
        "GATEWAY_PORT": str(port),
        # It runs whatever code it is given, and would listen to everybody.
        "BIND_HOST": "127.0.0.1",
        "MINISTACK_ACCOUNT_ID": ACCOUNT,
        "MINISTACK_REGION": REGION,
        "PYTHONUNBUFFERED": "1",
    }


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def _processes_in(folder: Path) -> Iterator[tuple[int, str]]:
    """Return the processes of Lambdas that run below a folder: the emulator gives each a folder of its own."""
    prefix = f"{folder}/ministack-lambda-"
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode().split("\0")
        except OSError:  # it has ended meanwhile
            continue
        script = next((word for word in words[1:] if word.startswith(prefix)), None)
        if script is not None:
            yield int(entry.name), Path(script).parent.name.removeprefix("ministack-lambda-").rpartition("-")[0]
