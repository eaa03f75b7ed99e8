"""The service clients of one region, each made on first use."""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

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

CONNECT_TIMEOUT_S = 3
READ_TIMEOUT_S = 10
INVOKE_TIMEOUT_S = 910
"""How long an invoke may take to answer: longer than any Lambda runs."""

ANSWER_MARGIN = timedelta(seconds=20)
"""How long after its time-out a function's Lambda has answered at the latest."""

POST_TIMEOUT_S = 3
"""How long one viewer of a stream may take to be written to."""

REQUESTS_AT_ONCE = 32
"""How many threads may use one client without waiting for a connection."""

_REPEATING = Config(
    connect_timeout=CONNECT_TIMEOUT_S,
    read_timeout=READ_TIMEOUT_S,
    retries={"mode": "standard", "total_max_attempts": 2},
    tcp_keepalive=True,
    max_pool_connections=REQUESTS_AT_ONCE,
)
_INVOKING = Config(
    connect_timeout=CONNECT_TIMEOUT_S,
    read_timeout=INVOKE_TIMEOUT_S,
    retries={"mode": "standard", "total_max_attempts": 1},
    tcp_keepalive=True,
    max_pool_connections=REQUESTS_AT_ONCE,
)
# The caller posts again itself, after it has served the other viewers.
_POSTING = _INVOKING.merge(Config(read_timeout=POST_TIMEOUT_S))
_PATH_STYLE = Config(s3={"addressing_style": "path"})


class Clients:
    """Clients that give up in time. A failed request is sent again once, an invoke never: it may have run."""

    def __init__(self, region: str, *, session: boto3.session.Session | None = None, endpoint_url: str | None = None):
        """Ask the services of `region`.

        Args:
            region: AWS region, such as `eu-central-1`.
            session: Where credentials come from; by default the environment, as boto3 finds them.
            endpoint_url: Where all services answer, for a local emulator; by default AWS itself.
        """
        self.region = region
        self._session = session
        self._endpoint_url = endpoint_url
        self._websockets: dict[str, ApiGatewayManagementApiClient] = {}
        self._invoking: dict[int, LambdaClient] = {}

    @cached_property
    def dynamodb(self) -> DynamoDBClient:
        """DynamoDB."""
        client: DynamoDBClient = self._make.client(
            "dynamodb", region_name=self.region, endpoint_url=self._endpoint_url, config=_REPEATING
        )
        return client

    @cached_property
    def dynamodbstreams(self) -> DynamoDBStreamsClient:
        """DynamoDB Streams."""
        client: DynamoDBStreamsClient = self._make.client(
            "dynamodbstreams", region_name=self.region, endpoint_url=self._endpoint_url, config=_REPEATING
        )
        return client

    @cached_property
    def sqs(self) -> SQSClient:
        """SQS."""
        client: SQSClient = self._make.client(
            "sqs", region_name=self.region, endpoint_url=self._endpoint_url, config=_REPEATING
        )
        return client

    @cached_property
    def sns(self) -> SNSClient:
        """SNS."""
        client: SNSClient = self._make.client(
            "sns", region_name=self.region, endpoint_url=self._endpoint_url, config=_REPEATING
        )
        return client

    @cached_property
    def s3(self) -> S3Client:
        """S3."""
        config = _REPEATING if self._endpoint_url is None else _REPEATING.merge(_PATH_STYLE)
        client: S3Client = self._make.client(
            "s3", region_name=self.region, endpoint_url=self._endpoint_url, config=config
        )
        return client

    @cached_property
    def lambda_(self) -> LambdaClient:
        """Lambda. It waits for as long as a Lambda can run, and sends nothing twice."""
        client: LambdaClient = self._make.client(
            "lambda", region_name=self.region, endpoint_url=self._endpoint_url, config=_INVOKING
        )
        return client

    def invoking(self, timeout: timedelta) -> LambdaClient:
        """Return a Lambda client for an invoke whose function ends within `timeout`; it sends nothing twice.

        A connection that is lost without a word is noticed soon after, and not only when any Lambda must have ended.
        """
        minutes = -(-(timeout + ANSWER_MARGIN) // timedelta(minutes=1))
        if minutes * 60 >= INVOKE_TIMEOUT_S:
            return self.lambda_
        if minutes not in self._invoking:
            config = _INVOKING.merge(Config(read_timeout=60 * minutes))
            self._invoking[minutes] = self._make.client(
                "lambda", region_name=self.region, endpoint_url=self._endpoint_url, config=config
            )
        return self._invoking[minutes]

    @cached_property
    def events(self) -> BaseClient:
        """EventBridge."""
        client: BaseClient = self._make.client(
            "events", region_name=self.region, endpoint_url=self._endpoint_url, config=_REPEATING
        )
        return client

    def websocket(self, endpoint_url: str) -> ApiGatewayManagementApiClient:
        """Return the client that posts to the connections of one WebSocket API. Make it in one thread, use it in all.

        Args:
            endpoint_url: `https://{api}.execute-api.{region}.amazonaws.com/{stage}`.
        """
        if endpoint_url not in self._websockets:
            self._websockets[endpoint_url] = self._make.client(
                "apigatewaymanagementapi", region_name=self.region, endpoint_url=endpoint_url, config=_POSTING
            )
        return self._websockets[endpoint_url]

    @cached_property
    def _make(self) -> boto3.session.Session:
        return self._session or boto3.session.Session()
