"""The stream of the table as a change feed, for tests and tools; on Lambda the records arrive by themselves."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from iii_runtime.adapters.aws.blob_store import S3Blobs
from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.aws.failures import with_retries
from iii_runtime.adapters.aws.records import changes_of
from iii_runtime.core.errors import StoreError
from iii_runtime.ports.change_feed import FeedEntry
from iii_runtime.ports.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_dynamodbstreams.type_defs import RecordTypeDef

T = TypeVar("T")

_CHANGES_PER_RECORD = 2
_EMPTY_READS = 3
"""So many empty replies in a row end a shard that is still open; the service sends some in between."""


class DynamoChangeFeed:
    """Reads the whole stream, from a day ago, at each call. What is forgotten is forgotten by this object only."""

    def __init__(self, clients: Clients, table_name: str, blobs: S3Blobs, clock: Clock) -> None:
        """Read the stream of the table called `table_name`; `blobs` has its large values."""
        self._clients = clients
        self._table_name = table_name
        self._blobs = blobs
        self._clock = clock
        self._forgotten: set[int] = set()

    async def read(self, after: int, limit: int) -> list[FeedEntry]:
        """Return up to `limit` changes behind position `after`; those of one document are in order.

        Raises:
            StoreError: `store_missing`: the table has no stream; `store_corrupt`; else see `failures`.
        """
        entries: list[FeedEntry] = []
        arn = await self._stream_arn()
        shards = [await self._records(arn, shard) for shard in await self._shards(arn)]
        for record in heapq.merge(*shards, key=_number):
            position = _number(record) * _CHANGES_PER_RECORD
            if position + _CHANGES_PER_RECORD <= after:
                continue
            for place, change in enumerate(await changes_of(record, self._blobs.follow), start=position):
                if place > after and place not in self._forgotten:
                    entries.append(FeedEntry(position=place, change=change))
            if len(entries) >= limit:
                break
        return entries[:limit]

    async def forget(self, positions: Sequence[int]) -> None:
        """Leave changes out of further reads."""
        self._forgotten.update(positions)

    async def _stream_arn(self) -> str:
        described = await self._ask(lambda: self._clients.dynamodb.describe_table(TableName=self._table_name))
        arn = described["Table"].get("LatestStreamArn")
        if arn is None:
            raise StoreError(
                f"table {self._table_name} has no stream, so nothing tells of its changes. Deploy the stage again.",
                code="store_missing",
            )
        return arn

    async def _shards(self, arn: str) -> list[str]:
        shards: list[str] = []
        request: dict[str, Any] = {"StreamArn": arn}
        while True:
            page = await self._ask(partial(self._clients.dynamodbstreams.describe_stream, **request))
            described = page["StreamDescription"]
            shards += [shard["ShardId"] for shard in described["Shards"]]
            if "LastEvaluatedShardId" not in described:
                return shards
            request["ExclusiveStartShardId"] = described["LastEvaluatedShardId"]

    async def _records(self, arn: str, shard: str) -> list[RecordTypeDef]:
        streams = self._clients.dynamodbstreams
        opened = await self._ask(
            lambda: streams.get_shard_iterator(StreamArn=arn, ShardId=shard, ShardIteratorType="TRIM_HORIZON")
        )
        iterator: str | None = opened["ShardIterator"]
        records: list[RecordTypeDef] = []
        empty = 0
        while iterator is not None and empty < _EMPTY_READS:
            page = await self._ask(partial(streams.get_records, ShardIterator=iterator))
            records += page["Records"]
            empty = 0 if page["Records"] else empty + 1
            iterator = page.get("NextShardIterator")
        return records

    async def _ask(self, operation: Callable[[], T]) -> T:
        return await with_retries(operation, clock=self._clock, where=f"stream of table {self._table_name}")


def _number(record: RecordTypeDef) -> int:
    return int(record["dynamodb"]["SequenceNumber"])
