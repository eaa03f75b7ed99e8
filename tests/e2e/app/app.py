"""Synthesises stage e2e for the emulator: the product's app and functions, and functions of the tests beside them."""

from __future__ import annotations

import os
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_

from iii_runtime.cdk import IiiStacks
from iii_runtime.hosts.aws_lambda.websocket_endpoint import WEBSOCKET_URL

PROJECT = Path.cwd()


def main() -> None:
    """Synthesise the project in the current folder."""
    app = cdk.App(analytics_reporting=False)
    functions = [name for name in ("functions", "e2e_functions") if (PROJECT / name).is_dir()]
    iii = IiiStacks(app, project_root=PROJECT, functions=functions)
    for stack in iii.stacks:
        _suit_the_emulator(stack, iii)
    app.synth()


def _suit_the_emulator(stack: cdk.Stack, iii: IiiStacks) -> None:
    for construct in stack.node.find_all():
        # The emulator refuses alarms that add metrics up.
        if isinstance(construct, cloudwatch.CfnAlarm) and construct.metrics is not None:
            assert construct.node.scope is not None
            construct.node.scope.node.try_remove_child(construct.node.id)
        # It serves the connections of a WebSocket API by path; the names of hosts that it gives out are unknown.
        if isinstance(construct, lambda_.CfnFunction) and construct.function_name in _posting(iii):
            posted = f"{os.environ['AWS_ENDPOINT_URL']}/_aws/execute-api/{iii.websocket_api.api_id}/live"
            construct.add_property_override(f"Environment.Variables.{WEBSOCKET_URL}", posted)


def _posting(iii: IiiStacks) -> set[str]:
    """Return the names of the Lambdas that post to connections."""
    return {planned.name for planned in iii.plan.functions.values() if planned.role in {"feed", "websocket"}}


main()
