"""Laws of the http rules for any input."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any, assert_never
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from iii_runtime.core.http import (
    BadRequestError,
    Matched,
    MethodNotAllowed,
    NotFound,
    Preflight,
    ResultInvalidError,
    RouteConflictError,
    RouteTable,
    parse_body,
    parse_query,
    parse_route,
    render_response,
)
from iii_runtime.core.http.media import parse_content_type

SEGMENTS = st.sampled_from(["a", "b", "c", ":x", "{y}"])
METHODS = st.sampled_from(["GET", "POST", "HEAD", "OPTIONS"])
PATTERNS = st.lists(SEGMENTS, max_size=3).filter(
    lambda parts: len({p for p in parts if p[0] in ":{"}) == sum(p[0] in ":{" for p in parts)
)
ROUTES = st.lists(st.tuples(METHODS, PATTERNS), max_size=8)
PATHS = st.lists(st.sampled_from(["a", "b", "z", ""]), max_size=3)


def shape(parts: list[str]) -> list[str | None]:
    return [None if part[0] in ":{" else part for part in parts]


def naive_match(routes: list[tuple[str, list[str]]], method: str, path: list[str]) -> object:
    """Compare every route with the path, then pick by the plain reading of the rules."""
    fitting = [
        (verb, parts)
        for verb, parts in routes
        if len(parts) == len(path)
        and all(
            (value != "" if want is None else want == value) for want, value in zip(shape(parts), path, strict=True)
        )
    ]
    if not fitting:
        return "not found"
    for wanted in [method, "GET"] if method == "HEAD" else [method]:
        candidates = [parts for verb, parts in fitting if verb == wanted]
        if candidates:
            best = min(candidates, key=lambda parts: [want is None for want in shape(parts)])
            return (wanted, best, {p.strip(":{}"): v for p, v in zip(best, path, strict=True) if p[0] in ":{"})
    return "preflight" if method == "OPTIONS" else "not allowed"


@given(ROUTES, METHODS, PATHS)
def test_a_match_agrees_with_the_naive_model(routes: list[tuple[str, list[str]]], method: str, path: list[str]) -> None:
    distinct = {(verb, tuple(shape(parts))): (verb, parts) for verb, parts in routes}
    kept = list(distinct.values())
    table = RouteTable([parse_route(verb, "/".join(parts), (verb, parts)) for verb, parts in kept])
    got = table.match(method, "".join(f"/{part}" for part in path) + ("/" if path else ""))
    match got:
        case Matched(route, params):
            answer: object = (*route.target, params)
        case NotFound():
            answer = "not found"
        case MethodNotAllowed():
            answer = "not allowed"
        case Preflight():
            answer = "preflight"
        case _:
            assert_never(got)
    assert answer == naive_match(kept, method, path)


@given(ROUTES)
def test_a_table_conflicts_exactly_when_two_routes_share_method_and_shape(routes: list[tuple[str, list[str]]]) -> None:
    keys = [(verb, tuple(shape(parts))) for verb, parts in routes]
    try:
        RouteTable([parse_route(verb, "/".join(parts), None) for verb, parts in routes])
    except RouteConflictError:
        assert len(set(keys)) < len(keys)
    else:
        assert len(set(keys)) == len(keys)


@given(st.text(min_size=1))
def test_any_text_travels_through_a_path_parameter(text: str) -> None:
    match = RouteTable([parse_route("GET", "/x/:value", None)]).match("GET", f"/x/{quote(text, safe='')}")
    assert isinstance(match, Matched)
    assert match.path_params == {"value": text}


@given(st.text())
def test_any_path_and_query_is_read_or_a_bad_request(text: str) -> None:
    table = RouteTable([parse_route("GET", "/:a/:b", None), parse_route("GET", "/", None)])
    with contextlib.suppress(BadRequestError):
        table.match("GET", text)
    with contextlib.suppress(BadRequestError):
        parse_query(text)


CONTENT_TYPES = (
    st.none()
    | st.text()
    | st.sampled_from(
        ["application/json", "application/x+json; charset=latin1", "text/plain", "text/x; charset=utf-16", "image/png"]
    )
)


@given(CONTENT_TYPES, st.binary())
def test_any_body_is_read_or_a_bad_request(content_type: str | None, raw: bytes) -> None:
    with contextlib.suppress(BadRequestError):
        body = parse_body(content_type, raw)
        is_json = content_type is not None and parse_content_type(content_type).is_json
        assert is_json or body is None or isinstance(body, str | bytes)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_a_json_body_survives_reading_and_rendering(value: Any) -> None:
    assert parse_body("application/json", json.dumps(value).encode()) == value
    assert parse_body("application/json", render_response({"body": value}).body) == value


HEADER_TEXT = st.text(max_size=8) | st.sampled_from(["a\r\nb", "x\n", "ok", "é", "a: b"])
HEADERS = st.dictionaries(
    HEADER_TEXT, HEADER_TEXT | st.lists(HEADER_TEXT, max_size=2) | st.integers() | st.none()
) | st.lists(HEADER_TEXT | st.integers())
RESULTS = st.fixed_dictionaries(
    {},
    optional={
        "status_code": st.integers(0, 700) | st.text(max_size=2) | st.none(),
        "body": st.text() | st.binary() | st.floats() | st.none(),
        "headers": HEADERS,
    },
)


@given(RESULTS | HEADER_TEXT | st.binary() | st.none())
def test_a_rendered_reply_is_always_valid_http(result: object) -> None:
    try:
        reply = render_response(result)
    except ResultInvalidError:
        return
    assert type(reply.status) is int
    assert 200 <= reply.status < 600
    assert isinstance(reply.body, bytes)
    for name, value in reply.headers:
        assert re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name)
        assert not re.search(r"[\r\n\0]", value)
        value.encode("latin-1")
