"""Connections, subscriptions and tickets as items of the table."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from iii_runtime.adapters.aws.attributes import Item, from_attributes
from iii_runtime.adapters.aws.connections import CONNECTION_LIFE, DynamoConnections
from iii_runtime.adapters.aws.table import Table
from iii_runtime.adapters.aws.tickets import DynamoTickets
from iii_runtime.core.errors import StoreError
from iii_runtime.core.stream_protocol import MAX_ID_CHARACTERS, Subscription
from iii_runtime.ports.stream_connections import ConnectionGoneError, Member, TooManySubscriptionsError
from tests.contract.aws_services import HastyClock, Services, running_services
from tests.host.lambda_streams import subscription

CONNECTION = "L0SM9cOFvHcCIhw="


class Around:
    """The adapters over one table."""

    def __init__(self, services: Services) -> None:
        self.services, self.clock = services, HastyClock()
        self.ids = Uuids()
        self.table = Table(services.clients, services.deployment.table_name, self.clock)
        self.connections = DynamoConnections(services.clients, self.table, self.clock, self.ids)
        self.tickets = DynamoTickets(self.table, self.clock)

    async def join(self, wanted: Subscription, connection_id: str = CONNECTION, *, most: int = 1000) -> None:
        await self.connections.join(connection_id, wanted, most=most)

    async def group(self, group: str = "g1", stream: str = "orders") -> list[Member]:
        return await self.connections.members(stream, group)

    def items(self) -> list[Item]:
        table = self.services.deployment.table_name
        found = self.services.clients.dynamodb.scan(TableName=table)["Items"]
        return [from_attributes(item) for item in found]

    def rows(self) -> list[tuple[str, str]]:
        return sorted((str(item["pk"]), str(item["sk"])) for item in self.items() if item["pk"] != "W")


class Uuids:
    """Identities, each another one."""

    def __init__(self) -> None:
        self.count = 0

    def new_id(self) -> str:
        self.count += 1
        return f"00000000-0000-4000-8000-{self.count:012}"


@pytest.fixture
def here() -> Iterator[Around]:
    with running_services() as services:
        yield Around(services)


async def test_a_subscription_is_found_by_its_group_as_soon_as_it_was_joined(here: Around) -> None:
    await here.connections.register(CONNECTION)
    await here.join(subscription("s1"))
    await here.join(subscription("s2", item="i1"))
    await here.join(subscription("s3", group="g2"))
    assert await here.group("g2") == [Member(connection_id=CONNECTION, subscription=subscription("s3", group="g2"))]
    found = {member.subscription.subscription_id: member.subscription.item_id for member in await here.group()}
    assert found == {"s1": None, "s2": "i1"}


async def test_joining_again_under_the_same_id_moves_the_subscription(here: Around) -> None:
    await here.connections.register(CONNECTION)
    await here.join(subscription("s1"))
    await here.join(subscription("s1", group="g2", item="i7"))
    assert await here.group() == []
    assert [member.subscription for member in await here.group("g2")] == [subscription("s1", group="g2", item="i7")]
    await here.join(subscription("s1", group="g2"))
    assert [member.subscription.item_id for member in await here.group("g2")] == [None]
    assert len(here.rows()) == 3


async def test_a_connection_has_a_limit_of_subscriptions_and_leaving_makes_room(here: Around) -> None:
    await here.connections.register(CONNECTION)
    for name in ("s1", "s2"):
        await here.join(subscription(name), most=2)
    with pytest.raises(TooManySubscriptionsError, match="at most 2"):
        await here.join(subscription("s3"), most=2)
    await here.join(subscription("s2", group="g2"), most=2)
    await here.connections.leave(CONNECTION, "s1")
    await here.connections.leave(CONNECTION, "s1")
    await here.join(subscription("s3"), most=2)
    assert [member.subscription.subscription_id for member in await here.group()] == ["s3"]


async def test_a_connection_that_is_not_registered_cannot_join(here: Around) -> None:
    with pytest.raises(ConnectionGoneError):
        await here.join(subscription())
    await here.connections.register(CONNECTION)
    await here.join(subscription())
    await here.connections.forget(CONNECTION)
    for name in ("s1", "s2"):
        with pytest.raises(ConnectionGoneError):
            await here.join(subscription(name))
    assert here.rows() == []


async def test_forgetting_removes_everything_of_one_connection_and_nothing_of_others(
    here: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iii_runtime.adapters.aws.connections.MOST_PARTS", 4)
    for connection_id in (CONNECTION, "other"):
        await here.connections.register(connection_id)
        await here.join(subscription(), connection_id)
    for number in range(4):
        await here.join(subscription(f"n{number}", group=f"g{number}"))
    await here.connections.forget(CONNECTION)
    await here.connections.forget(CONNECTION)
    await here.connections.leave(CONNECTION, "s1")
    assert [member.connection_id for member in await here.group()] == ["other"]
    assert len(here.rows()) == 3


async def test_what_a_host_left_when_it_died_while_forgetting_is_removed_by_the_next(here: Around) -> None:
    await here.connections.register(CONNECTION)
    for number in range(3):
        await here.join(subscription(f"s{number}"))
    await here.table.delete(f"W#{CONNECTION}")  # the first thing that is done; then the host dies
    for name in ("s0", "s9"):
        with pytest.raises(ConnectionGoneError):
            await here.join(subscription(name, group="g2"))
    await here.connections.forget(CONNECTION)
    assert here.rows() == []


async def test_ids_and_names_may_be_anything(here: Around) -> None:
    await here.connections.register(CONNECTION)
    names = ["a#b", "a%23b", "#", "%", "ä", "a/b c", "\U0001f600" * MAX_ID_CHARACTERS, "#" * MAX_ID_CHARACTERS, "\x01"]
    wanted = [Subscription(subscription_id=name, stream_name=name, group_id=name, item_id=name) for name in names]
    for each in wanted:
        await here.join(each)
    for each in wanted:
        assert [found.subscription for found in await here.group(each.group_id, each.stream_name)] == [each]
    for name in names:
        await here.connections.leave(CONNECTION, name)
    assert here.rows() == [(f"W#{CONNECTION}", "@")]


async def test_groups_whose_names_run_into_each_other_stay_apart(here: Around) -> None:
    await here.connections.register(CONNECTION)
    await here.join(Subscription(subscription_id="s", stream_name="a#b", group_id="c"))
    assert await here.group("b#c", "a") == []
    assert len(await here.group("c", "a#b")) == 1


async def test_nobody_may_be_connected_until_the_first_one_is_and_until_the_last_one_must_have_ended(
    here: Around,
) -> None:
    assert not await here.connections.may_have_any()
    await here.connections.register("a")
    assert await here.connections.may_have_any()
    here.clock.advance(2 * CONNECTION_LIFE - timedelta(seconds=2))
    assert await here.connections.may_have_any()
    await here.connections.register("b")
    here.clock.advance(CONNECTION_LIFE)
    assert await here.connections.may_have_any()
    here.clock.advance(CONNECTION_LIFE + timedelta(seconds=2))
    assert not await here.connections.may_have_any()


async def test_a_connection_is_covered_for_its_whole_life_whenever_it_was_registered(here: Around) -> None:
    step = CONNECTION_LIFE / 7
    ends = []
    for number in range(30):
        await here.connections.register(f"c{number}")
        ends.append(here.clock.now() + CONNECTION_LIFE)
        here.clock.advance(step - timedelta(seconds=1))
        assert await here.connections.may_have_any()
    here.clock.advance_to(max(ends) - timedelta(seconds=1))
    assert await here.connections.may_have_any()


async def test_what_nobody_removed_counts_no_more_once_it_has_expired(here: Around) -> None:
    await here.connections.register(CONNECTION)
    await here.join(subscription())
    here.clock.advance(CONNECTION_LIFE)
    assert await here.group() == []
    now = here.clock.now_ms() // 1000
    assert all(isinstance(item["ttl"], int) and item["ttl"] <= now for item in here.items() if item["pk"] != "W")


async def test_a_lost_frame_is_remembered_until_the_subscription_is_joined_anew(here: Around) -> None:
    await here.connections.register(CONNECTION)
    for name in ("s1", "s2"):
        await here.join(subscription(name))
    members = await here.group()
    await here.connections.leave(CONNECTION, "s2")
    await here.connections.mark_lost(members)
    assert [(member.subscription.subscription_id, member.is_lost) for member in await here.group()] == [("s1", True)]
    await here.join(subscription("s1"))
    assert [member.is_lost for member in await here.group()] == [False]


async def test_two_frames_at_the_same_time_leave_no_row_without_its_counterpart(
    here: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both read that there is no such subscription; the slower one finds out, and moves it."""
    await here.connections.register(CONNECTION)
    original = here.table.get
    barrier = asyncio.Barrier(2)
    readers = 0

    async def get(pk: str, sk: str = "@") -> Item | None:
        nonlocal readers
        found = await original(pk, sk)
        readers += 1
        if readers <= 2:
            await barrier.wait()
        return found

    monkeypatch.setattr(here.table, "get", get)
    await asyncio.gather(here.join(subscription("s1")), here.join(subscription("s1", group="g2")))
    assert len([*await here.group(), *await here.group("g2")]) == 1
    await here.connections.leave(CONNECTION, "s1")
    assert here.rows() == [(f"W#{CONNECTION}", "@")]
    assert next(item["n"] for item in here.items() if item["sk"] == "@" and item["pk"] != "W") == 0


