"""The http rules: routes, requests, replies, CORS."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from iii_runtime import IamCaller, JwtCaller
from iii_runtime.core.api_types import Caller
from iii_runtime.core.config import CorsConfig
from iii_runtime.core.errors import IiiError
from iii_runtime.core.http import (
    ApiRequest,
    ApiResponse,
    BadRequestError,
    BodyTooLargeError,
    HttpReply,
    Matched,
    MethodNotAllowed,
    NotFound,
    Preflight,
    ResultInvalidError,
    RouteConflictError,
    RouteInvalidError,
    RouteTable,
    build_request,
    condition_not_met,
    cors_headers,
    error_envelope,
    error_reply,
    http_error_reply,
    method_not_allowed,
    not_found,
    parse_body,
    parse_query,
    parse_route,
    payload_too_large,
    render_response,
    timed_out,
    unavailable,
    validation_failed,
)


def table(*routes: str) -> RouteTable[str]:
    return RouteTable(parse_route(method, path, line) for line in routes for method, path in [line.split(" ")])


def found(routes: RouteTable[str], method: str, path: str) -> tuple[str, dict[str, str]]:
    match = routes.match(method, path)
    assert isinstance(match, Matched)
    return match.route.target, match.path_params


@pytest.mark.parametrize(
    ("pattern", "path", "params"),
    [
        ("/", "/", {}),
        ("", "", {}),
        ("/users", "/users", {}),
        ("users", "/users", {}),
        ("/users/", "/users", {}),
        ("/users", "/users/", {}),
        ("/users/:id", "/users/7", {"id": "7"}),
        ("/users/{id}", "/users/7/", {"id": "7"}),
        ("/:a/x/{b_2}", "/1/x/2", {"a": "1", "b_2": "2"}),
        ("/files/:name", "/files/a%2Fb", {"name": "a/b"}),
        ("/files/:name", "/files/%25zz", {"name": "%zz"}),
        ("/files/:name", "/files/%2525", {"name": "%25"}),
        ("/files/:name", "/files/a+b", {"name": "a+b"}),
        ("/files/:name", "/files/caf%C3%A9", {"name": "café"}),
        ("/caf%C3%A9", "/café", {}),
        ("/orders:cancel", "/orders:cancel", {}),
    ],
)
def test_a_path_matches_a_pattern(pattern: str, path: str, params: dict[str, str]) -> None:
    match = RouteTable([parse_route("GET", pattern, None)]).match("GET", path)
    assert isinstance(match, Matched)
    assert match.path_params == params


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/users/:id", "/users"),
        ("/users/:id", "/users//"),
        ("/users/:id", "/users/7/x"),
        ("/users", "//users"),
        ("/users", "/users//"),
        ("/", "//"),
        ("/a/b", "/a%2Fb"),
        ("/users", "/Users"),
    ],
)
def test_another_path_is_not_found(pattern: str, path: str) -> None:
    assert RouteTable([parse_route("GET", pattern, None)]).match("GET", path) == NotFound()


def test_static_segments_win_over_parameters_from_the_left() -> None:
    routes = table("GET /:a/:b", "GET /:a/y", "GET /x/:b", "GET /x/y")
    assert found(routes, "GET", "/x/y")[0] == "GET /x/y"
    assert found(routes, "GET", "/x/1") == ("GET /x/:b", {"b": "1"})
    assert found(routes, "GET", "/1/y") == ("GET /:a/y", {"a": "1"})
    assert found(routes, "GET", "/1/2") == ("GET /:a/:b", {"a": "1", "b": "2"})


def test_a_route_of_another_method_does_not_hide_a_less_specific_one() -> None:
    routes = table("POST /users/me", "GET /users/:id")
    assert found(routes, "get", "/users/me") == ("GET /users/:id", {"id": "me"})


def test_head_falls_back_to_get_unless_it_has_its_own_route() -> None:
    routes = table("GET /a", "GET /b", "HEAD /b", "POST /c")
    assert found(routes, "HEAD", "/a")[0] == "GET /a"
    assert found(routes, "HEAD", "/b")[0] == "HEAD /b"
    assert routes.match("HEAD", "/c") == MethodNotAllowed(("OPTIONS", "POST"))


def test_options_is_a_preflight_unless_it_has_its_own_route() -> None:
    routes = table("GET /a", "POST /a", "OPTIONS /b")
    assert routes.match("OPTIONS", "/a") == Preflight(("GET", "HEAD", "OPTIONS", "POST"))
    assert found(routes, "OPTIONS", "/b")[0] == "OPTIONS /b"
    assert routes.match("OPTIONS", "/none") == NotFound()


def test_a_wrong_method_lists_the_allowed_ones() -> None:
    assert table("GET /a", "PUT /:x").match("DELETE", "/a") == MethodNotAllowed(("GET", "HEAD", "OPTIONS", "PUT"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("GET /users/:id", "GET users/{name}/"),
        ("GET /users", "get /users"),
        ("GET /caf%C3%A9", "GET /café"),
    ],
)
def test_two_routes_of_one_method_and_shape_conflict(first: str, second: str) -> None:
    with pytest.raises(RouteConflictError, match="same shape") as caught:
        table(first, second)
    assert isinstance(caught.value, IiiError)
    assert caught.value.code == "route_conflict"


def test_the_same_shape_with_other_methods_is_no_conflict() -> None:
    assert len(table("GET /a/:x", "POST /a/:y", "GET /a/b").routes) == 3


@pytest.mark.parametrize(
    ("method", "pattern"),
    [
        ("FETCH", "/a"),
        ("", "/a"),
        ("GET", "/a//b"),
        ("GET", "//"),
        ("GET", "/:"),
        ("GET", "/{}"),
        ("GET", "/a{id}"),
        ("GET", "/{id}b"),
        ("GET", "/:9"),
        ("GET", "/*"),
        ("GET", "/{proxy+}"),
        ("GET", "/a?b=1"),
        ("GET", "/a#b"),
        ("GET", "/a b"),
        ("GET", "/:id/{id}"),
        ("GET", "/%FF"),
    ],
)
def test_what_cannot_be_a_route_is_refused(method: str, pattern: str) -> None:
    with pytest.raises(RouteInvalidError):
        parse_route(method, pattern, None)


@pytest.mark.parametrize("path", ["/a/%FF", "/%C3", "/a/\udcff"])
def test_a_path_that_is_not_utf8_is_a_bad_request(path: str) -> None:
    with pytest.raises(BadRequestError, match="UTF-8"):
        table("GET /a/:x").match("GET", path)


def test_the_request_dict_has_iiis_members() -> None:
    match = table("POST users/:id").match("POST", "/users/7")
    assert isinstance(match, Matched)
    request = build_request(
        match.route,
        method="post",
        path_params=match.path_params,
        query="a=1&b=x%20y&a=2&c",
        headers=[
            ("Content-Type", "application/json"),
            ("X-A", "1"),
            ("x-a", "2"),
            ("Cookie", "a=1"),
            ("cookie", "b=2"),
        ],
        body=b'{"n": 1}',
    )
    assert request == {
        "path": "/users/:id",
        "method": "POST",
        "path_params": {"id": "7"},
        "query_params": {"a": "2", "b": "x y", "c": ""},
        "headers": {"content-type": "application/json", "x-a": "1, 2", "cookie": "a=1; b=2"},
        "body": {"n": 1},
        "trigger": {"type": "http", "path": "/users/:id", "method": "POST"},
        "caller": None,
    }
    typed = ApiRequest[Any].from_request({**request, "unknown": 1})
    assert (typed.path, typed.method, typed.path_params, typed.body) == ("/users/:id", "POST", {"id": "7"}, {"n": 1})
    assert (typed.query_params["a"], typed.headers["x-a"], typed.trigger["type"]) == ("2", "1, 2", "http")


def test_a_head_request_on_a_get_route_keeps_both_methods() -> None:
    match = table("GET /a").match("HEAD", "/a")
    assert isinstance(match, Matched)
    request = build_request(match.route, method="HEAD", path_params={}, query="", headers=[], body=b"")
    assert (request["method"], request["trigger"]["method"], request["body"]) == ("HEAD", "GET", None)


JWT = JwtCaller(claims={"iss": "https://issuer.example", "sub": "u-1", "email": "ada@example.com"}, scopes=("read",))
IAM = IamCaller(arn="arn:aws:iam::123456789012:user/ada", account="123456789012", user_id="AIDA1")
OVER_COGNITO = IamCaller(arn="arn:aws:sts::1:assumed-role/r/s", account="1", user_id="AROA1:s", cognito_identity="eu:1")


@pytest.mark.parametrize("caller", [JWT, IAM, OVER_COGNITO, None])
def test_the_caller_is_in_the_request_as_json_and_in_the_typed_one_as_a_value(caller: Caller | None) -> None:
    route = parse_route("GET", "/a", None)
    request = build_request(route, method="GET", path_params={}, query="", headers=[], body=b"", caller=caller)
    assert ApiRequest[Any].from_request(json.loads(json.dumps(request))).caller == caller


@pytest.mark.parametrize("member", ["Ada", 5, {}, {"type": "jwt"}, {"type": "jwt", "claims": 1}, {"type": "iam"}])
def test_what_is_no_caller_is_nobody(member: object) -> None:
    assert ApiRequest[Any].from_request({"caller": member}).caller is None


def test_what_a_token_says_of_a_person_is_not_in_the_text_of_a_caller() -> None:
    assert "ada" not in repr(JWT)


def test_a_typed_request_has_defaults_for_what_is_missing() -> None:
    assert ApiRequest[Any].from_request({"method": "PUT"}) == ApiRequest(method="PUT")


@pytest.mark.parametrize("query", ["a=%FF", "%C3=1", "a=\udcff", "&".join(["a=1"] * 1001)])
def test_a_query_that_cannot_be_read_is_a_bad_request(query: str) -> None:
    with pytest.raises(BadRequestError, match="query"):
        parse_query(query)


@pytest.mark.parametrize(
    ("content_type", "raw", "body"),
    [
        ("application/json", b'{"a": [1, null]}', {"a": [1, None]}),
        ("Application/JSON; charset=UTF-8", b'"x"', "x"),
        ('application/vnd.api+json; charset="utf-8"', b"1", 1),
        ("application/json", '"é"'.encode(), "é"),
        ("application/json", b'{"a":1,"a":2}', {"a": 2}),
        ("application/json", b"", None),
        ("text/plain", b"", None),
        (None, b"", None),
        ("text/plain", "é".encode(), "é"),
        ("text/plain; charset=iso-8859-1", b"\xe9", "é"),
        ("text/html;charset=windows-1252", b"\x80", "€"),
        ("application/x-www-form-urlencoded", b"a=1&b=2", "a=1&b=2"),
        (None, b'{"a": 1}', '{"a": 1}'),
        ("  ", b"x", "x"),
        (None, b"\xff", b"\xff"),
        ("application/octet-stream", b"abc", b"abc"),
        ("multipart/form-data; boundary=x", b"--x--", b"--x--"),
        ("application/jsonp", b"1", b"1"),
        ("nonsense", b"1", b"1"),
    ],
)
def test_a_body_is_read_by_its_content_type(content_type: str | None, raw: bytes, body: object) -> None:
    assert parse_body(content_type, raw) == body


@pytest.mark.parametrize(
    ("content_type", "raw"),
    [
        ("application/json", b"{"),
        ("application/json", b"NaN"),
        ("application/json", b"[-Infinity]"),
        ("application/json", b"1e999"),
        ("application/json", b'"\xff"'),
        ("application/json", b'"\\ud800"'),
        ("application/json", b"[" * 100_000),
        ("application/json", b"[" * 65 + b"]" * 65),
        ("application/json; charset=utf-16", '"x"'.encode("utf-16")),
        ("text/plain", b"\xff"),
        ("text/plain; charset=klingon", b"x"),
    ],
)
def test_a_body_that_cannot_be_read_is_a_bad_request(content_type: str, raw: bytes) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse_body(content_type, raw)
    assert (caught.value.status, caught.value.code) == (400, "BAD_REQUEST")


def test_a_body_beyond_the_payload_limit_is_too_large() -> None:
    with pytest.raises(BodyTooLargeError) as caught:
        parse_body("application/json", b" " * (32 * 1024 * 1024 + 1))
    reply = http_error_reply(caught.value, "e1")
    assert (reply.status, json.loads(reply.body)["error"]["code"]) == (413, "PAYLOAD_TOO_LARGE")


JSON = ("Content-Type", "application/json")


@dataclass
class Foreign:
    """Like a response of another library."""

    status_code: object
    body: object
    headers: object


@dataclass
class Model:
    """Like a pydantic model that is no response."""

    name: str

    def model_dump(self, **_: object) -> dict[str, object]:
        return {"name": self.name}


class Undumpable(BaseModel):
    """A model with a value that JSON does not have."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    value: object = object()


