"""Items as somebody has edited them by hand: whatever they hold, each operation returns or says what is wrong."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from iii_runtime.adapters.aws.blob_store import S3Blobs
from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.aws.connections import DynamoConnections
from iii_runtime.adapters.aws.dedupe_ids import DedupeIds
from iii_runtime.adapters.aws.letter_index import LetterIndex
from iii_runtime.adapters.aws.message_item import MessageItems
from iii_runtime.adapters.aws.records import changes_of
from iii_runtime.adapters.aws.response_store import DynamoResponseStore
from iii_runtime.adapters.aws.state_store import DynamoStateStore
from iii_runtime.adapters.aws.stream_store import DynamoStreamStore
from iii_runtime.adapters.aws.table import Table
from iii_runtime.adapters.aws.tick_store import DynamoTickStore
from iii_runtime.adapters.aws.tickets import DynamoTickets
from iii_runtime.core.errors import IiiError
from iii_runtime.core.message import ErrorRecord
from iii_runtime.core.payload import render_json
from iii_runtime.core.queue import QueueSpec
from iii_runtime.core.stream_protocol import Subscription
from iii_runtime.testing.clock import SequenceIds
from iii_runtime.testing.stores import outgoing_message
from tests.contract.aws_services import HastyClock

ATTRIBUTE_NAMES = """
    g n tok st nb er0 er1 e el dq dt v vl at ev nm nk nr fp bg ld o hd b bl tk lt ls r exp ok x c id s i lost until ttl
"""
NAMES = ATTRIBUTE_NAMES.split()
LINK = {"M": {"k": {"S": "state/1"}, "n": {"N": "3"}, "h": {"S": "0"}}}
TEXTS = st.sampled_from(
    ["", "@", "null", "NaN", "1e999", "[1]", '{"a":1}', '"x"', "[" * 5000, "dead", "orders#1", '[["a",1]]', "\0"]
) | st.text(max_size=8)
NUMBERS = st.sampled_from(["0", "1", "-1", "1.5", "1E+125", "9" * 38, "1e-130"]) | st.integers(-9, 9).map(str)
PLAIN = st.one_of(
    st.builds(lambda value: {"S": value}, TEXTS),
    st.builds(lambda value: {"N": value}, NUMBERS),
    st.sampled_from([{"NULL": True}, {"BOOL": True}, {"B": b"\0"}, {"SS": ["a"]}, {"NS": ["1"]}, {"BS": [b"a"]}, LINK]),
)


def nested(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Lists and maps of these attributes."""
    lists = st.lists(inner, max_size=3).map(lambda items: {"L": items})
    return lists | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3).map(lambda members: {"M": members})


ATTRIBUTES = PLAIN | nested(PLAIN) | nested(PLAIN | nested(PLAIN))
PLACES = st.tuples(
    st.sampled_from(["M#m1", "S#s", "S#\0s", "T#s#g", "T#\0", "E#s#g", "X"]), st.sampled_from(["@", "k", "\0k"])
)
ITEMS = st.builds(
    lambda place, attributes: {"pk": {"S": place[0]}, "sk": {"S": place[1]}, **attributes},
    PLACES,
    st.dictionaries(st.sampled_from(NAMES), ATTRIBUTES, max_size=len(NAMES)),
)


class HandMade:
    """A table that holds one item wherever it is asked, and a bucket with one object. May refuse all conditions."""

    def __init__(self, item: dict[str, Any], *, refuses: bool) -> None:
        self._item = item
        self._refuses = refuses
        self.dynamodb = self.s3 = self

    def get_item(self, **_: object) -> dict[str, Any]:
        return {"Item": self._item}

    def put_item(self, **request: object) -> dict[str, Any]:
        if self._refuses and "ConditionExpression" in request:
            refusal: Any = {"Error": {"Code": "ConditionalCheckFailedException"}, "Item": self._item}
            raise ClientError(refusal, "PutItem")
        return {"Attributes": self._item}

    update_item = delete_item = put_item

    def query(self, **request: Any) -> dict[str, Any]:
        is_first = request.get("ExpressionAttributeValues", {}).get(":after", {"S": "\0"}) == {"S": "\0"}
        return {"Items": [self._item] if is_first else []}

    def batch_get_item(self, **_: object) -> dict[str, Any]:
        return {"Responses": {"table": [self._item]}}

    def transact_write_items(self, **_: object) -> None:
        return None

    def get_object(self, **_: object) -> dict[str, Any]:
        return {"Body": io.BytesIO(b"123")}

    def put_object(self, **_: object) -> None:
        return None

    copy_object = put_object