async def test_frames_that_never_win_are_refused_with_an_error(here: Around, monkeypatch: pytest.MonkeyPatch) -> None:
    await here.connections.register(CONNECTION)
    await here.join(subscription("s1"))
    original = here.table.get

    async def get(pk: str, sk: str = "@") -> Item | None:
        found = await original(pk, sk)
        return None if found is None else {**found, "g": "another"}

    monkeypatch.setattr(here.table, "get", get)
    with pytest.raises(StoreError, match="other frames") as joining:
        await here.join(subscription("s1"))
    with pytest.raises(StoreError, match="other frames"):
        await here.connections.leave(CONNECTION, "s1")
    assert joining.value.code == "store_conflict"


async def test_a_join_whose_reply_was_lost_counts_once(here: Around, monkeypatch: pytest.MonkeyPatch) -> None:
    """DynamoDB knows the token of the repetition; moto does not, so this test answers for it."""
    client: Any = here.services.clients.dynamodb
    original = client.transact_write_items
    tokens: list[str] = []

    def transact(**request: Any) -> Any:
        token = request["ClientRequestToken"]
        tokens.append(token)
        if tokens.count(token) == 1:
            original(**request)
            raise ClientError(
                {"Error": {"Code": "InternalServerError"}, "ResponseMetadata": {"HTTPStatusCode": 500}},  # type: ignore[typeddict-item]
                "TransactWriteItems",
            )
        return {}

    monkeypatch.setattr(client, "transact_write_items", transact)
    await here.connections.register(CONNECTION)
    await here.join(subscription("s1"), most=1)
    assert len(tokens) == 2
    assert len(await here.group()) == 1


