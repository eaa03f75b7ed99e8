"""A function that did not begin in its time, because something else blocks the loop it would have run on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime import InvocationError, Queue, TriggerAction, register_worker
from iii_runtime.core.config import Config, QueueConfig
from iii_runtime.core.errors import FunctionBusyError
from iii_runtime.core.trigger_request import TriggerRequest
from iii_runtime.engine.app import App
from iii_runtime.engine.runtime import Runtime
from iii_runtime.ports.meter import MetricName
from iii_runtime.testing.clock import SequenceIds, SkipClock
from iii_runtime.testing.stores import memory_stores


class NeverBegins:
    """An executor whose loop is blocked."""

    async def run(self, body: Callable[[], Any], *, is_async: bool, timeout: timedelta) -> Any:
        """Say so."""
        raise FunctionBusyError("another one blocks the loop.")


@dataclass
class Measured:
    names: list[str] = field(default_factory=list)

    def add(
        self, name: MetricName, value: float = 1, *, function_id: str | None = None, queue: str | None = None
    ) -> None:
        """Remember the name."""
        self.names.append(name)


class Host:
    """An app whose functions never begin."""

    def __init__(self) -> None:
        worker = register_worker()
        worker.function("a::late", triggers=[Queue("mail")])(lambda data: None)
        self.clock, self.measured = SkipClock(), Measured()
        self.app = App(Config(queues={"mail": QueueConfig(name="mail")}), [worker])
        stores = replace(memory_stores(self.clock, SequenceIds()), meter=self.measured)
        self.runtime = Runtime(self.app, stores, NeverBegins())


async def test_its_caller_is_told_that_it_was_not_started_and_no_error_of_it_is_counted() -> None:
    host = Host()
    with pytest.raises(InvocationError) as caught:
        await host.runtime.trigger(TriggerRequest(function_id="a::late", payload=1))
    assert str(caught.value) == "function_busy: function 'a::late' was not started: another one blocks the loop."
    assert isinstance(caught.value.__cause__, FunctionBusyError)
    assert host.measured.names == []


async def test_its_message_comes_back_without_a_failed_attempt() -> None:
    host = Host()
    request = TriggerRequest(function_id="a::late", payload=1, action=TriggerAction.Enqueue(queue="mail"))
    await host.runtime.trigger(request)
    queue, store = host.app.queues["mail"], host.runtime.stores.queue
    [delivery] = await store.receive(queue, 1, timedelta(seconds=30))
    await host.runtime.deliverer.deliver(queue, delivery)
    assert await store.receive(queue, 1, timedelta(seconds=30)) == []
    host.clock.advance_to(host.clock.now() + timedelta(seconds=10))
    [again] = await store.receive(queue, 1, timedelta(seconds=30))
    assert again.attempt == 1
    assert host.measured.names == ["FunctionBusy"]