class Adapters:
    """Every adapter that reads the table."""

    def __init__(self, item: dict[str, Any], *, refuses: bool = False) -> None:
        clients, clock, ids = cast(Clients, HandMade(item, refuses=refuses)), HastyClock(), SequenceIds()
        table, blobs = Table(clients, "table", clock), S3Blobs(clients, "bucket", clock)
        self.blobs = blobs
        self.items = MessageItems(table, clock)
        self.letters = LetterIndex(clients, table, clock)
        self.state = DynamoStateStore(table, blobs, clock, ids)
        self.stream = DynamoStreamStore(table, blobs, clock, ids)
        self.responses = DynamoResponseStore(table, blobs, clock, ids, lease=timedelta(minutes=1))
        self.ticks = DynamoTickStore(table, clock, ids)
        self.tickets = DynamoTickets(table, clock)
        self.connections = DynamoConnections(clients, table, clock, ids)
        self.dedupe = DedupeIds(table, clock)


SET: Any = [{"type": "set", "path": "a", "value": 1}]
ERROR = ErrorRecord(type="E", message="no")
INSTANT = datetime(2026, 1, 1, tzinfo=UTC)
MESSAGE = outgoing_message(QueueSpec(name="orders"), "m1")
MEMBER = Subscription(subscription_id="s1", stream_name="s", group_id="g", item_id=None)
OPERATIONS: dict[str, Callable[[Adapters], Awaitable[object]]] = {
    "state get": lambda on: on.state.get("s", "k"),
    "state set": lambda on: on.state.set("s", "k", 1),
    "state update": lambda on: on.state.update("s", "k", SET),
    "state delete": lambda on: on.state.delete("s", "k"),
    "state list": lambda on: on.state.list_values("s"),
    "state scopes": lambda on: on.state.list_scopes(),
    "stream get": lambda on: on.stream.get("s", "g", "i"),
    "stream list": lambda on: on.stream.list_items("s", "g"),
    "stream groups": lambda on: on.stream.list_groups("s"),
    "message": lambda on: on.items.read("m1"),
    "claim": lambda on: on.items.claim("m1", 1, "r-1"),
    "failure": lambda on: on.items.record_failure("m1", 0, 1, ERROR, 0),
    "letters": lambda on: on.letters.list("orders"),
    "letters' items": lambda on: on.letters.items(["m1"]),
    "response": lambda on: on.responses.begin("k", "f", "h"),
    "tick": lambda on: on.ticks.claim("j", INSTANT),
    "lease": lambda on: on.ticks.release("j", INSTANT),
    "ticket": lambda on: on.tickets.redeem("t"),
    "members": lambda on: on.connections.members("s", "g"),
    "join": lambda on: on.connections.join("c", MEMBER, most=9),
    "leave": lambda on: on.connections.leave("c", "s1"),
    "forget": lambda on: on.connections.forget("c"),
    "connections": lambda on: on.connections.may_have_any(),
    "dedupe id": lambda on: on.dedupe.reserve("orders", MESSAGE),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
@given(item=ITEMS, refuses=st.booleans())
def test_an_operation_on_an_item_edited_by_hand_returns_or_raises_a_typed_error(
    operation: Callable[[Adapters], Awaitable[object]], item: dict[str, Any], refuses: bool
) -> None:
    async def run() -> None:
        with suppress(IiiError):
            await operation(Adapters(item, refuses=refuses))

    asyncio.run(run())


@given(old=st.none() | ITEMS, new=st.none() | ITEMS, place=PLACES)
def test_a_record_of_an_item_edited_by_hand_is_read_or_told_and_what_is_read_can_be_passed_on(
    old: dict[str, Any] | None, new: dict[str, Any] | None, place: tuple[str, str]
) -> None:
    told = {"Keys": {"pk": {"S": place[0]}, "sk": {"S": place[1]}}, "OldImage": old, "NewImage": new}

    async def run() -> None:
        record = {"dynamodb": told | {"ApproximateCreationDateTime": 1.0}}
        async for change in _read(record):
            assert render_json(change.to_payload())

    asyncio.run(run())


async def _read(record: dict[str, Any]) -> AsyncIterator[Any]:
    try:
        changes = await changes_of(record, Adapters({}).blobs.follow)
    except IiiError:
        return
    for change in changes:
        yield change