async def test_a_damaged_subscription_is_logged_and_costs_the_others_nothing(
    here: Around, caplog: pytest.LogCaptureFixture
) -> None:
    await here.connections.register(CONNECTION)
    await here.join(subscription())
    await here.table.put({"pk": "J#orders#g1", "sk": "x", "ttl": here.clock.now_ms()})
    assert len(await here.group()) == 1
    assert "no text as its 'c'" in caplog.text


class Crash(BaseException):
    """The host dies."""


@pytest.mark.parametrize("moment", ["before-call", "after-call"])
@pytest.mark.parametrize("dies_at", range(1, 14))
async def test_wherever_a_host_dies_the_next_one_can_go_on_and_nothing_is_left_in_the_end(
    here: Around, moment: str, dies_at: int
) -> None:
    left = [dies_at]

    def die(**_: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Crash

    async def live() -> None:
        await here.connections.register(CONNECTION)
        await here.join(subscription("s1"), most=2)
        await here.join(subscription("s1", group="g2"), most=2)
        await here.join(subscription("s2", group="g2"), most=2)
        await here.connections.leave(CONNECTION, "s2")
        await here.connections.forget(CONNECTION)

    events = here.services.clients.dynamodb.meta.events
    events.register(moment, die)
    with contextlib.suppress(Crash):
        await live()
    events.unregister(moment, die)
    _assert_paired(here)
    await live()
    assert here.rows() == []


def _assert_paired(here: Around) -> None:
    """Each subscription is there for its connection and for its group, and the connection counts it."""
    items = here.items()
    own = {(item["id"], item["g"]) for item in items if "id" in item and str(item["pk"]).startswith("W#")}
    grouped = {(item["id"], item["g"]) for item in items if "id" in item and str(item["pk"]).startswith("J#")}
    assert own == grouped
    counted = [item["n"] for item in items if "n" in item]
    assert counted in ([], [len(own)])


async def test_what_each_operation_asks_of_the_table(here: Around) -> None:
    calls = here.services.calls

    async def asked(work: Any) -> list[str]:
        calls.clear()
        await work
        return [call.removeprefix("dynamodb:") for call in calls]

    assert await asked(here.connections.register(CONNECTION)) == ["UpdateItem", "PutItem"]
    assert await asked(here.join(subscription())) == ["GetItem", "TransactWriteItems"]
    assert await asked(here.connections.may_have_any()) == ["GetItem"]
    assert await asked(here.group()) == ["Query"]
    assert await asked(here.connections.leave(CONNECTION, "s1")) == ["GetItem", "TransactWriteItems"]
    assert await asked(here.connections.forget(CONNECTION)) == ["DeleteItem", "Query"]


async def test_a_ticket_admits_once(here: Around) -> None:
    await here.tickets.issue("t1", timedelta(seconds=60))
    assert [await here.tickets.redeem("t1") for _ in range(2)] == [True, False]
    assert here.items() == []


async def test_a_ticket_is_good_for_exactly_its_time(here: Around) -> None:
    for ticket in ("t1", "t2"):
        await here.tickets.issue(ticket, timedelta(seconds=60))
    here.clock.advance(timedelta(seconds=59, milliseconds=999))
    assert await here.tickets.redeem("t1")
    here.clock.advance(timedelta(milliseconds=1))
    assert not await here.tickets.redeem("t2")


@pytest.mark.parametrize("ticket", ["never issued", "x" * 10_000, "\ud800", "\0"])
async def test_what_is_no_ticket_admits_nobody_whatever_it_is(here: Around, ticket: str) -> None:
    assert not await here.tickets.redeem(ticket)


async def test_the_table_holds_no_ticket(here: Around) -> None:
    await here.tickets.issue("secret-ticket", timedelta(seconds=60))
    assert "secret-ticket" not in repr(here.items())
