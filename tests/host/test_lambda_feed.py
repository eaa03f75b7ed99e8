"""The change feed Lambda on records that moto's table has written."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from iii_runtime import OnState, OnStream, Worker, register_worker
from iii_runtime.adapters.aws.blob_store import S3Blobs
from iii_runtime.adapters.aws.connections import DynamoConnections
from iii_runtime.adapters.aws.state_store import DynamoStateStore
from iii_runtime.adapters.aws.stream_store import DynamoStreamStore
from iii_runtime.adapters.aws.table import Table
from iii_runtime.core.call import Call
from iii_runtime.core.config import Config
from iii_runtime.core.errors import FunctionBusyError, HostError, IiiError, StoreError
from iii_runtime.core.message import BlobLink
from iii_runtime.core.payload import Json, PayloadError
from iii_runtime.engine.feed_delivery import FeedDelivery
from iii_runtime.engine.stream_push import MAX_POSTED_BYTES, StreamPush
from iii_runtime.hosts.aws_lambda import feed as feed_host
from iii_runtime.hosts.aws_lambda.environment import Environment
from iii_runtime.hosts.aws_lambda.feed import Feed, parse_records
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.hosts.unknown_event import EventUnknownError
from iii_runtime.plan.manifest import Manifest, describe_app, read_manifest
from iii_runtime.plan.names import FEED_FAILURES
from iii_runtime.ports.state_store import Notice
from iii_runtime.testing.clock import SequenceIds
from tests.contract.aws_services import DEPLOYMENT, HastyClock, Services, follow_clock, running_services
from tests.host.lambda_kit import Context, FakeLambda, Measured
from tests.host.lambda_streams import Functions, Gateway, InTurn, Topic, deployed, lambda_event, subscription

EVENTS = Path(__file__).resolve().parents[2] / "events" / "dynamodb-stream"
ENDPOINT = "https://a1b2c3d4e5.execute-api.us-east-1.amazonaws.com/live"


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


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with running_services() as services:
        stage = Stage(services)
        follow_clock(monkeypatch, stage.clock)
        yield stage


async def test_what_is_written_reaches_viewers_subscribers_of_progress_and_triggers(here: Stage) -> None:
    await here.join("c", "g1")
    await here.set({"n": 1})
    await here.stream.update("orders", "g1", "i1", [{"type": "set", "path": "n", "value": 2}])
    notice = Notice(stream_name="orders", group_id="g1", item_id=None, type="step", data="packed")
    await here.state.update("orders", "o1", [{"type": "set", "path": "", "value": {"step": "packed"}}], notice)
    await here.stream.send(Notice(stream_name="orders", group_id="g1", item_id="i1", type="note", data=[1]))
    await here.stream.delete("orders", "g1", "i1")
    assert await here.deliver() == []
    assert [frame["event"] for frame in here.gateway.frames("c")] == [
        {"type": "create", "data": {"n": 1}},
        {"type": "update", "data": {"n": 2}},
        {"type": "event", "event": {"type": "step", "data": "packed"}},
        {"type": "event", "event": {"type": "note", "data": [1]}},
        {"type": "delete", "data": {"n": 2}},
    ]
    assert here.topic.published == [{"n": 1}, {"n": 2}, "packed", [1], {"n": 2}]
    assert here.seen("f::state") == [{"step": "packed"}]
    assert len(here.seen("f::stream")) == 5


async def test_nothing_is_pushed_that_was_not_stored(here: Stage) -> None:
    await here.join("c", "g1")
    await here.stream.delete("orders", "g1", "never there")
    assert await here.deliver() == []
    assert (here.gateway.events("c"), here.topic.published, here.functions.calls) == ([], [], [])


async def test_a_group_stays_in_order_over_batches_and_beside_other_groups(here: Stage) -> None:
    await here.join("c", "g1", "g2")
    for start in (0, 6):
        for number in range(start, start + 6):
            await here.set(number, group=f"g{number % 2 + 1}")
        assert await here.deliver() == []
    assert here.gateway.events("c") == list(range(12))
    for remainder in (0, 1):
        of_group = [number for number in here.seen() if number % 2 == remainder]
        assert of_group == list(range(remainder, 12, 2))


async def test_a_batch_that_comes_again_ends_with_the_newest_state(here: Stage) -> None:
    await here.join("c", "g1")
    for number in range(3):
        await here.set(number)
    event = here.batch()
    assert await here.deliver(event) == []
    here.feed = here.new_feed()
    assert await here.deliver(event) == []
    assert here.gateway.events("c") == [0, 1, 2, 0, 1, 2]


async def test_what_fails_comes_again_from_its_record_on_and_what_was_done_is_not_done_twice(here: Stage) -> None:
    await here.join("c", "g1", "g2")
    for number in range(4):
        await here.set(number, group=f"g{number % 2 + 1}")
    busy: deque[Exception | None] = deque([FunctionBusyError("busy")] * 6)
    here.functions.outcomes["f::stream"] = busy
    event = here.batch()
    assert await here.deliver(event) == [0]
    assert here.seen() == [1, 3]
    assert await here.deliver(event) == []
    assert (here.seen(), here.gateway.events("c"), here.topic.published) == ([1, 3, 0, 2], [0, 1, 2, 3], [0, 1, 2, 3])


@pytest.mark.parametrize("dies_at", range(1, 10))
async def test_nothing_is_skipped_wherever_the_sandbox_dies(here: Stage, dies_at: int) -> None:
    class Crash(BaseException):
        pass

    await here.join("c", "g1", "g2")
    for number in range(3):
        await here.set(number, group=f"g{number % 2 + 1}")
    event = here.batch()
    left = [dies_at]

    async def count(_: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Crash

    here.gateway.on_post = here.functions.on_call = count
    try:
        await here.deliver(event)
    except Crash:
        here.feed = here.new_feed()
        assert await here.deliver(event) == []
    last = {frame["groupId"]: frame["event"]["data"] for frame in here.gateway.frames("c")}
    assert last == {"g1": 2, "g2": 1}
    for seen in (here.seen(), here.topic.published):
        assert set(seen) == {0, 1, 2}
    assert [number for number in here.seen() if number != 1][-2:] == [0, 2]


async def test_a_viewer_that_is_gone_is_removed_from_the_table_and_costs_nothing_from_then_on(here: Stage) -> None:
    for name in ("a", "b"):
        await here.join(name, "g1", "g2")
    here.gateway.hang_up("a")
    await here.set(1)
    assert await here.deliver() == []
    assert [member.connection_id for member in await here.connections.members("orders", "g2")] == ["b"]
    here.gateway.posts = 0
    await here.set(2)
    assert await here.deliver() == []
    assert (here.gateway.posts, here.gateway.events("b")) == (1, [1, 2])


async def test_a_viewer_that_takes_nothing_is_closed_and_the_batch_is_done(here: Stage) -> None:
    for name in ("slow", "b"):
        await here.join(name, "g1")
    here.gateway.refuse("slow", 100)
    for number in range(3):
        await here.set(number)
    assert await here.deliver() == []
    assert (here.gateway.connected, here.gateway.events("b")) == ({"b"}, [0, 1, 2])
    assert sum(pause.total_seconds() for pause in here.clock.pauses) < 5


async def test_a_viewer_that_joins_anew_after_a_loss_is_served_again(here: Stage) -> None:
    await here.join("c", "g1")
    here.gateway.refuse("c", 1, is_transient=False)
    here.gateway.close_refusals["c"] = deque(here.gateway.refusals["c"])
    await here.set(1)
    assert await here.deliver() == []
    assert [member.is_lost for member in await here.connections.members("orders", "g1")] == [True]
    await here.join("c", "g1")
    await here.set(2)
    assert await here.deliver() == []
    assert here.gateway.events("c") == [2]


async def test_a_change_too_large_for_a_frame_still_reaches_its_triggers_whole(here: Stage) -> None:
    await here.join("c", "g1")
    large = "x" * (600 * 1024)  # kept beside the table
    for data in (1, large, 2):
        await here.set(data)
    assert await here.deliver() == []
    assert here.gateway.events("c") == [1, "frame_too_large", 2]
    assert len(large) > MAX_POSTED_BYTES
    assert here.seen() == [1, large, 2]


async def test_a_batch_asks_once_for_each_group_and_not_at_all_while_nobody_is_connected(here: Stage) -> None:
    def asked(event: dict[str, Any]) -> list[str]:
        assert event["Records"]
        return [call.removeprefix("dynamodb:") for call in here.services.calls if call.startswith("dynamodb:")]

    async def deliver_six() -> list[str]:
        for number in range(6):
            await here.set(number, group=f"g{number % 3}")
        event = here.batch()
        here.services.calls.clear()
        assert await here.deliver(event) == []
        return asked(event)

    assert await deliver_six() == ["GetItem"]
    await here.join("c", "g1")
    assert await deliver_six() == ["GetItem", "Query", "Query", "Query"]
    await here.state.set("orders", "o1", 1)
    event = here.batch()
    here.services.calls.clear()
    assert await here.deliver(event) == []
    assert asked(event) == []


async def test_whoever_joins_while_a_batch_is_under_way_misses_nothing(
    here: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch knows of no members; the store, read after the join, has what the batch holds."""
    await here.join("other")
    await here.set(1)
    original = here.connections.members

    async def members(stream_name: str, group_id: str) -> Any:
        found = await original(stream_name, group_id)
        await here.join("late", "g1")
        late.append(await here.stream.list_items("orders", "g1"))
        return found

    late: list[Any] = []
    monkeypatch.setattr(here.connections, "members", members)
    assert await here.deliver() == []
    assert (late, here.gateway.events("late")) == ([[1]], [])
    monkeypatch.setattr(here.connections, "members", original)
    await here.set(2)
    assert await here.deliver() == []
    assert here.gateway.events("late") == [2]


