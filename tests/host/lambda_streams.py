"""Stand-ins for what a change feed and a WebSocket API meet on AWS, where moto has none or not the real behaviour."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from iii_runtime import Worker
from iii_runtime.core.call import Call
from iii_runtime.core.change import StreamChange
from iii_runtime.core.config import Config
from iii_runtime.core.errors import StoreError
from iii_runtime.core.payload import Json
from iii_runtime.core.stream_protocol import Subscription
from iii_runtime.engine.app import App
from iii_runtime.engine.runtime import Runtime
from iii_runtime.plan.manifest import describe_app, read_manifest
from iii_runtime.ports.parallel import Job
from iii_runtime.ports.stream_connections import (
    ConnectionGoneError,
    Member,
    PostError,
    TooManySubscriptionsError,
)
from iii_runtime.testing.clock import SequenceIds, SkipClock
from iii_runtime.testing.stores import memory_stores

T = TypeVar("T")

LARGEST_MESSAGE = 128 * 1024


class Gateway:
    """The management API of a WebSocket API.

    As API Gateway does, and unlike moto: a connection that never was or has ended is gone; a frame above 128 KiB is
    refused; a connection whose buffer is full, or a service in trouble, refuses for now.

    Attributes:
        received: The frames of every connection that ever was, in order.
        connected: Who is connected.
        refusals: What a connection's next posts are answered with; they are taken again once these are used up.
        close_refusals: The same for requests to close.
        on_post: Called before each post with the connection's id.
        posts: How many posts were asked for.
    """

    def __init__(self) -> None:
        self.received: dict[str, list[str]] = {}
        self.connected: set[str] = set()
        self.refusals: dict[str, deque[Exception]] = {}
        self.close_refusals: dict[str, deque[Exception]] = {}
        self.on_post: Callable[[str], Awaitable[None]] = _nothing
        self.posts = 0

    def connect(self, *connection_ids: str) -> None:
        for connection_id in connection_ids:
            self.received.setdefault(connection_id, [])
            self.connected.add(connection_id)

    def hang_up(self, connection_id: str) -> None:
        self.connected.discard(connection_id)

    def refuse(self, connection_id: str, times: int, *, is_transient: bool = True) -> None:
        refusals = [PostError("not now" if is_transient else "no", is_transient=is_transient) for _ in range(times)]
        self.refusals[connection_id] = deque(refusals)

    def frames(self, connection_id: str) -> list[dict[str, Any]]:
        return [json.loads(frame) for frame in self.received[connection_id]]

    def events(self, connection_id: str) -> list[Any]:
        """Return the data of every frame in order; of an error its code."""
        return [
            frame["code"] if frame["type"] == "error" else frame["event"].get("data", frame["event"].get("event"))
            for frame in self.frames(connection_id)
        ]

    async def post(self, connection_id: str, frame: str) -> None:
        self.posts += 1
        await self.on_post(connection_id)
        if connection_id not in self.connected:
            raise ConnectionGoneError("gone")
        if len(frame.encode()) > LARGEST_MESSAGE:
            raise PostError("too large", is_transient=False)
        if self.refusals.get(connection_id):
            raise self.refusals[connection_id].popleft()
        self.received[connection_id].append(frame)

    async def close(self, connection_id: str) -> None:
        if self.close_refusals.get(connection_id):
            raise self.close_refusals[connection_id].popleft()
        self.hang_up(connection_id)


class Connections:
    """Connections and subscriptions in a dict.

    Attributes:
        failures: What the next calls of a method raise.
        asked: The groups whose members were asked for.
    """

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Member]] = {}
        self.failures: dict[str, deque[StoreError]] = {}
        self.asked: list[tuple[str, str]] = []

    def fail(self, method: str, times: int = 1) -> None:
        self.failures[method] = deque(StoreError(f"no {method}") for _ in range(times))

    async def register(self, connection_id: str) -> None:
        self._check("register")
        self.rows[connection_id] = {}

    async def forget(self, connection_id: str) -> None:
        self._check("forget")
        self.rows.pop(connection_id, None)

    async def join(self, connection_id: str, subscription: Subscription, *, most: int) -> None:
        self._check("join")
        if connection_id not in self.rows:
            raise ConnectionGoneError("gone")
        others = self.rows[connection_id].keys() - {subscription.subscription_id}
        if len(others) >= most:
            raise TooManySubscriptionsError(f"at most {most}")
        member = Member(connection_id=connection_id, subscription=subscription)
        self.rows[connection_id][subscription.subscription_id] = member

    async def leave(self, connection_id: str, subscription_id: str) -> None:
        self._check("leave")
        self.rows.get(connection_id, {}).pop(subscription_id, None)

    async def members(self, stream_name: str, group_id: str) -> list[Member]:
        self._check("members")
        self.asked.append((stream_name, group_id))
        return [
            member
            for of_connection in self.rows.values()
            for member in of_connection.values()
            if (member.subscription.stream_name, member.subscription.group_id) == (stream_name, group_id)
        ]

    async def mark_lost(self, members: Sequence[Member]) -> None:
        self._check("mark_lost")
        for member in members:
            of_connection = self.rows.get(member.connection_id, {})
            if member.subscription.subscription_id in of_connection:
                of_connection[member.subscription.subscription_id] = Member(
                    connection_id=member.connection_id, subscription=member.subscription, is_lost=True
                )

    async def may_have_any(self) -> bool:
        self._check("may_have_any")
        return bool(self.rows)

    def _check(self, method: str) -> None:
        if self.failures.get(method):
            raise self.failures[method].popleft()


class Topic:
    """A progress topic.

    Attributes:
        published: What was published, in order.
        refused: What cannot be published: data.
    """

    def __init__(self) -> None:
        self.published: list[Json] = []
        self.refused: list[Json] = []

    async def publish(self, changes: Sequence[StreamChange]) -> frozenset[int]:
        failed = {place for place, change in enumerate(changes) if change.data in self.refused}
        self.published += [change.data for place, change in enumerate(changes) if place not in failed]
        return frozenset(failed)


class Functions:
    """Functions with hosts of their own.

    Attributes:
        calls: What was called, in order.
        outcomes: What a function's next calls raise; None lets one succeed.
        on_call: Called with each call.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.outcomes: dict[str, deque[Exception | None]] = {}
        self.on_call: Callable[[Call], Awaitable[None]] = _nothing

    def payloads(self, function_id: str) -> list[Any]:
        return [call.payload for call in self.calls if call.function_id == function_id]

    async def invoke(self, call: Call, timeout: timedelta) -> Json:
        await self.on_call(call)
        outcome = self.outcomes[call.function_id].popleft() if self.outcomes.get(call.function_id) else None
        if outcome is not None:
            raise outcome
        self.calls.append(call)
        return None

    async def start(self, call: Call) -> None:
        raise AssertionError(f"{call.function_id} was started, nobody waits for it")


