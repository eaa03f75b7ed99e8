"""Runs workers on AWS in the test's own process: the interface of `iii_runtime.testing.Harness`, over the simulator.

Invocations run side by side, each on a thread of its own, as far as queues and groups allow. What is due begins when
the test waits for anything but a request: never during one, and never before what the test does right after it, however
slow the machine is. The clock moves in `settle` and `advance` only.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json as json_
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Self, cast

from iii_runtime.core.change import StreamChange, StreamKind
from iii_runtime.core.config import Config
from iii_runtime.core.trigger_request import TriggerRequest, parse_trigger_request
from iii_runtime.core.worker import Worker
from iii_runtime.engine.stores import Stores
from iii_runtime.testing.clock import SkipClock
from iii_runtime.testing.harness import Harness, Reply
from tests.aws.event_sources import Work
from tests.aws.invocations import Invocation
from tests.aws.lambda_service import FunctionFailedError
from tests.aws.sandboxes import cancelled, in_thread
from tests.aws.simulator import Simulator, Wrap

_SETTLE_LIMIT = timedelta(days=2)


class AwsHarness:
    """A stage on AWS for tests. An asynchronous context manager.

    Args:
        workers: The workers to deploy.
        config: Path of an `iii-config.yaml`, or a configuration; the defaults if left out.
        env: Variables for `${VAR}` in the file.
        wrap: Replaces adapters in each sandbox.

    Attributes:
        clock: The clock.
        simulator: What it runs on.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        *,
        config: Config | Path | str | None = None,
        env: Mapping[str, str] | None = None,
        wrap: Wrap | None = None,
    ) -> None:
        self.clock = SkipClock()
        self.simulator = Simulator(workers, _config(config, env), clock=self.clock, move=self._move, wrap=wrap)
        self._active: set[Work] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pushed: list[StreamChange] = []
        self._requests = 0
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._exit = AsyncExitStack()

    @property
    def pushed(self) -> list[StreamChange]:
        """What stream clients would have been sent, in order: everything that was published on the progress topic."""
        if self._loop is not None:
            self._take_progress()
        return self._pushed

    @property
    def stores(self) -> Stores:
        """The adapters, as somebody outside of the Lambdas uses them."""
        stores = self.simulator.outside_stores()
        queue: Any = _ExactQueue(stores.queue, self.simulator)
        return dataclasses.replace(stores, queue=queue)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.enter_context(self.simulator)
            self._loop = asyncio.get_running_loop()
            self.simulator.lambdas.on_event = self._wake
            pump = asyncio.create_task(self._pump())
            stack.push_async_callback(cancelled, pump)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._take_progress()
        self._loop = None
        self.simulator.restart()
        for task in list(self._tasks):
            await cancelled(task)
        await self._exit.aclose()

    async def trigger(self, request: TriggerRequest | Mapping[str, Any]) -> Any:
        """Do what `Worker.trigger` does, from outside of every function."""
        parsed = parse_trigger_request(request)
        with self._request():
            return await in_thread(lambda: self.simulator.trigger_parsed(parsed))

    async def http(
        self,
        method: str,
        target: str,
        *,
        json: object = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Answer an http request as API Gateway and the Lambda of the route do."""
        path, _, query = target.partition("?")
        sent = dict(headers or {})
        if body is None and json is not None:
            body = json_.dumps(json).encode()
            sent = {"Content-Type": "application/json", **sent}
        with self._request():
            answer = await in_thread(
                lambda: self.simulator.http.request(method.upper(), path, query, tuple(sent.items()), body or b"")
            )
        answered: dict[str, str] = {}
        for name, value in answer.headers:
            known = answered.get(name.lower())
            answered[name.lower()] = value if known is None else f"{known}, {value}"
        return Reply(status=answer.status, headers=answered, body=answer.body)

    async def idle(self) -> None:
        """Return when everything that is due was worked off. The clock does not move."""
        await asyncio.sleep(0)
        while True:
            self._begin_due()
            if not self._active:
                return
            self._ended.clear()
            await self._ended.wait()

    async def settle(self, *, limit: timedelta = _SETTLE_LIMIT) -> None:
        """Work everything off: skip to the next due message, again and again, until no queue holds one.

        Raises:
            RuntimeError: A queue still holds a message after `limit`.
        """
        await self.idle()
        end = self.clock.now() + limit
        while (due := self.simulator.next_due(with_schedules=False)) is not None:
            if due > end:
                raise RuntimeError(f"a queue still holds a message that is due at {due}, {limit} from the start")
            await self._step_to(due)

    async def advance(self, duration: timedelta) -> None:
        """Move the clock on by `duration`, stopping wherever something is due to work it off at its own time."""
        await self.idle()
        await self._step_to(self.clock.now() + duration)

    async def restart(self) -> None:
        """Kill every sandbox at this moment, and go on once AWS has noticed.

        What runs is abandoned. Nothing tells AWS of a death, so the clock moves on until what was under way has used up
        its time, and a second more: then its messages are visible again, and what it held is free.
        """
        running = [invocation.timeout for invocation in self.simulator.lambdas.running]
        held = [work.returns_after for work in self._active if work.returns_after is not None]
        self.simulator.restart()
        for work in self._active:
            work.failed()
        self._active.clear()
        self._ended.set()
        if running or held:
            self.clock.advance(max([*running, *held]) + timedelta(seconds=1))
        self._wake()

    @contextlib.contextmanager
    def _request(self) -> Iterator[None]:
        """Hold back what a request sets off until the test has its answer."""
        if self._loop is None:
            raise RuntimeError("the harness is not started; use `async with`")
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1
            self._wake()

    def _take_progress(self) -> None:
        self._pushed += [_change(payload) for payload in self.simulator.cloud.take_progress()]

    async def _step_to(self, instant: datetime) -> None:
        if instant <= self.clock.now():
            await self.idle()
        while self.clock.now() < instant:
            due = self.simulator.next_due(with_schedules=True)
            self.clock.advance_to(instant if due is None else min(due, instant))
            await self.idle()

    async def _pump(self) -> None:
        """Begin what is due, whenever something may have become due, unless a request is under way."""
        while True:
            self._changed.clear()
            if not self._requests:
                self._begin_due()
            due = self.simulator.next_due(with_schedules=True)
            waits: list[asyncio.Task[Any]] = [asyncio.create_task(self._changed.wait())]
            if due is not None and due > self.clock.now():
                waits.append(asyncio.create_task(self.clock.sleep_until(due)))
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    await cancelled(wait)

    def _begin_due(self) -> None:
        while (work := self.simulator.poll()) is not None:
            self._active.add(work)
            # Begun here: on its thread it might begin only after a restart that ought to have killed it.
            task = asyncio.create_task(self._perform(work, self.simulator.lambdas.begin(work.function)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _perform(self, work: Work, invocation: Invocation) -> None:
        outcome: Callable[[], None] = work.failed
        try:
            answer = await in_thread(lambda: self.simulator.lambdas.carry_out(invocation, work.event))
            outcome = lambda: work.done(answer)  # noqa: E731
        except FunctionFailedError:
            pass
        finally:
            if work in self._active:  # else it was abandoned
                self._active.discard(work)
                outcome()
            self._ended.set()
            self._changed.set()

    def _wake(self) -> None:
        """Let the pump look again; from any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._changed.set)

    def _move(self, instant: datetime) -> None:
        """Move the clock on; from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.clock.advance_to, instant)


def open_harness(
    workers: Sequence[Worker],
    *,
    store: Literal["memory", "embedded", "aws"],
    data: Path,
    config: Config | Path | str | None = None,
    wrap: Wrap | None = None,
) -> Harness:
    """Return the harness of a backend, not started yet. That of AWS has the interface of the others."""
    if store == "aws":
        return cast(Harness, AwsHarness(workers, config=config, wrap=wrap))
    return Harness(workers, config=config, store=store, data=data, wrap=wrap or (lambda stores: stores))


class _ExactQueue:
    """The queue port with what SQS cannot tell exactly and the simulator can."""

    def __init__(self, inner: Any, simulator: Simulator) -> None:
        self._inner = inner
        self._simulator = simulator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def queue_names(self) -> list[str]:
        """Return the queues that hold a message or a dead letter."""
        return self._simulator.used_queues()


def _change(payload: Mapping[str, Any]) -> StreamChange:
    """Return the change that a message on the progress topic tells of."""
    event = payload["event"]
    kind: StreamKind = event["type"]
    inner = event["event"] if kind == "event" else event
    return StreamChange(
        at_ms=payload["timestamp"],
        kind=kind,
        stream_name=payload["streamName"],
        group_id=payload["groupId"],
        item_id=payload["id"],
        data=inner.get("data"),
        event_type=inner["type"] if kind == "event" else None,
    )


def _config(config: Config | Path | str | None, env: Mapping[str, str] | None) -> Config:
    if config is None or isinstance(config, Config):
        return config or Config()
    from iii_runtime.adapters.config_file import load_config

    return load_config(Path(config), env or {})
