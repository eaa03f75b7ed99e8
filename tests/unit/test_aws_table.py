"""The table: what its operations return, refuse and ask."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from botocore.stub import Stubber

from iii_runtime.adapters.aws.attributes import Item, from_attribute
from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.aws.failures import ServiceError
from iii_runtime.adapters.aws.table import ConditionFailedError, Expression, Table
from iii_runtime.core.errors import StoreError
from iii_runtime.plan.names import NAMES_INDEX
from tests.contract.aws_services import HastyClock, Services, fake_clients, running_services

NEW = Expression(text="attribute_not_exists(pk)")
ITEM: Item = {"pk": "p", "sk": "@", "n": 3, "body": b"\0\xff", "list": [None, True, "x", {"a": -1}]}


@pytest.fixture
def services() -> Iterator[Services]:
    with running_services() as services:
        yield services


@pytest.fixture
def table(services: Services) -> Table:
    return Table(services.clients, services.deployment.table_name, HastyClock())


async def test_an_item_comes_back_as_it_was_put(table: Table) -> None:
    assert await table.get("p") is None
    assert await table.put(ITEM) is None
    assert await table.get("p") == ITEM
    assert await table.put({"pk": "p", "sk": "@"}) == ITEM
    assert await table.delete("p") == {"pk": "p", "sk": "@"}
    assert await table.delete("p") is None


async def test_a_condition_that_does_not_hold_shows_the_item(table: Table) -> None:
    assert await table.put(ITEM, condition=NEW) is None
    with pytest.raises(ConditionFailedError) as caught:
        await table.put(ITEM | {"n": 4}, condition=NEW)
    assert caught.value.item == ITEM
    change = Expression(text="SET n = :n", values={":n": 4})
    smaller = Expression(text="#n < :limit", names={"#n": "n"}, values={":limit": 3})
    with pytest.raises(ConditionFailedError) as caught:
        await table.update("p", "@", change, condition=smaller)
    assert caught.value.item == ITEM
    with pytest.raises(ConditionFailedError) as caught:
        await table.delete("p", condition=NEW)
    assert caught.value.item == ITEM
    with pytest.raises(ConditionFailedError) as caught:
        await table.update("none", "@", change, condition=smaller)
    assert caught.value.item is None


async def test_an_update_returns_the_item_as_it_was_or_has_become(table: Table) -> None:
    change = Expression(text="ADD #n :one", names={"#n": "n"}, values={":one": 1})
    assert await table.update("p", "@", change) is None
    assert await table.update("p", "@", change) == {"pk": "p", "sk": "@", "n": 1}
    assert await table.update("p", "@", change, returns="ALL_NEW") == {"pk": "p", "sk": "@", "n": 3}


async def test_a_query_yields_a_partition_in_order(table: Table) -> None:
    for number in (2, 0, 1):
        await table.put({"pk": "p", "sk": f"s{number}"})
    await table.put({"pk": "q", "sk": "s9"})
    everything = Expression(text="pk = :pk", values={":pk": "p"})
    assert [item["sk"] async for item in table.query(everything)] == ["s0", "s1", "s2"]
    assert [item["sk"] async for item in table.query(everything, descending=True, limit=2)] == ["s2", "s1"]
    behind = Expression(text="pk = :pk AND sk > :sk", values={":pk": "p", ":sk": "s0"})
    assert [item["sk"] async for item in table.query(behind)] == ["s1", "s2"]


async def test_a_query_reads_pages_as_they_are_needed_and_no_more_than_its_limit(
    table: Table, services: Services
) -> None:
    for number in range(8):
        await table.put({"pk": "p", "sk": f"s{number}", "body": "x" * 300_000})
    everything = Expression(text="pk = :pk", values={":pk": "p"})
    services.calls.clear()
    pages = table.query(everything)
    assert (await anext(pages))["sk"] == "s0"
    assert services.calls == ["dynamodb:Query"]
    assert len([item async for item in pages]) == 7
    assert len(services.calls) == 3
    services.calls.clear()
    assert len([item async for item in table.query(everything, limit=5)]) == 5


async def test_reads_are_consistent_but_for_those_of_an_index() -> None:
    clients = fake_clients()
    table = Table(clients, "t", HastyClock())
    condition = Expression(text="a = :a", values={":a": "x"})
    expected = {"TableName": "t", "KeyConditionExpression": "a = :a", "ExpressionAttributeValues": {":a": {"S": "x"}}}
    with Stubber(clients.dynamodb) as dynamodb:
        key = {"pk": {"S": "p"}, "sk": {"S": "@"}}
        dynamodb.add_response("get_item", {}, {"TableName": "t", "Key": key, "ConsistentRead": True})
        dynamodb.add_response("query", {"Items": []}, expected | {"ScanIndexForward": True, "ConsistentRead": True})
        dynamodb.add_response("query", {"Items": []}, expected | {"ScanIndexForward": True, "IndexName": NAMES_INDEX})
        assert await table.get("p") is None
        assert [item async for item in table.query(condition)] == []
        assert [item async for item in table.query(condition, index=NAMES_INDEX)] == []
        dynamodb.assert_no_pending_responses()


async def test_a_refused_request_is_a_store_error_that_names_the_table() -> None:
    clients = fake_clients()
    with Stubber(clients.dynamodb) as dynamodb:
        dynamodb.add_client_error("get_item", "AccessDeniedException", "not you")
        with pytest.raises(StoreError, match="table orders-dev: GetItem: AccessDeniedException: not you") as caught:
            await Table(clients, "orders-dev", HastyClock()).get("p")
    assert caught.value.code == "store_denied"
    assert isinstance(caught.value, ServiceError)
    assert caught.value.failure.aws_code == "AccessDeniedException"


@pytest.mark.parametrize("attribute", [{"SS": ["a"]}, {"N": "1.5"}, {"S": 1}, {}, None, "x"])
def test_an_attribute_that_the_runtime_never_writes_is_refused(attribute: object) -> None:
    with pytest.raises(ValueError, match=r"does not write|invalid literal"):
        from_attribute(attribute)


class TestClients:
    """The clients that all adapters share."""

    def test_each_is_made_once_and_gives_up_in_time(self) -> None:
        clients = fake_clients("eu-central-1")
        for name in ("dynamodb", "dynamodbstreams", "sqs", "sns", "s3", "events"):
            waited = 10 if name == "s3" else 3
            client = getattr(clients, name)
            assert client is getattr(clients, name)
            config: Any = client.meta.config
            assert (config.region_name, config.connect_timeout, config.read_timeout) == ("eu-central-1", 2, waited)
            assert config.retries == {"mode": "standard", "total_max_attempts": 1}

    def test_an_invoke_is_waited_for_and_never_sent_twice(self) -> None:
        config: Any = fake_clients().lambda_.meta.config
        assert config.read_timeout > 900
        assert config.retries == {"mode": "standard", "total_max_attempts": 1}

    @pytest.mark.parametrize(("seconds", "waited"), [(30, 60), (40, 60), (41, 120), (870, 900), (900, 910)])
    def test_an_invoke_is_waited_for_a_little_longer_than_its_function_may_take(
        self, seconds: int, waited: int
    ) -> None:
        clients = fake_clients()
        client = clients.invoking(timedelta(seconds=seconds))
        config: Any = client.meta.config
        assert config.read_timeout == waited
        assert config.retries == {"mode": "standard", "total_max_attempts": 1}
        assert clients.invoking(timedelta(seconds=seconds)) is client

    def test_a_start_is_waited_for_a_minute_and_never_sent_twice(self) -> None:
        config: Any = fake_clients().starting().meta.config
        assert config.read_timeout == 60
        assert config.retries == {"mode": "standard", "total_max_attempts": 1}

    def test_a_websocket_api_has_a_client_of_its_own(self) -> None:
        clients = fake_clients()
        one = clients.websocket("https://a.example/prod")
        assert clients.websocket("https://a.example/prod") is one
        assert clients.websocket("https://b.example/prod") is not one
        assert one.meta.endpoint_url == "https://a.example/prod"

    def test_an_emulator_answers_for_all_services(self) -> None:
        clients = Clients("us-east-1", endpoint_url="http://localhost:4566")
        assert clients.sqs.meta.endpoint_url == clients.s3.meta.endpoint_url == "http://localhost:4566"
        config: Any = clients.s3.meta.config
        assert config.s3 == {"addressing_style": "path"}
