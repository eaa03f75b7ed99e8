"""The http rules: routes, requests, replies, CORS. Pure; the hosts own sockets and events."""

from __future__ import annotations

from iii_runtime.core.api_types import ApiRequest, ApiResponse
from iii_runtime.core.http.cors import cors_headers
from iii_runtime.core.http.errors import (
    BadRequestError,
    BodyTooLargeError,
    HttpError,
    ResultInvalidError,
    RouteConflictError,
    RouteInvalidError,
)
from iii_runtime.core.http.replies import (
    RESPONSE_MEMBERS,
    HttpReply,
    condition_not_met,
    error_envelope,
    error_reply,
    http_error_reply,
    method_not_allowed,
    not_found,
    payload_too_large,
    render_response,
    timed_out,
    unavailable,
    validation_failed,
)
from iii_runtime.core.http.requests import UNKEYED_METHODS, build_request, join_headers, parse_body, parse_query
from iii_runtime.core.http.routes import (
    Matched,
    MethodNotAllowed,
    NotFound,
    Preflight,
    Route,
    RouteTable,
    parse_route,
)

__all__ = [
    "RESPONSE_MEMBERS",
    "UNKEYED_METHODS",
    "ApiRequest",
    "ApiResponse",
    "BadRequestError",
    "BodyTooLargeError",
    "HttpError",
    "HttpReply",
    "Matched",
    "MethodNotAllowed",
    "NotFound",
    "Preflight",
    "ResultInvalidError",
    "Route",
    "RouteConflictError",
    "RouteInvalidError",
    "RouteTable",
    "build_request",
    "condition_not_met",
    "cors_headers",
    "error_envelope",
    "error_reply",
    "http_error_reply",
    "join_headers",
    "method_not_allowed",
    "not_found",
    "parse_body",
    "parse_query",
    "parse_route",
    "payload_too_large",
    "render_response",
    "timed_out",
    "unavailable",
    "validation_failed",
]
