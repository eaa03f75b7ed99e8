"""Routes: patterns such as `/users/:id`, and which of them a request belongs to.

- The leading slash of a pattern is optional; `:id` and `{id}` mean the same.
- One trailing slash is ignored, in patterns and in requests. Other empty segments match nothing.
- The path is split first and each segment decoded once, so `%2F` stays inside its segment.
- Static segments win over parameters, the leftmost difference decides.
- HEAD falls back to GET. OPTIONS without a route of its own is a CORS preflight.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Generic, TypeAlias, TypeVar
from urllib.parse import unquote_to_bytes

from iii_runtime.core.frozen import frozen
from iii_runtime.core.http.errors import BadRequestError, RouteConflictError, RouteInvalidError

TargetT = TypeVar("TargetT")

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")

_PARAMETER = re.compile(r":([A-Za-z_][A-Za-z0-9_-]*)|\{([A-Za-z_][A-Za-z0-9_-]*)\}")
_STATIC = re.compile(r"[^\s{}*?#\x00-\x1f\x7f]+")


@frozen
class Parameter:
    """A segment of a pattern that matches any text but the empty one."""

    name: str


Segment: TypeAlias = str | Parameter


@frozen(kw_only=True)
class Route(Generic[TargetT]):
    """One registered route. Make it with `parse_route`.

    Attributes:
        method: Upper case.
        pattern: The path as registered, with a leading slash.
        segments: The parsed pattern; static segments are decoded.
        target: What the host calls; the rules here never look at it.
    """

    method: str
    pattern: str
    segments: tuple[Segment, ...]
    target: TargetT


@frozen
class Matched(Generic[TargetT]):
    """The route of a request and the decoded values of its parameters."""

    route: Route[TargetT]
    path_params: dict[str, str]


@frozen
class NotFound:
    """No route has this path."""


@frozen
class MethodNotAllowed:
    """The path has routes, none for this method. `allowed` is sorted, for the `Allow` header."""

    allowed: tuple[str, ...]


@frozen
class Preflight:
    """An OPTIONS request for a path that has routes; the CORS rules answer it."""

    allowed: tuple[str, ...]


Match: TypeAlias = Matched[TargetT] | NotFound | MethodNotAllowed | Preflight


def parse_route(method: str, api_path: str, target: TargetT) -> Route[TargetT]:
    """Read the config of an http trigger.

    Args:
        method: `http_method`, in any case.
        api_path: The pattern, such as `/users/:id`.
        target: What the route leads to.

    Raises:
        RouteInvalidError: The method is unknown, or the pattern has a segment that is empty, a wildcard, a mixture
            of text and parameter, not decodable, or a parameter twice.
    """
    verb = method.upper()
    if verb not in METHODS:
        raise RouteInvalidError(f"http_method {method!r} is none of {', '.join(METHODS)}.")
    pattern = api_path if api_path.startswith("/") else f"/{api_path}"
    segments = tuple(_parse_segment(raw, pattern) for raw in _split(pattern))
    names = [segment.name for segment in segments if isinstance(segment, Parameter)]
    if len(set(names)) != len(names):
        raise RouteInvalidError(f"api_path {pattern!r} has the same parameter twice.")
    return Route(method=verb, pattern=pattern, segments=segments, target=target)


class RouteTable(Generic[TargetT]):
    """The routes of a host. It never changes; build a new one when routes come or go.

    Args:
        routes: In any order.

    Raises:
        RouteConflictError: Two routes have the same method and shape.
    """

    def __init__(self, routes: Iterable[Route[TargetT]] = ()) -> None:
        self.routes: tuple[Route[TargetT], ...] = tuple(routes)
        by_shape: dict[tuple[str, tuple[str | None, ...]], Route[TargetT]] = {}
        by_length: dict[int, list[Route[TargetT]]] = {}
        for route in self.routes:
            other = by_shape.setdefault((route.method, _shape(route)), route)
            if other is not route:
                raise RouteConflictError(
                    f"{route.method} {route.pattern} has the same shape as {other.pattern}, which is registered "
                    "already; change the path or the method of one."
                )
            by_length.setdefault(len(route.segments), []).append(route)
        self._by_length = {length: sorted(group, key=_specificity) for length, group in by_length.items()}

    def match(self, method: str, path: str) -> Match[TargetT]:
        """Find the route of a request.

        Args:
            method: The method of the request.
            path: Its path as sent: percent-encoded, without the query.

        Raises:
            BadRequestError: A segment is not UTF-8 once decoded.
        """
        verb = method.upper()
        values = tuple(_decode(raw) for raw in _split(path))
        fitting = [route for route in self._by_length.get(len(values), ()) if _fits(route, values)]
        if not fitting:
            return NotFound()
        for wanted in (verb, "GET") if verb == "HEAD" else (verb,):
            for route in fitting:
                if route.method == wanted:
                    return Matched(route, _parameters(route, values))
        allowed = _allowed(fitting)
        return Preflight(allowed) if verb == "OPTIONS" else MethodNotAllowed(allowed)


def _split(path: str) -> list[str]:
    trimmed = path.removeprefix("/").removesuffix("/")
    return trimmed.split("/") if trimmed or path.startswith("//") else []


def _decode(raw: str) -> str:
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeError as error:
        raise BadRequestError(f"the path segment {raw[:64]!a} is not UTF-8.") from error


def _parse_segment(raw: str, pattern: str) -> Segment:
    if named := _PARAMETER.fullmatch(raw):
        return Parameter(named[1] or named[2])
    if raw.startswith(":") or not _STATIC.fullmatch(raw):
        raise RouteInvalidError(
            f"api_path {pattern!r}: the segment {raw!r} is neither text nor a parameter `:name` or `{{name}}`."
        )
    try:
        return _decode(raw)
    except BadRequestError as error:
        raise RouteInvalidError(f"api_path {pattern!r}: {error.message}") from error


def _shape(route: Route[TargetT]) -> tuple[str | None, ...]:
    return tuple(segment if isinstance(segment, str) else None for segment in route.segments)


def _specificity(route: Route[TargetT]) -> tuple[bool, ...]:
    return tuple(isinstance(segment, Parameter) for segment in route.segments)


def _fits(route: Route[TargetT], values: tuple[str, ...]) -> bool:
    return all(
        bool(value) if isinstance(segment, Parameter) else segment == value
        for segment, value in zip(route.segments, values, strict=True)
    )


def _parameters(route: Route[TargetT], values: tuple[str, ...]) -> dict[str, str]:
    return {
        segment.name: value
        for segment, value in zip(route.segments, values, strict=True)
        if isinstance(segment, Parameter)
    }


def _allowed(routes: Iterable[Route[TargetT]]) -> tuple[str, ...]:
    methods = {route.method for route in routes} | {"OPTIONS"}
    if "GET" in methods:
        methods.add("HEAD")
    return tuple(sorted(methods))
