"""What a worker has registered: functions and triggers, in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from iii_runtime.core.errors import RegistrationError
from iii_runtime.core.frozen import frozen
from iii_runtime.core.function_options import FunctionOptions
from iii_runtime.core.handler import HandlerPlan
from iii_runtime.core.triggers import TYPE_NAMES, TriggerKind, UnknownTrigger

if TYPE_CHECKING:
    from iii_runtime.core.workflow.registration import WorkflowOptions

RESERVED_PREFIXES = ("state::", "stream::", "iii::", "engine::")
RESERVED_IDS = frozenset({"publish", "enqueue"})


@frozen(kw_only=True)
class FunctionSpec:
    """A registered function.

    Attributes:
        id: Its id, `service::name`.
        plan: How to call it; None for a function whose code is elsewhere: it is called through its own Lambda.
        description: For people.
        metadata: Free data of the registration.
        request_format: JSON Schema of its input, if given.
        response_format: JSON Schema of its result, if given.
        timeout: Longest run of one attempt; None means the worker's default.
        source: Where it is written, `file:line`.
        options: What it asks of its host.
        module: Dotted name of the module that registered it.
        workflow: How its runs are started and bounded, if it is a workflow.
    """

    id: str
    plan: HandlerPlan | None
    description: str | None = None
    metadata: Mapping[str, Any] | None = None
    request_format: Any = None
    response_format: Any = None
    timeout: timedelta | None = None
    source: str = ""
    options: FunctionOptions = field(default_factory=FunctionOptions)
    module: str = ""
    workflow: WorkflowOptions | None = None


@frozen(kw_only=True)
class TriggerSpec:
    """A registered trigger.

    Attributes:
        id: Identity within its registry.
        kind: What it reacts to.
        function_id: The function it starts.
        metadata: Free data of the registration.
        source: Where its function is written, as far as known.
    """

    id: str
    kind: TriggerKind
    function_id: str
    metadata: Mapping[str, Any] | None = None
    source: str = ""

    @property
    def type_name(self) -> str:
        """The iii name of the trigger's type."""
        return self.kind.type if isinstance(self.kind, UnknownTrigger) else TYPE_NAMES[type(self.kind)]


def is_reserved(function_id: str) -> bool:
    """Return whether an id belongs to the runtime's own functions."""
    return function_id in RESERVED_IDS or function_id.startswith(RESERVED_PREFIXES)


class Registry:
    """Functions and triggers of one worker. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._functions: dict[str, FunctionSpec] = {}
        self._triggers: dict[str, TriggerSpec] = {}
        self._listeners: list[Callable[[], None]] = []
        self._count = 0

    def add_function(self, function: FunctionSpec) -> None:
        """Register a function.

        Raises:
            RegistrationError: The id is taken or reserved, or a listener refuses it; nothing is registered then.
        """
        if is_reserved(function.id):
            raise RegistrationError(f"function id '{function.id}' is reserved for the runtime's own functions.")
        with self._lock:
            known = self._functions.get(function.id)
            if known is not None:
                raise RegistrationError(
                    f"function id '{function.id}' already registered, at {known.source}; again at {function.source}."
                )
            self._functions[function.id] = function
        try:
            self._changed()
        except RegistrationError:
            self.remove_function(function.id)
            raise

    def remove_function(self, function_id: str) -> None:
        """Forget a function; an unknown id changes nothing."""
        with self._lock:
            self._functions.pop(function_id, None)
        self._changed()

    def add_trigger(
        self, kind: TriggerKind, function_id: str, metadata: Mapping[str, Any] | None = None, source: str = ""
    ) -> TriggerSpec:
        """Register a trigger and return it with its identity."""
        with self._lock:
            self._count += 1
            trigger = TriggerSpec(
                id=f"trigger-{self._count}", kind=kind, function_id=function_id, metadata=metadata, source=source
            )
            self._triggers[trigger.id] = trigger
        self._changed()
        return trigger

    def remove_trigger(self, trigger_id: str) -> None:
        """Forget a trigger; an unknown id changes nothing."""
        with self._lock:
            self._triggers.pop(trigger_id, None)
        self._changed()

    def functions(self) -> list[FunctionSpec]:
        """Return the functions in the order of their registration."""
        with self._lock:
            return list(self._functions.values())

    def triggers(self) -> list[TriggerSpec]:
        """Return the triggers in the order of their registration."""
        with self._lock:
            return list(self._triggers.values())

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each change, on the changing thread; returns how to stop.

        A `RegistrationError` of a listener refuses a function that was added.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _changed(self) -> None:
        for listener in list(self._listeners):
            listener()


@frozen(kw_only=True)
class Catalog:
    """Everything the workers of one app have registered, at one moment."""

    functions: Mapping[str, FunctionSpec]
    triggers: tuple[TriggerSpec, ...]

    def with_plans(self, functions: Mapping[str, FunctionSpec], local: Collection[str]) -> Catalog:
        """Return this catalog with the code of the `local` functions taken from `functions`, as far as it is there."""
        known = {
            function_id: replace(spec, plan=functions[function_id].plan)
            if function_id in local and function_id in functions
            else spec
            for function_id, spec in self.functions.items()
        }
        return Catalog(functions=known, triggers=self.triggers)

    @staticmethod
    def of(registries: Iterable[Registry]) -> Catalog:
        """Join the registries of several workers.

        Raises:
            RegistrationError: Two workers register the same function id.
        """
        functions: dict[str, FunctionSpec] = {}
        triggers: list[TriggerSpec] = []
        for registry in registries:
            for function in registry.functions():
                if function.id in functions:
                    raise RegistrationError(
                        f"function id '{function.id}' is registered by two workers: at "
                        f"{functions[function.id].source} and at {function.source}."
                    )
                functions[function.id] = function
            triggers.extend(registry.triggers())
        return Catalog(functions=functions, triggers=tuple(triggers))
