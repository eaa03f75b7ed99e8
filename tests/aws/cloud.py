"""One AWS account in this process: moto on the virtual clock, with faithful queues and with Lambdas that run.

Where moto 5.2.5 is not faithful, and what becomes of it here:

- SQS: see `sqs_backend`, which takes its place.
- Lambda runs nothing without Docker; a mapping invokes inside of the send, one message at a time, and ignores which of
  a batch failed: `lambda_service`, `event_sources` and `stream_source` take its place.
- EventBridge rules and schedules never fire: `schedules` does it.
- API Gateway posts to connections that do not exist, and of any size: `gateway` answers.
- The stream of a table has records of writes that change nothing: `stream_source` leaves them out.
- DynamoDB throttles nothing: `overseers` can refuse requests.
- Nothing in DynamoDB or S3 expires; no read and no index lags behind; transactions never meet; a request token does not
  keep a transaction from happening twice. That is left to tests on an account of AWS.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, cast

import pytest
from moto import mock_aws
from moto.core.models import botocore_stubber
from moto.dynamodb.models import dynamodb_backends
from moto.moto_api._internal import mock_random

from iii_runtime.plan.app_plan import AppPlan, PlannedQueue
from iii_runtime.plan.names import FEED_FAILURES, LETTERS_INDEX, NAMES_INDEX, TICK_QUEUE, WAKE_INDEX, Deployment
from iii_runtime.testing.clock import SkipClock
from tests.aws.calls import shared_clients
from tests.aws.moto_clock import moto_follows
from tests.aws.sqs_backend import FaithfulSqs, faithful_sqs, sqs_of
from tests.aws.sqs_queue import FaithfulQueue

if TYPE_CHECKING:
    from moto.dynamodb.models.table import StreamRecord

ACCOUNT, REGION = "123456789012", "eu-central-1"
RETENTION_S = 14 * 86_400
TICK_RECEIVES = 5
TICK_RETENTION_S = 3600
WEBSOCKET_URL = "https://w1x2y3z4a5.execute-api.eu-central-1.amazonaws.com/live"
VARIABLES = {"AWS_DEFAULT_REGION": REGION, "AWS_REGION": REGION, "III_WEBSOCKET_URL": WEBSOCKET_URL}
"""What handlers read from the environment of the process."""

PROGRESS_QUEUE = "simulator-progress"
"""Subscribes to the progress topic, so that a test sees what is published there."""


class Cloud:
    """The services of one account. A context manager; there is one at a time.

    Args:
        clock: Where all services take their time from.

    Attributes:
        clients: Clients of nobody in particular, whose requests no one watches.
    """

    def __init__(self, clock: SkipClock) -> None:
        self.clock = clock
        self.clients = shared_clients(REGION)
        self.lock = threading.RLock()
        self._deployment: Deployment | None = None
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(mock_aws())
            stack.enter_context(moto_follows(self.clock))
            stack.enter_context(faithful_sqs())
            stack.enter_context(_one_at_a_time(self.lock))
            stack.enter_context(_environment(VARIABLES))
            mock_random.seed(1)
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def create(self, plan: AppPlan) -> None:
        """Create table, bucket, queues and topics of an app."""
        names = plan.deployment
        self._deployment = names
        self._create_table(names)
        self.clients.s3.create_bucket(
            Bucket=names.bucket_name, CreateBucketConfiguration={"LocationConstraint": cast(Any, names.region)}
        )
        for planned in plan.queues.values():
            self._create_queue(planned)
        self._create_own_queues(names)
        for topic in plan.topics:
            attributes = {"FifoTopic": "true"} if topic.ordered else {}
            arn = self.clients.sns.create_topic(Name=topic.name, Attributes=attributes)["TopicArn"]
            for queue in topic.queues:
                self._subscribe(arn, queue)
        self.clients.sns.create_topic(Name=names.progress_topic_arn.rpartition(":")[2])
        self.clients.sqs.create_queue(QueueName=PROGRESS_QUEUE)
        self._subscribe(names.progress_topic_arn, PROGRESS_QUEUE)

    @property
    def sqs(self) -> FaithfulSqs:
        """The queues, without the wire."""
        return sqs_of(ACCOUNT, REGION)

    def queue(self, name: str) -> FaithfulQueue:
        """Return a queue by its name on AWS."""
        return self.sqs.queue(name)

    def stream_records(self, start: int) -> Sequence[Mapping[str, Any]]:
        """Return the records of the table's stream from a position on, as the streams API returns them."""
        assert self._deployment is not None
        table = dynamodb_backends[ACCOUNT][REGION].get_table(self._deployment.table_name)
        shard = table.stream_shard
        records: list[StreamRecord] = [] if shard is None else shard.items[start:]
        return [record.to_json() for record in records]

    def item(self, key: Mapping[str, str]) -> dict[str, Any] | None:
        """Return an item of the table as DynamoDB's own JSON; nobody's request is counted."""
        assert self._deployment is not None
        answer = self.clients.dynamodb.get_item(
            TableName=self._deployment.table_name,
            Key={name: {"S": value} for name, value in key.items()},
            ConsistentRead=True,
        )
        return cast("dict[str, Any] | None", answer.get("Item"))

    def take_progress(self) -> list[dict[str, Any]]:
        """Return what was published on the progress topic since the last time, in order."""
        with self.lock:
            queue = self.queue(PROGRESS_QUEUE)
            bodies = [message.body for message in queue.held]
            queue.purge()
        return [json.loads(body) for body in bodies]

    def _create_table(self, names: Deployment) -> None:
        texts = [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk", "dq", "nk", "nr")]
        numbers = [{"AttributeName": name, "AttributeType": "N"} for name in ("dt", "ws", "wa")]
        self.clients.dynamodb.create_table(
            TableName=names.table_name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=cast(Any, [*texts, *numbers]),
            KeySchema=_schema("pk", "sk"),
            GlobalSecondaryIndexes=[
                {
                    "IndexName": LETTERS_INDEX,
                    "KeySchema": _schema("dq", "dt"),
                    "Projection": {"ProjectionType": "ALL"},
                },
                {
                    "IndexName": NAMES_INDEX,
                    "KeySchema": _schema("nk", "nr"),
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                },
                {
                    "IndexName": WAKE_INDEX,
                    "KeySchema": _schema("ws", "wa"),
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                },
            ],
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )

    def _create_queue(self, planned: PlannedQueue) -> None:
        fifo = {}
        if planned.spec.is_ordered:
            fifo = {
                "FifoQueue": "true",
                "DeduplicationScope": "messageGroup",
                "FifoThroughputLimit": "perMessageGroupId",
            }
        kept = {"MessageRetentionPeriod": str(RETENTION_S), **fifo}
        self.clients.sqs.create_queue(QueueName=planned.letter_name, Attributes=cast(Any, kept))
        self.clients.sqs.create_queue(
            QueueName=planned.name,
            Attributes=cast(
                Any,
                {
                    **kept,
                    "VisibilityTimeout": str(math.ceil(planned.visibility.total_seconds())),
                    "RedrivePolicy": _redrive(self.queue(planned.letter_name), planned.max_receives),
                },
            ),
        )

    def _create_own_queues(self, names: Deployment) -> None:
        for name in (FEED_FAILURES, "cron-failures"):
            self.clients.sqs.create_queue(
                QueueName=names.own_queue_name(name), Attributes={"MessageRetentionPeriod": str(RETENTION_S)}
            )
        failures = self.queue(names.own_queue_name("cron-failures"))
        self.clients.sqs.create_queue(
            QueueName=names.own_queue_name(TICK_QUEUE),
            Attributes={
                "MessageRetentionPeriod": str(TICK_RETENTION_S),
                "VisibilityTimeout": "330",
                "RedrivePolicy": _redrive(failures, TICK_RECEIVES),
            },
        )

    def _subscribe(self, topic_arn: str, queue: str) -> None:
        self.clients.sns.subscribe(
            TopicArn=topic_arn,
            Protocol="sqs",
            Endpoint=self.queue(queue).queue_arn,
            Attributes={"RawMessageDelivery": "true"},
        )


class SandboxClock:
    """The clock of a sandbox: it stands still like the test's, and waiting moves it on for everybody.

    Args:
        clock: The clock of the test.
        move: Moves that clock on; from any thread.
    """

    def __init__(self, clock: SkipClock, move: Callable[[datetime], None]) -> None:
        self._clock = clock
        self._move = move

    def now(self) -> datetime:
        """Return the present."""
        return self._clock.now()

    def now_ms(self) -> int:
        """Return the present as Unix milliseconds."""
        return self._clock.now_ms()

    async def sleep_until(self, instant: datetime) -> None:
        """Move the clock on to `instant`, and return when it is there."""
        self._move(instant)
        while self._clock.now() < instant:  # noqa: ASYNC110 - another thread moves it
            await asyncio.sleep(0.001)


@contextmanager
def _one_at_a_time(lock: threading.RLock) -> Iterator[None]:
    """Let only one request at a time be at what moto keeps: plain objects."""
    process = botocore_stubber.process_request

    def locked(request: Any) -> Any:
        with lock:
            return process(request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore_stubber, "process_request", locked)
        yield


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


def _schema(partition: str, sort: str) -> Any:
    return [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}]


def _redrive(letters: FaithfulQueue, receives: int) -> str:
    return json.dumps({"deadLetterTargetArn": letters.queue_arn, "maxReceiveCount": receives})