class InTurn:
    """Runs jobs one after another, so that a test knows the order of everything."""

    async def run(self, jobs: Sequence[Job[T]]) -> list[T]:
        return [await job() for job in jobs]


class Crash(BaseException):
    """The host dies."""


def dies_at(step: int) -> Callable[[object], Awaitable[None]]:
    """Return what counts its calls from 1, and raises `Crash` in one of them; with 0 in none."""
    left = [step]

    async def count(_: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Crash

    return count


def subscription(name: str = "s1", *, group: str = "g1", item: str | None = None) -> Subscription:
    return Subscription(subscription_id=name, stream_name="orders", group_id=group, item_id=item)


def deployed(worker: Worker, functions: Functions, clock: SkipClock, **config: Any) -> Runtime:
    """Return the engine of a host that runs no function itself."""
    whole = Config(**config)
    app = App(whole, [], deployed=read_manifest(describe_app(whole, [worker], ["app"])).catalog)
    stores = replace(memory_stores(clock, SequenceIds()), remote=functions)
    return Runtime(app, stores, NoExecutor())


class NoExecutor:
    """Runs nothing: the functions have hosts of their own."""

    async def run(self, body: Callable[[], Any], *, is_async: bool, timeout: timedelta) -> Any:
        raise AssertionError("a function ran in this process")


def lambda_event(records: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the event in which Lambda passes on records that `GetRecords` returned."""
    event = {"Records": [dict(record) for record in records]}
    rendered: dict[str, Any] = json.loads(json.dumps(event, default=_rendered))
    return rendered


def _rendered(value: object) -> object:
    if isinstance(value, datetime):
        return value.timestamp()
    raise TypeError(f"a record holds {value!r}")


async def _nothing(_: object) -> None:
    return None