async def spoilt(here: Stage) -> dict[str, Any]:
    """Return a batch of three records of which the second cannot be read."""
    for number in range(3):
        await here.set(number)
    event = here.batch()
    event["Records"][1]["dynamodb"]["NewImage"]["v"] = {"N": "7"}
    return event


async def test_a_record_that_cannot_be_read_is_reported_and_holds_nothing_up(here: Stage) -> None:
    await here.join("c", "g1")
    event = await spoilt(here)
    assert await here.deliver(event) == []
    assert here.unreadable.reported == [(event["Records"][1]["dynamodb"]["SequenceNumber"], "store_corrupt")]
    assert (here.gateway.events("c"), here.seen(), here.topic.published) == ([0, 2], [0, 2], [0, 2])


async def test_a_record_that_cannot_be_reported_comes_again_alone_and_the_others_are_done_once(here: Stage) -> None:
    await here.join("c", "g1")
    event = await spoilt(here)
    here.unreadable.refuses = True
    assert await here.deliver(event) == [1]
    here.unreadable.refuses = False
    assert await here.deliver(from_place(event, 1)) == []
    assert len(here.unreadable.reported) == 1
    assert (here.gateway.events("c"), here.seen(), here.topic.published) == ([0, 2], [0, 2], [0, 2])


