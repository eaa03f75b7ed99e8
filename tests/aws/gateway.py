"""API Gateway: the HTTP API with its routes and CORS, and the connections of the WebSocket API."""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import parse_qsl, unquote

from iii_runtime.core.config import CorsConfig
from iii_runtime.core.payload import Json
from iii_runtime.plan.app_plan import AppPlan, PlannedRoute
from tests.aws.authorizers import Authorizers, CallerRefusedError
from tests.aws.calls import Answered, Call, refuse
from tests.aws.lambda_service import FunctionFailedError, LambdaService

DOMAIN = "a1b2c3d4e5.execute-api.eu-central-1.amazonaws.com"
WEBSOCKET_DOMAIN = "w1x2y3z4a5.execute-api.eu-central-1.amazonaws.com"
WEBSOCKET_STAGE = "live"
LARGEST_FRAME = 128 * 1024
LARGEST_PAYLOAD = 6 * 1024 * 1024
"""Bytes of an event, and of an answer, as JSON: what Lambda takes and returns."""

LARGEST_HEAD = 10_240
"""Bytes of the request line and the values of the headers."""
_TEXT = re.compile(r"^(text/|application/(json|javascript|xml|x-www-form-urlencoded)|[^;]*\+(json|xml))")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """An answer of the HTTP API."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class HttpApi:
    """Takes requests to the Lambdas of their routes.

    Attributes:
        authorizers: Who may call.
    """

    def __init__(self, plan: AppPlan, lambdas: LambdaService, now_ms: Any) -> None:
        self._routes = plan.routes
        self._cors = plan.cors
        self.authorizers = Authorizers(plan.jwt)
        self._lambdas = lambdas
        self._now_ms = now_ms

    def request(
        self, method: str, path: str, query: str, headers: Sequence[tuple[str, str]], body: bytes
    ) -> HttpAnswer:
        """Answer a request as API Gateway does; a Lambda that fails is 500, one that answers nonsense too."""
        joined = _joined(headers)
        origin = joined.get("origin")
        if method == "OPTIONS" and self._cors is not None:
            return HttpAnswer(status=204, headers=_cors_headers(self._cors, origin, is_preflight=True))
        answer = self._answer(method, path, query, joined, body)
        if self._cors is None:
            return answer
        # With CORS of its own, the API ignores what the Lambda says about it.
        kept = tuple(header for header in answer.headers if not header[0].lower().startswith("access-control-"))
        added = _cors_headers(self._cors, origin, is_preflight=False)
        return HttpAnswer(status=answer.status, headers=(*kept, *added), body=answer.body)

    def _answer(self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        line = f"{method} {path}?{query} HTTP/1.1" if query else f"{method} {path} HTTP/1.1"
        if len(line) + sum(map(len, headers.values())) > LARGEST_HEAD:
            return _message(431, "Request Header Fields Too Large")
        found = self._match(method, path)
        if found is None:
            return _message(404, "Not Found")
        route, parameters = found
        event = self._event(route, parameters, method, path, query, headers, body)
        try:
            authorizer = self.authorizers.authorize(route.auth, headers)
        except CallerRefusedError as refusal:
            return _message(refusal.status, refusal.message)
        if authorizer is not None:
            event["requestContext"]["authorizer"] = authorizer
        if len(json.dumps(event)) > LARGEST_PAYLOAD:
            return _message(413, "Request Entity Too Large")
        try:
            return _read(self._lambdas.invoke(route.function, cast(Json, event)))
        except FunctionFailedError:
            return _message(500, "Internal Server Error")

    def _match(self, method: str, path: str) -> tuple[PlannedRoute, dict[str, str]] | None:
        # A slash at the end makes it another path, which no route can have.
        asked = path.removeprefix("/").split("/")
        best: tuple[tuple[bool, ...], PlannedRoute, dict[str, str]] | None = None
        for route in self._routes:
            segments = route.path.removeprefix("/").split("/")
            if len(segments) != len(asked) or route.method not in {method, "ANY", "*"}:
                continue
            parameters = _parameters(segments, asked)
            if parameters is None:
                continue
            weight = tuple(segment.startswith("{") for segment in segments)  # a literal goes before a parameter
            if best is None or weight < best[0]:
                best = (weight, route, parameters)
        return None if best is None else (best[1], best[2])

    def _event(
        self,
        route: PlannedRoute,
        parameters: Mapping[str, str],
        method: str,
        path: str,
        query: str,
        headers: Mapping[str, str],
        body: bytes,
    ) -> dict[str, Any]:
        is_text = _TEXT.match(headers.get("content-type", "text/plain")) is not None
        now_ms = self._now_ms()
        event: dict[str, Any] = {
            "version": "2.0",
            "routeKey": f"{route.method} {route.path}",
            "rawPath": unquote(path),  # API Gateway decodes it
            "rawQueryString": query,
            "headers": {name: value for name, value in headers.items() if name != "cookie"},
            "requestContext": {
                "accountId": "123456789012",
                "apiId": DOMAIN.partition(".")[0],
                "domainName": DOMAIN,
                "domainPrefix": DOMAIN.partition(".")[0],
                "http": {
                    "method": method,
                    "path": path,
                    "protocol": "HTTP/1.1",
                    "sourceIp": "203.0.113.7",
                    "userAgent": headers.get("user-agent", ""),
                },
                "requestId": f"request-{now_ms}",
                "routeKey": f"{route.method} {route.path}",
                "stage": "$default",
                "timeEpoch": now_ms,
            },
            "isBase64Encoded": False,
        }
        if "cookie" in headers:
            event["cookies"] = headers["cookie"].split("; ")
        if query:
            event["queryStringParameters"] = dict(parse_qsl(query, keep_blank_values=True))
        if parameters:
            event["pathParameters"] = {name: unquote(value) for name, value in parameters.items()}
        if body:
            text = _text_of(body) if is_text else None
            event["body"] = base64.b64encode(body).decode() if text is None else text
            event["isBase64Encoded"] = text is None
        return event


@dataclass(slots=True)
class Connection:
    """A connection of the WebSocket API, as its client sees it.

    Attributes:
        connection_id: Identity.
        frames: What was received, in order.
        is_open: Whether it is.
    """

    connection_id: str
    frames: list[str] = field(default_factory=list)
    is_open: bool = True


class WebSocketApi:
    """Takes what clients do to the Lambda of the streams, and frames back to them."""

    def __init__(self, function: str, lambdas: LambdaService) -> None:
        self._function = function
        self._lambdas = lambdas
        self._connections: dict[str, Connection] = {}
        self._numbers = itertools.count(1)
        lambdas.services["apigatewaymanagementapi"] = self.answer

    def connect(self, **query: str) -> Connection:
        """Open a connection.

        Raises:
            ConnectionRefusedError: The Lambda refuses it.
        """
        connection = Connection(f"connection-{next(self._numbers)}=")
        event = self._event("CONNECT", connection.connection_id, {"queryStringParameters": query or None})
        answer = self._lambdas.invoke(self._function, event)
        status = answer.get("statusCode") if isinstance(answer, dict) else None
        if status != 200:
            raise ConnectionRefusedError(str(answer))
        self._connections[connection.connection_id] = connection
        return connection

    def send(self, connection: Connection, frame: str) -> None:
        """Send a frame of a client."""
        self._lambdas.invoke(self._function, self._event("MESSAGE", connection.connection_id, {"body": frame}))

    def disconnect(self, connection: Connection, *, is_noticed: bool = True) -> None:
        """Close a connection; API Gateway may fail to tell anybody."""
        connection.is_open = False
        self._connections.pop(connection.connection_id, None)
        if is_noticed:
            self._lambdas.invoke(self._function, self._event("DISCONNECT", connection.connection_id, {}))

    def answer(self, call: Call) -> Answered:
        """Answer a request to the management API."""
        connection = self._connections.get(str(call.parameters["ConnectionId"]))
        if connection is None:
            return refuse("GoneException", "", 410)
        if call.operation == "PostToConnection":
            data = call.parameters["Data"]
            text = data if isinstance(data, str) else bytes(data).decode("utf-8")
            if len(text.encode()) > LARGEST_FRAME:
                return refuse("PayloadTooLargeException", "", 413)
            connection.frames.append(text)
        elif call.operation == "DeleteConnection":
            connection.is_open = False
            del self._connections[connection.connection_id]
        return Answered(reply={"ResponseMetadata": {"HTTPStatusCode": 200, "HTTPHeaders": {}, "RetryAttempts": 0}})

    def _event(self, kind: str, connection_id: str, more: Mapping[str, Any]) -> Json:
        keys = {"CONNECT": "$connect", "DISCONNECT": "$disconnect", "MESSAGE": "$default"}
        context = {
            "routeKey": keys[kind],
            "eventType": kind,
            "connectionId": connection_id,
            "domainName": WEBSOCKET_DOMAIN,
            "stage": WEBSOCKET_STAGE,
            "apiId": WEBSOCKET_DOMAIN.partition(".")[0],
        }
        return cast(Json, {"requestContext": context, "isBase64Encoded": False, **more})


def _parameters(segments: Sequence[str], asked: Sequence[str]) -> dict[str, str] | None:
    parameters: dict[str, str] = {}
    for segment, given in zip(segments, asked, strict=True):
        if segment.startswith("{") and given:
            parameters[segment[1:-1]] = given
        elif segment != given:
            return None
    return parameters


def _joined(headers: Sequence[tuple[str, str]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in headers:
        known = joined.get(name.lower())
        joined[name.lower()] = value if known is None else f"{known},{value}"
    return joined


def _text_of(body: bytes) -> str | None:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _read(answer: Json) -> HttpAnswer:
    is_answer = isinstance(answer, dict) and isinstance(answer.get("statusCode"), int)
    if not is_answer or len(json.dumps(answer)) > LARGEST_PAYLOAD:
        return _message(500, "Internal Server Error")
    given: Any = answer
    text = str(given.get("body") or "")
    body = base64.b64decode(text) if given.get("isBase64Encoded") else text.encode("utf-8")
    headers = [(str(name), str(value)) for name, value in (given.get("headers") or {}).items()]
    headers += [("set-cookie", str(cookie)) for cookie in given.get("cookies") or []]
    return HttpAnswer(status=given["statusCode"], headers=tuple(headers), body=body)


def _message(status: int, text: str) -> HttpAnswer:
    headers = (("content-type", "application/json"),)
    return HttpAnswer(status=status, headers=headers, body=f'{{"message":"{text}"}}'.encode())


def _cors_headers(cors: CorsConfig, origin: str | None, *, is_preflight: bool) -> tuple[tuple[str, str], ...]:
    if origin is None or (cors.allowed_origins and origin not in cors.allowed_origins):
        return ()
    headers = [("access-control-allow-origin", origin if cors.allowed_origins else "*")]
    if is_preflight:
        headers.append(("access-control-allow-methods", ",".join(cors.allowed_methods) or "*"))
        headers.append(("access-control-allow-headers", "authorization,*"))
    return tuple(headers)
