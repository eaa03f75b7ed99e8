"""The engine in one piece: what `trigger` does, on whatever ports it is given."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from iii_runtime.core.call import Call
from iii_runtime.core.errors import EnqueueError, IiiError, InvocationError
from iii_runtime.core.function_options import QUEUE_USE, TOPIC_USE
from iii_runtime.core.invocation import Invocation
from iii_runtime.core.payload import Json, PayloadError, copy_json, to_json
from iii_runtime.core.queue import MAX_HOPS
from iii_runtime.core.trigger_request import (
    TriggerActionEnqueue,
    TriggerActionVoid,
    TriggerRequest,
    check_metadata,
)
from iii_runtime.core.triggers import (
    Cron,
    DurableSubscriber,
    Http,
    OnState,
    OnStream,
    Queue,
    Subscribe,
    TriggerKind,
    UnknownTrigger,
)
from iii_runtime.engine.app import App
from iii_runtime.engine.builtins.payload import Fields
from iii_runtime.engine.builtins.queue import QueueBuiltins
from iii_runtime.engine.builtins.state import Builtin, state_builtins
from iii_runtime.engine.builtins.stream import stream_builtins
from iii_runtime.engine.changes import ChangeTriggers
from iii_runtime.engine.deliver import Deliverer
from iii_runtime.engine.enqueue import Enqueue, Enqueuer
from iii_runtime.engine.invoke import FunctionInvoker
from iii_runtime.engine.stores import Stores
from iii_runtime.engine.topics import Topics, topic_of
from iii_runtime.ports.executor import Executor

if TYPE_CHECKING:  # a host without workflows does without them
    from iii_runtime.engine.runs.executor import RunExecutor
    from iii_runtime.engine.runs.runs import Runs
    from iii_runtime.ports.run_dispatch import RunDispatch

_log = logging.getLogger("iii_runtime.function")
_QUEUE_FUNCTIONS = ("iii::queue::", "engine::queue::")
_TOPIC_FUNCTIONS = frozenset({"publish", "enqueue", "iii::durable::publish"})


class Runtime:
    """Carries out trigger requests. One per host.

    Attributes:
        app: Config and registered functions.
        stores: The ports it works on.
        invoker: Runs functions.
        deliverer: Handles received messages.
        changes: Fires state and stream triggers.
        run_executor: Executes durable runs; None without a store for them.
        runs: Starts durable runs and acts on them; None before `run_workflows`.
    """

    def __init__(self, app: App, stores: Stores, executor: Executor) -> None:
        self.app = app
        self.stores = stores
        self.invoker = FunctionInvoker(app, executor, stores.ids, stores.remote, stores.meter)
        self.enqueuer = Enqueuer(app, stores)
        self.deliverer = Deliverer(app, self.invoker, stores)
        self.changes = ChangeTriggers(app, self.invoker)
        self.topics = Topics(app, self.invoker, self.enqueuer, self.spawn, stores.remote)
        self.run_executor = self._run_executor(executor)
        self.runs: Runs | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._builtins: dict[str, Builtin] = {
            **state_builtins(stores),
            **stream_builtins(stores.stream),
            **QueueBuiltins(app, stores).by_id(),
            "publish": self._publish,
            "iii::durable::publish": self._publish_durable,
            "enqueue": self._publish_durable,
            "engine::functions::list": self._list_functions,
        }

    def add_builtins(self, builtins: Mapping[str, Builtin]) -> None:
        """Add functions only this host has, such as running a cron job now."""
        self._builtins.update(builtins)

    def run_workflows(self, dispatch: RunDispatch) -> Runs:
        """Let calls of workflows start runs, which `dispatch` brings to their executions."""
        from iii_runtime.engine.builtins.runs import RunBuiltins  # noqa: PLC0415 - see above
        from iii_runtime.engine.runs.runs import Runs  # noqa: PLC0415

        runs, executor = self.stores.runs, self.run_executor
        assert runs is not None, "the host has no store for runs"  # noqa: S101
        assert executor is not None  # noqa: S101 - there is one if there is a store
        self.runs = self.invoker.workflows = Runs(self.app, self.stores, runs, executor, dispatch)
        self.add_builtins(RunBuiltins(self.runs).by_id())
        return self.runs

    async def trigger(self, request: TriggerRequest, caller: Invocation | None = None) -> Json:
        """Carry out a parsed request; see `Worker.trigger` for results and errors.

        A payload that is not JSON, and metadata that is none or too large, is refused for every action,
        a void one included.
        """
        self._check_uses(request, caller)
        if isinstance(request.action, TriggerActionEnqueue):
            receipt = await self.enqueuer.enqueue(self._enqueue(request, request.action, caller))
            return {"messageReceiptId": receipt}
        payload, metadata = _checked(request)
        if isinstance(request.action, TriggerActionVoid):
            call = _direct(request, payload, metadata, caller, depth=0)
            if not self._is_endless(call):
                self.spawn(self._quietly(call, caller))
            return None
        depth = caller.depth + 1 if caller else 0
        return await self._call(_direct(request, payload, metadata, caller, depth), caller, is_waited_for=True)

    def _check_uses(self, request: TriggerRequest, caller: Invocation | None) -> None:
        function = None if caller is None else self.app.catalog.functions.get(caller.function_id)
        if function is None or function.options.uses is None:
            return
        if isinstance(request.action, TriggerActionEnqueue):
            use = f"{QUEUE_USE}{request.action.queue}"
        elif request.function_id in _TOPIC_FUNCTIONS:
            use = f"{TOPIC_USE}{topic_of(request.function_id, to_json(request.payload))}"
        elif request.function_id in self._builtins:
            named = _queue_named(request)
            if named is None:
                return
            use = named
        else:
            use = request.function_id
        if function.options.allows(use):
            return
        message = f"function '{function.id}' may not use '{use}': add it to the function's `uses`."
        if isinstance(request.action, TriggerActionEnqueue):
            raise EnqueueError("not_in_uses", message, request.function_id)
        raise InvocationError("not_in_uses", message, request.function_id)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start work nobody waits for. `settle` waits for all of it."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    @property
    def background_count(self) -> int:
        """How many pieces of work nobody waits for are going on."""
        return len(self._background)

    async def settle(self, grace: timedelta | None = None) -> None:
        """Wait for the work nobody waits for, at most `grace`; what is left then is cancelled."""
        loop = asyncio.get_running_loop()
        deadline = None if grace is None else loop.time() + grace.total_seconds()
        while tasks := set(self._background):
            left = None if deadline is None else deadline - loop.time()
            _, pending = await asyncio.wait(tasks, timeout=left if left is None else max(left, 0))
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    async def _call(self, call: Call, caller: Invocation | None, *, is_waited_for: bool) -> Json:
        builtin = self._builtins.get(call.function_id)
        if builtin is not None:
            return copy_json(await builtin(call.payload, caller))
        return await self.invoker.invoke(call, caller if is_waited_for else None)

    def _run_executor(self, executor: Executor) -> RunExecutor | None:
        stores, app, runs = self.stores, self.app, self.stores.runs
        if runs is None:
            return None
        from iii_runtime.engine.runs.attempts import Attempts  # noqa: PLC0415 - see above
        from iii_runtime.engine.runs.execution import Limits  # noqa: PLC0415
        from iii_runtime.engine.runs.executor import RunExecutor  # noqa: PLC0415

        attempts = Attempts(executor, stores.clock, stores.ids, lambda id_: app.timeout_of(app.function(id_)))
        return RunExecutor(app, stores, runs, attempts, Limits())

    async def _quietly(self, call: Call, caller: Invocation | None) -> None:
        try:
            if self.stores.remote is not None and call.function_id in self.app.catalog.functions:
                await self.stores.remote.start(call)
            elif self.runs is not None and self._is_workflow(call.function_id):
                await self.runs.begin(self.app.function(call.function_id), call)
            else:
                await self._call(call, caller, is_waited_for=False)
        except IiiError as error:
            _log.error(
                "void call failed",
                extra={
                    "iii": {
                        "function_id": call.function_id,
                        "error": str(error),
                        "stack": getattr(error, "stacktrace", None),
                    }
                },
            )

    def _is_workflow(self, function_id: str) -> bool:
        function = self.app.catalog.functions.get(function_id)
        return function is not None and function.workflow is not None

    def _is_endless(self, call: Call) -> bool:
        """Return whether a chain of calls nobody waits for has grown too long to have an end; that is logged."""
        if call.hops <= MAX_HOPS:
            return False
        fields = {"function_id": call.function_id, "hops": call.hops}
        _log.error("not started: functions that start each other without end stop here", extra={"iii": fields})
        self.stores.meter.add("TooManyHops", function_id=call.function_id)
        return True

    def _enqueue(self, request: TriggerRequest, action: TriggerActionEnqueue, caller: Invocation | None) -> Enqueue:
        return Enqueue(
            queue=action.queue,
            function_id=request.function_id,
            payload=request.payload,
            delay=action.delay,
            dedupe_id=action.dedupe_id,
            metadata=request.metadata,
            hops=_next_hop(caller),
            traceparent=caller.traceparent if caller else None,
            baggage=caller.baggage if caller else None,
        )

    async def _publish(self, payload: Json, caller: Invocation | None) -> Json:
        topic = topic_of("publish", payload)
        data = Fields("publish", "topic_not_set", payload).optional("data")
        call = Call(
            function_id="publish",
            payload=data,
            hops=_next_hop(caller),
            traceparent=caller.traceparent if caller else None,
            baggage=caller.baggage if caller else None,
        )
        if not self._is_endless(call):
            self.topics.publish(call, topic)
        return None

    async def _publish_durable(self, payload: Json, caller: Invocation | None) -> Json:
        topic = topic_of("iii::durable::publish", payload)
        request = Enqueue(
            queue=topic,
            function_id="iii::durable::publish",
            payload=Fields("iii::durable::publish", "topic_not_set", payload).optional("data"),
            hops=_next_hop(caller),
            traceparent=caller.traceparent if caller else None,
            baggage=caller.baggage if caller else None,
        )
        await self.topics.publish_durable(request, topic)
        return None

    async def _list_functions(self, _payload: Json, _caller: Invocation | None) -> Json:
        catalog = self.app.catalog
        functions: list[Json] = []
        for function in catalog.functions.values():
            triggers: list[Json] = [
                {"type": trigger.type_name, "detail": _describe(trigger.kind)}
                for trigger in catalog.triggers
                if trigger.function_id == function.id
            ]
            functions.append(
                {
                    "function_id": function.id,
                    "description": function.description,
                    "timeout_ms": round(self.app.timeout_of(function).total_seconds() * 1000),
                    "triggers": triggers,
                    "source": function.source,
                }
            )
        return {"functions": functions}


def _queue_named(request: TriggerRequest) -> str | None:
    """Return the use of a builtin that is about one queue; None for any other, which is open to every function."""
    payload = request.payload
    if not request.function_id.startswith(_QUEUE_FUNCTIONS) or not isinstance(payload, Mapping):
        return None
    name = payload.get("queue") or payload.get("topic")
    return f"{QUEUE_USE}{name}" if isinstance(name, str) else None


def _checked(request: TriggerRequest) -> tuple[Json, Json]:
    """Return copies of payload and metadata, so that nothing is shared with the caller, who may go on changing them."""
    try:
        return to_json(request.payload), check_metadata(request.metadata)
    except PayloadError as error:
        raise InvocationError("payload_not_json", error.message, request.function_id) from error


def _direct(request: TriggerRequest, payload: Json, metadata: Json, caller: Invocation | None, depth: int) -> Call:
    return Call(
        function_id=request.function_id,
        payload=payload,
        metadata=metadata,
        timeout=None if request.timeout_ms is None else timedelta(milliseconds=request.timeout_ms),
        hops=_next_hop(caller) if isinstance(request.action, TriggerActionVoid) else (caller.hops if caller else 0),
        depth=depth,
        traceparent=caller.traceparent if caller else None,
        baggage=caller.baggage if caller else None,
    )


def _next_hop(caller: Invocation | None) -> int:
    return caller.hops + 1 if caller else 0


def _describe(kind: TriggerKind) -> str:
    match kind:
        case Http():
            return f"{kind.method.upper()} {kind.path}"
        case Cron():
            return f"{kind.expression} ({kind.timezone})"
        case Queue():
            return kind.name
        case DurableSubscriber() | Subscribe():
            return kind.topic
        case OnState():
            return f"{kind.scope or '*'}/{kind.key or '*'}"
        case OnStream():
            return f"{kind.stream_name}/{kind.group_id or '*'}/{kind.item_id or '*'}"
        case UnknownTrigger():
            return "unknown type, never fires"
