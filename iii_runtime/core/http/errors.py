"""The refusals of the http rules, each with the status that answers it."""

from __future__ import annotations

from iii_runtime.core.errors import IiiError, RegistrationError


class HttpError(IiiError):
    """A request or a result breaks the http rules.

    Attributes:
        status: The http status of the answer.
    """

    code = "HTTP_ERROR"
    status = 500


class BadRequestError(HttpError):
    """The caller sent something that cannot be read: its path, query, headers or body."""

    code = "BAD_REQUEST"
    status = 400


class BodyTooLargeError(BadRequestError):
    """The body is larger than the runtime keeps."""

    code = "PAYLOAD_TOO_LARGE"
    status = 413


class ResultInvalidError(HttpError):
    """A function returned what is no http response: a bad status, header or body. The function needs the fix."""

    code = "RESPONSE_INVALID"
    status = 500


class RouteInvalidError(RegistrationError):
    """An `api_path` or `http_method` cannot be a route."""

    code = "route_invalid"


class RouteConflictError(RegistrationError):
    """Two routes have the same method and the same shape, so no request could tell them apart."""

    code = "route_conflict"
