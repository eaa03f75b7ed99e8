"""The control endpoint: how the CLI calls functions of a running host. Loopback only, with a token."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from aiohttp import web

from iii_runtime.adapters.system import Uuid4Source
from iii_runtime.core.config.values import LOOPBACK
from iii_runtime.core.errors import EnqueueError, IiiError, InvocationError
from iii_runtime.core.http import HttpError, HttpReply
from iii_runtime.core.payload import LARGE_BYTES, MAX_PAYLOAD_BYTES, Json, decode_json, render_json
from iii_runtime.core.trigger_request import TriggerRequest, parse_trigger_request
from iii_runtime.hosts.embedded.listener import Listener, ListeningServer, to_response
from iii_runtime.hosts.embedded.origins import is_loopback_netloc
from iii_runtime.hosts.embedded.request_body import BODY_TIMEOUT, read_body
from iii_runtime.ports.clock import IdSource

CONTROL_PATH = "/call"

ControlCall: TypeAlias = Callable[[TriggerRequest], Awaitable[Json]]


class ControlServer(ListeningServer):
    """Answers `POST /call` on a free loopback port.

    The body is a trigger request, `{function_id, payload, action?, timeout_ms?, metadata?}`; the answer
    `{"result": ...}`, or with another status `{"error": {code, message, function_id, stacktrace?, reason?}}`. An error
    without `function_id` refused the request itself. Browsers are refused: any `Origin` header, and any `Host` that is
    not this machine. A call goes on when its client disconnects.

    Args:
        call: Carries out a request.
        token: Wanted as `Authorization: Bearer <token>`.
        ids: Where error ids come from.
    """

    def __init__(self, call: ControlCall, token: str, *, ids: IdSource | None = None) -> None:
        self._call = call
        self._authorization = f"Bearer {token}".encode()
        super().__init__(Listener(self._answer, host=LOOPBACK, port=0, setting=None, ids=ids or Uuid4Source()))

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        refused = self._refused(request)
        if refused is not None:
            return to_response(refused, closes=True)
        try:
            raw = await read_body(request, limit_bytes=MAX_PAYLOAD_BYTES, timeout=BODY_TIMEOUT)
        except HttpError as error:
            return to_response(_refusal(error.status, error.code.lower(), error.message), closes=True)
        try:
            called = await asyncio.to_thread(_parse, raw) if len(raw) > LARGE_BYTES else _parse(raw)
        except IiiError as error:
            return to_response(_failure(400, error, None))
        return to_response(await self._carry_out(called))

    def _refused(self, request: web.BaseRequest) -> HttpReply | None:
        if "Origin" in request.headers:
            return _refusal(403, "origin_not_allowed", "browsers may not use the control endpoint")
        if not is_loopback_netloc(request.headers.get("Host", "")):
            return _refusal(403, "host_not_allowed", "the control endpoint is for this machine only")
        if request.path != CONTROL_PATH:
            return _refusal(404, "not_found", f"the control endpoint has POST {CONTROL_PATH} only")
        if request.method != "POST":
            return _refusal(405, "method_not_allowed", f"the control endpoint has POST {CONTROL_PATH} only")
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, self._authorization):
            return _refusal(401, "unauthorized", "the token is missing or wrong; it is in host.json")
        return None

    async def _carry_out(self, called: TriggerRequest) -> HttpReply:
        try:
            return _json_reply(200, {"result": await self._call(called)})
        except IiiError as error:
            return _failure(500, error, called.function_id)


def _parse(raw: bytes) -> TriggerRequest:
    return parse_trigger_request(decode_json(raw, "the request"))


def _failure(status: int, error: IiiError, function_id: str | None) -> HttpReply:
    fields: dict[str, Json] = {"code": error.code, "message": error.message, "function_id": function_id}
    if isinstance(error, InvocationError):
        fields["function_id"] = error.function_id or function_id
        fields |= {"stacktrace": error.stacktrace, "invocation_id": error.invocation_id}
        fields["about"] = {**error.about} or None
    if isinstance(error, EnqueueError):
        fields["reason"] = error.reason
    return _json_reply(status, {"error": {name: value for name, value in fields.items() if _is_told(name, value)}})


def _is_told(name: str, value: Json) -> bool:
    return name == "function_id" or value is not None


def _refusal(status: int, code: str, message: str) -> HttpReply:
    return _json_reply(status, {"error": {"code": code, "message": message}})


def _json_reply(status: int, value: Json) -> HttpReply:
    # Messages may quote text with lone surrogates; ASCII escapes carry them.
    content = render_json(value, "the result").encode("ascii")
    return HttpReply(status=status, headers=(("Content-Type", "application/json"),), body=content)
