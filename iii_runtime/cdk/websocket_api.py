"""The WebSocket API of the streams: who may connect, and the one Lambda that serves it."""

from __future__ import annotations

from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigw
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from iii_runtime.cdk.acknowledgements import acknowledge
from iii_runtime.cdk.functions import place
from iii_runtime.cdk.http_api import log_accesses, permit_api, throttle
from iii_runtime.plan.app_plan import AppPlan, Permission

STAGE_NAME = "live"

ACCESS_LOG = {
    "requestId": "$context.requestId",
    "time": "$context.requestTime",
    "ip": "$context.identity.sourceIp",
    "connection": "$context.connectionId",
    "event": "$context.eventType",
    "route": "$context.routeKey",
    "status": "$context.status",
    "ms": "$context.integrationLatency",
    "caller": "$context.identity.userArn",
    "error": "$context.error.message",
}
"""A line of the access log. The lines of one connection have its id in common."""

_ROUTES = ("$connect", "$disconnect", "$default")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketEntry:
    """The WebSocket API.

    Attributes:
        api: The API.
        stage: Its one stage.
    """

    api: apigw.WebSocketApi
    stage: apigw.WebSocketStage

    def may_write(self) -> Permission:
        """Return the permission to write to connections (`POST`) and to close them (`DELETE`)."""
        stack = cdk.Stack.of(self.api)
        arns = (
            stack.format_arn(
                service="execute-api", resource=self.api.api_id, resource_name=f"{STAGE_NAME}/{method}/@connections/*"
            )
            for method in ("POST", "DELETE")
        )
        return Permission(
            actions=("execute-api:ManageConnections",),
            resources=tuple(arns),
            why="Connections come and go; the pattern is those of this one API.",
        )


def add_websocket_api(scope: Construct, plan: AppPlan, *, access_logs: bool) -> WebSocketEntry:
    """Create the API without routes.

    Args:
        scope: Where it is placed.
        plan: The plan.
        access_logs: Whether to log connections and messages. It needs a role that is set once for an account and
            region, in the settings of API Gateway; without it the deployment fails.
    """
    prefix = plan.deployment.prefix
    api = apigw.WebSocketApi(
        scope,
        "WebSocketApi",
        api_name=f"{prefix}-streams",
        description=f"iii streams of {prefix}",
        route_selection_expression="$request.body.type",
    )
    stage = apigw.WebSocketStage(
        scope,
        "WebSocketStage",
        web_socket_api=api,
        stage_name=STAGE_NAME,
        auto_deploy=True,
        throttle=throttle(plan.stage),
    )
    if access_logs:
        log_accesses(scope, "WebSocketStage-Logs", stage, plan.stage, f"/aws/vendedlogs/{prefix}-streams", ACCESS_LOG)
    else:
        acknowledge(
            stage,
            {
                "AwsSolutions-APIG1": "Access logs of a WebSocket API need a role that is set for the whole account, "
                "which is not an app's to set; `websocket_access_logs=True` turns them on where it is set.",
            },
        )
    return WebSocketEntry(api=api, stage=stage)


def add_websocket_routes(scope: Construct, entry: WebSocketEntry, plan: AppPlan, function: lambda_.IFunction) -> None:
    """Send everything a client does to the function. Only the act of connecting can be authorized."""
    api_id = entry.api.api_id
    within = place(scope, "WebSocket")
    integration = apigw.CfnIntegration(
        within,
        "Integration",
        api_id=api_id,
        integration_type="AWS_PROXY",
        integration_uri=cdk.Fn.join(
            "",
            [
                "arn:",
                cdk.Aws.PARTITION,
                ":apigateway:",
                cdk.Aws.REGION,
                ":lambda:path/2015-03-31/functions/",
                function.function_arn,
                "/invocations",
            ],
        ),
    )
    permit_api(within, function, api_id)
    for key in _ROUTES:
        is_signed = key == "$connect" and plan.stream_auth == "iam"
        route = apigw.CfnRoute(
            within,
            f"Route-{key.removeprefix('$')}",
            api_id=api_id,
            route_key=key,
            target=f"integrations/{integration.ref}",
            authorization_type="AWS_IAM" if is_signed else "NONE",
        )
        if not is_signed:
            acknowledge(route, {"AwsSolutions-APIG4": _why_open(key, plan)})


def _why_open(key: str, plan: AppPlan) -> str:
    if key != "$connect":
        return "API Gateway authorizes a connection once, at $connect; this route has no authorization of its own."
    if plan.stream_auth == "ticket":
        return "The handler of $connect takes nobody without a ticket, which is good once and for a minute."
    return "Open to everybody, as the `auth` of the streams says."
