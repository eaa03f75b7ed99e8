"""One life of a Lambda: what is made at its first event and serves all that follow."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.aws.message_queue import SqsMessageQueue
from iii_runtime.adapters.aws.parameters import ParameterSecrets
from iii_runtime.adapters.aws.table import Table
from iii_runtime.adapters.system import SystemClock, Uuid4Source
from iii_runtime.core.secrets import secrets_from
from iii_runtime.engine.app import App
from iii_runtime.engine.runtime import Runtime
from iii_runtime.hosts.aws_lambda.bundle import load_manifest, load_workers, local_functions
from iii_runtime.hosts.aws_lambda.context import LambdaContext, remaining, time_for_functions
from iii_runtime.hosts.aws_lambda.environment import Environment
from iii_runtime.hosts.aws_lambda.executor import MainThreadExecutor
from iii_runtime.hosts.aws_lambda.stores import aws_stores
from iii_runtime.hosts.loop_invoker import LoopInvoker
from iii_runtime.plan.limits import LAMBDA_TIMEOUT, OUTCOME_MARGIN
from iii_runtime.plan.manifest import Manifest
from iii_runtime.plan.names import Deployment
from iii_runtime.ports.clock import Clock, IdSource
from iii_runtime.ports.executor import Executor
from iii_runtime.ports.meter import Meter, NoMeter

if TYPE_CHECKING:
    from iii_runtime.adapters.aws.reconciler import Reconciler
    from iii_runtime.engine.http_entry import HttpEntry
    from iii_runtime.ports.job_lease import JobLease

T = TypeVar("T")

_LAST = timedelta(milliseconds=500)
"""Kept from work nobody waits for, so that the answer leaves before Lambda ends the invocation."""


class Sandbox:
    """The engine of one Lambda, on a loop of its own thread. It handles one event at a time, as Lambda gives it.

    Args:
        environment: Where it runs, and as what.
        manifest: The app.
        clients: Clients of the services; those of the environment's region by default.
        clock: Where the time comes from.
        ids: Where identities come from.
        executor: Runs the functions; by default on the main thread, see `MainThreadExecutor`.
        meter: Where measurements go.

    Attributes:
        environment: Where it runs, and as what.
        clients: The clients of the services.
        runtime: The engine.

    Raises:
        HostError: The function's code cannot be loaded: `function_not_in_bundle`, `worker_import_failed`.
    """

    def __init__(
        self,
        environment: Environment,
        manifest: Manifest,
        *,
        clients: Clients | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        executor: Executor | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.environment = environment
        self.clients = clients or Clients(environment.deployment.region)
        self._secrets = ParameterSecrets(environment.secrets, environment.deployment.region)
        local = local_functions(manifest, environment.function_id)
        with secrets_from(self._secrets):
            workers = load_workers(manifest, local)
        app = App(manifest.config, workers, deployed=manifest.catalog, local=local)
        stores = aws_stores(
            self.clients,
            environment.deployment,
            lambda: app.queues,
            clock or SystemClock(),
            ids or Uuid4Source(),
            deletes=False,
            via_dispatcher=environment.function_id is not None,
            reconciles=environment.function_id is None,
            max_value_bytes=manifest.config.state.max_value_bytes,
            response_lease=_lifetime(app, environment.function_id),
        )
        self._executor = executor or MainThreadExecutor()
        self.runtime = Runtime(app, replace(stores, meter=meter or NoMeter()), self._executor)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="iii-engine", daemon=True)
        self._thread.start()
        self._invoker = LoopInvoker(self.runtime, self._loop)

    @property
    def deployment(self) -> Deployment:
        """All names."""
        return self.environment.deployment

    @property
    def clock(self) -> Clock:
        """Where the time comes from."""
        return self.runtime.stores.clock

    @property
    def queue(self) -> SqsMessageQueue:
        """The queues. An acknowledgement is noted in `settled`; Lambda removes the messages."""
        queue = self.runtime.stores.queue
        assert isinstance(queue, SqsMessageQueue)  # noqa: S101 - what `aws_stores` makes
        return queue

    @property
    def can_answer(self) -> bool:
        """Whether an answer can leave. It cannot once a function does not end after its time: then the process does."""
        return not (isinstance(self._executor, MainThreadExecutor) and self._executor.is_held)

    @cached_property
    def http(self) -> HttpEntry:
        """Answers http requests."""
        # Loaded here: most functions have no http route.
        from iii_runtime.engine.http_entry import HttpEntry  # noqa: PLC0415

        return HttpEntry(self.runtime, holder=self.runtime.stores.ids.new_id())

    @cached_property
    def job_lease(self) -> JobLease:
        """The right to run a cron job."""
        # Loaded here: most functions have no schedule.
        from iii_runtime.adapters.aws.tick_store import DynamoTickStore  # noqa: PLC0415

        table = Table(self.clients, self.deployment.table_name, self.clock)
        return DynamoTickStore(table, self.clock, self.runtime.stores.ids)

    @cached_property
    def reconciler(self) -> Reconciler:
        """Looks after dead letters; it remembers from minute to minute what it has seen."""
        # Loaded here: the minute tick alone needs it.
        from iii_runtime.adapters.aws.queue_parts import QueueParts  # noqa: PLC0415
        from iii_runtime.adapters.aws.reconciler import Reconciler  # noqa: PLC0415

        stores = self.runtime.stores
        table = Table(self.clients, self.deployment.table_name, self.clock)
        return Reconciler(QueueParts(self.clients, self.deployment, table, stores.blobs, self.clock, stores.ids))

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], context: LambdaContext) -> T:
        """Do `work` on the engine's loop, then what it started and nobody waits for, and return its result.

        No function gets more time than the invocation has, less what it takes to store an outcome.

        Raises:
            Exception: What `work` raises.
        """
        self.runtime.invoker.remaining = lambda: time_for_functions(context)
        with secrets_from(self._secrets), self._attached():
            return self._serve(lambda: asyncio.run_coroutine_threadsafe(self._settled(work, context), self._loop))

    def close(self) -> None:
        """End its threads."""
        self.runtime.app.close()
        if isinstance(self._executor, MainThreadExecutor):
            self._executor.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _settled(self, work: Callable[[], Coroutine[Any, Any, T]], context: LambdaContext) -> T:
        try:
            return await work()
        finally:
            await self.runtime.settle(max(remaining(context) - _LAST, timedelta(0)))

    def _serve(self, start: Callable[[], Future[T]]) -> T:
        if isinstance(self._executor, MainThreadExecutor):
            return self._executor.serve(start)
        return start().result()

    @contextmanager
    def _attached(self) -> Iterator[None]:
        # Given back: in a test, several sandboxes of one process share the workers.
        with ExitStack() as after:
            for worker in self.runtime.app.workers:
                after.callback(worker.attach, worker.attach(self._invoker))
            yield


def open_sandbox(environment: Environment, meter: Meter | None = None) -> Sandbox:
    """Return the sandbox of a Lambda as its bundle and its environment describe it.

    Raises:
        HostError: `manifest_missing`, `manifest_unreadable`, `function_not_in_bundle`, `worker_import_failed`.
    """
    return Sandbox(environment, load_manifest(environment.root), meter=meter)


def _lifetime(app: App, function_id: str | None) -> timedelta:
    """Return how long an invocation can take at most: what it holds after that belongs to a dead one."""
    if function_id is None:
        return LAMBDA_TIMEOUT
    # The time-out of a Lambda is in whole seconds, rounded up, for each message of a batch.
    consumed = [queue.batch_size for queue in app.queues.values() if queue.consumer == function_id]
    limit = app.timeout_of(app.function(function_id)) + timedelta(seconds=1)
    return min(limit * max(consumed, default=1) + OUTCOME_MARGIN, LAMBDA_TIMEOUT)
