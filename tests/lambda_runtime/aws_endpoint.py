"""The services of AWS at one address, for processes that moto cannot patch.

Each request goes to moto as if it had been sent to the service that it is signed for. A server of moto would do the
same, and needs Flask. Two services are played here: Lambda, which would run nothing, takes every Invoke and answers it
with no result; and the management API of a WebSocket API takes every frame. Both remember what they took.

It is a process of its own: `python -m tests.lambda_runtime.aws_endpoint` prints the port in its first line, and ends
with its standard input.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from botocore.awsrequest import AWSPreparedRequest
from botocore.compat import HTTPHeaders
from moto import mock_aws
from moto.core.models import botocore_stubber
from moto.moto_api._internal.models import moto_api_backend

FORGET = "/forget"
"""Where a request removes everything that there is."""

TAKEN = "/taken"
"""Where a request gets what was taken: a list of `[function or path, body]`, oldest first."""

_SCOPE = re.compile(r"Credential=[^/]+/\d+/([^/]+)/([^/]+)/aws4_request")
_lock = threading.Lock()
_taken: list[tuple[str, object]] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def handle_any(self) -> None:
        """Answer a request."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        scope = _SCOPE.search(self.headers.get("Authorization", ""))
        region, service = scope.groups() if scope is not None else ("", "")
        status, headers, answer = 200, dict[str, str](), b""
        if self.path == FORGET:
            moto_api_backend.reset()
            _taken.clear()
        elif self.path == TAKEN:
            answer = json.dumps(_taken).encode()
        elif service == "lambda":
            status, headers, answer = self._invoke(body)
        elif service == "execute-api":
            _taken.append((unquote(self.path), json.loads(body or b"null")))
        else:
            status, headers, answer = self._ask_moto(f"https://{service}.{region}.amazonaws.com{self.path}", body)
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in {"content-length", "transfer-encoding", "date", "server", "connection"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815 - the server calls them by these names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the server's name
        """Say nothing."""

    def _invoke(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        name = unquote(self.path.split("/")[3]).rpartition(":")[2]
        _taken.append((name, json.loads(body)))
        return (202, {}, b"") if self.headers.get("X-Amz-Invocation-Type") == "Event" else (200, {}, b'{"ok": null}')

    def _ask_moto(self, url: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        headers = HTTPHeaders()
        for name, value in self.headers.items():
            if name.lower() != "host":
                headers[name] = value
        request = AWSPreparedRequest(self.command, url, headers, body, stream_output=False)
        with _lock:  # plain objects are all that moto keeps
            answer = botocore_stubber.process_request(request)
        assert answer is not None, f"nobody answers {url}"
        status, told, content = answer
        return status, {name: str(value) for name, value in told.items()}, _as_bytes(content)


def _as_bytes(content: object) -> bytes:
    return content if isinstance(content, bytes) else str(content).encode()


def main() -> None:
    """Serve until standard input ends."""
    with mock_aws(), ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_port, flush=True)  # noqa: T201 - whoever has started it reads this
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main()