class Unreadable:
    """Like a response, until somebody looks at it."""

    body = headers = None

    @property
    def status_code(self) -> int:
        raise IiiError("the disk is full", code="store_full")


class UnreadableDict(dict[str, object]):
    """A dict that only looks like one."""

    def get(self, *_: object) -> object:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("result", "status", "headers", "body"),
    [
        ({"status_code": 201, "body": {"a": 1}}, 201, (JSON,), b'{"a":1}'),
        ({"statusCode": 202, "body": []}, 202, (JSON,), b"[]"),
        ({"status_code": 201, "statusCode": 202}, 201, (JSON,), b"{}"),
        ({"body": None}, 200, (JSON,), b"null"),
        ({"order_id": "o1"}, 200, (JSON,), b"{}"),
        ({}, 200, (JSON,), b"{}"),
        (None, 200, (JSON,), b"{}"),
        ([1], 200, (JSON,), b"[1]"),
        ("pong", 200, (JSON,), b'"pong"'),
        (b"\x00", 200, (("Content-Type", "application/octet-stream"),), b"\x00"),
        ({"body": "hi"}, 200, (JSON,), b'"hi"'),
        ({"body": "hi", "headers": {"content-type": "text/plain"}}, 200, (("content-type", "text/plain"),), b"hi"),
        (
            {"body": '{"a":1}', "headers": ["Content-Type: application/json"]},
            200,
            (JSON,),
            b'{"a":1}',
        ),
        (
            {"body": "é", "headers": {"Content-Type": "text/plain; charset=latin1"}},
            200,
            (("Content-Type", "text/plain; charset=latin1"),),
            b"\xe9",
        ),
        ({"body": b"GIF", "headers": {"Content-Type": "image/gif"}}, 200, (("Content-Type", "image/gif"),), b"GIF"),
        (
            {"body": {"a": 1}, "headers": {"Content-Type": "application/problem+json"}},
            200,
            (("Content-Type", "application/problem+json"),),
            b'{"a":1}',
        ),
        (
            {"headers": ["X-A:  b: c ", "Set-Cookie: x=1"]},
            200,
            (JSON, ("X-A", "b: c"), ("Set-Cookie", "x=1")),
            b"{}",
        ),
        (
            {"headers": {"Set-Cookie": ["a=1", "b=2"], "X-N": 5, "Content-Length": "99", "connection": "close"}},
            200,
            (JSON, ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("X-N", "5")),
            b"{}",
        ),
        ({"status_code": 204, "body": {"a": 1}, "headers": {"X-A": "1"}}, 204, (("X-A", "1"),), b""),
        (ApiResponse(status_code=418, body={"a": 1}), 418, (JSON,), b'{"a":1}'),
        (ApiResponse(statusCode=201), 201, (JSON,), b"{}"),
        (ApiResponse(body=None, headers={"X-A": "1"}), 200, (JSON, ("X-A", "1")), b"null"),
        (Foreign(404, "no", {"Content-Type": "text/plain"}), 404, (("Content-Type", "text/plain"),), b"no"),
        (Model("x"), 200, (JSON,), b'{"name":"x"}'),
        ({"body": Model("x")}, 200, (JSON,), b'{"name":"x"}'),
    ],
)
def test_a_result_is_rendered(result: object, status: int, headers: tuple[tuple[str, str], ...], body: bytes) -> None:
    assert render_response(result) == HttpReply(status=status, headers=headers, body=body)


