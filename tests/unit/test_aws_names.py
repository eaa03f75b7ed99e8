"""Keys of documents, and the listing of their names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from iii_runtime.adapters.aws.blob_store import S3Blobs
from iii_runtime.adapters.aws.document_keys import DocumentKey, group_partition, names_of, state_key, stream_key
from iii_runtime.adapters.aws.state_store import DynamoStateStore
from iii_runtime.adapters.aws.stream_store import DynamoStreamStore
from iii_runtime.adapters.aws.table import Table
from iii_runtime.testing.clock import SequenceIds, SkipClock
from tests.contract.aws_services import Services, running_services

LONG = "l" * 3000


@pytest.fixture
def services() -> Iterator[Services]:
    with running_services() as services:
        yield services


def stores_of(services: Services) -> tuple[DynamoStateStore, DynamoStreamStore]:
    clock, ids = SkipClock(), SequenceIds()
    table = Table(services.clients, services.deployment.table_name, clock)
    blobs = S3Blobs(services.clients, services.deployment.bucket_name, clock)
    return DynamoStateStore(table, blobs, clock, ids), DynamoStreamStore(table, blobs, clock, ids)


def test_names_are_in_the_keys_as_they_are() -> None:
    key = state_key("a scope#1", "k%")
    assert (key.pk, key.sk) == ("S#a scope#1", "k%")
    assert names_of({"pk": key.pk, "sk": key.sk}) == ("a scope#1", "k%")


def test_marks_in_the_names_of_a_stream_and_group_cannot_be_mistaken() -> None:
    pairs = [("a#b", "c"), ("a", "b#c"), ("a%23b", "c"), ("a", "b%23c"), ("a%", "23c")]
    assert len({group_partition("T#", *pair) for pair in pairs}) == len(pairs)
    assert group_partition("T#", "a#b%", "c") == "T#a%23b%25#c"
    for stream, group in pairs:
        key = stream_key(stream, group, "i")
        assert names_of({"pk": key.pk, "sk": key.sk}) == (stream, group, "i")


@pytest.mark.parametrize(
    "key", [state_key(LONG, "k"), state_key("s", LONG), stream_key(LONG, "g", "i"), stream_key("s", LONG, LONG)]
)
def test_a_long_name_is_hashed_and_kept_beside(key: DocumentKey) -> None:
    assert len(key.pk.encode()) <= 2048
    assert len(key.sk.encode()) <= 1024
    assert names_of({"pk": key.pk, "sk": key.sk}) is None
    assert names_of({"pk": key.pk, "sk": key.sk, **key.names}) == tuple(key.names["nm"])  # type: ignore[arg-type]


@pytest.mark.parametrize("wide", ["\U0001f600" * 256, "#" * 256, "n" * 256])
def test_names_of_every_allowed_length_fit(wide: str) -> None:
    for key in (state_key(wide, wide), stream_key(wide, wide, wide)):
        assert len(key.pk.encode()) <= 2048
        assert len(key.sk.encode()) <= 1024
        assert len(str(key.names["nr"]).encode()) <= 1024


async def test_names_that_were_hashed_are_listed_with_the_others(services: Services) -> None:
    state, stream = stores_of(services)
    long_key, wide = LONG + "key", "\U0001f600" * 256
    for scope, key in [("a", "k"), (LONG, "k"), ("m", long_key), ("m", "a"), ("m", "z"), (wide, wide)]:
        await state.set(scope, key, f"{scope[:1]}/{key[:4]}")
    assert await state.list_scopes() == ["a", LONG, "m", wide]
    assert await state.list_values("m") == ["m/a", "m/llll", "m/z"]
    assert await state.list_values(LONG) == ["l/k"]
    assert await state.get("m", long_key) == "m/llll"
    for name, group in [("a", LONG), ("a", "g"), (LONG, "h"), (wide, wide), (wide, "g")]:
        await stream.set(name, group, "i", 1)
    assert await stream.list_streams() == [("a", ["g", LONG]), (LONG, ["h"]), (wide, ["g", wide])]
    assert await stream.list_groups("a") == ["g", LONG]
    assert await stream.list_groups(LONG) == ["h"]


async def test_many_names_that_were_hashed_are_all_listed(services: Services) -> None:
    state, stream = stores_of(services)
    names = [LONG + str(number) for number in range(12)]
    for name in names:
        await state.set(name, "k", 1)
        await stream.set(name, name, "i", 1)
    assert await state.list_scopes() == sorted(names)
    assert await stream.list_streams() == [(name, [name]) for name in sorted(names)]


async def test_a_name_that_is_the_start_of_another_is_apart(services: Services) -> None:
    state, stream = stores_of(services)
    names = ["a", "a ", "a\x01", "a#", "a%", "aa", "a\x01b"]
    for name in names:
        await state.set(name, "k", 1)
        await state.set(name, "k2", 1)
        await stream.set(name, name, "i", 1)
        await stream.set("a", name, "i", 1)
    assert await state.list_scopes() == sorted(names)
    assert await stream.list_groups("a") == sorted(names)
    assert await stream.list_groups("a\x01") == ["a\x01"]
    assert [name for name, _ in await stream.list_streams()] == sorted(names)


async def test_the_names_of_many_values_take_few_requests(services: Services) -> None:
    state, _ = stores_of(services)
    for number in range(60):
        await state.set("s", f"k{number}", number)
    services.calls.clear()
    assert await state.list_scopes() == ["s"]
    assert len(services.calls) <= 8
    assert set(services.calls) == {"dynamodb:Query"}


async def test_a_long_list_is_read_page_by_page(services: Services) -> None:
    state, _ = stores_of(services)
    values = [f"{number}" + "x" * 300_000 for number in range(8)]
    for number, value in enumerate(values):
        await state.set("s", f"k{number}", value)
    services.calls.clear()
    assert await state.list_values("s") == values
    assert services.calls.count("dynamodb:Query") > 1
