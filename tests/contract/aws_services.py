"""The services of one deployed stage, held in memory by moto."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import boto3
import botocore.session
import pytest
from moto import mock_aws

from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.core.queue import QueueSpec
from iii_runtime.plan.names import LETTERS_INDEX, NAMES_INDEX, WAKE_INDEX, Deployment
from iii_runtime.testing.clock import SkipClock

DEPLOYMENT = Deployment(app="shop", stage="test", region="us-east-1", account="123456789012")

_NO_LEASES = "SQS takes any handle it gave out; what holds there is in tests/unit/test_aws_queue_leases.py"
_COUNTS_RECEIVES = "SQS counts every receive, also one that ended hidden"
_TELLS_NO_TIME = "SQS does not tell when a message becomes visible"
_WAKES_NOBODY = "nobody in the process is woken: the event source mapping polls"
_ESTIMATES = "SQS's own counts: a back-off is in flight, and the letters are counted apart"
_NO_RESTART = "leases end by themselves, no host voids those of another"
_KEEPS_ITS_KIND = "an SQS queue never changes its kind; a deployment refuses to replace it"

NOT_FAITHFUL: Mapping[str, str] = {
    "test_an_older_receive_can_do_nothing_any_more": _NO_LEASES,
    "test_an_ended_receive_can_do_nothing_any_more": _NO_LEASES,
    "test_extending_keeps_held_leases_and_no_others": _NO_LEASES,
    "test_a_receive_that_ends_hidden_does_not_count": _COUNTS_RECEIVES,
    "test_a_message_that_was_hidden_ten_times_is_as_good_as_new": _COUNTS_RECEIVES,
    "test_a_failed_message_is_due_when_its_back_off_ends": _TELLS_NO_TIME,
    "test_a_delayed_message_is_due_when_its_delay_ends": _TELLS_NO_TIME,
    "test_the_next_due_time_is_that_of_the_heads": _TELLS_NO_TIME,
    "test_a_message_behind_an_acknowledged_head_is_announced": _WAKES_NOBODY,
    "test_each_queue_of_a_send_is_announced": _WAKES_NOBODY,
    "test_a_sent_message_is_announced": _WAKES_NOBODY,
    "test_a_delayed_head_holds_back_its_group": "a FIFO queue of SQS delays no single message; an enqueue refuses it",
    "test_every_message_is_counted_once": _ESTIMATES,
    "test_messages_waiting_behind_another_one_are_visible": _ESTIMATES,
    "test_a_purge_leaves_what_is_in_flight_or_dead": "SQS purges what is in flight too",
    "test_leases_of_a_dead_process_are_void": _NO_RESTART,
    "test_what_was_held_goes_behind_what_was_due": _NO_RESTART,
    "test_an_often_interrupted_message_waits_longer_each_time": _NO_RESTART,
    "test_a_hidden_receive_is_no_interruption": _NO_RESTART,
    "test_a_recorded_failure_is_no_interruption": _NO_RESTART,
    "test_delays_and_back_offs_outlive_the_process": _NO_RESTART,
    "test_a_queue_that_changes_its_kind_keeps_all_messages": _KEEPS_ITS_KIND,
    "test_a_message_without_the_group_field_waits_for_no_other": _KEEPS_ITS_KIND,
    "test_a_back_off_outlives_a_change_of_kind": _KEEPS_ITS_KIND,
    "test_a_change_of_a_run_is_announced_and_a_refusal_is_not": "a wake is sent to the workflow's queue",
    "test_an_unreadable_body_survives_its_death_and_redrive": "a body that is no envelope has SQS's message id for its "
    "receipt; see tests/unit/test_aws_queue_bodies.py",
}
"""Contract tests that AWS, or moto, cannot carry as they are, by name, each with the reason why it is skipped there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What a stage consists of.

    Attributes:
        clients: Ask them.
        deployment: Names of everything.
        calls: `service:Operation` of every request so far, in order.
    """

    clients: Clients
    deployment: Deployment
    calls: list[str]

    def change_records(self) -> int:
        """Return how many records the stream of the table has."""
        streams = self.clients.dynamodbstreams
        table = self.clients.dynamodb.describe_table(TableName=self.deployment.table_name)["Table"]
        arn = table["LatestStreamArn"]
        (shard,) = streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]
        opened = streams.get_shard_iterator(StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON")
        return len(streams.get_records(ShardIterator=opened["ShardIterator"])["Records"])


class HastyClock(SkipClock):
    """A clock that moves on by itself when somebody waits.

    Attributes:
        pauses: How long was waited each time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[timedelta] = []

    async def sleep_until(self, instant: datetime) -> None:
        self.pauses.append(instant - self.now())
        self.advance_to(instant)