@pytest.mark.parametrize(
    "result",
    [
        {"status_code": "200"},
        {"status_code": 200.0},
        {"status_code": True},
        {"status_code": None},
        {"status_code": 199},
        {"status_code": 600},
        {"body": float("nan")},
        {"body": {1, 2}},
        {"body": {1: "a"}},
        {"body": "\ud800", "headers": {"Content-Type": "text/plain"}},
        {"body": "€", "headers": {"Content-Type": "text/plain; charset=latin1"}},
        {"body": "x", "headers": {"Content-Type": "text/plain; charset=klingon"}},
        {"headers": "X-A: 1"},
        {"headers": 5},
        {"headers": ["no colon"]},
        {"headers": [5]},
        {"headers": {"X-A": "a\r\nSet-Cookie: x"}},
        {"headers": {"X-A": "a\n"}},
        {"headers": {"X-A": "a\0"}},
        {"headers": {"X-A": "€"}},
        {"headers": {"X-A": None}},
        {"headers": {"X-A": True}},
        {"headers": {"X A": "1"}},
        {"headers": {"X-A\r\n": "1"}},
        {"headers": {"": "1"}},
        {"headers": {5: "1"}},
        object(),
        Foreign(200, {}, 7),
        Undumpable(),
        {"body": Undumpable()},
        Undumpable,
        Unreadable(),
        UnreadableDict(body=1),
    ],
)
def test_what_is_no_response_is_an_error_of_the_function(result: object) -> None:
    with pytest.raises(ResultInvalidError) as caught:
        render_response(result)
    reply = http_error_reply(caught.value, "e1")
    assert (reply.status, json.loads(reply.body)["error"]["code"]) == (500, "RESPONSE_INVALID")


