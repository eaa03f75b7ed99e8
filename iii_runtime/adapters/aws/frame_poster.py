"""Posts frames to the connections of a WebSocket API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from iii_runtime.adapters.aws.failures import classify
from iii_runtime.ports.stream_connections import ConnectionGoneError, PostError

if TYPE_CHECKING:
    from mypy_boto3_apigatewaymanagementapi.client import ApiGatewayManagementApiClient

_GONE = 410


class ApiGatewayPoster:
    """Sends frames through the management API of API Gateway.

    Args:
        client: The client of one WebSocket API, see `Clients.websocket`. It may be used by several threads.
    """

    def __init__(self, client: ApiGatewayManagementApiClient) -> None:
        self._client = client

    async def post(self, connection_id: str, frame: str) -> None:
        """Send a frame of at most 128 KiB.

        Raises:
            ConnectionGoneError: The connection has ended.
            PostError: It was not taken, or nobody knows. Passing: the connection's buffer is full, too many posts, an
                error of the service, no answer in time.
        """
        try:
            self._client.post_to_connection(ConnectionId=connection_id, Data=frame.encode("utf-8"))
        except (BotoCoreError, ClientError) as error:
            raise _read(error) from error

    async def close(self, connection_id: str) -> None:
        """Ask the connection to close; one that has ended is no error.

        Raises:
            PostError: It was not taken.
        """
        try:
            self._client.delete_connection(ConnectionId=connection_id)
        except (BotoCoreError, ClientError) as error:
            told = _read(error)
            if isinstance(told, PostError):
                raise told from error


def _read(error: BotoCoreError | ClientError) -> ConnectionGoneError | PostError:
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(error, ClientError) else 0
    failure = classify(error)
    if status == _GONE or failure.aws_code == "GoneException":
        return ConnectionGoneError("the connection has ended.")
    return PostError(f"the WebSocket API refuses: {failure.message}", is_transient=failure.kind == "retryable")
