"""The stream of the table, read by tests and tools."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.stub import Stubber

from iii_runtime.adapters.aws.blob_store import S3Blobs
from iii_runtime.adapters.aws.change_feed import DynamoChangeFeed
from iii_runtime.core.change import StateChange
from iii_runtime.core.errors import StoreError
from iii_runtime.ports.change_feed import FeedEntry
from tests.contract.aws_services import HastyClock, fake_clients

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/t/stream/2026-01-01T00:00:00.000"


class Streams:
    """A stream that answers what a test has put in, in that order."""

    def __init__(self) -> None:
        clients = fake_clients()
        clock = HastyClock()
        self.feed = DynamoChangeFeed(clients, "t", S3Blobs(clients, "b", clock), clock)
        self.table = Stubber(clients.dynamodb)
        self.stream = Stubber(clients.dynamodbstreams)

    def has_shards(self, *pages: list[str]) -> None:
        self.table.add_response("describe_table", {"Table": {"LatestStreamArn": ARN}}, {"TableName": "t"})
        expected: dict[str, Any] = {"StreamArn": ARN}
        for page in pages:
            described: dict[str, Any] = {"Shards": [{"ShardId": _shard(name)} for name in page]}
            if page is not pages[-1]:
                described["LastEvaluatedShardId"] = _shard(page[-1])
            self.stream.add_response("describe_stream", {"StreamDescription": described}, dict(expected))
            expected["ExclusiveStartShardId"] = _shard(page[-1])

    def shard_has(self, name: str, *pages: list[int], is_open: bool = False) -> None:
        expected = {"StreamArn": ARN, "ShardId": _shard(name), "ShardIteratorType": "TRIM_HORIZON"}
        self.stream.add_response("get_shard_iterator", {"ShardIterator": f"{name}0"}, expected)
        for number, page in enumerate(pages):
            reply: dict[str, Any] = {"Records": [_record(sequence) for sequence in page]}
            if is_open or page is not pages[-1]:
                reply["NextShardIterator"] = f"{name}{number + 1}"
            self.stream.add_response("get_records", reply, {"ShardIterator": f"{name}{number}"})


def _shard(name: str) -> str:
    return f"shardId-{name:0>20}"


def _record(sequence: int) -> Any:
    image = {"pk": {"S": "S#s"}, "sk": {"S": f"k{sequence}"}, "v": {"S": "1"}, "n": {"S": "w"}, "at": {"N": "5"}}
    told = {
        "Keys": {"pk": image["pk"], "sk": image["sk"]},
        "NewImage": image,
        "SequenceNumber": f"{sequence:021}",
        "ApproximateCreationDateTime": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return {"eventName": "INSERT", "dynamodb": told}


def keys(entries: list[FeedEntry]) -> list[str]:
    return [entry.change.key for entry in entries if isinstance(entry.change, StateChange)]


@pytest.fixture
def streams() -> Iterator[Streams]:
    streams = Streams()
    with streams.table, streams.stream:
        yield streams
    streams.table.assert_no_pending_responses()
    streams.stream.assert_no_pending_responses()


async def test_all_shards_are_read_to_their_ends_and_merged(streams: Streams) -> None:
    streams.has_shards(["a", "b"], ["c"])
    streams.shard_has("a", [1, 4], [], [6])
    streams.shard_has("b", [2], [3, 5])
    streams.shard_has("c", [7], [], [], [], is_open=True)
    entries = await streams.feed.read(0, 100)
    assert keys(entries) == [f"k{sequence}" for sequence in range(1, 8)]
    assert [entry.position for entry in entries] == sorted({entry.position for entry in entries})


async def test_a_change_that_was_forgotten_is_left_out(streams: Streams) -> None:
    for _ in range(2):
        streams.has_shards(["a"])
        streams.shard_has("a", [1, 2, 3])
    entries = await streams.feed.read(0, 2)
    assert keys(entries) == ["k1", "k2"]
    await streams.feed.forget([entries[1].position])
    assert keys(await streams.feed.read(0, 2)) == ["k1", "k3"]


async def test_a_table_without_a_stream_is_told(streams: Streams) -> None:
    streams.table.add_response("describe_table", {"Table": {}})
    with pytest.raises(StoreError, match="table t has no stream") as caught:
        await streams.feed.read(0, 1)
    assert caught.value.code == "store_missing"


async def test_an_iterator_that_has_expired_is_told(streams: Streams) -> None:
    streams.has_shards(["a"])
    expected = {"StreamArn": ARN, "ShardId": _shard("a"), "ShardIteratorType": "TRIM_HORIZON"}
    streams.stream.add_response("get_shard_iterator", {"ShardIterator": "a0"}, expected)
    streams.stream.add_client_error("get_records", "ExpiredIteratorException")
    with pytest.raises(StoreError, match="stream of table t: GetRecords") as caught:
        await streams.feed.read(0, 1)
    assert caught.value.code == "store_unavailable"