def test_an_api_response_survives_the_json_codec_and_knows_both_spellings() -> None:
    response = ApiResponse(statusCode=201, body={"a": 1}, headers={"X-A": "1"})
    assert response.statusCode == response.status_code == 201
    assert render_response(response.model_dump()) == render_response(response)


@pytest.mark.parametrize(
    ("reply", "status", "error", "extra"),
    [
        (not_found("GET", "/x", "e"), 404, "NOT_FOUND", {}),
        (method_not_allowed("PUT", "/x", ["GET", "HEAD"], "e"), 405, "METHOD_NOT_ALLOWED", {"Allow": "GET, HEAD"}),
        (payload_too_large(10, "e"), 413, "PAYLOAD_TOO_LARGE", {}),
        (condition_not_met("e"), 422, "CONDITION_NOT_MET", {}),
        (validation_failed("no", [{"loc": ["a"]}], "e"), 422, "VALIDATION_FAILED", {}),
        (timed_out(30_000, "e"), 504, "TIMEOUT", {}),
        (unavailable("busy", 2, "e"), 503, "UNAVAILABLE", {"Retry-After": "2"}),
    ],
)
def test_an_error_has_the_envelope(reply: HttpReply, status: int, error: str, extra: dict[str, str]) -> None:
    envelope = json.loads(reply.body)
    assert (reply.status, envelope["error"]["code"], envelope["error"]["error_id"]) == (status, error, "e")
    assert dict(reply.headers) == dict([JSON]) | extra
    assert set(envelope["error"]) - {"details"} == {"code", "message", "error_id"}


