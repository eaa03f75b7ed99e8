"""Calls functions of a running host from another process, without an event loop."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any

from iii_runtime.core.errors import EnqueueError, HostError, InvocationError
from iii_runtime.core.payload import Json, PayloadError, encode_json
from iii_runtime.core.remote_error import told_about
from iii_runtime.core.trigger_request import TriggerRequest, parse_trigger_request, render_trigger_request
from iii_runtime.hosts.host_file import HostFile, RunningHost, split_address

_CONNECT_SECONDS = 5.0
_MARGIN_SECONDS = 10.0


class ControlClient:
    """Speaks to the host that a `host.json` names.

    Args:
        host_file: Read anew for each call, so a restarted host is found.
    """

    def __init__(self, host_file: HostFile) -> None:
        self._host_file = host_file

    def call(self, request: TriggerRequest | Mapping[str, Any]) -> Json:
        """Carry out a trigger request in the host; blocks until the host answers.

        Without `timeout_ms` the wait is as long as the function may run.

        Raises:
            InvocationError: As the host raised it; an `EnqueueError` likewise.
            HostError: `host_unreachable`: no host runs, or it ended before it answered; the message says whether the
                call may have been carried out. `host_file_invalid`. Or the host refused the request.
        """
        parsed = parse_trigger_request(request)
        body = _render(parsed)
        host = self._host_file.running()
        if host is None:
            raise HostError(
                f"no host is running on {self._host_file.path.parent}. Start it with `iii-runtime dev`, "
                "or name its directory with --data.",
                code="host_unreachable",
            )
        return _result(*_post(host, body, parsed.timeout_ms), parsed)


def answers(host: RunningHost, patience: timedelta) -> bool:
    """Return whether the host answers and goes on; False if it has just ended, or is about to.

    Raises:
        HostError: `host_unreachable`: it takes connections, and says nothing for `patience`.
    """
    name, port = split_address(host.control)
    connection = HTTPConnection(name, port, timeout=patience.total_seconds())
    try:
        connection.request("GET", "/")
        return connection.getresponse().status != HTTPStatus.SERVICE_UNAVAILABLE
    except TimeoutError as error:
        raise HostError(
            f"the host (process {host.pid}) does not answer. Nothing was tried. It may be suspended, or kept busy by "
            "its functions; look at its log, or stop it.",
            code="host_unreachable",
        ) from error
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _post(host: RunningHost, body: bytes, timeout_ms: int | None) -> tuple[int, bytes]:
    name, port = split_address(host.control)
    connection = HTTPConnection(name, port, timeout=_CONNECT_SECONDS)
    try:
        connection.connect()
        connection.sock.settimeout(timeout_ms / 1000 + _MARGIN_SECONDS if timeout_ms else None)
        headers = {"Authorization": f"Bearer {host.token}", "Content-Type": "application/json"}
        connection.request("POST", "/call", body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, HTTPException) as error:
        raise HostError(
            f"the host (process {host.pid}) gave no answer: {str(error) or type(error).__name__}. "
            "The call may have been carried out; look at the host's log before you repeat it.",
            code="host_unreachable",
        ) from error
    finally:
        connection.close()


def _result(status: int, content: bytes, request: TriggerRequest) -> Json:
    try:
        answer: Any = json.loads(content)
        if status == 200:
            result: Json = answer["result"]
            return result
        error: dict[str, Any] = answer["error"]
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError) as malformed:
        raise HostError(
            f"what answered with status {status} is no iii-runtime host. Start one with `iii-runtime dev`.",
            code="host_unreachable",
        ) from malformed
    if "reason" in error:
        raise EnqueueError(error["reason"], message, error.get("function_id"))
    if "function_id" in error:
        function_id = error["function_id"] or request.function_id
        about = told_about(error.get("about"))
        raise InvocationError(
            code, message, function_id, error.get("stacktrace"), error.get("invocation_id"), about=about
        )
    raise HostError(f"the host did not carry out the request: {message}", code=code)


def _render(request: TriggerRequest) -> bytes:
    try:
        return encode_json(render_trigger_request(request), "request").encode("ascii")
    except PayloadError as error:
        raise InvocationError(error.code, error.message, request.function_id) from error
