"""The HTTP API: routes with their authorization, CORS, throttling and access logs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigw
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from iii_runtime.cdk.acknowledgements import acknowledge
from iii_runtime.cdk.functions import add_log_group, place
from iii_runtime.core.config.values import CorsConfig, JwtConfig, StageConfig
from iii_runtime.core.http.cors import MAX_AGE_SECONDS
from iii_runtime.core.triggers import HttpAuth
from iii_runtime.plan.app_plan import AppPlan, PlannedRoute

_AUTHORIZATION: Mapping[HttpAuth, str] = {"iam": "AWS_IAM", "jwt": "JWT", "none": "NONE"}

ACCESS_LOG = {
    "requestId": "$context.requestId",
    "time": "$context.requestTime",
    "ip": "$context.identity.sourceIp",
    "route": "$context.routeKey",
    "status": "$context.status",
    "ms": "$context.responseLatency",
    "bytes": "$context.responseLength",
    "caller": "$context.identity.userArn",
    "subject": "$context.authorizer.claims.sub",
    "error": "$context.integrationErrorMessage",
}
"""A line of the access log. It has the route and not the path, which may hold what is private."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpEntry:
    """The HTTP API and what its routes refer to.

    Attributes:
        api: The API.
        stage: Its one stage, `$default`.
        authorizer_id: Of the JWT authorizer, if there is one.
    """

    api: apigw.HttpApi
    stage: apigw.HttpStage
    authorizer_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReference:
    """How routes, in whatever stack, name the API and the authorizer."""

    api_id: str
    authorizer_id: str | None


def add_http_api(scope: Construct, plan: AppPlan) -> HttpEntry:
    """Create the API without routes."""
    prefix = plan.deployment.prefix
    api = apigw.HttpApi(
        scope,
        "HttpApi",
        api_name=prefix,
        description=f"iii http triggers of {prefix}",
        create_default_stage=False,
        cors_preflight=None if plan.cors is None else _cors(plan.cors),
    )
    stage = apigw.HttpStage(
        scope,
        "HttpStage",
        http_api=api,
        stage_name="$default",
        auto_deploy=True,
        throttle=throttle(plan.stage),
    )
    log_accesses(scope, "HttpStage-Logs", stage, plan.stage, f"/aws/vendedlogs/{prefix}-http", ACCESS_LOG)
    authorizer = None if plan.jwt is None else _add_authorizer(scope, api, plan.jwt)
    return HttpEntry(api=api, stage=stage, authorizer_id=authorizer)


def add_routes(
    scope: Construct,
    routes: Sequence[PlannedRoute],
    functions: Mapping[str, lambda_.Function],
    reference: HttpReference,
) -> None:
    """Create routes: one integration and one permission for each function that has any.

    Args:
        scope: Where they are placed: the stack of their functions.
        routes: The routes of this stack.
        functions: The Lambdas by their names.
        reference: The API.
    """
    for name in sorted({route.function for route in routes}):
        function = functions[name]
        within = place(scope, f"Http-{name}")
        integration = apigw.CfnIntegration(
            within,
            "Integration",
            api_id=reference.api_id,
            integration_type="AWS_PROXY",
            integration_uri=function.function_arn,
            payload_format_version="2.0",
        )
        permit_api(within, function, reference.api_id)
        for route in routes:
            if route.function == name:
                _add_route(scope, route, integration, reference)


def permit_api(scope: Construct, function: lambda_.IFunction, api_id: str) -> None:
    """Let all routes of an API invoke a function."""
    stack = cdk.Stack.of(scope)
    lambda_.CfnPermission(
        scope,
        "Permission",
        action="lambda:InvokeFunction",
        function_name=function.function_arn,
        principal="apigateway.amazonaws.com",
        source_arn=stack.format_arn(service="execute-api", resource=api_id, resource_name="*/*"),
    )


def throttle(stage: StageConfig) -> apigw.ThrottleSettings:
    """Return the limits of an API of the stage."""
    return apigw.ThrottleSettings(rate_limit=stage.throttle_rate, burst_limit=stage.throttle_burst)


def log_accesses(
    scope: Construct,
    identity: str,
    stage: apigw.HttpStage | apigw.WebSocketStage,
    settings: StageConfig,
    name: str,
    fields: Mapping[str, str],
) -> None:
    """Log each request of an API in a group of its own, as JSON with these fields."""
    group = add_log_group(scope, identity, settings, name=name)
    resource = stage.node.default_child
    assert isinstance(resource, apigw.CfnStage)  # noqa: S101 - what the CDK makes
    resource.access_log_settings = apigw.CfnStage.AccessLogSettingsProperty(
        destination_arn=group.log_group_arn, format=json.dumps(dict(fields))
    )


def _add_route(
    scope: Construct, route: PlannedRoute, integration: apigw.CfnIntegration, reference: HttpReference
) -> None:
    resource = apigw.CfnRoute(
        # By its shape alone, so that another function, or another name of a parameter, changes the route in place.
        place(scope, f"Route-{route.shape}"),
        "Route",
        api_id=reference.api_id,
        route_key=f"{route.method} {route.path}",
        target=f"integrations/{integration.ref}",
        authorization_type=_AUTHORIZATION[route.auth],
        authorizer_id=reference.authorizer_id if route.auth == "jwt" else None,
    )
    if route.auth == "none":
        where = route.source or "the configuration"
        acknowledge(resource, {"AwsSolutions-APIG4": f"Open to everybody, as {where} says."})


def _add_authorizer(scope: Construct, api: apigw.HttpApi, jwt: JwtConfig) -> str:
    authorizer = apigw.CfnAuthorizer(
        scope,
        "HttpAuthorizer",
        api_id=api.api_id,
        name="jwt",
        authorizer_type="JWT",
        identity_source=["$request.header.Authorization"],
        jwt_configuration=apigw.CfnAuthorizer.JWTConfigurationProperty(issuer=jwt.issuer, audience=list(jwt.audience)),
    )
    return authorizer.ref


def _cors(cors: CorsConfig) -> apigw.CorsPreflightOptions:
    methods = [apigw.CorsHttpMethod[method] for method in dict.fromkeys(cors.allowed_methods)] or [
        apigw.CorsHttpMethod.ANY
    ]
    return apigw.CorsPreflightOptions(
        allow_origins=list(cors.allowed_origins) or ["*"],
        allow_methods=methods,
        # For browsers `*` means every header but this one.
        allow_headers=["authorization", "*"],
        max_age=cdk.Duration.seconds(MAX_AGE_SECONDS),
    )