async def test_a_record_is_reported_once_however_often_its_batch_comes(here: Stage) -> None:
    event = await spoilt(here)
    busy: deque[Exception | None] = deque([FunctionBusyError("busy")] * 12)
    here.functions.outcomes["f::stream"] = busy
    assert await here.deliver(event) == [0]
    assert await here.deliver(event) == [0]
    assert await here.deliver(event) == []
    assert len(here.unreadable.reported) == 1


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (StoreError("gone", code="blob_missing"), True),
        (StoreError("another object", code="store_corrupt"), True),
        (PayloadError("of a later version", code="change_unreadable"), True),
        (StoreError("slow down", code="store_throttled"), False),
        (StoreError("no way", code="store_unavailable"), False),
        (StoreError("not allowed yet", code="store_denied"), False),
    ],
)
async def test_what_no_repetition_mends_is_given_up_and_what_passes_is_not(
    here: Stage, monkeypatch: pytest.MonkeyPatch, error: IiiError, reported: bool
) -> None:
    for data in ("x" * (400 * 1024), 2):
        await here.set(data)

    async def fail(_: BlobLink) -> bytes:
        raise error

    monkeypatch.setattr(here, "follow", fail)
    here.feed = here.new_feed()
    assert await here.deliver() == ([] if reported else [0])
    assert [code for _, code in here.unreadable.reported] == ([error.code] if reported else [])
    assert here.seen() == ([2] if reported else [])


