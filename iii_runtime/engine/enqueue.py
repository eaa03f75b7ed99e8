"""Putting a call on a queue: every refusal before anything is stored, then one write."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from iii_runtime.core.errors import EnqueueError, StoreError
from iii_runtime.core.message import INLINE_LIMIT, TOPIC_FUNCTION, BlobLink, Envelope, encode_envelope
from iii_runtime.core.payload import Json, PayloadError, PayloadTooLargeError, render_json, to_json
from iii_runtime.core.queue import (
    QueueSpec,
    check_dedupe_id,
    check_delay,
    check_hops,
    group_key,
    group_value,
)
from iii_runtime.core.registry import is_reserved
from iii_runtime.core.trace import child_traceparent
from iii_runtime.core.trigger_request import check_metadata
from iii_runtime.engine.app import App
from iii_runtime.engine.stores import Stores
from iii_runtime.ports.message_queue import OutgoingMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueue:
    """A request to enqueue.

    Attributes:
        queue: Name of the queue.
        function_id: The function to run.
        payload: Its input, not yet checked.
        delay: Seconds, 0 to 900.
        dedupe_id: See `TriggerActionEnqueue`.
        metadata: Sidecar for the handler.
        hops: Hops of the new message.
        traceparent: Trace context of the sender.
        baggage: Baggage of the sender.
    """

    queue: str
    function_id: str
    payload: object
    delay: object = 0
    dedupe_id: object = None
    metadata: object = None
    hops: int = 0
    traceparent: str | None = None
    baggage: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A message that was accepted and is not stored yet.

    Attributes:
        queue: Where it goes.
        message: What is stored.
        blob: Text of the payload, if the message is too large to carry it and links to it instead.
    """

    queue: QueueSpec
    message: OutgoingMessage
    blob: str | None = None


