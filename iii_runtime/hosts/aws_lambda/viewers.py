"""What the change feed and the WebSocket API reach viewers with."""

from __future__ import annotations

import os

from iii_runtime.adapters.aws.connections import DynamoConnections
from iii_runtime.adapters.aws.frame_poster import ApiGatewayPoster
from iii_runtime.adapters.aws.table import Table
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.hosts.aws_lambda.websocket_endpoint import websocket_endpoint


def open_viewers(sandbox: Sandbox) -> tuple[Table, DynamoConnections, ApiGatewayPoster]:
    """Return the table, the connections registered in it, and what posts frames to them.

    Raises:
        HostError: `environment_invalid`.
    """
    stores = sandbox.runtime.stores
    table = Table(sandbox.clients, sandbox.deployment.table_name, stores.clock)
    connections = DynamoConnections(sandbox.clients, table, stores.clock, stores.ids)
    return table, connections, ApiGatewayPoster(sandbox.clients.websocket(websocket_endpoint(os.environ)))