@contextmanager
def running_services(deployment: Deployment = DEPLOYMENT) -> Iterator[Services]:
    """Run the services, with the table and the bucket, until the block ends."""
    with mock_aws():
        clients = fake_clients(deployment.region)
        create_table(clients, deployment)
        create_bucket(clients, deployment)
        yield Services(clients=clients, deployment=deployment, calls=_recorded(clients))


def fake_clients(region: str = DEPLOYMENT.region) -> Clients:
    """Return clients with credentials that nobody accepts, for services held in memory and for stubbed answers."""
    return Clients(region, session=_session())


def create_table(clients: Clients, deployment: Deployment) -> None:
    """Create the table with its stream and indexes."""
    texts = ("pk", "sk", "nk", "nr", "dq")
    clients.dynamodb.create_table(
        TableName=deployment.table_name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            *[{"AttributeName": name, "AttributeType": "S"} for name in texts],  # type: ignore[list-item]
            *[{"AttributeName": name, "AttributeType": "N"} for name in ("dt", "ws", "wa")],  # type: ignore[list-item]
        ],
        KeySchema=_keys("pk", "sk"),
        GlobalSecondaryIndexes=[
            {"IndexName": NAMES_INDEX, "KeySchema": _keys("nk", "nr"), "Projection": {"ProjectionType": "KEYS_ONLY"}},
            {"IndexName": LETTERS_INDEX, "KeySchema": _keys("dq", "dt"), "Projection": {"ProjectionType": "ALL"}},
            {"IndexName": WAKE_INDEX, "KeySchema": _keys("ws", "wa"), "Projection": {"ProjectionType": "KEYS_ONLY"}},
        ],
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )


def create_bucket(clients: Clients, deployment: Deployment) -> None:
    """Create the bucket of blobs."""
    place: Any = {} if deployment.region == "us-east-1" else {"LocationConstraint": deployment.region}
    more: Any = {"CreateBucketConfiguration": place} if place else {}
    clients.s3.create_bucket(Bucket=deployment.bucket_name, **more)


def create_queues(
    clients: Clients, deployment: Deployment, queues: Sequence[QueueSpec], *, visibility_s: int = 60, receives: int = 50
) -> None:
    """Create each queue with its dead-letter queue; `receives` is how often a message is received before it moves."""
    for queue in queues:
        fifo: dict[str, str] = {"FifoQueue": "true"} if queue.is_ordered else {}
        letters = deployment.letter_queue_name(queue)
        _create_queue(clients, letters, fifo)
        redrive = {"deadLetterTargetArn": deployment.queue_arn(letters), "maxReceiveCount": receives}
        attributes = {"VisibilityTimeout": str(visibility_s), "RedrivePolicy": json.dumps(redrive), **fifo}
        _create_queue(clients, deployment.queue_name(queue), attributes)


def follow_clock(monkeypatch: pytest.MonkeyPatch, clock: SkipClock) -> None:
    """Let the stream of the table tell the time of a test."""
    monkeypatch.setattr("moto.dynamodb.models.table.utcnow", lambda: clock.now().replace(tzinfo=None))


def _create_queue(clients: Clients, name: str, attributes: Any) -> None:
    clients.sqs.create_queue(QueueName=name, Attributes=attributes)


@cache
def _session() -> boto3.session.Session:
    """Return the one session: reading the descriptions of the services takes longer than a test."""
    core = botocore.session.get_session()
    core.set_credentials("testing", "testing")
    core.set_config_variable("account_id_endpoint_mode", "disabled")  # moto knows the plain endpoints only
    return boto3.session.Session(botocore_session=core)


def _recorded(clients: Clients) -> list[str]:
    calls: list[str] = []

    def record(model: Any, **_: object) -> None:
        calls.append(f"{model.service_model.service_name}:{model.name}")

    for client in (clients.dynamodb, clients.dynamodbstreams, clients.s3, clients.sqs, clients.sns):
        client.meta.events.register("before-call", record)
    return calls


def _keys(partition: str, sort: str) -> Any:
    return [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}]