class Enqueuer:
    """Stores messages on queues."""

    def __init__(self, app: App, stores: Stores) -> None:
        self._app = app
        self._stores = stores

    async def enqueue(self, request: Enqueue) -> str:
        """Store the message and return its receipt. From then on the function runs at least once.

        Raises:
            EnqueueError: Refused; see its `reason`. Nothing was stored.
        """
        queue = self._app.queues.get(request.queue)
        if queue is None or queue.topic is not None:
            raise EnqueueError("queue_not_found", f"Queue '{request.queue}' not found", request.function_id)
        self._check_function(queue, request.function_id)
        return (await self.send([self.draft(queue, request)]))[0]

    def draft(self, queue: QueueSpec, request: Enqueue) -> Draft:
        """Check and encode a message for a queue that is known to exist and a function that may use it.

        Raises:
            EnqueueError: Refused; see its `reason`.
        """
        delay_ms = check_delay(request.delay, queue, request.function_id)
        dedupe_id = check_dedupe_id(request.dedupe_id, request.function_id)
        payload = _payload(request)
        group = group_value(payload, queue, request.function_id)
        hops = self._hops(request, queue)
        text = _text(payload, request.function_id)
        receipt = self._stores.ids.new_id()
        envelope = Envelope(
            receipt=receipt,
            function_id=request.function_id,
            queue=queue.name,
            accepted_ms=self._stores.clock.now_ms(),
            hops=hops,
            group=group,
            dedupe_id=dedupe_id,
            # Without a sender the trace begins here, so that all attempts belong to one.
            traceparent=request.traceparent or child_traceparent(None, receipt),
            baggage=request.baggage,
            metadata=_metadata(request),
            payload=text,
        )
        body, blob = _encoded(envelope, text)
        message = OutgoingMessage(
            receipt=receipt,
            function_id=request.function_id,
            body=body,
            group=group_key(group, queue),
            delay_ms=delay_ms,
            dedupe_id=dedupe_id,
            blob_key=None if blob is None else receipt,
        )
        return Draft(queue=queue, message=message, blob=blob)

    async def send(self, drafts: Sequence[Draft]) -> list[str]:
        """Store messages, all or none, and return their receipts. Blobs come first; without a message they expire.

        Raises:
            EnqueueError: `enqueue_failed`: the store refused.
        """
        try:
            for draft in drafts:
                if draft.blob is not None:
                    await self._stores.blobs.put(draft.message.receipt, draft.blob)
            return await self._stores.queue.send_all([(draft.queue, draft.message) for draft in drafts])
        except StoreError as error:
            names = ", ".join(f"'{draft.queue.name}'" for draft in drafts)
            raise EnqueueError(
                "enqueue_failed",
                f"{'Queue' if len(drafts) == 1 else 'Queues'} {names}: {error.message} ({error.code})",
                drafts[0].message.function_id,
            ) from error

    @property
    def has_topics(self) -> bool:
        """Whether durable topics have a broker of their own."""
        return self._stores.topics is not None

    async def publish(self, topic: str, request: Enqueue, *, ordered: bool) -> str:
        """Hand one message to the broker of durable topics, for all subscriptions, and return its receipt.

        Raises:
            EnqueueError: Refused, or not stored.
        """
        assert self._stores.topics is not None  # noqa: S101 - see `has_topics`
        draft = self.draft(QueueSpec(name=topic, topic=topic), replace(request, function_id=TOPIC_FUNCTION))
        try:
            if draft.blob is not None:
                await self._stores.blobs.put(draft.message.receipt, draft.blob)
            await self._stores.topics.publish(topic, draft.message, ordered=ordered)
        except StoreError as error:
            message = f"Topic '{topic}': {error.message} ({error.code})"
            raise EnqueueError("enqueue_failed", message, request.function_id) from error
        return draft.message.receipt

    def _hops(self, request: Enqueue, queue: QueueSpec) -> int:
        try:
            return check_hops(request.hops, queue, request.function_id)
        except EnqueueError:
            self._stores.meter.add("TooManyHops", function_id=request.function_id)
            raise

    def _check_function(self, queue: QueueSpec, function_id: str) -> None:
        functions = self._app.catalog.functions
        if is_reserved(function_id):
            raise EnqueueError(
                "function_not_registered",
                f"'{function_id}' is a function of the runtime itself and cannot be enqueued: enqueue one of your own "
                "that calls it",
                function_id,
            )
        if function_id not in functions:
            raise EnqueueError(
                "function_not_registered",
                f"Function '{function_id}' is not registered: nothing could run this message of queue '{queue.name}'",
                function_id,
            )
        consumers = self._app.consumers(queue.name)
        if len(consumers) != 1 or consumers[0] == function_id or consumers[0] not in functions:
            return
        limit = self._app.timeout_of(functions[consumers[0]])
        needed = self._app.timeout_of(functions[function_id])
        if needed > limit:
            raise EnqueueError(
                "function_not_allowed",
                f"Queue '{queue.name}' is bound to '{consumers[0]}', whose timeout is {limit.total_seconds():g} s; "
                f"'{function_id}' may run for {needed.total_seconds():g} s. "
                f"Use another queue, or raise the timeout of '{consumers[0]}'.",
                function_id,
            )


def _payload(request: Enqueue) -> Json:
    try:
        return to_json(request.payload)
    except PayloadError as error:
        raise EnqueueError("payload_not_json", error.message, request.function_id) from error


def _text(payload: Json, function_id: str) -> str:
    try:
        return render_json(payload)
    except PayloadTooLargeError as error:
        raise EnqueueError("payload_too_large", error.message, function_id) from error


def _encoded(envelope: Envelope, text: str) -> tuple[str, str | None]:
    body = encode_envelope(envelope) if len(text) <= INLINE_LIMIT else ""
    if body and len(body) <= INLINE_LIMIT:
        return body, None
    link = BlobLink(key=envelope.receipt, size=len(text), sha256=hashlib.sha256(text.encode("ascii")).hexdigest())
    return encode_envelope(replace(envelope, payload=link)), text


def _metadata(request: Enqueue) -> dict[str, Json] | None:
    try:
        return check_metadata(request.metadata)
    except PayloadError as error:
        raise EnqueueError("payload_not_json", error.message, request.function_id) from error
