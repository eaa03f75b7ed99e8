"""`iii::queue::*` and `engine::queue::*`: queues and dead letters, with iii's shapes and a few members more."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from iii_runtime.core.errors import InvocationError, StoreError
from iii_runtime.core.invocation import Invocation
from iii_runtime.core.letter import DAMAGES, LettersLeftError, incomplete
from iii_runtime.core.message import BlobLink, decode_envelope
from iii_runtime.core.payload import Json, PayloadError, decode_stored
from iii_runtime.core.queue import QueueSpec
from iii_runtime.engine.app import App
from iii_runtime.engine.builtins.payload import Fields, failing_as
from iii_runtime.engine.builtins.state import Builtin
from iii_runtime.engine.stores import Stores
from iii_runtime.plan.queues import TOPIC_PREFIX

if TYPE_CHECKING:  # few functions ask for letters and depths
    from iii_runtime.ports.dead_letter import DeadLetter
    from iii_runtime.ports.message_queue import QueueDepth

_MOST = 1_000_000


class QueueBuiltins:
    """The queue functions over an app's queues."""

    def __init__(self, app: App, stores: Stores) -> None:
        self._app = app
        self._stores = stores

    def by_id(self) -> Mapping[str, Builtin]:
        """Return the functions by id."""
        return {
            "iii::queue::redrive": self.redrive,
            "iii::queue::redrive_message": self.redrive_message,
            "iii::queue::discard": self.discard,
            "iii::queue::discard_message": self.discard_message,
            "iii::queue::purge": self.purge,
            "engine::queue::dlq_messages": self.dlq_messages,
            "engine::queue::dlq_message": self.dlq_message,
            "engine::queue::dlq_topics": self.dlq_topics,
            "engine::queue::list_topics": self.list_topics,
            "engine::queue::topic_stats": self.topic_stats,
            "engine::queue::list": self.list_queues,
        }

    async def redrive(self, payload: Json, _caller: Invocation | None) -> Json:
        """`{queue | topic}` -> `{queue, redriven}`: all letters, oldest first, attempts starting at 1."""
        name = _queue_name("iii::queue::redrive", payload)
        async with failing_as("redrive_failed", "iii::queue::redrive"):
            moves = [partial(self._stores.letters.redrive_all, queue) for queue in self._known(name)]
            return {"queue": name, "redriven": await _move_all(name, "redriven", moves)}

    async def redrive_message(self, payload: Json, _caller: Invocation | None) -> Json:
        """`{queue, message_id}` -> `{queue, message_id, redriven: 0 | 1}`, at any position."""
        function_id = "iii::queue::redrive_message"
        name, receipt = _queue_name(function_id, payload), _message_id(function_id, payload)
        async with failing_as("redrive_failed", function_id):
            done = [await self._stores.letters.redrive(queue, receipt) for queue in self._known(name)]
        return {"queue": name, "message_id": receipt, "redriven": int(any(done))}

    async def discard(self, payload: Json, _caller: Invocation | None) -> Json:
        """`{queue}` -> `{queue, discarded}`: all letters, for good. An addition to iii."""
        name = _queue_name("iii::queue::discard", payload)
        async with failing_as("discard_failed", "iii::queue::discard"):
            moves = [partial(self._stores.letters.discard_all, each) for each in await self._physical_names(name)]
            return {"queue": name, "discarded": await _move_all(name, "discarded", moves)}

    async def discard_message(self, payload: Json, _caller: Invocation | None) -> Json:
        """`{queue, message_id}` -> `{queue, message_id, discarded: 0 | 1}`."""
        function_id = "iii::queue::discard_message"
        name, receipt = _queue_name(function_id, payload), _message_id(function_id, payload)
        async with failing_as("discard_failed", function_id):
            done = [
                await self._stores.letters.discard(physical, receipt) for physical in await self._physical_names(name)
            ]
        return {"queue": name, "message_id": receipt, "discarded": int(any(done))}

    async def purge(self, payload: Json, _caller: Invocation | None) -> Json:
        """`{queue}` -> `{queue, purged}`: waiting messages; letters and what is in flight stay. An addition."""
        name = _queue_name("iii::queue::purge", payload)
        total = 0
        async with failing_as("purge_failed", "iii::queue::purge"):
            for physical in await self._physical_names(name):
                total += await self._stores.queue.purge(physical)
        return {"queue": name, "purged": total}

    async def dlq_messages(self, payload: Json, _caller: Invocation | None) -> Json:
        """`{queue | topic, offset?, limit?}` -> letters, oldest first: iii's members, cause, function id and more."""
        name = _queue_name("engine::queue::dlq_messages", payload)
        fields = Fields("engine::queue::dlq_messages", "request_invalid", payload)
        offset, limit = fields.integer("offset", 0, most=_MOST), fields.integer("limit", 50, most=_MOST)
        async with failing_as("dlq_failed", "engine::queue::dlq_messages"):
            found = [
                await self._stores.letters.list_letters(physical, 0, offset + limit)
                for physical in await self._physical_names(name)
            ]
        # Merged, not sorted: each keeps the order of its store, so that pages neither repeat nor leave out a letter.
        letters = heapq.merge(*found, key=lambda letter: letter.failed_ms)
        return [summary(letter) for letter in itertools.islice(letters, offset, offset + limit)]

    async def dlq_message(self, payload: Json, _caller: Invocation | None) -> Json:
        """`{message_id}` -> all that is known of one letter, payload and stacks included; null without one."""
        receipt = _message_id("engine::queue::dlq_message", payload)
        async with failing_as("dlq_failed", "engine::queue::dlq_message"):
            letter = await self._stores.letters.get(receipt)
            return None if letter is None else await self._detail(letter)

    async def dlq_topics(self, _payload: Json, _caller: Invocation | None) -> Json:
        """`{}` -> `[{topic, broker_type, message_count}]` of every queue with letters."""
        async with failing_as("dlq_failed", "engine::queue::dlq_topics"):
            counts = {name: await self._stores.letters.count(name) for name in await self._stores.queue.queue_names()}
        return [
            {"topic": name, "broker_type": self._stores.broker, "message_count": count}
            for name, count in counts.items()
            if count
        ]

    async def list_topics(self, _payload: Json, _caller: Invocation | None) -> Json:
        """`{}` -> `[{name, broker_type, subscriber_count}]` of every topic with a durable subscriber."""
        names = [queue.topic for queue in self._app.queues.values() if queue.topic is not None]
        return [
            {"name": name, "broker_type": self._stores.broker, "subscriber_count": names.count(name)}
            for name in sorted(set(names))
        ]

    async def topic_stats(self, payload: Json, _caller: Invocation | None) -> Json:
        """`{topic | queue}` -> `{depth, consumer_count, dlq_depth, config}`; depth counts what is in flight too.

        With the members of `list_queues` for figures that are not exact.
        """
        name = _queue_name("engine::queue::topic_stats", payload)
        depths = [await self._stores.queue.depth(physical) for physical in await self._physical_names(name)]
        stats: dict[str, Json] = {
            "depth": sum(each.visible + each.delayed + each.in_flight for each in depths),
            "consumer_count": len(self._app.consumers(name)) or len(self._known(name)),
            "dlq_depth": sum(each.dead for each in depths),
            "config": _config(self._app.queues[name]) if name in self._app.queues else None,
        }
        return stats | _estimates(depths)

    async def list_queues(self, _payload: Json, _caller: Invocation | None) -> Json:
        """`{}` -> every queue, declared or holding something, with settings, consumers and counts.

        Where a broker estimates the counts, `is_exact` is false; `sqs_visible` is its estimate of the letters, and
        `unindexed` how many of those are not among `dead` yet.
        """
        names = list(self._app.queues)
        names += [name for name in await self._stores.queue.queue_names() if name not in self._app.queues]
        listed: list[Json] = []
        for name in names:
            queue = self._app.queues.get(name)
            config = None if queue is None else _config(queue)
            consumers: list[Json] = list(self._app.consumers(name))
            if queue is not None and queue.function_id is not None:
                consumers = [queue.function_id]
            depth = await self._stores.queue.depth(name)
            row: dict[str, Json] = {
                "name": name,
                "config": config,
                "consumers": consumers,
                "visible": depth.visible,
                "delayed": depth.delayed,
                "in_flight": depth.in_flight,
                "dead": depth.dead,
            }
            listed.append(row | _estimates([depth]))
        return listed

    async def _detail(self, letter: DeadLetter) -> Json:
        detail = summary(letter)
        if detail["payload_omitted"]:
            link = decode_envelope(letter.letter).payload
            if isinstance(link, BlobLink):
                detail |= {"payload": await self._linked(letter, link), "payload_omitted": False}
        errors: list[Json] = [{"attempt": attempt, **error.to_json()} for attempt, error in letter.errors]
        return detail | {"stack": letter.error.stack, "errors": errors, "generation": letter.generation}

    async def _linked(self, letter: DeadLetter, link: BlobLink) -> Json:
        try:
            return decode_stored(await self._stores.blobs.get(link.key))
        except StoreError as error:
            raise (incomplete(letter.receipt, letter.queue, error) if error.code in DAMAGES else error) from error

    def _known(self, name: str) -> list[QueueSpec]:
        """Return the queues a name stands for: the named one, or those of a topic's subscriptions."""
        queues = self._app.queues
        if name in queues:
            return [queues[name]]
        subscriptions = [queue for queue in queues.values() if queue.topic == name]
        if not subscriptions:
            raise InvocationError("queue_not_found", f"Queue '{name}' not found. Declare it in iii-config.yaml.")
        return subscriptions

    async def _physical_names(self, name: str) -> list[str]:
        """Return the names under which the store keeps a queue or topic, declared now or only still holding something.

        Raises:
            InvocationError: `queue_not_found`.
        """
        declared = [queue.name for queue in self._app.queues.values() if name in (queue.name, queue.topic)]
        if declared:
            return declared
        held = await self._stores.queue.queue_names()
        found = [each for each in held if each == name or each.startswith(f"{TOPIC_PREFIX}{name}/")]
        if not found:
            raise InvocationError("queue_not_found", f"Queue '{name}' not found")
        return found


