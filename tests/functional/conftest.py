"""Every scenario runs on the memory stores and on the SQLite stores, on a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from iii_runtime import Worker, register_worker
from iii_runtime.core.config import Config, QueueConfig
from iii_runtime.testing import Harness

QUEUES = (
    QueueConfig(name="mail"),
    QueueConfig(name="quick", max_retries=1),
    QueueConfig(name="pay", max_retries=2, type="fifo", message_group_field="order_id", concurrency=4),
    QueueConfig(name="one", max_retries=2, concurrency=1),
    QueueConfig(name="few", concurrency=3),
    QueueConfig(name="patient", max_retries=6, backoff_ms=1500),
)


@pytest.fixture(params=["memory", "embedded"])
def store(request: pytest.FixtureRequest) -> Literal["memory", "embedded"]:
    name: Literal["memory", "embedded"] = request.param
    return name


@pytest.fixture
def worker() -> Worker:
    return register_worker(worker_name="app")


@pytest.fixture
def host(worker: Worker, store: Literal["memory", "embedded"], tmp_path: Path) -> Callable[..., Harness]:
    """Return how to start a harness for `worker`; takes the config of Config(**...) and `wrap`."""

    def start(*others: Worker, wrap: Callable[[Any], Any] = lambda stores: stores, **config: Any) -> Harness:
        whole = Config(**{"queues": {queue.name: queue for queue in QUEUES}, **config})
        return Harness([worker, *others], config=whole, store=store, data=tmp_path / "data", wrap=wrap)

    return start
