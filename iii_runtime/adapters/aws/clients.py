"""The service clients of one region, each made on first use."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from botocore.client import BaseClient
    from mypy_boto3_apigatewaymanagementapi.client import ApiGatewayManagementApiClient
    from mypy_boto3_dynamodb.client import DynamoDBClient
    from mypy_boto3_dynamodbstreams.client import DynamoDBStreamsClient
    from mypy_boto3_lambda.client import LambdaClient
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_sns.client import SNSClient
    from mypy_boto3_sqs.client import SQSClient

CONNECT_TIMEOUT_S = 2
READ_TIMEOUT_S = 3
"""How long a small request may take to answer. Services that are well answer within a tenth of it."""

OBJECT_TIMEOUT_S = 10
"""How long S3 may take to go on with an object."""

INVOKE_TIMEOUT_S = 910
"""How long an invoke may take to answer: longer than any Lambda runs."""

ANSWER_MARGIN = timedelta(seconds=20)
"""How long after its time-out a function's Lambda has answered at the latest."""

POST_TIMEOUT_S = 3
"""How long one viewer of a stream may take to be written to."""

IDLE = timedelta(seconds=5)
"""How long a connection to Lambda may lie idle and be used again: after a freeze its other end may be gone."""

REQUESTS_AT_ONCE = 32
"""How many threads may use one client without waiting for a connection."""

# Each request is sent once; `failures.with_retries` alone repeats, and knows how long it may.
_ONCE = Config(
    connect_timeout=CONNECT_TIMEOUT_S,
    read_timeout=READ_TIMEOUT_S,
    retries={"mode": "standard", "total_max_attempts": 1},
    tcp_keepalive=True,
    max_pool_connections=REQUESTS_AT_ONCE,
)
_OBJECTS = _ONCE.merge(Config(read_timeout=OBJECT_TIMEOUT_S))
_INVOKING = _ONCE.merge(Config(read_timeout=INVOKE_TIMEOUT_S))
# The caller posts again itself, after it has served the other viewers.
_POSTING = _ONCE.merge(Config(read_timeout=POST_TIMEOUT_S))
_PATH_STYLE = Config(s3={"addressing_style": "path"})


class Clients:
    """Clients that give up in time and send nothing twice; `with_retries` repeats what may arrive twice.

    They can be asked for, and used, from any thread.
    """

    def __init__(
        self,
        region: str,
        *,
        session: boto3.session.Session | None = None,
        endpoint_url: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask the services of `region`.

        Args:
            region: AWS region, such as `eu-central-1`.
            session: Where credentials come from; by default the environment, as boto3 finds them.
            endpoint_url: Where all services answer, for a local emulator; by default AWS itself.
            monotonic: Seconds that pass, by which connections grow old.
        """
        self.region = region
        self._session = session
        self._endpoint_url = endpoint_url
        self._monotonic = monotonic
        self._making = Lock()  # a session makes one client at a time
        self._websockets: dict[str, ApiGatewayManagementApiClient] = {}
        self._invoking: dict[int, LambdaClient] = {}

    @cached_property
    def dynamodb(self) -> DynamoDBClient:
        """DynamoDB."""
        client: DynamoDBClient = self._client("dynamodb", _ONCE)
        return client

    @cached_property
    def dynamodbstreams(self) -> DynamoDBStreamsClient:
        """DynamoDB Streams."""
        client: DynamoDBStreamsClient = self._client("dynamodbstreams", _ONCE)
        return client

    @cached_property
    def sqs(self) -> SQSClient:
        """SQS."""
        client: SQSClient = self._client("sqs", _ONCE)
        return client

    @cached_property
    def sns(self) -> SNSClient:
        """SNS."""
        client: SNSClient = self._client("sns", _ONCE)
        return client

    @cached_property
    def s3(self) -> S3Client:
        """S3."""
        config = _OBJECTS if self._endpoint_url is None else _OBJECTS.merge(_PATH_STYLE)
        client: S3Client = self._client("s3", config)
        return client

    @cached_property
    def lambda_(self) -> LambdaClient:
        """Lambda. It waits for as long as a Lambda can run, and uses no connection that lay idle for `IDLE`."""
        with self._making:
            return self._lambda(_INVOKING)

    def invoking(self, timeout: timedelta) -> LambdaClient:
        """Return a Lambda client for an invoke whose function ends within `timeout`; it sends nothing twice.

        A connection that is lost without a word is noticed soon after, and not only when any Lambda must have ended.
        """
        minutes = -(-(timeout + ANSWER_MARGIN) // timedelta(minutes=1))
        if minutes * 60 >= INVOKE_TIMEOUT_S:
            return self.lambda_
        with self._making:
            if minutes not in self._invoking:
                self._invoking[minutes] = self._lambda(_INVOKING.merge(Config(read_timeout=60 * minutes)))
            return self._invoking[minutes]

    def starting(self) -> LambdaClient:
        """Return a Lambda client for an invoke that is answered as soon as it is accepted. It waits for a minute."""
        return self.invoking(timedelta(0))

    @cached_property
    def events(self) -> BaseClient:
        """EventBridge."""
        client: BaseClient = self._client("events", _ONCE)
        return client

    def websocket(self, endpoint_url: str) -> ApiGatewayManagementApiClient:
        """Return the client that posts to the connections of one WebSocket API.

        Args:
            endpoint_url: `https://{api}.execute-api.{region}.amazonaws.com/{stage}`.
        """
        with self._making:
            if endpoint_url not in self._websockets:
                self._websockets[endpoint_url] = self._make.client(
                    "apigatewaymanagementapi", region_name=self.region, endpoint_url=endpoint_url, config=_POSTING
                )
            return self._websockets[endpoint_url]

    def _client(self, service: Any, config: Config) -> Any:
        with self._making:
            return self._make.client(service, region_name=self.region, endpoint_url=self._endpoint_url, config=config)

    def _lambda(self, config: Config) -> LambdaClient:
        client: LambdaClient = self._make.client(
            "lambda", region_name=self.region, endpoint_url=self._endpoint_url, config=config
        )
        _drop_idle_connections(client, self._monotonic)
        return client

    @cached_property
    def _make(self) -> boto3.session.Session:
        return self._session or boto3.session.Session()


def _drop_idle_connections(client: LambdaClient, monotonic: Callable[[], float]) -> None:
    """Let each request that comes `IDLE` after the last one begin on a new connection.

    A connection that was reset while nobody looked is noticed when something is sent, and then nobody knows whether it
    arrived; what is sent once must not go that way.
    """
    used = monotonic()

    def use(**_: object) -> None:
        nonlocal used
        used = monotonic()

    def begin(**_: object) -> None:
        if monotonic() - used >= IDLE / timedelta(seconds=1):
            client.close()  # the pooled connections; a request under way keeps its own
        use()

    for event, handler in (("before-call", begin), ("after-call", use), ("after-call-error", use)):
        client.meta.events.register_first(f"{event}.lambda", handler)
