"""`host.json` in the data directory: how the CLI finds the running host."""

from __future__ import annotations

import json
import os
import secrets
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from iii_runtime.core.errors import HostError

HOST_FILE_NAME = "host.json"
_PROBE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningHost:
    """Where a host listens.

    Attributes:
        pid: Its process.
        http: `host:port` of the http server.
        stream: `host:port` of the WebSocket server.
        control: `host:port` of the control endpoint, always on loopback.
        token: What the control endpoint wants to see. Whoever has it may call every function.
    """

    pid: int
    http: str
    stream: str
    control: str
    token: str = field(repr=False)


def new_token() -> str:
    """Return a fresh secret for the control endpoint."""
    return secrets.token_urlsafe(32)


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port`, an IPv6 host in brackets.

    Raises:
        ValueError: It is none.
    """
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


class HostFile:
    """The file of one data directory. Only its owner can read it, for it holds the token.

    Attributes:
        path: Of the file.
    """

    def __init__(self, data: Path) -> None:
        self.path = data / HOST_FILE_NAME

    def write(self, host: RunningHost) -> None:
        """Write the file in one step: a reader sees the old one or the new one.

        Raises:
            HostError: `host_file_unwritable`.
        """
        fresh = self.path.with_name(f"{HOST_FILE_NAME}.{host.pid}")
        try:
            fresh.unlink(missing_ok=True)
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(asdict(host), file, indent=2)
                file.write("\n")
            fresh.replace(self.path)
        except OSError as error:
            with suppress(OSError):
                fresh.unlink()
            raise HostError(
                f"cannot write {self.path}: {error.strerror}. Make the data directory writable.",
                code="host_file_unwritable",
            ) from error

    def read(self) -> RunningHost | None:
        """Return what the file says, None if there is none; the host it names may be gone, see `running`.

        Raises:
            HostError: `host_file_invalid`: it cannot be read, or is not what a host writes.
        """
        try:
            members: Any = json.loads(self.path.read_text("utf-8"))
            return _parse(members)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise HostError(
                f"{self.path} cannot be used: {error}. Stop the host and delete the file.", code="host_file_invalid"
            ) from error

    def running(self) -> RunningHost | None:
        """Return the host if it is there: its process lives and its control endpoint accepts connections.

        Raises:
            HostError: See `read`.
        """
        host = self.read()
        return host if host is not None and _has_process(host.pid) and _accepts(host.control) else None

    def remove(self, host: RunningHost) -> None:
        """Remove the file when `host` stops; the file of a later host stays."""
        with suppress(HostError, FileNotFoundError):
            if self.read() == host:
                self.path.unlink()


def _parse(members: Any) -> RunningHost:
    if not isinstance(members, dict):
        raise ValueError("not an object")  # noqa: TRY004 - one error for everything that is wrong in the file
    wanted = {each.name: int if each.name == "pid" else str for each in fields(RunningHost)}
    for name, kind in wanted.items():
        if type(members.get(name)) is not kind:
            raise ValueError(f"{name!r} is missing or no {kind.__name__}")
    split_address(members["control"])
    return RunningHost(**{name: members[name] for name in wanted})


def _has_process(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _accepts(address: str) -> bool:
    try:
        socket.create_connection(split_address(address), timeout=_PROBE_SECONDS).close()
    except (OSError, OverflowError):
        return False
    return True