async def test_where_a_value_cannot_be_read_for_now_nothing_behind_it_is_delivered(
    here: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await here.join("c", "g1")
    for data in (1, "x" * (400 * 1024), 3):
        await here.set(data)
    event = here.batch()

    async def fail(_: BlobLink) -> bytes:
        raise StoreError("slow down", code="store_throttled")

    monkeypatch.setattr(here, "follow", fail)
    here.feed = here.new_feed()
    assert await here.deliver(event) == [1]
    assert (here.gateway.events("c"), here.seen()) == ([1], [1])
    monkeypatch.undo()
    here.feed = here.new_feed()
    assert await here.deliver(from_place(event, 1)) == []
    assert here.gateway.events("c") == [1, "frame_too_large", 3]
    assert [str(data)[:1] for data in here.seen()] == ["1", "x", "3"]


async def test_the_removal_of_what_has_expired_is_no_event(here: Stage) -> None:
    await here.join("c", "ord-ok")
    event = json.loads((EVENTS / "expired-event.json").read_text())
    assert await here.deliver(event) == []
    assert here.gateway.events("c") == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("stream-item", [{"status": "received"}, {"status": "paid"}, {"status": "paid"}]),
        ("stream-event", [{"type": "shipped", "data": {"parcel": "p-1"}}]),
        ("state-with-step", [{"type": "order.step", "data": {"step": "pay", "status": "done"}}]),
    ],
)
async def test_the_sample_events_are_delivered(here: Stage, name: str, shown: list[Any]) -> None:
    await here.join("c", "ord-ok")
    event = json.loads((EVENTS / f"{name}.json").read_text())
    assert await here.deliver(event) == []
    assert here.gateway.events("c") == shown


async def test_the_oldest_change_of_a_batch_tells_how_far_the_feed_is_behind(here: Stage) -> None:
    await here.set(1)
    here.clock.advance(timedelta(seconds=90))
    await here.set(2)
    here.clock.advance(timedelta(seconds=10))
    assert await here.deliver() == []
    assert here.meter.counts == {("FeedLag", None): 100_000}


@pytest.mark.parametrize(
    "event",
    [
        None,
        [],
        {},
        {"Records": "none"},
        {"Records": [None]},
        {"Records": [{"eventID": "e", "dynamodb": {}}]},
        {"Records": [{"eventID": "e", "dynamodb": {"SequenceNumber": ""}}]},
    ],
)
async def test_what_is_no_batch_of_a_stream_is_refused(event: Any) -> None:
    with pytest.raises(EventUnknownError):
        parse_records(event)


async def test_records_of_other_items_of_the_table_are_passed_over(here: Stage) -> None:
    await here.join("c", "g1")
    await here.set(1)
    event = here.batch("")
    assert len(event["Records"]) > 1
    assert await here.deliver(event) == []
    assert (here.gateway.events("c"), here.topic.published) == ([1], [1])


async def test_an_empty_batch_is_done(here: Stage) -> None:
    assert await here.feed.handle({"Records": []}) == {"batchItemFailures": []}


Sandboxed = tuple[Stage, Sandbox, FakeLambda]


@pytest.fixture
def sandboxed(here: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandboxed]:
    """The feed as its Lambda opens it, with functions in Lambdas of their own and moto's WebSocket API."""
    monkeypatch.setenv("III_WEBSOCKET_URL", ENDPOINT)
    worker = triggered()
    app = runtime_manifest(worker)
    lambdas = FakeLambda()
    here.services.clients.__dict__["lambda_"] = lambdas
    here.services.clients.__dict__["invoking"] = lambda _timeout: lambdas
    here.services.clients.sns.create_topic(Name=DEPLOYMENT.progress_topic_arn.rpartition(":")[2])
    sandbox = Sandbox(
        Environment(deployment=DEPLOYMENT),
        app,
        clients=here.services.clients,
        clock=here.clock,
        ids=SequenceIds(),
        meter=here.meter,
    )
    yield here, sandbox, lambdas
    sandbox.close()
    feed_host.open_feed.cache_clear()


