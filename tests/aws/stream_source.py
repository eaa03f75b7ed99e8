"""The mapping of the table's stream to the change feed; `stream_batches` says how it goes on with a failure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

from iii_runtime.core.payload import Json
from iii_runtime.plan.names import FEED_FAILURES, Deployment
from tests.aws.cloud import REGION, Cloud
from tests.aws.event_sources import Work, reported_failures
from tests.aws.stream_batches import Batch, GivenUp, StreamBatches, StreamRules, created_ms

FEED_STORED = ("S#", "T#")
FEED_SENT = "E#"
SHARD = "shardId-00000001767225600000-00000001"


class StreamSource:
    """Hands the records of the stream over in order, one batch at a time.

    Args:
        cloud: The services.
        names: The names of the app.
        rules: The settings of the mapping; by default those of a deployed stage.
    """

    def __init__(self, cloud: Cloud, names: Deployment, rules: StreamRules | None = None) -> None:
        self._cloud = cloud
        self._function = names.system_name("feed")
        self._function_arn = names.system_arn("feed")
        self._failures = names.own_queue_name(FEED_FAILURES)
        self._arn = f"{names.table_arn}/stream/2026-01-01T00:00:00.000"
        self._position = 0
        self._batches = StreamBatches(rules or StreamRules())
        self._is_running = False
        self._failed_in_a_row = 0
        self._not_before_ms = 0

    def poll(self) -> Work | None:
        """Read a batch."""
        now_ms = self._cloud.clock.now_ms()
        if self._is_running or now_ms < self._not_before_ms:
            return None
        self._read()
        self._tell(self._batches.expired(now_ms))
        if self._batches.is_empty:
            return None
        self._is_running = True
        batch = self._batches.begin()
        return Work(
            function=self._function,
            event=cast(Json, {"Records": list(batch.records)}),
            done=lambda answer: self._done(batch, answer),
            failed=lambda: self._failed(self._batches.failed(self._cloud.clock.now_ms())),
        )

    def next_due_ms(self) -> int | None:
        """Return when the next batch is read."""
        if self._is_running:
            return None
        self._read()
        return None if self._batches.is_empty else max(self._cloud.clock.now_ms(), self._not_before_ms)

    def _read(self) -> None:
        with self._cloud.lock:
            records = self._cloud.stream_records(self._position)
            self._position += len(records)
        self._batches.add([_stream_record(record, self._arn) for record in records if is_wanted(record)])

    def _done(self, batch: Batch, answer: Json) -> None:
        now_ms, numbers = self._cloud.clock.now_ms(), batch.numbers
        reported = reported_failures(answer, dict.fromkeys(numbers))
        if reported is None:
            self._failed(self._batches.failed(now_ms))
        elif reported:
            first = min(numbers.index(number) for number in reported)
            self._failed(self._batches.failed_from(first, now_ms))
        else:
            self._batches.succeeded()
            self._failed_in_a_row = 0
            self._is_running = False

    def _failed(self, given_up: Iterable[GivenUp]) -> None:
        self._tell(given_up)
        pause_ms = min(1000 * 2**self._failed_in_a_row, 60_000)
        self._failed_in_a_row += 1
        self._not_before_ms = self._cloud.clock.now_ms() + pause_ms
        self._is_running = False

    def _tell(self, given_up: Iterable[GivenUp]) -> None:
        for each in given_up:
            self._cloud.sqs.send_message(self._failures, json.dumps(self._told(each)))

    def _told(self, given_up: GivenUp) -> dict[str, Json]:
        """Return what the destination on failure gets: where the records are, not what is in them."""
        batch = given_up.batch
        return {
            "requestContext": {
                "requestId": f"given-up-{batch.numbers[0]}",
                "functionArn": self._function_arn,
                "condition": given_up.condition,
                "approximateInvokeCount": batch.tries,
            },
            "version": "1.0",
            "timestamp": self._cloud.clock.now().isoformat(timespec="milliseconds"),
            "DDBStreamBatchInfo": {
                "shardId": SHARD,
                "startSequenceNumber": batch.numbers[0],
                "endSequenceNumber": batch.numbers[-1],
                "approximateArrivalOfFirstRecord": _written(batch.records[0]),
                "approximateArrivalOfLastRecord": _written(batch.records[-1]),
                "batchSize": len(batch.records),
                "streamArn": self._arn,
            },
        }


def is_wanted(record: Mapping[str, Any]) -> bool:
    """Return whether a record of the table's stream passes the filter of the feed's mapping."""
    told = record["dynamodb"]
    # DynamoDB writes no record for a write that changes nothing; moto does.
    if "OldImage" in told and told.get("OldImage") == told.get("NewImage"):
        return False
    partition = str(told["Keys"]["pk"]["S"])
    return partition.startswith(FEED_STORED) or (partition.startswith(FEED_SENT) and record["eventName"] == "INSERT")


def _stream_record(record: Mapping[str, Any], arn: str) -> dict[str, Any]:
    told = dict(record["dynamodb"])
    told["ApproximateCreationDateTime"] = told["ApproximateCreationDateTime"].replace(tzinfo=UTC).timestamp()
    return {**record, "awsRegion": REGION, "dynamodb": told, "eventSourceARN": arn}


def _written(record: Mapping[str, Any]) -> str:
    return datetime.fromtimestamp(created_ms(record) / 1000, UTC).isoformat(timespec="milliseconds")
