"""The Runtime API of Lambda: hands events to the runtime interface client of one process and takes what it answers."""

from __future__ import annotations

import itertools
import json
import queue
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self, cast

LARGEST_RESPONSE = 6 * 1024 * 1024
"""Bytes of an answer that Lambda passes on."""

TRACE = "Root=1-69f8a2c0-000000000000000000000001;Parent=53995c3f42cd8ad8;Sampled=0"
_ROOT = "/2018-06-01/runtime"

Kind = Literal["response", "error", "init error", "ended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of an event.

    Attributes:
        kind: An answer, an error of the handler, an error of the start, or the end of the process without a word.
        body: What was sent, as it was sent.
        error_type: What the client says the kind of an error is.
    """

    kind: Kind
    body: bytes = b""
    error_type: str | None = None

    @property
    def answer(self) -> Any:
        """The answer of the handler."""
        assert self.kind == "response", (self.kind, self.error_type, self.body[:2000])
        return _strictly(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error: `errorMessage`, `errorType`, `stackTrace`, `requestId`."""
        assert self.kind in {"error", "init error"}, (self.kind, self.body[:2000])
        found: dict[str, Any] = _strictly(self.body)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event that waits for the process."""

    body: bytes
    request_id: str
    deadline_ms: int


@dataclass(slots=True)
class RuntimeApi:
    """The API of one process. A context manager; it listens on the loopback interface.

    Attributes:
        function_arn: The Lambda that the process is.
    """

    function_arn: str
    _events: queue.SimpleQueue[Event | None] = field(default_factory=queue.SimpleQueue)
    _outcomes: queue.SimpleQueue[Outcome] = field(default_factory=queue.SimpleQueue)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _server: _Server = field(init=False)

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", 0), type("Bound", (_Handler,), {"api": self}))
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="runtime-api", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._events.put(None)
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        """Value of `AWS_LAMBDA_RUNTIME_API`."""
        return f"127.0.0.1:{self._server.server_port}"

    def send(self, event: str | bytes, timeout: timedelta) -> str:
        """Hand over an event, as JSON text, and return the id of its invocation."""
        request_id = f"00000000-0000-4000-8000-{next(self._numbers):012d}"
        body = event.encode() if isinstance(event, str) else event
        deadline_ms = round(time.time() * 1000) + timeout // timedelta(milliseconds=1)
        self._events.put(Event(body=body, request_id=request_id, deadline_ms=deadline_ms))
        return request_id

    def take(self) -> Event | None:
        """Return the next event as soon as there is one; None at the end."""
        return self._events.get()

    def settle(self, outcome: Outcome) -> None:
        """Note what became of the event."""
        self._outcomes.put(outcome)

    def outcome(self, within_s: float) -> Outcome | None:
        """Return the next outcome, None if there is none in time."""
        try:
            return self._outcomes.get(timeout=within_s)
        except queue.Empty:
            return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a process that was killed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(cast(Any, request), client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    api: RuntimeApi

    def do_GET(self) -> None:
        assert self.path == f"{_ROOT}/invocation/next", self.path
        event = self.api.take()
        if event is None:
            self.close_connection = True
            return
        self._answer(
            200,
            event.body,
            {
                "Content-Type": "application/json",
                "Lambda-Runtime-Aws-Request-Id": event.request_id,
                "Lambda-Runtime-Deadline-Ms": str(event.deadline_ms),
                "Lambda-Runtime-Invoked-Function-Arn": self.api.function_arn,
                "Lambda-Runtime-Trace-Id": TRACE,
            },
        )

    def do_POST(self) -> None:
        body = self._body()
        error_type = self.headers.get("Lambda-Runtime-Function-Error-Type")
        what = self.path.removeprefix(f"{_ROOT}/")
        if what == "init/error":
            self.api.settle(Outcome(kind="init error", body=body, error_type=error_type))
        elif what.endswith("/error"):
            self.api.settle(Outcome(kind="error", body=body, error_type=error_type))
        elif len(body) > LARGEST_RESPONSE:
            too_large = {"errorType": "Function.ResponseSizeTooLarge", "errorMessage": f"{len(body)} bytes"}
            self.api.settle(Outcome(kind="error", body=json.dumps(too_large).encode()))
            self._answer(413, b'{"errorType":"RequestEntityTooLarge"}', {"Content-Type": "application/json"})
            return
        else:
            assert what.endswith("/response"), self.path
            self.api.settle(Outcome(kind="response", body=body))
        self._answer(202, b'{"status":"OK"}', {"Content-Type": "application/json"})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the server's name
        """Say nothing."""

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts: list[bytes] = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _strictly(body: bytes) -> Any:
    """Parse JSON as a caller does that takes nothing else."""

    def refuse(name: str) -> float:
        raise AssertionError(f"{name} in what was sent, which is no JSON")

    return json.loads(body.decode("utf-8"), parse_constant=refuse)