def summary(letter: DeadLetter) -> dict[str, Json]:
    """Return a letter as a listing shows it; `failed_at` in seconds as in iii, `retries` = failed attempts."""
    payload, omitted, trace = _payload(letter)
    return {
        "id": letter.receipt,
        "queue": letter.queue,
        "function_id": letter.function_id,
        "payload": payload,
        "payload_omitted": omitted,
        "error": letter.error.message,
        "error_type": letter.error.type,
        "cause": letter.cause,
        "failed_at": letter.failed_ms // 1000,
        "enqueued_at": letter.first_ms // 1000,
        "retries": letter.attempts,
        "receives": letter.receives,
        "size_bytes": letter.size_bytes,
        "traceparent": trace,
    }


def _payload(letter: DeadLetter) -> tuple[Json, bool, str | None]:
    if not letter.letter:
        return None, True, None
    try:
        envelope = decode_envelope(letter.letter)
    except PayloadError:
        return letter.letter, False, None
    if isinstance(envelope.payload, BlobLink):
        return None, True, envelope.traceparent
    return decode_stored(envelope.payload), False, envelope.traceparent


async def _move_all(name: str, verb: str, moves: Sequence[Callable[[], Awaitable[int]]]) -> int:
    """Move all letters of the queues a name stands for, and return how many; what one leaves stops no other."""
    total = 0
    left: dict[str, StoreError] = {}
    for move in moves:
        try:
            total += await move()
        except LettersLeftError as error:
            total += error.done
            left |= error.left
    if left:
        raise LettersLeftError(name, verb, total, left)
    return total


def _estimates(depths: Sequence[QueueDepth]) -> dict[str, Json]:
    """Return what is to be said about counts that a broker estimates; nothing if all are exact."""
    if all(depth.is_exact for depth in depths):
        return {}
    letters = [(depth.letters_visible, depth.dead) for depth in depths if depth.letters_visible is not None]
    return {
        "is_exact": False,
        "sqs_visible": sum(visible for visible, _ in letters),
        "unindexed": sum(max(0, visible - dead) for visible, dead in letters),
    }


def _config(queue: QueueSpec) -> dict[str, Json]:
    return {
        "max_attempts": queue.max_attempts,
        "concurrency": queue.concurrency,
        "type": queue.kind,
        "message_group_field": queue.group_field,
        "backoff_ms": round(queue.backoff.total_seconds() * 1000),
    }


def _queue_name(function_id: str, payload: Json) -> str:
    fields = Fields(function_id, "queue_not_set", payload)
    name = fields.optional_name("queue") or fields.optional_name("topic")
    if name is None:
        raise InvocationError("queue_not_set", f"{function_id} needs 'queue'.", function_id)
    return name


def _message_id(function_id: str, payload: Json) -> str:
    return Fields(function_id, "message_id_not_set", payload).name("message_id")
