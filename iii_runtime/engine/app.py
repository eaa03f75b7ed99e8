"""The app a host runs: config and registered functions, with what follows from them kept up to date."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta

from iii_runtime.core.config import Config
from iii_runtime.core.errors import InvocationError
from iii_runtime.core.frozen import frozen
from iii_runtime.core.queue import QueueSpec
from iii_runtime.core.registry import Catalog, FunctionSpec
from iii_runtime.core.trigger_request import DEFAULT_TIMEOUT_MS
from iii_runtime.core.triggers import TriggerKind
from iii_runtime.core.worker import Worker
from iii_runtime.plan.queues import plan_consumers, plan_queues


@frozen(kw_only=True)
class _Snapshot:
    catalog: Catalog
    queues: dict[str, QueueSpec]
    consumers: Mapping[str, list[str]]
    timeouts: Mapping[str, timedelta]


class App:
    """Config plus workers. Registrations at run time take effect at the next look. Safe to use from several threads.

    Args:
        config: The configuration.
        workers: Where functions are registered.
        deployed: What was registered when the app was deployed. Then that counts, and what the workers register is only
            where the code of the `local` functions comes from.
        local: The functions that run in this process; the others have hosts of their own.
    """

    def __init__(
        self,
        config: Config,
        workers: Sequence[Worker],
        *,
        deployed: Catalog | None = None,
        local: Collection[str] = (),
    ) -> None:
        self.config = config
        self.workers = tuple(workers)
        self._deployed = deployed
        self._local = frozenset(local)
        self._lock = threading.Lock()
        self._version = 0
        self._known: tuple[int, _Snapshot] | None = None
        self._listeners: list[Callable[[], None]] = []
        self._unfollow = [worker.registry.on_change(self._changed) for worker in self.workers]

    @property
    def catalog(self) -> Catalog:
        """Everything registered at this moment."""
        return self._current().catalog

    @property
    def queues(self) -> dict[str, QueueSpec]:
        """Every queue by name."""
        return self._current().queues

    def consumers(self, queue_name: str) -> list[str]:
        """Return the functions bound to a queue."""
        return self._current().consumers.get(queue_name, [])

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each registration, on the registering thread."""
        self._listeners.append(listener)

    def close(self) -> None:
        """Follow the workers' registrations no longer; another host may run the workers then."""
        while self._unfollow:
            self._unfollow.pop()()
        self._known = None

    def function(self, function_id: str) -> FunctionSpec:
        """Return a registered function.

        Raises:
            InvocationError: `function_not_found`.
        """
        functions = self.catalog.functions
        if function_id not in functions:
            import difflib  # noqa: PLC0415 - an id that is not there is rare, and the module is not small

            close = difflib.get_close_matches(function_id, list(functions), n=1)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            raise InvocationError("function_not_found", f"Function '{function_id}' not found.{hint}", function_id)
        return functions[function_id]

    def timeout_of(self, function: FunctionSpec) -> timedelta:
        """Return the longest run of one attempt of a function: its own limit, or its worker's."""
        default = timedelta(milliseconds=DEFAULT_TIMEOUT_MS)
        return function.timeout or self._current().timeouts.get(function.id, default)

    def triggers(self, kind: type[TriggerKind]) -> list[tuple[str, TriggerKind]]:
        """Return `(function_id, trigger)` of every trigger of one kind, in the order of registration."""
        return [(spec.function_id, spec.kind) for spec in self.catalog.triggers if isinstance(spec.kind, kind)]

    def _current(self) -> _Snapshot:
        with self._lock:
            known, version = self._known, self._version
        if known is not None and known[0] == version:
            return known[1]
        snapshot = self._take()
        with self._lock:
            if self._unfollow:
                self._known = (version, snapshot)
        return snapshot

    def _take(self) -> _Snapshot:
        catalog = Catalog.of(worker.registry for worker in self.workers)
        if self._deployed is not None:
            catalog = self._deployed.with_plans(catalog.functions, self._local)
        return _Snapshot(
            catalog=catalog,
            queues=plan_queues(self.config, catalog, deployed=self._deployed is not None),
            consumers=plan_consumers(catalog),
            timeouts={
                function.id: timedelta(milliseconds=worker.options.invocation_timeout_ms)
                for worker in self.workers
                for function in worker.registry.functions()
            },
        )

    def _changed(self) -> None:
        with self._lock:
            self._version += 1
        self._current()  # refuses an id that another worker has, to whoever registers it
        for listener in list(self._listeners):
            listener()
