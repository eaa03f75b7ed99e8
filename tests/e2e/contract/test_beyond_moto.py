"""What moto takes lightly and the emulator does not: threads, transactions, FIFO deduplication, streams, expiry."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from botocore.exceptions import ConnectionClosedError

from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.aws.connections import DynamoConnections
from iii_runtime.adapters.aws.table import Expression, Table
from iii_runtime.adapters.aws.transactions import Transactions
from iii_runtime.adapters.system import SystemClock, Uuid4Source
from iii_runtime.core.change import StateChange
from iii_runtime.core.errors import StoreError
from iii_runtime.core.message import ErrorRecord
from iii_runtime.core.queue import QueueSpec
from iii_runtime.core.stream_protocol import Subscription
from iii_runtime.engine.stores import Stores
from iii_runtime.ports.state_store import Notice
from iii_runtime.ports.stream_connections import TooManySubscriptionsError
from iii_runtime.testing.clock import SkipClock
from iii_runtime.testing.stores import outgoing_message
from tests.contract.aws_services import HastyClock, Services
from tests.patience import eventually

T = TypeVar("T")

THREADS = 8
STANDARD = QueueSpec(name="orders")
FIFO = QueueSpec(name="orders", kind="fifo", group_field="customer")
LEASE = timedelta(seconds=30)
ERROR = ErrorRecord(type="ValueError", message="no")


@pytest.fixture
def clock() -> SkipClock:
    """A clock that moves on when somebody waits: for the pause before a request is sent again."""
    return HastyClock()


def in_threads(work: Callable[[int], Coroutine[Any, Any, T]], times: int = THREADS) -> list[T]:
    """Return what `work` comes to for each number, all of them at the same time, each in a thread of its own."""
    start = threading.Barrier(times)

    def one(number: int) -> T:
        start.wait()
        return asyncio.run(work(number))

    with ThreadPoolExecutor(times) as pool:
        return list(pool.map(one, range(times)))


async def unless_others_are_faster(work: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Do it again while it is refused because others wrote each time."""
    while True:
        try:
            await work()
        except StoreError as error:
            if error.code != "store_conflict":
                raise
        else:
            return


def connections_of(services: Services) -> DynamoConnections:
    clock = SystemClock()
    table = Table(services.clients, services.deployment.table_name, clock)
    return DynamoConnections(services.clients, table, clock, Uuid4Source())


@contextmanager
def losing_one_reply(services: Services) -> Iterator[None]:
    """Let the first transaction be carried out and its reply be lost."""
    lost = iter([True])

    def lose(**_: object) -> None:
        if next(lost, False):
            raise ConnectionClosedError(endpoint_url="https://aws")

    events = services.clients.dynamodb.meta.events
    events.register_last("after-call.dynamodb.TransactWriteItems", lose)
    try:
        yield
    finally:
        events.unregister("after-call.dynamodb.TransactWriteItems", lose)
    assert next(lost, None) is None, "no reply was lost"


def joined(number: int) -> Subscription:
    return Subscription(subscription_id=f"s{number}", stream_name="orders", group_id=f"g{number % 2}")


class TestTransactions:
    async def test_no_more_subscriptions_are_made_than_a_connection_may_have_however_many_ask_at_once(
        self, services: Services
    ) -> None:
        connections = connections_of(services)
        await connections.register("c1")

        async def join(number: int) -> bool:
            try:
                await unless_others_are_faster(lambda: connections.join("c1", joined(number), most=5))
            except TooManySubscriptionsError:
                return False
            return True

        made = in_threads(join)
        assert sorted(made) == [False] * (THREADS - 5) + [True] * 5
        members = [*await connections.members("orders", "g0"), *await connections.members("orders", "g1")]
        assert len(members) == 5
        assert (await self._row(services))["n"] == {"N": "5"}

    async def test_a_transaction_whose_reply_is_lost_is_carried_out_once(self, services: Services) -> None:
        connections = connections_of(services)
        await connections.register("c1")
        with losing_one_reply(services):
            await connections.join("c1", joined(1), most=5)
        assert (await self._row(services))["n"] == {"N": "1"}
        assert [member.subscription for member in await connections.members("orders", "g1")] == [joined(1)]

    async def test_what_adds_without_a_condition_of_its_own_adds_once_though_it_is_sent_again(
        self, services: Services
    ) -> None:
        clock = SystemClock()
        table = Table(services.clients, services.deployment.table_name, clock)
        transactions = Transactions(services.clients, table, clock, Uuid4Source())
        await table.put({"pk": "W#c1", "sk": "@", "n": 0})
        add = Expression(text="ADD n :one", values={":one": 1})
        with losing_one_reply(services):
            await transactions.run([transactions.update("W#c1", "@", add, Expression(text="attribute_exists(pk)"))])
        assert (await self._row(services))["n"] == {"N": "1"}

    async def _row(self, services: Services) -> dict[str, Any]:
        key: Any = {"pk": {"S": "W#c1"}, "sk": {"S": "@"}}
        found = services.clients.dynamodb.get_item(TableName=services.deployment.table_name, Key=key)
        return dict(found["Item"])


