"""The authoring interface: `register_worker` and the worker it returns, in iii's spelling and as decorators."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

from iii_runtime.core.errors import NotAttachedError, RegistrationError
from iii_runtime.core.function_options import FunctionSettings
from iii_runtime.core.function_options import read_options as read_function_options
from iii_runtime.core.handler import Handler, plan_raw_handler, plan_typed_handler, plan_workflow, source_of
from iii_runtime.core.payload import PayloadError, check_name
from iii_runtime.core.registry import FunctionSpec, Registry
from iii_runtime.core.trigger_request import TriggerRequest, parse_trigger_request
from iii_runtime.core.triggers import TriggerKind, UnknownTrigger
from iii_runtime.core.worker_options import InitOptions, read_options

if TYPE_CHECKING:
    from iii_runtime.core.workflow.registration import WorkflowSettings

HandlerT = TypeVar("HandlerT", bound=Handler)

_log = logging.getLogger("iii_runtime.registry")
_collector: ContextVar[list[Worker] | None] = ContextVar("iii_workers", default=None)


class Invoker(Protocol):
    """What a host attaches to a worker so that its `trigger` reaches the engine."""

    def trigger(self, request: TriggerRequest) -> Any:
        """Carry out the request and return its result; blocks the calling thread."""
        ...

    async def trigger_async(self, request: TriggerRequest) -> Any:
        """Carry out the request and return its result."""
        ...


class FunctionRef:
    """A registered function: `id` and `unregister()`."""

    def __init__(self, registry: Registry, function_id: str) -> None:
        self._registry = registry
        self.id = function_id

    def unregister(self) -> None:
        """Forget the function. Messages already enqueued for it fail until it is registered again."""
        self._registry.remove_function(self.id)


class Trigger:
    """A registered trigger."""

    def __init__(self, registry: Registry, trigger_id: str) -> None:
        self._registry = registry
        self._id = trigger_id

    def unregister(self) -> None:
        """Forget the trigger: nothing starts its function through it any more."""
        self._registry.remove_trigger(self._id)


class Worker:
    """Registers functions and triggers, and calls functions once a host runs it. Created by `register_worker`."""

    def __init__(self, options: InitOptions) -> None:
        self.options = options
        self.registry = Registry()
        self._invoker: Invoker | None = None

    @property
    def name(self) -> str:
        """Name in logs and listings."""
        return self.options.worker_name or "worker"

    def register_function(
        self,
        function_id: str,
        handler: Handler,
        *,
        description: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        request_format: Any = None,
        response_format: Any = None,
        timeout: timedelta | None = None,
        **options: Unpack[FunctionSettings],
    ) -> FunctionRef:
        """Register a handler that takes the raw input, and optionally `metadata`.

        Args:
            function_id: `service::name`.
            handler: `def` or `async def`; type hints are not looked at (use `function` for that).
            description: For people.
            metadata: Free data shown in listings.
            request_format: JSON Schema of the input.
            response_format: JSON Schema of the result.
            timeout: Longest run of one attempt; the worker's `invocation_timeout_ms` by default. An addition to iii.
            options: Memory, secrets, `uses` and others, see `FunctionOptions`. Additions to iii.

        Raises:
            TypeError: The id is no string, or the handler cannot be called.
            RegistrationError: A `ValueError`: the id is blank, reserved or taken.
        """
        _check_function_id(function_id)
        _check_handler(handler, function_id)
        self.registry.add_function(
            FunctionSpec(
                id=function_id,
                plan=plan_raw_handler(handler),
                description=description,
                metadata=metadata,
                request_format=request_format,
                response_format=response_format,
                timeout=_check_timeout(timeout, function_id),
                source=source_of(handler),
                options=read_function_options(options, function_id),
                module=_calling_module(),
            )
        )
        return FunctionRef(self.registry, function_id)

    def register_trigger(self, trigger: Mapping[str, Any]) -> Trigger:
        """Register a trigger: `{"type": "http", "function_id": ..., "config": {...}, "metadata"?: {...}}`.

        An unknown type is kept and reported as a warning when a host starts, as in iii. A config key that iii has and
        this runtime does not use is a warning in the log.

        Raises:
            RegistrationError: A known type with a config that cannot work or has an unknown key (iii only logs the
                former).
        """
        # Loaded here: a worker that gives its triggers to the decorator does without it.
        from iii_runtime.core.trigger_config import parse_trigger, without_effect  # noqa: PLC0415

        if not isinstance(trigger, Mapping):
            raise TypeError(f"a trigger must be a dict with 'type' and 'function_id', found {trigger!r:.60}")
        type_name, function_id = trigger.get("type"), trigger.get("function_id")
        if not isinstance(type_name, str) or not isinstance(function_id, str) or not function_id.strip():
            raise RegistrationError(f"a trigger needs 'type' and 'function_id', both strings; found {dict(trigger)!r}")
        config = trigger.get("config") or {}
        if not isinstance(config, Mapping):
            raise RegistrationError(f"trigger of '{function_id}': config must be an object, found {config!r}")
        try:
            kind = parse_trigger(type_name, config)
        except RegistrationError as error:
            raise RegistrationError(f"trigger of '{function_id}': {error.message}", code=error.code) from error
        if unused := without_effect(type_name, config):
            # Worker modules are imported before a host shows its log, so the message alone must tell.
            _log.warning(
                "trigger of '%s': no effect here has %s",
                function_id,
                ", ".join(unused),
                extra={"iii": {"function_id": function_id, "keys": unused}},
            )
        spec = self.registry.add_trigger(kind, function_id, trigger.get("metadata"))
        return Trigger(self.registry, spec.id)

    def function(
        self,
        function_id: str,
        *,
        triggers: Iterable[TriggerKind] = (),
        description: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        timeout: timedelta | None = None,
        **options: Unpack[FunctionSettings],
    ) -> Callable[[HandlerT], HandlerT]:
        """Register the decorated handler and its triggers; the handler itself is returned unchanged.

        A parameter typed with a pydantic model is validated and instantiated (from the body over http, the payload
        from a queue or a direct call, the data of a topic); one typed `ApiRequest` gets the request. Invalid input is
        422 over http and a dead letter at once from a queue.

        `options` are memory, secrets, `uses` and others, see `FunctionOptions`.

        Raises:
            RegistrationError: The id, the handler's parameters or a trigger cannot work; nothing is registered then.
        """
        _check_function_id(function_id)
        asked, module = read_function_options(options, function_id), _calling_module()
        return self._registering(
            function_id,
            tuple(triggers),
            lambda handler: FunctionSpec(
                id=function_id,
                plan=plan_typed_handler(handler, function_id),
                description=description or _first_line(handler.__doc__),
                metadata=metadata,
                timeout=_check_timeout(timeout, function_id),
                source=source_of(handler),
                options=asked,
                module=module,
            ),
        )

    def workflow(
        self,
        function_id: str,
        *,
        triggers: Iterable[TriggerKind] = (),
        description: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        timeout: timedelta | None = None,
        **options: Unpack[WorkflowSettings],
    ) -> Callable[[HandlerT], HandlerT]:
        """Register the decorated `async def` as a workflow: its runs are durable, and go on after any crash.

        Its first parameter is the `WorkflowContext`; the others are those of `function`. It is a function like any
        other: whatever starts a function starts a run of it.

        Args:
            function_id: `service::name`.
            triggers: What starts runs.
            description: For people.
            metadata: Free data shown in listings.
            timeout: Longest execution of its code between two waits, and of one attempt of a step.
            options: Workflow id, time limit and others of a run, see `WorkflowOptions`; memory, secrets, `uses` and
                others of its function, see `FunctionOptions`.

        Raises:
            RegistrationError: The id, the parameters, an option or a trigger cannot work; nothing is registered then.
        """
        # Loaded here: an app without workflows does without them.
        from iii_runtime.core.client.messages import WORKFLOW_ATTRIBUTE  # noqa: PLC0415
        from iii_runtime.core.workflow.registration import read_workflow_options  # noqa: PLC0415

        _check_function_id(function_id)
        bounds, module = read_workflow_options(options, function_id), _calling_module()
        asked = read_function_options(options, function_id)
        register = self._registering(
            function_id,
            tuple(triggers),
            lambda handler: FunctionSpec(
                id=function_id,
                plan=plan_workflow(handler, function_id),
                description=description or _first_line(handler.__doc__),
                metadata=metadata,
                timeout=_check_timeout(timeout, function_id),
                source=source_of(handler),
                options=asked,
                module=module,
                workflow=bounds,
            ),
        )

        def decorate(handler: HandlerT) -> HandlerT:
            register(handler)
            # So that a client can name the workflow by its function.
            handler.__dict__.setdefault(WORKFLOW_ATTRIBUTE, function_id)
            return handler

        return decorate

    def _registering(
        self, function_id: str, kinds: tuple[TriggerKind, ...], spec_of: Callable[[Handler], FunctionSpec]
    ) -> Callable[[HandlerT], HandlerT]:
        for kind in kinds:
            if isinstance(kind, UnknownTrigger) or not isinstance(kind, TriggerKind):
                raise RegistrationError(f"function '{function_id}': {kind!r} is not a trigger")
            if kind.condition is not None and not isinstance(kind.condition, str):
                raise RegistrationError(f"function '{function_id}': the condition of {kind!r} must be a function id")

        def register(handler: HandlerT) -> HandlerT:
            _check_handler(handler, function_id)
            spec = spec_of(handler)
            self.registry.add_function(spec)
            for kind in kinds:
                self.registry.add_trigger(kind, function_id, source=spec.source)
            return handler

        return register

    def trigger(self, request: TriggerRequest | Mapping[str, Any]) -> Any:
        """Call a function and wait, enqueue it, or start it and go on.

        Returns:
            Without action: the handler's result as JSON. Enqueue: `{"messageReceiptId": id}`, and the function runs at
            least once. Void: None at once.

        Raises:
            InvocationError: The call failed or was refused; see its code. Enqueue errors are `EnqueueError`.
            RuntimeError: Called inside an `async def` handler, where it would block; use `trigger_async`.
            NotAttachedError: No host runs this worker.
        """
        parsed = parse_trigger_request(request)
        if not _in_event_loop():
            return self._attached(parsed).trigger(parsed)
        raise RuntimeError(
            f"trigger('{parsed.function_id}') would block the event loop: "
            "use `await worker.trigger_async(...)` in async code"
        )

    async def trigger_async(self, request: TriggerRequest | Mapping[str, Any]) -> Any:
        """Do what `trigger` does, from asynchronous code."""
        parsed = parse_trigger_request(request)
        return await self._attached(parsed).trigger_async(parsed)

    def attach(self, invoker: Invoker | None) -> Invoker | None:
        """Connect the worker to a host's engine; None disconnects it. Called by hosts.

        Returns:
            What it was connected to before, for a host that gives it back.
        """
        before, self._invoker = self._invoker, invoker
        return before

    def _attached(self, request: TriggerRequest) -> Invoker:
        if self._invoker is None:
            raise NotAttachedError(
                f"trigger('{request.function_id}') on worker '{self.name}', which no host runs. Run it with "
                "`iii-runtime dev`, and call trigger inside functions, not while the module is imported."
            )
        return self._invoker


def register_worker(
    address: str | None = None,
    options: InitOptions | Mapping[str, Any] | None = None,
    *,
    worker_name: str | None = None,
) -> Worker:
    """Create a worker. It connects to nothing: a host that imports the module finds and runs it.

    Args:
        address: Accepted for compatibility with the iii SDK, and not used.
        options: `InitOptions`, or a dict of its fields, spelled `worker_name` or `workerName`.
        worker_name: Short for `InitOptions(worker_name=...)`; wins over the name in `options`.

    Raises:
        TypeError: An option that does not exist; the message suggests the one that was meant.
        RegistrationError: A `ValueError`: an option that cannot work.
    """
    worker = Worker(read_options(options, worker_name))
    found = _collector.get()
    if found is not None:
        found.append(worker)
    return worker


@contextmanager
def collecting_workers() -> Iterator[list[Worker]]:
    """Collect the workers that are created inside the block. For hosts, around the import of worker files."""
    found: list[Worker] = []
    token = _collector.set(found)
    try:
        yield found
    finally:
        _collector.reset(token)


def _check_function_id(function_id: object) -> None:
    if not isinstance(function_id, str):
        raise TypeError(f"a function id must be a string, found {type(function_id).__name__}")
    if not function_id.strip():
        raise RegistrationError("id is required")
    try:
        check_name(function_id, "a function id")
    except PayloadError as error:
        raise RegistrationError(error.message) from error


def _check_handler(handler: object, function_id: str) -> None:
    if not callable(handler):
        raise TypeError(f"function '{function_id}': the handler must be callable, found {handler!r:.60}")


def _check_timeout(timeout: timedelta | None, function_id: str) -> timedelta | None:
    given: object = timeout
    if given is not None and (not isinstance(given, timedelta) or given <= timedelta(0)):
        raise RegistrationError(f"function '{function_id}': timeout must be a positive timedelta, found {given!r}")
    return timeout


def _calling_module() -> str:
    """Return the module of the code that called the worker's method."""
    return str(sys._getframe(2).f_globals.get("__name__", ""))  # noqa: SLF001 - a documented function, despite its name


def _in_event_loop() -> bool:
    """Return whether the calling code runs in an event loop, without loading asyncio for workers that never use it."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _first_line(docstring: str | None) -> str | None:
    return docstring.strip().splitlines()[0] if docstring and docstring.strip() else None
