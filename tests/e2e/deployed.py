"""A stage on the emulator as its users see it: HTTP, WebSocket, the command line, and AWS's own API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import aiohttp

from iii_runtime.engine.http_entry import HttpCall
from iii_runtime.hosts.events import parse_event
from tests.e2e.emulator import ROOT, Emulator
from tests.e2e.project import Project
from tests.patience import PATIENCE_S, eventually

STREAM = "order-progress"
CATALOGUE = {"tea": {"name": "Tea, 100 g", "price": 450}, "mug": {"name": "Mug", "price": 1200}}
_REQUEST_S = 60.0
_UUID_LENGTH = 36


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request was answered."""

    status: int
    body: Any


@dataclass(frozen=True)
class Deployed:
    """A deployed stage.

    Attributes:
        emulator: Where it is.
        project: What it was deployed from.
    """

    emulator: Emulator
    project: Project

    @property
    def prefix(self) -> str:
        """Beginning of the name of everything in the stage."""
        return f"orders-{self.project.stage}"

    @property
    def http_url(self) -> str:
        """Where the routes are, without a slash at the end."""
        return self.emulator.http_url(_api_id(self.project.outputs()["HttpUrl"]))

    @property
    def websocket_url(self) -> str:
        """Where a client of streams connects."""
        url = self.project.outputs()["WebSocketUrl"]
        return self.emulator.websocket_url(_api_id(url), urlsplit(url).path.strip("/"))

    def request(
        self, method: str, path: str, body: object = None, *, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a request with a JSON body, or with the bytes that are given; return whatever is answered."""
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        sent = Request(
            self.http_url + path, data, {"Content-Type": "application/json", **(headers or {})}, method=method
        )
        try:
            with urlopen(sent, timeout=_REQUEST_S) as response:
                return Answer(response.status, json.load(response))
        except HTTPError as error:
            with error:
                text = error.read().decode()
            try:
                return Answer(error.code, json.loads(text))
            except ValueError:
                return Answer(error.code, text)

    def post_order(self, order: Mapping[str, object]) -> None:
        """Post an order that is taken."""
        answer = self.request("POST", "/orders", order)
        assert answer.status == 202, answer

    def orders(self) -> dict[str, dict[str, Any]]:
        """Return all orders as they are stored, by their ids."""
        return {order["order_id"]: order for order in self.project.ask("state", "list", "orders")}

    def order(self, order_id: str) -> dict[str, Any] | None:
        """Return an order as it is stored; None if there is none."""
        answer = self.request("GET", f"/orders/{order_id}")
        assert answer.status in {200, 404}, answer
        return answer.body if answer.status == 200 else None

    def order_in(self, order_id: str, status: str, *, within_s: float = PATIENCE_S) -> dict[str, Any]:
        """Wait until an order has a status."""

        def look() -> dict[str, Any] | None:
            order = self.order(order_id)
            return order if order is not None and order["status"] == status else None

        return eventually(look, f"order {order_id} to be {status}", within_s=within_s)

    def fill_catalogue(self, products: Mapping[str, object]) -> None:
        """Make products known."""
        for sku, product in products.items():
            self.project.cli("state", "set", "catalogue", sku, json.dumps(product))

    def entries(self, scope: str, key: str) -> list[Any]:
        """Return what functions of the tests have noted."""
        value = self.project.ask("state", "get", scope, key)
        return [entry["note"] for entry in value["entries"]] if value else []

    def queue_url(self, queue: str) -> str:
        """Return the URL of a queue."""
        name = json.loads(self.project.outputs()["Queues"])[queue]
        url: str = self.emulator.client("sqs").get_queue_url(QueueName=name)["QueueUrl"]
        return url

    def leftovers(self) -> list[str]:
        """Return the names of everything in the account that has the stage's name."""
        client = self.emulator.client
        names = [
            *(found["TableName"] for found in _all(client("dynamodb"), "list_tables", "TableNames", key="TableName")),
            *(found["Url"].rpartition("/")[2] for found in _all(client("sqs"), "list_queues", "QueueUrls", key="Url")),
            *(found["FunctionName"] for found in _all(client("lambda"), "list_functions", "Functions")),
            *(found["TopicArn"].rpartition(":")[2] for found in _all(client("sns"), "list_topics", "Topics")),
            *(found["Name"] for found in _all(client("events"), "list_rules", "Rules")),
            *(found["Name"] for found in _all(client("s3"), "list_buckets", "Buckets")),
            *(found["Name"] for found in _all(client("apigatewayv2"), "get_apis", "Items")),
            *(found["RoleName"] for found in _all(client("iam"), "list_roles", "Roles")),
            *(found["logGroupName"] for found in _all(client("logs"), "describe_log_groups", "logGroups")),
            *(found["AlarmName"] for found in _all(client("cloudwatch"), "describe_alarms", "MetricAlarms")),
            *(found["DashboardName"] for found in _all(client("cloudwatch"), "list_dashboards", "DashboardEntries")),
            *(found["UUID"] for found in _all(client("lambda"), "list_event_source_mappings", "EventSourceMappings")),
        ]
        return sorted(name for name in names if self.prefix in name or len(name) == _UUID_LENGTH)

    @asynccontextmanager
    async def watching(self, *order_ids: str) -> AsyncIterator[Watch]:
        """Follow the progress of orders on a WebSocket."""
        async with aiohttp.ClientSession() as session, session.ws_connect(self.websocket_url) as socket:
            watch = Watch(socket)
            for order_id in order_ids:
                await watch.join(order_id)
            yield watch


@dataclass
class Watch:
    """What a WebSocket client has seen: the steps of each order, in the order in which they came."""

    socket: aiohttp.ClientWebSocketResponse
    steps: dict[str, list[tuple[str, str, int | None]]] = field(default_factory=dict)
    details: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    async def join(self, order_id: str) -> None:
        """Join the group of an order and wait for the answer."""
        data = {"subscriptionId": order_id, "streamName": STREAM, "groupId": order_id}
        await self.socket.send_json({"type": "join", "data": data})
        answer = await self.socket.receive_json(timeout=_REQUEST_S)
        assert answer["event"]["type"] == "sync", answer
        assert answer["groupId"] == order_id, answer

    async def until(self, order_ids: Iterable[str], *ends: tuple[str, str], within_s: float = PATIENCE_S) -> None:
        """Read on until each of the orders has come to one of these ends, each a step and its status."""
        waiting = set(order_ids)
        try:
            async with asyncio.timeout(within_s):
                while waiting:
                    frame = await self.socket.receive_json()
                    update = frame["event"]["event"]["data"]
                    step = (update["step"], update["status"], update.get("attempt"))
                    self.steps.setdefault(frame["groupId"], []).append(step)
                    self.details.setdefault(frame["groupId"], []).append(update)
                    if step[:2] in ends:
                        waiting.discard(frame["groupId"])
        except TimeoutError:
            raise AssertionError(f"{sorted(waiting)} did not end within {within_s:g} s; seen: {self.steps}") from None


def demo_requests() -> dict[str, HttpCall]:
    """Return the requests of `events/http/`, by name of the file."""
    found = {}
    for file in sorted((ROOT / "events" / "http").glob("*.json")):
        call = parse_event(json.loads(file.read_text("utf-8")))
        assert isinstance(call, HttpCall), file
        found[file.stem] = call
    return found


def _all(client: Any, operation: str, member: str, *, key: str | None = None) -> list[dict[str, Any]]:
    """Return what a list operation lists; with a key, of one that lists texts."""
    if client.can_paginate(operation):
        found = [each for page in client.get_paginator(operation).paginate() for each in page.get(member, [])]
    else:
        found = getattr(client, operation)().get(member, [])
    return [{key: each} for each in found] if key else found


def _api_id(url: str) -> str:
    host = urlsplit(url).hostname
    assert host is not None, url
    return host.partition(".")[0]