def test_an_unmet_condition_says_skipped_and_a_failed_validation_says_where() -> None:
    assert json.loads(condition_not_met("e").body)["skipped"] is True
    assert json.loads(validation_failed("no", [{"loc": ["a"]}], "e").body)["error"]["details"] == [{"loc": ["a"]}]
    assert error_envelope("C", "m", "e") == {"error": {"code": "C", "message": "m", "error_id": "e"}}


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        ({"msg": "bad \ud800"}, "bad \\ud800"),
        ({"input": {1, 2}}, "{'input': {1, 2}}"),
        ({"loc": [2**70]}, str(2**70)),
    ],
)
def test_a_problem_that_json_does_not_have_is_told_as_text(problem: dict[str, object], told: str) -> None:
    reply = validation_failed("no", [problem, {"loc": ["a"]}], "e")
    first, second = json.loads(reply.body)["error"]["details"]
    assert (reply.status, second) == (422, {"loc": ["a"]})
    assert told in first["msg"]


def test_of_very_many_problems_the_first_are_told() -> None:
    problems = ({"loc": [number], "msg": "Input should be a valid string"} for number in range(1_000_000))
    reply = validation_failed("no", problems, "e")
    details = json.loads(reply.body)["error"]["details"]
    assert details[0]["loc"] == [0]
    assert 100 < len(details) < 2000
    assert len(reply.body) < 70_000


