"""A change feed on records that moto's table has written, delivered as Lambda would hand them over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from iii_runtime import OnState, OnStream, Worker, register_worker
from iii_runtime.adapters.aws.blob_store import S3Blobs
from iii_runtime.adapters.aws.connections import DynamoConnections
from iii_runtime.adapters.aws.state_store import DynamoStateStore
from iii_runtime.adapters.aws.stream_store import DynamoStreamStore
from iii_runtime.adapters.aws.table import Table
from iii_runtime.core.errors import IiiError, StoreError
from iii_runtime.core.message import BlobLink
from iii_runtime.core.payload import Json
from iii_runtime.engine.feed_delivery import FeedDelivery
from iii_runtime.engine.stream_push import StreamPush
from iii_runtime.hosts.aws_lambda.feed import Feed
from iii_runtime.testing.clock import SequenceIds
from tests.contract.aws_services import HastyClock, Services, follow_clock, running_services
from tests.host.lambda_kit import Measured
from tests.host.lambda_streams import Functions, Gateway, InTurn, Topic, deployed, lambda_event, subscription


def triggered() -> Worker:
    worker = register_worker()
    worker.function("f::state", triggers=[OnState("orders")])(print)
    worker.function("f::stream", triggers=[OnStream("orders")])(print)
    return worker


class Unreadable:
    """What was reported: sequence numbers and codes.

    Attributes:
        refuses: Whether nothing can be reported.
    """

    def __init__(self) -> None:
        self.reported: list[tuple[str, str]] = []
        self.refuses = False

    async def report(self, sequence: str, body: Mapping[str, object], error: IiiError) -> None:
        if self.refuses:
            raise StoreError("slow down", code="store_throttled")
        self.reported.append((sequence, error.code))


class Stage:
    """A table with its stream, and a change feed that reads it as Lambda would hand it over."""

    def __init__(self, services: Services) -> None:
        self.services, self.clock, ids = services, HastyClock(), SequenceIds()
        names, clients = services.deployment, services.clients
        table = Table(clients, names.table_name, self.clock)
        self.blobs = S3Blobs(clients, names.bucket_name, self.clock)
        self.state = DynamoStateStore(table, self.blobs, self.clock, ids)
        self.stream = DynamoStreamStore(table, self.blobs, self.clock, ids)
        self.connections = DynamoConnections(clients, table, self.clock, ids)
        self.gateway, self.topic, self.functions, self.meter = Gateway(), Topic(), Functions(), Measured()
        self.runtime = deployed(triggered(), self.functions, self.clock)
        self._iterator = self._start()
        self.unreadable = Unreadable()
        self.feed = self.new_feed()

    def new_feed(self) -> Feed:
        """Return the feed of another sandbox."""
        push = StreamPush(self.connections, self.gateway, InTurn(), self.clock)
        delivery = FeedDelivery(self.runtime, push=push, progress=self.topic, parallel=InTurn())
        return Feed(delivery, self.follow, self.clock, self.meter, self.unreadable)

    async def follow(self, link: BlobLink) -> bytes:
        return await self.blobs.follow(link)

    async def join(self, connection_id: str, *groups: str) -> None:
        if connection_id not in self.gateway.received:
            self.gateway.connect(connection_id)
            await self.connections.register(connection_id)
        for group in groups:
            await self.connections.join(connection_id, subscription(group, group=group), most=100)

    async def set(self, data: Json, group: str = "g1", item: str = "i1") -> None:
        await self.stream.set("orders", group, item, data)

    def batch(self, *prefixes: str) -> dict[str, Any]:
        """Return the event with everything that was written since the last one, filtered as the mapping filters it."""
        answer = self.services.clients.dynamodbstreams.get_records(ShardIterator=self._iterator)
        self._iterator = answer["NextShardIterator"]
        event = lambda_event(answer["Records"])
        kept = prefixes or ("S#", "T#", "E#")
        return {
            "Records": [record for record in event["Records"] if record["dynamodb"]["Keys"]["pk"]["S"].startswith(kept)]
        }

    async def deliver(self, event: dict[str, Any] | None = None) -> list[int]:
        """Deliver a batch; return the places of its records that must come again."""
        event = self.batch() if event is None else event
        response = await self.feed.handle(event)
        return places(event, response)

    def seen(self, function_id: str = "f::stream") -> list[Any]:
        return [
            payload["event"].get("data") if payload["type"] == "stream" else payload["new_value"]
            for payload in self.functions.payloads(function_id)
        ]

    def _start(self) -> str:
        streams = self.services.clients.dynamodbstreams
        table = self.services.clients.dynamodb.describe_table(TableName=self.services.deployment.table_name)["Table"]
        arn = table["LatestStreamArn"]
        (shard,) = streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]
        opened = streams.get_shard_iterator(StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON")
        return opened["ShardIterator"]


def places(event: dict[str, Any], response: Any) -> list[int]:
    sequences = [record["dynamodb"]["SequenceNumber"] for record in event["Records"]]
    return [sequences.index(failure["itemIdentifier"]) for failure in response["batchItemFailures"]]


def from_place(event: dict[str, Any], place: int) -> dict[str, Any]:
    """Return what Lambda sends after a partial batch response."""
    return {"Records": event["Records"][place:]}


@contextmanager
def running_feed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Run moto with a table, and a feed of it, until the block ends."""
    with running_services() as services:
        stage = Stage(services)
        follow_clock(monkeypatch, stage.clock)
        yield stage
