"""The routes of the HTTP API, and who may call them and open a WebSocket."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from iii_runtime.core.config import StreamAuth
from iii_runtime.core.http import Route, parse_route
from iii_runtime.core.http.routes import METHODS, Parameter
from iii_runtime.core.registry import TriggerSpec
from iii_runtime.core.triggers import Http, HttpAuth
from iii_runtime.plan.app_plan import PlannedRoute
from iii_runtime.plan.basis import Basis
from iii_runtime.plan.findings import Finding, error, place_in_config, place_of_trigger, warning
from iii_runtime.plan.limits import API_ROUTES

STREAM_TICKET = ("POST", "/_iii/stream-ticket")
"""The route that gives out tickets for the WebSocket."""

_PLAIN = re.compile(r"[A-Za-z0-9._~-]+")
_HOST = r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?"
_ORIGIN = re.compile(rf"https?://{_HOST}")
_ISSUER = re.compile(rf"https://{_HOST}(?:/[!-\"$->@-~]*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may come in over the network.

    Attributes:
        routes: All routes, with the one for tickets if they are needed.
        stream_auth: Who may open a WebSocket.
        findings: What is open without having been opened, or cannot work.
    """

    routes: tuple[PlannedRoute, ...]
    stream_auth: StreamAuth
    findings: tuple[Finding, ...]


def plan_access(basis: Basis) -> Access:
    """Return the routes and their authorisation: what a trigger says, else its section, else the stage.

    HEAD is answered by the function of GET, which takes a route of its own in API Gateway. If there are too many routes
    with these, none of them is planned, and HEAD is answered with 404.

    A stage of production decides nothing: there it is an error to leave it open. Other stages are open, with a warning.
    """
    routes = [_plan_route(basis, trigger) for trigger in basis.triggers(Http) if isinstance(trigger.kind, Http)]
    stream_auth: StreamAuth = basis.config.stream.auth or "none"
    tickets = [_ticket_route(basis)] if stream_auth == "ticket" else []
    heads = _head_routes(routes)
    if len(routes) + len(tickets) + len(heads) > API_ROUTES:
        heads = []
    findings = [
        *_check_undecided(basis),
        *_check_routes(basis, routes, tickets),
        *_check_jwt(basis, [*routes, *tickets]),
        *_check_cors(basis, routes),
    ]
    return Access(routes=(*routes, *heads, *tickets), stream_auth=stream_auth, findings=tuple(findings))


def _plan_route(basis: Basis, trigger: TriggerSpec) -> PlannedRoute:
    assert isinstance(trigger.kind, Http)  # noqa: S101 - the caller has looked
    route = parse_route(trigger.kind.method, trigger.kind.path, None)
    return PlannedRoute(
        method=route.method,
        path=_path(route),
        function=basis.deployment.function_name(trigger.function_id),
        auth=trigger.kind.auth or _default_auth(basis),
        source=place_of_trigger(trigger),
    )


def _head_routes(routes: Sequence[PlannedRoute]) -> list[PlannedRoute]:
    """Return a HEAD route for each GET route whose paths have none that the app has registered."""
    registered = [route for route in routes if route.method == "HEAD"]
    return [
        replace(route, method="HEAD")
        for route in routes
        if route.method == "GET" and not any(_covers(head.path, route.path) for head in registered)
    ]


def _covers(path: str, other: str) -> bool:
    """Return whether a path has all requests of another one."""
    segments, others = path.split("/"), other.split("/")
    return len(segments) == len(others) and all(
        mine == its or mine.startswith("{") for mine, its in zip(segments, others, strict=True)
    )


def _ticket_route(basis: Basis) -> PlannedRoute:
    method, path = STREAM_TICKET
    return PlannedRoute(
        method=method,
        path=path,
        function=basis.deployment.system_name("websocket"),
        auth=_default_auth(basis),
        source=place_in_config(basis.config, basis.config.stream.line),
    )


def _default_auth(basis: Basis) -> HttpAuth:
    return basis.config.http.auth or "none"


def _path(route: Route[None]) -> str:
    return "/" + "/".join(
        f"{{{segment.name}}}" if isinstance(segment, Parameter) else quote(segment, safe="")
        for segment in route.segments
    )


