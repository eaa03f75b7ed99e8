"""Topics: `publish` to `subscribe`, at most once; `iii::durable::publish` to durable subscribers, at least once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from iii_runtime.core.call import Call
from iii_runtime.core.errors import InvocationError
from iii_runtime.core.payload import Json, to_json
from iii_runtime.core.triggers import Subscribe
from iii_runtime.engine.app import App
from iii_runtime.engine.conditions import invoke_if
from iii_runtime.engine.enqueue import Enqueue, Enqueuer
from iii_runtime.engine.invoke import FunctionInvoker
from iii_runtime.ports.remote_functions import RemoteFunctions

_log = logging.getLogger("iii_runtime.topic")

Spawn = Callable[[Coroutine[Any, Any, None]], None]


class Topics:
    """Fans messages out to the subscribers of a topic."""

    def __init__(
        self,
        app: App,
        invoker: FunctionInvoker,
        enqueuer: Enqueuer,
        spawn: Spawn,
        remote: RemoteFunctions | None = None,
    ) -> None:
        self._app = app
        self._remote = remote
        self._invoker = invoker
        self._enqueuer = enqueuer
        self._spawn = spawn

    def publish(self, call: Call, topic: str) -> None:
        """Start every subscriber with the data of `call` and return at once. Nothing is stored or repeated."""
        for function_id, kind in self._app.triggers(Subscribe):
            if isinstance(kind, Subscribe) and kind.topic == topic:
                own = replace(call, function_id=function_id, source="topic", payload=to_json(call.payload))
                self._spawn(self._notify(own, kind))

    async def publish_durable(self, request: Enqueue, topic: str) -> int:
        """Store the data for every distinct subscribed function, for all or for none, and return how many there are.

        Each runs at least once, with the retries of its subscription. Without a subscriber the data goes nowhere, which
        is logged: iii would keep it under the topic's name.

        Raises:
            EnqueueError: Refused, or not stored; nobody runs.
        """
        queues = [queue for queue in self._app.queues.values() if queue.topic == topic]
        if not queues:
            _log.warning("published to a topic nobody subscribes to", extra={"iii": {"topic": topic}})
            return 0
        if self._enqueuer.has_topics:
            await self._enqueuer.publish(topic, request, ordered=any(queue.is_ordered for queue in queues))
        else:
            await self._enqueuer.send(
                [
                    self._enqueuer.draft(queue, replace(request, queue=queue.name, function_id=queue.function_id or ""))
                    for queue in queues
                ]
            )
        return len(queues)

    async def _notify(self, call: Call, kind: Subscribe) -> None:
        try:
            if self._remote is not None:
                await self._remote.start(replace(call, condition=kind.condition))
            else:
                await invoke_if(self._invoker, kind.condition, call)
        except InvocationError as error:
            _log.error(
                "subscriber failed",
                extra={
                    "iii": {
                        "topic": kind.topic,
                        "function_id": call.function_id,
                        "error": str(error),
                        "stack": error.stacktrace,
                    }
                },
            )


def topic_of(function_id: str, payload: Json) -> str:
    """Return the topic of a publish payload.

    Raises:
        InvocationError: `topic_not_set`.
    """
    topic = payload.get("topic") if isinstance(payload, dict) else None
    if not isinstance(topic, str) or not topic:
        raise InvocationError(
            "topic_not_set", f"{function_id} needs a payload {{topic, data}} with a topic.", function_id
        )
    return topic