class _InRealTime:
    """Tests whose threads wait at the same time, which no clock of one thread can serve."""

    @pytest.fixture
    def clock(self) -> SystemClock:
        return SystemClock()


class TestThreads(_InRealTime):
    async def test_no_increment_of_many_threads_is_lost_or_made_twice(self, stores: Stores) -> None:
        async def add(_number: int) -> None:
            for _ in range(10):
                await unless_others_are_faster(
                    lambda: stores.state.update("s", "k", [{"type": "increment", "path": "n", "by": 1}])
                )

        in_threads(add)
        assert await stores.state.get("s", "k") == {"n": THREADS * 10}

    async def test_the_stream_tells_each_change_once_and_those_of_a_key_in_order(self, stores: Stores) -> None:
        async def write(number: int) -> None:
            for step in range(10):
                await stores.state.set("s", f"k{step % 3}", [number, step])

        in_threads(write)
        changes = [entry.change for entry in await stores.feed.read(0, 1000)]
        told = [change for change in changes if isinstance(change, StateChange)]
        assert Counter(str(change.new_value) for change in told) == Counter(
            str([number, step]) for number in range(THREADS) for step in range(10)
        )
        for key in ("k0", "k1", "k2"):
            of_key = [change for change in told if change.key == key]
            assert [change.old_value for change in of_key[1:]] == [change.new_value for change in of_key[:-1]]
            assert await stores.state.get("s", key) == of_key[-1].new_value

    async def test_one_dedupe_id_is_one_receipt_whoever_sends_it(self, stores: Stores) -> None:
        await stores.queue.prepare(STANDARD)

        async def send(number: int) -> list[str]:
            return await stores.queue.send(
                STANDARD, [outgoing_message(STANDARD, f"m{number}", {"n": number}, dedupe_id="one")]
            )

        receipts = in_threads(send)
        assert len({receipt for (receipt,) in receipts}) == 1

    async def test_an_attempt_that_many_report_counts_once(self, stores: Stores) -> None:
        await stores.queue.send(STANDARD, [outgoing_message(STANDARD, "m1", {})])
        (delivery,) = await stores.queue.receive(STANDARD, 1, LEASE)

        async def fail(_number: int) -> bool:
            return await stores.queue.fail(delivery, ERROR, timedelta(0))

        in_threads(fail)
        (again,) = await stores.queue.receive(STANDARD, 1, LEASE)
        assert again.attempt == 2


class TestFifo(_InRealTime):
    async def test_a_message_that_is_sent_twice_is_there_once_also_after_it_was_handled(self, stores: Stores) -> None:
        message = outgoing_message(FIFO, "m1", {"customer": "a"})
        await stores.queue.send(FIFO, [message])
        await stores.queue.send(FIFO, [message])
        (delivery,) = await stores.queue.receive(FIFO, 10, LEASE)
        assert await stores.queue.acknowledge(delivery)
        await stores.queue.send(FIFO, [message])
        assert await stores.queue.receive(FIFO, 10, LEASE) == []

    async def test_messages_of_a_group_sent_by_one_come_in_order_while_others_send_too(self, stores: Stores) -> None:
        await stores.queue.prepare(FIFO)

        async def send(number: int) -> None:
            for step in range(5):
                message = outgoing_message(FIFO, f"m{number}-{step}", {"customer": f"c{number}"})
                await stores.queue.send(FIFO, [message])

        in_threads(send)
        seen: dict[str | None, list[str]] = {}
        while deliveries := await stores.queue.receive(FIFO, 10, LEASE):
            for delivery in deliveries:
                seen.setdefault(delivery.group, []).append(delivery.receipt)
                assert await stores.queue.acknowledge(delivery)
        assert sorted(seen.values()) == [[f"m{number}-{step}" for step in range(5)] for number in range(THREADS)]


@pytest.fixture
def expiring(services: Services, clients: Clients) -> Services:
    """A stage whose table expires items. A table of its own, because the emulator forgets it for a global one."""
    clients.dynamodb.update_time_to_live(
        TableName=services.deployment.table_name,
        TimeToLiveSpecification={"Enabled": True, "AttributeName": "ttl"},
    )
    return services


class TestExpiry:
    async def test_what_has_expired_goes_and_nothing_else(self, expiring: Services, stores: Stores) -> None:
        notice = Notice(stream_name="progress", group_id="g", item_id=None, type="step", data={"n": 1})
        await stores.stream.send(notice)  # on a clock that stands in the past: it has expired already
        await stores.state.set("s", "k", 1)
        await connections_of(expiring).register("c1")
        assert len(self._keys(expiring)) == 4
        # The emulator looks once a minute; AWS takes up to some days.
        eventually(lambda: len(self._keys(expiring)) < 4, "the event to go", within_s=100)
        assert sorted(key[:2] for key in self._keys(expiring)) == ["S#", "W", "W#"]
        assert await stores.state.get("s", "k") == 1

    def _keys(self, services: Services) -> list[str]:
        found = services.clients.dynamodb.scan(TableName=services.deployment.table_name)
        return [item["pk"]["S"] for item in found["Items"]]