def runtime_manifest(worker: Worker) -> Manifest:
    return read_manifest(json.loads(json.dumps(describe_app(Config(), [worker], ["app"]))))


def recorder(calls: list[Any]) -> Callable[[Any], Any]:
    def invoked(event: Any) -> Any:
        calls.append(event["iii"]["call"]["p"])
        return {"ok": None}

    return invoked


async def test_the_lambda_invokes_the_functions_of_triggers_in_order(sandboxed: Sandboxed) -> None:
    here, sandbox, lambdas = sandboxed
    calls: list[Any] = []
    for function_id in ("f::state", "f::stream"):
        lambdas.functions[DEPLOYMENT.function_name(function_id)] = recorder(calls)
    await here.join("c", "g1")
    for number in range(3):
        await here.set(number)
    await here.state.set("orders", "o1", "done")
    event = here.batch()
    response = feed_host._handle(sandbox, event, Context(here.clock, timedelta(seconds=900)))
    assert response == {"batchItemFailures": []}
    streamed = [call["event"]["data"] for call in calls if call["type"] == "stream"]
    assert (streamed, len(calls)) == ([0, 1, 2], 4)


async def test_the_lambda_reports_a_batch_that_it_could_not_finish_and_goes_on_where_it_stopped(
    sandboxed: Sandboxed,
) -> None:
    here, sandbox, lambdas = sandboxed
    calls: list[Any] = []
    lambdas.functions[DEPLOYMENT.function_name("f::stream")] = recorder(calls)
    for number in range(2):
        await here.set(number)
    event = here.batch()
    lambdas.refusals = ["TooManyRequestsException"] * 6
    context = Context(here.clock, timedelta(seconds=900))
    assert places(event, feed_host._handle(sandbox, event, context)) == [0]
    assert places(event, feed_host._handle(sandbox, event, context)) == []
    assert [call["event"]["data"] for call in calls] == [0, 1]
    published = here.services.calls.count("sns:PublishBatch")
    assert published == 1


async def test_the_lambda_names_what_it_cannot_read_on_the_queue_of_failures_without_its_value(
    sandboxed: Sandboxed,
) -> None:
    here, sandbox, _ = sandboxed
    failures = DEPLOYMENT.own_queue_name(FEED_FAILURES)
    here.services.clients.sqs.create_queue(QueueName=failures)
    await here.state.set("private", "p1", "secret")
    event = here.batch()
    (record,) = event["Records"]
    record["dynamodb"]["NewImage"]["v"] = {"S": "secret, and no JSON"}
    response = feed_host._handle(sandbox, event, Context(here.clock, timedelta(seconds=900)))
    assert response == {"batchItemFailures": []}
    (message,) = here.services.clients.sqs.receive_message(QueueUrl=DEPLOYMENT.queue_url(failures))["Messages"]
    assert "secret" not in message["Body"]
    reference = json.loads(message["Body"])
    assert (reference["sequence_number"], reference["keys"], reference["code"]) == (
        record["dynamodb"]["SequenceNumber"],
        record["dynamodb"]["Keys"],
        "store_corrupt",
    )


async def test_a_lambda_without_the_address_of_the_connections_says_so(
    sandboxed: Sandboxed, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, sandbox, _ = sandboxed
    monkeypatch.setenv("III_WEBSOCKET_URL", "wss://a1b2c3d4e5.example/live")
    with pytest.raises(HostError, match="III_WEBSOCKET_URL") as raised:
        feed_host._handle(sandbox, {"Records": []}, Context(here.clock))
    assert raised.value.code == "environment_invalid"


async def test_a_call_of_the_feed_is_that_of_a_trigger(here: Stage) -> None:
    calls: list[Call] = []

    async def note(call: Call) -> None:
        calls.append(call)

    here.functions.on_call = note
    await here.state.set("orders", "o1", 1)
    await here.deliver()
    (call,) = calls
    assert (call.function_id, call.source, call.hops, call.depth) == ("f::state", "state", 0, 0)
