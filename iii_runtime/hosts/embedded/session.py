"""Carries out single requests without a host: opens the store, works, closes it. Queues and triggers wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from iii_runtime.adapters.system import SystemClock, Uuid4Source
from iii_runtime.adapters.threads import ThreadExecutor
from iii_runtime.core.config import Config
from iii_runtime.core.payload import Json
from iii_runtime.core.trigger_request import TriggerRequest
from iii_runtime.core.worker import Worker
from iii_runtime.engine.app import App
from iii_runtime.engine.runtime import Runtime
from iii_runtime.hosts.embedded.run_storing import StoredOnly
from iii_runtime.hosts.embedded.stores import OpenData, open_data
from iii_runtime.hosts.loop_invoker import LoopInvoker
from iii_runtime.hosts.memory import memory_stores


class LocalSession:
    """The engine over a data directory that no host holds. A context manager; for synchronous callers.

    A message enqueued here is stored, and consumed when a host starts; a state change fires its triggers then. So is a
    run that is started or signalled: it goes on when a host starts.

    Args:
        data: The directory; it is made if it is missing. None is an empty store that keeps nothing.
        config: Queues and limits.
        workers: The functions that can be called.
        wait: How long to wait while a host or another command has the directory open.

    Raises:
        StoreError: `store_locked`: it was not free in that time; or it cannot be opened.
    """

    def __init__(
        self, data: Path | None, config: Config, workers: Sequence[Worker], *, wait: timedelta = timedelta(0)
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._executor = ThreadExecutor()
        self._workers = tuple(workers)
        self._data: OpenData | None = None
        clock, ids = SystemClock(), Uuid4Source()
        try:
            if data is None:
                stores = memory_stores(clock, ids, max_value_bytes=config.state.max_value_bytes)
            else:
                opening = open_data(data, config, clock=clock, ids=ids, holder="command", wait=wait)
                self._data = self._loop.run_until_complete(opening)
                stores = self._data.stores
        except BaseException:
            self._loop.close()
            raise
        self._app = App(config, workers)
        self._runtime = Runtime(self._app, stores, self._executor)
        if stores.runs is not None:
            self._runtime.run_workflows(StoredOnly(clock))
        for worker in self._workers:
            worker.attach(LoopInvoker(self._runtime, self._loop))

    def call(self, request: TriggerRequest) -> Json:
        """Carry out one parsed request; see `Worker.trigger` for results and errors."""
        return self._loop.run_until_complete(self._runtime.trigger(request))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.run_until_complete(self._runtime.settle())
        for worker in self._workers:
            worker.attach(None)
        self._app.close()
        self._executor.close()
        if self._data is not None:
            self._loop.run_until_complete(self._data.close())
        self._loop.close()