def _check_undecided(basis: Basis) -> Iterator[Finding]:
    """Yield what is open because nobody has said who may come in."""
    config, stage = basis.config, basis.deployment.stage
    undecided = [
        trigger for trigger in basis.triggers(Http) if isinstance(trigger.kind, Http) and trigger.kind.auth is None
    ]
    if config.http.auth is None and basis.stage.production:
        for trigger in undecided:
            yield error(
                place_of_trigger(trigger),
                f"http trigger of '{trigger.function_id}': {_shown(trigger)} does not say who may call it, and "
                f"{stage} is a stage of production. Give the trigger an `auth` (iam, jwt or none), or set "
                "`auth` of iii-http in iii-config.yaml.",
            )
    elif config.http.auth is None and undecided:
        yield warning(
            place_in_config(config, config.http.line),
            f"everybody may call {', '.join(map(_shown, undecided))} in stage {stage}. Set `auth` of iii-http (iam, "
            "jwt or none) to decide it; a stage of production needs it.",
        )
    if config.stream.auth is None:
        report = error if basis.stage.production else warning
        yield report(
            place_in_config(config, config.stream.line),
            f"everybody may open a WebSocket in stage {stage} and join any stream. Set `auth` of iii-stream (iam, "
            "ticket or none) to decide it; a stage of production needs it.",
        )
    elif config.stream.auth == "ticket" and config.http.auth in {None, "none"}:
        report = error if basis.stage.production and config.http.auth is None else warning
        yield report(
            place_in_config(config, config.stream.line),
            "tickets for the WebSocket are given to everybody: their route is under the `auth` of iii-http. Set that "
            "to iam or jwt.",
        )


def _check_routes(basis: Basis, routes: Sequence[PlannedRoute], tickets: list[PlannedRoute]) -> Iterator[Finding]:
    count = len(tickets)
    for route in routes:
        count += 1
        where = route.source
        texts = [segment for segment in route.path.split("/") if segment and not segment.startswith("{")]
        if not all(map(_PLAIN.fullmatch, texts)):
            yield warning(
                where,
                f"{route.method} {route.path}: API Gateway may not match letters that are escaped in a path. Use "
                "letters, digits, '-', '.', '_' and '~'.",
            )
    if count > API_ROUTES:
        yield warning(
            place_in_config(basis.config, basis.config.http.line),
            f"there are {count} routes, and an HTTP API has {API_ROUTES} unless AWS has raised that. Ask for more, or "
            "split the app.",
        )
    elif count + len(_head_routes(routes)) > API_ROUTES:
        yield warning(
            place_in_config(basis.config, basis.config.http.line),
            f"there are {count} routes, and with one for HEAD beside each GET there would be more than the "
            f"{API_ROUTES} of an HTTP API. So HEAD is answered with 404 where no trigger has it. Split the app if that "
            "matters.",
        )


def _check_jwt(basis: Basis, routes: Iterable[PlannedRoute]) -> Iterator[Finding]:
    taking = [route for route in routes if route.auth == "jwt"]
    named = ", ".join(f"{route.method} {route.path}" for route in taking)
    jwt = basis.config.http.jwt
    if taking and jwt is None:
        yield error(
            taking[0].source,
            f"{named}: `auth: jwt` takes tokens, and nothing says whose. Set `jwt` of iii-http, with `issuer` and "
            "`audience`.",
        )
    if jwt is not None and not _ISSUER.fullmatch(jwt.issuer):
        yield error(
            place_in_config(basis.config, basis.config.http.line),
            f"`jwt.issuer` {jwt.issuer!a}: API Gateway finds the keys below it when it is deployed. Give the https URL "
            "of the issuer, with a host and without user, query and fragment.",
        )


def _check_cors(basis: Basis, routes: Iterable[PlannedRoute]) -> Iterator[Finding]:
    cors = basis.config.http.cors
    if cors is None:
        return
    where = place_in_config(basis.config, basis.config.http.line)
    unknown = [method for method in cors.allowed_methods if method not in METHODS]
    if unknown:
        yield error(
            where,
            f"`cors.allowed_methods` has {', '.join(unknown)}, and no route can have that. Correct it; there are "
            f"{', '.join(METHODS)}, and '*' for all.",
        )
    yield from _check_origins(cors.allowed_origins, where)
    if not cors.allowed_origins and any(route.auth != "none" for route in routes):
        yield warning(
            where,
            "pages of any origin may call routes that need credentials. List the origins in `cors.allowed_origins` of "
            "iii-http.",
        )


def _check_origins(origins: Iterable[str], where: str) -> Iterator[Finding]:
    for origin in origins:
        if "*" in origin:
            yield error(
                where,
                f"`cors.allowed_origins` has {origin!a}: an origin is one, and no pattern. API Gateway would let in "
                "every page under https for 'https://*', and refuses others. List each origin, or '*' alone.",
            )
        elif not _ORIGIN.fullmatch(origin):
            yield warning(
                where,
                f"`cors.allowed_origins` has {origin!a}: API Gateway may refuse what is no origin of http or https "
                "with a host in ASCII, as a browser sends it.",
            )


def _shown(trigger: TriggerSpec) -> str:
    assert isinstance(trigger.kind, Http)  # noqa: S101 - the caller has looked
    return f"{trigger.kind.method.upper()} {trigger.kind.path}"
