"""The change feed: takes the stream of the table in batches to viewers, to the progress topic and to triggers.

Order: the stream keeps the changes of one item in order, and those of one partition as long as DynamoDB does not split
it. The items of a group and the events sent to it are two partitions, so an event may overtake a change of an item. The
mapping must hand over one batch of a shard at a time: with more, Lambda keeps the order of single items only, and the
items of a group, and its events, would overtake each other.

A batch takes as long as its slowest key, and the next batch of the same shard waits for it: a slow trigger delays later
changes of its shard, whatever their group. Viewers of its own batch have been served by then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import cast

from iii_runtime.adapters.aws.blob_store import S3Blobs
from iii_runtime.adapters.aws.kept_value import Follow
from iii_runtime.adapters.aws.progress_publisher import SnsProgressPublisher
from iii_runtime.adapters.aws.records import changes_of
from iii_runtime.core.change import Change
from iii_runtime.core.errors import IiiError, StoreError
from iii_runtime.core.frozen import frozen
from iii_runtime.core.payload import Json, PayloadError
from iii_runtime.engine.feed_delivery import FeedDelivery, FeedRecord
from iii_runtime.engine.stream_push import StreamPush
from iii_runtime.hosts.aws_lambda.bootstrap import entry_point
from iii_runtime.hosts.aws_lambda.context import LambdaContext
from iii_runtime.hosts.aws_lambda.parallel import ThreadParallel
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.hosts.aws_lambda.unreadable_records import FeedFailures, UnreadableRecords
from iii_runtime.hosts.aws_lambda.viewers import open_viewers
from iii_runtime.hosts.unknown_event import EventUnknownError
from iii_runtime.ports.clock import Clock
from iii_runtime.ports.meter import Meter

_log = logging.getLogger("iii_runtime.change")

AT_ONCE = 32
"""Connections, and keys whose triggers run, that are served at the same time."""

_UNREADABLE = frozenset({"store_corrupt", "blob_missing"})
"""Errors of a store that no repetition mends."""


@frozen(kw_only=True)
class StreamRecord:
    """A record of the table's stream.

    Attributes:
        sequence: Its number in the stream; what a partial batch response names.
        identity: Unique among all records, the same each time it comes.
        body: The whole record.
    """

    sequence: str
    identity: str
    body: Mapping[str, object]


class Feed:
    """Handles the events of the change feed.

    Args:
        delivery: Delivers what was read.
        follow: Reads values that are kept beside the table.
        clock: Tells how late a change is.
        meter: Takes how late it is.
        unreadable: Takes the references of what can never be read.
    """

    def __init__(
        self, delivery: FeedDelivery, follow: Follow, clock: Clock, meter: Meter, unreadable: UnreadableRecords
    ) -> None:
        self._delivery = delivery
        self._unreadable = unreadable
        self._reported: set[str] = set()
        self._follow = follow
        self._clock = clock
        self._meter = meter

    async def handle(self, event: object) -> Json:
        """Deliver a batch and answer from which record on it must come again.

        A record that can never be read, because it or its value is damaged, missing or of a later version, is reported
        to the queue of failures and is done: it would hold up its shard until it is too old. If it cannot be reported,
        it comes again, and those behind it are delivered meanwhile. Where a value cannot be read for now, nothing
        behind it is delivered, for it would come out of order.

        Returns:
            A partial batch response: `{"batchItemFailures": [...]}` with at most one entry.

        Raises:
            EventUnknownError: It is no batch of a DynamoDB stream.
        """
        records = parse_records(event)
        read = await self._read(records)
        first = await self._delivery.deliver(read)
        if first is None and len(read) < len(records):
            first = len(read)
        self._measure(read)
        if first is None:
            return {"batchItemFailures": []}
        fields = {"records": len(records), "from": records[first].sequence}
        _log.warning("a part of the change feed must come again", extra={"iii": fields})
        return {"batchItemFailures": [{"itemIdentifier": records[first].sequence}]}

    async def _read(self, records: Sequence[StreamRecord]) -> list[FeedRecord]:
        """Read the records up to the first one that cannot be read for now."""
        read: list[FeedRecord] = []
        self._reported &= {record.identity for record in records}
        for record in records:
            changes: Sequence[Change] | None
            try:
                changes = await changes_of(record.body, self._follow)
            except (StoreError, PayloadError) as error:
                if isinstance(error, StoreError) and error.code not in _UNREADABLE:
                    fields = {"sequence": record.sequence, "code": error.code, "error": error.message}
                    _log.error("cannot read a record of the change feed for now", extra={"iii": fields})
                    break
                changes = () if await self._report(record, error) else None
            read.append(FeedRecord(identity=record.identity, changes=changes))
        return read

    async def _report(self, record: StreamRecord, error: IiiError) -> bool:
        """Report a record that cannot be read; True if that is done, now or when it came before."""
        if record.identity in self._reported:
            return True
        try:
            await self._unreadable.report(record.sequence, record.body, error)
        except StoreError as refusal:
            fields = {"sequence": record.sequence, "code": refusal.code, "error": refusal.message}
            _log.error("cannot report a record that cannot be read; it comes again", extra={"iii": fields})
            return False
        self._reported.add(record.identity)
        return True

    def _measure(self, read: Iterable[FeedRecord]) -> None:
        oldest = min((change.at_ms for record in read for change in record.changes or ()), default=None)
        if oldest is not None:
            self._meter.add("FeedLag", max(self._clock.now_ms() - oldest, 0))


def parse_records(event: object) -> list[StreamRecord]:
    """Read the event of a DynamoDB stream.

    Raises:
        EventUnknownError: It is none; says what is wrong.
    """
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list):
        raise EventUnknownError("the event has no list of Records; the change feed takes batches of a DynamoDB stream.")
    return [_record(body, place) for place, body in enumerate(records)]


def _record(body: object, place: int) -> StreamRecord:
    told = body.get("dynamodb") if isinstance(body, Mapping) else None
    sequence = told.get("SequenceNumber") if isinstance(told, Mapping) else None
    if not isinstance(body, Mapping) or not isinstance(sequence, str) or not sequence:
        raise EventUnknownError(f"the event's Records[{place}] is no record of a DynamoDB stream.")
    identity = body.get("eventID")
    return StreamRecord(
        sequence=sequence,
        identity=identity if isinstance(identity, str) else sequence,
        body=cast(Mapping[str, object], body),
    )


@lru_cache(maxsize=1)
def open_feed(sandbox: Sandbox) -> Feed:
    """Return the feed of a sandbox, the same each time: it knows what was done of a batch that comes again.

    Raises:
        HostError: `environment_invalid`.
    """
    stores, clients, names = sandbox.runtime.stores, sandbox.clients, sandbox.deployment
    parallel = ThreadParallel(AT_ONCE)
    # A session must not make clients on several threads at once, so they are made before threads use them.
    attrgetter("dynamodb", "lambda_", "s3")(clients)
    _, connections, poster = open_viewers(sandbox)
    push = StreamPush(connections, poster, parallel, stores.clock)
    progress = SnsProgressPublisher(clients.sns, names.progress_topic_arn, stores.clock)
    delivery = FeedDelivery(sandbox.runtime, push=push, progress=progress, parallel=parallel)
    blobs = S3Blobs(clients, names.bucket_name, stores.clock)
    unreadable = FeedFailures(clients, names, stores.clock)
    return Feed(delivery, blobs.follow, stores.clock, stores.meter, unreadable)


def _handle(sandbox: Sandbox, event: object, context: LambdaContext) -> Json:
    feed = open_feed(sandbox)
    return sandbox.run(lambda: feed.handle(event), context)


handler = entry_point(_handle, "feed")