def test_an_error_is_told_whatever_its_text_is() -> None:
    error = json.loads(error_reply(500, "odd\udcff", "ä \ud83d", "e").body)["error"]
    assert (error["code"], error["message"]) == ("odd\\udcff", "ä \\ud83d")


def test_a_path_with_odd_characters_is_shown_safely() -> None:
    assert "\\udcff" in json.loads(not_found("GET", "/\udcff", "e").body)["error"]["message"]


ANY = CorsConfig()
SHOP = CorsConfig(allowed_origins=("https://shop.example",), allowed_methods=("GET", "POST"))


def cors(rules: CorsConfig, origin: str | None, method: str = "GET", **more: Any) -> dict[str, str]:
    return {
        name.removeprefix("Access-Control-"): value
        for name, value in cors_headers(rules, origin=origin, method=method, **more)
    }


def test_an_empty_list_lets_any_origin_read() -> None:
    assert cors(ANY, "https://a.example") == {"Allow-Origin": "*"}
    assert cors(CorsConfig(allowed_origins=("*",)), "null") == {"Allow-Origin": "*"}
    assert cors(ANY, None) == {}


def test_a_listed_origin_is_matched_exactly_and_the_answer_varies() -> None:
    assert cors(SHOP, "https://shop.example") == {"Allow-Origin": "https://shop.example", "Vary": "Origin"}
    for other in ("https://shop.example.evil", "https://SHOP.example", "http://shop.example", "null", None):
        assert cors(SHOP, other) == {"Vary": "Origin"}


VARY = "Access-Control-Request-Method, Access-Control-Request-Headers"


def test_a_preflight_grants_methods_and_the_headers_asked_for() -> None:
    granted = cors(SHOP, "https://shop.example", "POST", is_preflight=True, requested_headers="authorization, x-a")
    assert granted == {
        "Allow-Origin": "https://shop.example",
        "Allow-Methods": "GET, POST",
        "Allow-Headers": "authorization, x-a",
        "Max-Age": "600",
        "Vary": f"Origin, {VARY}",
    }
    assert cors(ANY, "https://a.example", "DELETE", is_preflight=True) == {
        "Allow-Origin": "*",
        "Allow-Methods": "DELETE",
        "Max-Age": "600",
        "Vary": VARY,
    }


def test_a_preflight_for_another_method_or_origin_grants_nothing() -> None:
    assert cors(SHOP, "https://shop.example", "DELETE", is_preflight=True) == {"Vary": f"Origin, {VARY}"}
    assert cors(SHOP, "https://evil.example", "GET", is_preflight=True) == {"Vary": f"Origin, {VARY}"}


@pytest.mark.parametrize("asked", ["x-a\r\nx: y", "a,\n b", "<script>", ""])
def test_requested_headers_are_echoed_only_as_tokens(asked: str) -> None:
    assert "Allow-Headers" not in cors(ANY, "https://a.example", is_preflight=True, requested_headers=asked)
    assert "Allow-Methods" not in cors(ANY, "https://a.example", asked, is_preflight=True)
