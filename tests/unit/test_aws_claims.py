"""Reservations that one conditional write decides: cron ticks, leases of jobs, and idempotency keys."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ReadTimeoutError

from iii_runtime.adapters.aws.blob_store import S3Blobs
from iii_runtime.adapters.aws.response_store import INLINE_BODY_BYTES, DynamoResponseStore
from iii_runtime.adapters.aws.table import Table
from iii_runtime.adapters.aws.tick_store import DynamoTickStore
from iii_runtime.ports.response_store import Begun, InProgress, StoredResponse
from iii_runtime.testing.clock import SequenceIds
from tests.contract.aws_services import HastyClock, Services, running_services

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LEASE = timedelta(minutes=5)
RESPONSE = StoredResponse(status=201, headers=(("A", "1"), ("A", "2")), body=b"\0\xff")
PUT, UPDATE, PUT_OBJECT, GET_OBJECT = "dynamodb:PutItem", "dynamodb:UpdateItem", "s3:PutObject", "s3:GetObject"


class Stage:
    def __init__(self, services: Services) -> None:
        self.services = services
        self.clock = HastyClock()
        ids = SequenceIds()
        self.table = Table(services.clients, services.deployment.table_name, self.clock)
        blobs = S3Blobs(services.clients, services.deployment.bucket_name, self.clock)
        self.ticks = DynamoTickStore(self.table, self.clock, ids)
        self.responses = DynamoResponseStore(self.table, blobs, self.clock, ids, lease=LEASE)

    def calls(self) -> list[str]:
        calls = list(self.services.calls)
        self.services.calls.clear()
        return calls

    def lose_reply(self, operation: str) -> None:
        """Lose the next reply to an operation that DynamoDB has carried out."""
        left = [1]

        def lose(**_: object) -> None:
            if left[0] > 0:
                left[0] -= 1
                raise ReadTimeoutError(endpoint_url="https://dynamodb")

        self.services.clients.dynamodb.meta.events.register(f"after-call.dynamodb.{operation}", lose)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with running_services() as services:
        yield Stage(services)


async def test_a_claim_a_lease_and_its_release_are_one_write_each(stage: Stage) -> None:
    await stage.ticks.claim("job", NOON)
    assert stage.calls() == [UPDATE]
    await stage.ticks.acquire("job", NOON + LEASE, lease=LEASE)
    assert stage.calls() == [UPDATE]
    await stage.ticks.release("job", NOON + LEASE)
    assert stage.calls() == [UPDATE]


@pytest.mark.parametrize("lease", [None, LEASE])
async def test_a_tick_whose_reply_was_lost_is_the_claimants(stage: Stage, lease: timedelta | None) -> None:
    stage.lose_reply("UpdateItem")
    assert await stage.ticks.acquire("job", NOON, lease=lease) == "acquired"
    assert await stage.ticks.acquire("job", NOON, lease=lease) == "taken"


async def test_a_release_whose_reply_was_lost_is_done(stage: Stage) -> None:
    await stage.ticks.acquire("job", NOON, lease=LEASE)
    stage.lose_reply("UpdateItem")
    await stage.ticks.release("job", NOON)
    assert await stage.ticks.acquire("job", NOON + LEASE / 2, lease=LEASE) == "acquired"


async def test_a_request_costs_two_writes_and_its_repetition_one(stage: Stage) -> None:
    await stage.responses.begin("key", "print", "host")
    await stage.responses.finish("key", RESPONSE)
    assert stage.calls() == [PUT, UPDATE]
    assert await stage.responses.begin("key", "print", "host") == RESPONSE
    assert stage.calls() == [PUT]


async def test_a_reservation_whose_reply_was_lost_is_the_requests(stage: Stage) -> None:
    stage.lose_reply("PutItem")
    assert await stage.responses.begin("key", "print", "host") == Begun()
    assert await stage.responses.begin("key", "print", "host") == InProgress()


async def test_a_reservation_holds_against_every_holder_until_its_lease_has_passed(stage: Stage) -> None:
    await stage.responses.begin("key", "print", "host")
    stage.clock.advance(LEASE - timedelta(milliseconds=1))
    for holder in ("host", "another"):
        assert await stage.responses.begin("key", "print", holder) == InProgress()
    stage.clock.advance(timedelta(milliseconds=1))
    assert await stage.responses.begin("key", "print", "host") == Begun()
    assert await stage.responses.begin("key", "print", "another") == InProgress()


async def test_the_first_response_stays_when_a_request_taken_for_dead_ends(stage: Stage) -> None:
    await stage.responses.begin("key", "print", "slow")
    stage.clock.advance(LEASE)
    await stage.responses.begin("key", "print", "host")
    await stage.responses.finish("key", RESPONSE)
    await stage.responses.finish("key", replace(RESPONSE, body=b"late"))
    assert await stage.responses.begin("key", "print", "host") == RESPONSE


async def test_a_finish_whose_reply_was_lost_is_done(stage: Stage) -> None:
    await stage.responses.begin("key", "print", "host")
    stage.lose_reply("UpdateItem")
    await stage.responses.finish("key", RESPONSE)
    assert await stage.responses.begin("key", "print", "host") == RESPONSE


@pytest.mark.parametrize(
    ("size", "calls"), [(INLINE_BODY_BYTES, [UPDATE]), (INLINE_BODY_BYTES + 1, [PUT_OBJECT, UPDATE])]
)
async def test_a_large_body_is_an_object_under_responses(stage: Stage, size: int, calls: list[str]) -> None:
    response = replace(RESPONSE, body=os.urandom(size))
    await stage.responses.begin("key", "print", "host")
    stage.calls()
    await stage.responses.finish("key", response)
    assert stage.calls() == calls
    assert await stage.responses.begin("key", "print", "host") == response
    objects = stage.services.clients.s3.list_objects_v2(Bucket=stage.services.deployment.bucket_name)
    assert [entry["Key"].split("/")[0] for entry in objects.get("Contents", [])] == ["responses"] * (len(calls) - 1)


async def test_a_key_is_expired_by_the_table_after_its_day(stage: Stage) -> None:
    await stage.responses.begin("a key of any text \0 漢", "print", "host")
    (item,) = stage.services.clients.dynamodb.scan(TableName=stage.table.name)["Items"]
    day_later = stage.clock.now() + timedelta(hours=24)
    assert day_later.timestamp() <= int(item["ttl"]["N"]) <= day_later.timestamp() + 1
