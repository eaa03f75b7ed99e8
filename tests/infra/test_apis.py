"""The HTTP API and the WebSocket API: who may call, from which pages, how much, and what is logged."""

from __future__ import annotations

import json

import pytest

from iii_runtime.plan.names import Deployment
from tests.infra.synthesis import Resource, Synthesised

NAMES = Deployment(app="shop", stage="dev", region="eu-west-1", account="111122223333")


def route(shop: Synthesised, key: str) -> Resource:
    return shop.core.one("AWS::ApiGatewayV2::Route", RouteKey=key)


@pytest.mark.parametrize(
    ("key", "authorization"),
    [
        ("POST /orders", "JWT"),
        ("GET /orders/{id}", "JWT"),
        ("GET /status", "NONE"),
        ("DELETE /orders/{id}", "AWS_IAM"),
        ("POST /_iii/stream-ticket", "JWT"),
    ],
)
def test_a_route_is_authorised_as_its_trigger_or_its_section_says(
    shop: Synthesised, key: str, authorization: str
) -> None:
    properties = route(shop, key)["Properties"]
    assert properties["AuthorizationType"] == authorization
    assert ("AuthorizerId" in properties) == (authorization == "JWT")


def test_tokens_are_taken_from_the_one_issuer(shop: Synthesised) -> None:
    authorizer = shop.core.one("AWS::ApiGatewayV2::Authorizer")["Properties"]
    assert authorizer["JwtConfiguration"] == {"Audience": ["shop"], "Issuer": "https://issuer.example"}


def test_a_function_with_several_routes_has_one_integration_and_one_permission(shop: Synthesised) -> None:
    targets = {
        route(shop, key)["Properties"]["Target"]["Fn::Join"][1][1]["Ref"]
        for key in ("POST /orders", "GET /orders/{id}", "GET /status")
    }
    assert len(targets) == 1
    permitted = [
        each
        for each in shop.core.of("AWS::Lambda::Permission").values()
        if shop.core.properties(each)["FunctionName"] == NAMES.function_arn("shop::order")
    ]
    assert len(permitted) == 1


def test_pages_of_the_listed_origins_may_call_and_no_others(shop: Synthesised) -> None:
    api = shop.core.one("AWS::ApiGatewayV2::Api", ProtocolType="HTTP")["Properties"]
    assert api["CorsConfiguration"]["AllowOrigins"] == ["https://shop.example"]
    assert api["CorsConfiguration"]["AllowMethods"] == ["GET"]
    assert "AllowCredentials" not in api["CorsConfiguration"]


def test_both_apis_are_throttled_and_http_requests_are_logged_without_path_and_body(shop: Synthesised) -> None:
    stages = shop.core.of("AWS::ApiGatewayV2::Stage").values()
    for stage in stages:
        limits = stage["Properties"]["DefaultRouteSettings"]
        assert (limits["ThrottlingRateLimit"], limits["ThrottlingBurstLimit"]) == (50, 100)
    http = shop.core.one("AWS::ApiGatewayV2::Stage", StageName="$default")["Properties"]
    shown = json.loads(http["AccessLogSettings"]["Format"])
    assert shown["route"] == "$context.routeKey"
    assert not {"$context.path", "$context.requestOverride"} & set(shown.values())


@pytest.mark.parametrize(
    ("app", "auth", "expected"),
    [("production", "iam", "AWS_IAM"), ("shop", "ticket", "NONE"), ("pipeline", "none", "NONE")],
)
def test_a_connection_is_authorised_as_the_streams_say(
    request: pytest.FixtureRequest, app: str, auth: str, expected: str
) -> None:
    made: Synthesised = request.getfixturevalue(app)
    assert made.app.plan.stream_auth == auth
    connect = made.core.one("AWS::ApiGatewayV2::Route", RouteKey="$connect")["Properties"]
    assert connect["AuthorizationType"] == expected
    tickets = made.core.of("AWS::ApiGatewayV2::Route", RouteKey="POST /_iii/stream-ticket")
    assert (tickets != {}) == (auth == "ticket")
