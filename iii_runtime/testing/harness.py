"""Runs workers in the test's own process: real queues, triggers and threads, a clock that stands still, no network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from iii_runtime.adapters.threads import ThreadExecutor
from iii_runtime.core.change import StreamChange
from iii_runtime.core.config import Config
from iii_runtime.core.trigger_request import TriggerRequest, parse_trigger_request
from iii_runtime.core.worker import Worker
from iii_runtime.engine.app import App
from iii_runtime.engine.http_entry import HttpCall, HttpEntry
from iii_runtime.engine.runtime import Runtime
from iii_runtime.engine.stores import Stores
from iii_runtime.hosts.embedded.background import Background
from iii_runtime.hosts.embedded.stores import Listeners, OpenData, open_data
from iii_runtime.hosts.loop_invoker import LoopInvoker
from iii_runtime.testing.clock import SequenceIds, SkipClock
from iii_runtime.testing.stores import memory_stores

Wrap: TypeAlias = Callable[[Stores], Stores]

_GRACE = timedelta(seconds=5)
_SETTLE_LIMIT = timedelta(days=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An http answer.

    Attributes:
        status: The status.
        headers: By lower-case name, repeated ones joined by `, `.
        body: The bytes.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


class Harness:
    """A host for tests. An asynchronous context manager.

    Handlers run in real threads. Time is virtual: it moves in `settle` and `advance` only, so a back-off of hours takes
    no time, and every instant a test sees is exact. Timeouts of handlers are real time.

    Args:
        workers: The workers to run.
        config: Path of an `iii-config.yaml`, or a configuration; the defaults if left out. Hosts and ports in it have
            no effect: nothing is opened.
        env: Variables for `${VAR}` and `${VAR:default}` in the file. None by default, whatever the environment of the
            process has, so that a test does not depend on where it runs.
        store: `memory`, or `embedded` for the SQLite store under `data`.
        data: Data directory of the embedded store.
        wrap: Replaces adapters, for instance by ones that count or fail. Called at each start, `restart` included.

    Attributes:
        clock: The clock.
        pushed: What stream clients would have been sent, in order.

    Raises:
        ConfigError: The file cannot be read or used; carries every problem.
        ValueError: The embedded store without `data`.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        *,
        config: Config | Path | str | None = None,
        env: Mapping[str, str] | None = None,
        store: Literal["memory", "embedded"] = "memory",
        data: Path | None = None,
        wrap: Wrap = lambda stores: stores,
    ) -> None:
        if store == "embedded" and data is None:
            raise ValueError("the embedded store needs data=<directory>")
        self.clock = SkipClock()
        self.pushed: list[StreamChange] = []
        self._workers = tuple(workers)
        self._config = config if isinstance(config, Config) else _load(config, env or {})
        self._directory = data if store == "embedded" else None
        self._wrap = wrap
        self._ids = SequenceIds()
        self._memory: Stores | None = None
        self._data: OpenData | None = None
        self._life: _Life | None = None

    @property
    def runtime(self) -> Runtime:
        """The engine of the present life."""
        return self._alive().runtime

    @property
    def stores(self) -> Stores:
        """The adapters of the present life."""
        return self.runtime.stores

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._end(_GRACE if error is None else timedelta(0))

    async def trigger(self, request: TriggerRequest | Mapping[str, Any]) -> Any:
        """Do what `Worker.trigger` does, from outside of every function."""
        return await self.runtime.trigger(parse_trigger_request(request))

    async def http(
        self,
        method: str,
        target: str,
        *,
        json: object = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Answer an http request as the server would.

        Args:
            method: The method.
            target: Path and query.
            json: A JSON body, sent with its content type.
            body: Raw bytes instead.
            headers: Request headers.
        """
        path, _, query = target.partition("?")
        sent = dict(headers or {})
        if body is None and json is not None:
            body = _dump(json)
            sent = {"Content-Type": "application/json", **sent}
        call = HttpCall(method=method.upper(), path=path, query=query, headers=tuple(sent.items()), body=body or b"")
        reply = await self._alive().entry.handle(call)
        answered: dict[str, str] = {}
        for name, value in reply.headers:
            known = answered.get(name.lower())
            answered[name.lower()] = value if known is None else f"{known}, {value}"
        return Reply(status=reply.status, headers=answered, body=reply.body)

    async def idle(self) -> None:
        """Return when everything that is due was worked off. The clock does not move."""
        await asyncio.sleep(0)  # registrations and announcements of stores arrive by the loop
        background = self._alive().background
        while True:
            await background.settle()
            due = await background.next_due_ms()
            if background.is_idle and (due is None or due > self.clock.now_ms()):
                return
            background.wake_queues()

    async def settle(self, *, limit: timedelta = _SETTLE_LIMIT) -> None:
        """Work everything off: skip to the next due message, again and again, until no queue holds one.

        Cron ticks on the way fire.

        Raises:
            RuntimeError: A queue still holds a message after `limit`; `advance` is for those that never end.
        """
        await self.idle()
        end = self.clock.now() + limit
        while (due := await self._next_due()) is not None:
            if due > end:
                raise RuntimeError(f"a queue still holds a message that is due at {due}, {limit} from the start")
            await self._step_to(due)

    async def advance(self, duration: timedelta) -> None:
        """Move the clock on by `duration`, stopping wherever something is due to work it off at its own time."""
        await self.idle()
        await self._step_to(self.clock.now() + duration)

    async def restart(self) -> None:
        """Die at this moment, as a killed process does, and start again on the same data.

        What runs is abandoned: its outcome is not recorded. (A synchronous handler cannot be stopped; it ends unheard.)
        """
        await self._end(timedelta(0))
        await self._start()

    async def _step_to(self, instant: datetime) -> None:
        while self.clock.now() < instant:
            stops = (self.clock.next_wake(), await self._next_due(), instant)
            self.clock.advance_to(min(stop for stop in stops if stop is not None))
            await self.idle()

    async def _next_due(self) -> datetime | None:
        due = await self._alive().background.next_due_ms()
        return None if due is None else datetime.fromtimestamp(due / 1000, UTC)

    def _alive(self) -> _Life:
        if self._life is None:
            raise RuntimeError("the harness is not started; use `async with`")
        return self._life

    async def _start(self) -> None:
        app = App(self._config, self._workers)
        executor = ThreadExecutor()
        runtime = Runtime(app, self._wrap(await self._open()), executor)
        background = Background(runtime, self.pushed.extend, self._sweep)
        entry = HttpEntry(runtime, holder=self._ids.new_id(), may_use_runs=lambda _call: True)
        self._life = _Life(app=app, executor=executor, runtime=runtime, background=background, entry=entry)
        for worker in self._workers:
            worker.attach(LoopInvoker(runtime, asyncio.get_running_loop()))
        await background.start()

    async def _open(self) -> Stores:
        if self._directory is None:
            if self._memory is None:
                self._memory = memory_stores(
                    self.clock,
                    self._ids,
                    on_message=self._on_message,
                    on_change=self._on_change,
                    max_value_bytes=self._config.state.max_value_bytes,
                )
            return self._memory
        listeners = Listeners(on_message=self._on_message, on_change=self._on_change)
        self._data = await open_data(
            self._directory,
            self._config,
            clock=self.clock,
            ids=self._ids,
            holder="host",
            wait=timedelta(0),
            listeners=listeners,
            synchronous="NORMAL",
        )
        return self._data.stores

    async def _end(self, grace: timedelta) -> None:
        life, self._life = self._alive(), None
        await life.background.stop(grace)
        for worker in self._workers:
            worker.attach(None)
        life.app.close()
        life.executor.close()
        if self._data is not None:
            await self._data.close()
            self._data = None

    async def _sweep(self) -> None:
        if self._data is not None:
            await self._data.retention.sweep(self.clock.now_ms())

    def _on_message(self, queue_name: str) -> None:
        if self._life is not None:
            self._life.background.wake_queue(queue_name)

    def _on_change(self) -> None:
        if self._life is not None:
            self._life.background.wake_feed()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Life:
    """What dies with a process."""

    app: App
    executor: ThreadExecutor
    runtime: Runtime
    background: Background
    entry: HttpEntry


def _load(path: Path | str | None, env: Mapping[str, str]) -> Config:
    if path is None:
        return Config()
    # Here because tests without a file need no YAML.
    from iii_runtime.adapters.config_file import load_config  # noqa: PLC0415

    return load_config(Path(path), env)


def _dump(value: object) -> bytes:
    return json.dumps(value).encode("utf-8")
