"""One delivery of a message: run its function, then acknowledge, give back or bury. In that order, never another."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from iii_runtime.core.call import Call
from iii_runtime.core.errors import (
    FunctionBusyError,
    FunctionInterruptedError,
    InvocationError,
    NonRetryableError,
    RemoteHandlerError,
    StoreError,
    message_of,
)
from iii_runtime.core.frozen import frozen
from iii_runtime.core.message import BlobLink, Cause, Envelope, ErrorRecord, bounded_error, decode_envelope
from iii_runtime.core.payload import Json, PayloadError, decode_stored
from iii_runtime.core.queue import QueueSpec, backoff_after
from iii_runtime.core.trace import is_traceparent
from iii_runtime.core.triggers import DurableSubscriber, Queue
from iii_runtime.engine.app import App
from iii_runtime.engine.conditions import invoke_if
from iii_runtime.engine.invoke import FunctionInvoker
from iii_runtime.engine.stores import Stores
from iii_runtime.ports.message_queue import Delivery

_log = logging.getLogger("iii_runtime.queue")
_STORE_TRIES = 5
_NEWER_PAUSE = timedelta(seconds=60)
_STORE_PAUSE = timedelta(seconds=1)


@frozen
class Retry:
    """Give the message back for `after`."""

    after: timedelta


@frozen
class Bury:
    """Make the message a dead letter."""

    cause: Cause


@frozen
class Death:
    """How a message ended: why, its last error, and how many of its attempts failed."""

    cause: Cause
    error: ErrorRecord
    attempts: int


def decide_failure(error: BaseException, attempt: int, queue: QueueSpec) -> Retry | Bury:
    """Return what follows failed attempt number `attempt`: another one after its back-off, or the end."""
    cause = error.__cause__ if isinstance(error, InvocationError) else error
    is_final = isinstance(cause, NonRetryableError) or (isinstance(cause, RemoteHandlerError) and cause.is_final)
    if is_final or attempt >= queue.max_attempts:
        return Bury("failed")
    return Retry(backoff_after(attempt, queue.backoff))


class Deliverer:
    """Handles received messages."""

    def __init__(self, app: App, invoker: FunctionInvoker, stores: Stores) -> None:
        self._app = app
        self._invoker = invoker
        self._stores = stores

    async def deliver(self, queue: QueueSpec, delivery: Delivery) -> None:
        """Handle one message under its lease.

        The function runs at least once; the message is acknowledged after it returned. A lost lease makes every
        write here a no-op: the next holder goes on.

        A message that kills its host again and again is buried, see `QueueSpec.receives_for`; so is one that kills its
        function's own host, while this one goes on. A message whose function is busy is put off, which is no attempt. A
        broker that counts receives for itself counts the put-offs too; nothing is written about them, for who can be
        put off is known without: messages that are passed on to another host.
        """
        try:
            envelope = decode_envelope(delivery.body)
        except PayloadError as error:
            if error.code == "envelope_newer":
                _log.warning("left for a newer host", extra={"iii": {**_fields(queue, delivery, None)}})
                await self._stored(lambda: self._stores.queue.hide(delivery, _NEWER_PAUSE), delivery)
                return
            record = bounded_error("PayloadError", error.message)
            await self._bury(queue, delivery, None, Death("unreadable", record, 0))
            return
        if delivery.receives >= queue.receives_for(queue.function_id or envelope.function_id):
            message = (
                f"received {delivery.receives} times without an outcome: each time the host died or lost its lease "
                "while the function ran"
            )
            death = Death("receives", bounded_error("Interrupted", message), delivery.attempt - 1)
            await self._bury(queue, delivery, envelope, death)
            return
        await self._attempt(queue, delivery, envelope)

    async def _attempt(self, queue: QueueSpec, delivery: Delivery, envelope: Envelope) -> None:
        started = self._stores.clock.now_ms()
        try:
            ran = await self._run(queue, delivery, envelope)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the outcome of this attempt
            await self._failed(queue, delivery, envelope, error)
            return
        elapsed = self._stores.clock.now_ms() - started
        if not await self._stored(lambda: self._stores.queue.acknowledge(delivery), delivery):
            fields = _fields(queue, delivery, envelope)
            _log.warning("ran, and could not be acknowledged; it will run again", extra={"iii": fields})
            return
        _log.info(
            "done" if ran else "skipped",
            extra={"iii": {**_fields(queue, delivery, envelope), "elapsed_ms": elapsed}},
        )

    async def _run(self, queue: QueueSpec, delivery: Delivery, envelope: Envelope) -> bool:
        call = Call(
            function_id=queue.function_id or envelope.function_id,
            payload=await self._payload(envelope),
            source="topic" if queue.topic is not None else "queue",
            metadata=envelope.metadata,
            queue=queue.name,
            receipt=delivery.receipt,
            attempt=delivery.attempt,
            max_attempts=queue.max_attempts,
            hops=envelope.hops,
            traceparent=envelope.traceparent,
            baggage=envelope.baggage,
        )
        return await invoke_if(self._invoker, self._condition(queue, call.function_id), call)

    async def _payload(self, envelope: Envelope) -> Json:
        link = envelope.payload
        if not isinstance(link, BlobLink):
            return decode_stored(link)
        text = await self._stores.blobs.get(link.key)
        if hashlib.sha256(text.encode("ascii")).hexdigest() != link.sha256:
            raise StoreError(f"the payload of message {envelope.receipt} is damaged: blob {link.key} has changed.")
        return decode_stored(text)

    def _condition(self, queue: QueueSpec, function_id: str) -> str | None:
        for spec in self._app.catalog.triggers:
            kind = spec.kind
            is_bound = isinstance(kind, Queue) and queue.topic is None and kind.name == queue.name
            is_subscribed = isinstance(kind, DurableSubscriber) and kind.topic == queue.topic
            if spec.function_id == function_id and (is_bound or is_subscribed):
                return kind.condition
        return None

    async def _failed(self, queue: QueueSpec, delivery: Delivery, envelope: Envelope, error: BaseException) -> None:
        if isinstance(error, InvocationError) and isinstance(error.__cause__, FunctionBusyError):
            await self._put_off(queue, delivery, envelope, error)
            return
        if isinstance(error, InvocationError) and isinstance(error.__cause__, FunctionInterruptedError):
            await self._interrupted(queue, delivery, envelope, error)
            return
        self._stores.meter.add("FailedAttempts", queue=queue.name)
        record = error_record(error)
        decision = decide_failure(error, delivery.attempt, queue)
        if isinstance(decision, Bury):
            await self._bury(queue, delivery, envelope, Death(decision.cause, record, delivery.attempt))
            return
        kept = await self._stored(lambda: self._stores.queue.fail(delivery, record, decision.after), delivery)
        _log.warning(
            "attempt failed" if kept else "attempt failed, and its lease was lost",
            extra={
                "iii": {
                    **_fields(queue, delivery, envelope),
                    "of": queue.max_attempts,
                    "retry_in_s": round(decision.after.total_seconds()),
                    "error": f"{record.type}: {record.message}",
                }
            },
        )

    async def _put_off(self, queue: QueueSpec, delivery: Delivery, envelope: Envelope, error: InvocationError) -> None:
        """Give the message back without counting an attempt: its function was not started."""
        pause = _pause(delivery)
        await self._stored(lambda: self._stores.queue.hide(delivery, pause), delivery)
        self._stores.meter.add("FunctionBusy", queue=queue.name)
        fields = _fields(queue, delivery, envelope)
        _log.warning("function busy", extra={"iii": {**fields, "retry_in_s": pause.seconds, "error": error.message}})

    async def _interrupted(
        self, queue: QueueSpec, delivery: Delivery, envelope: Envelope, error: InvocationError
    ) -> None:
        """Let the lease end as if this host had died too, but sooner: no attempt is counted, and the receive is."""
        pause = _pause(delivery)

        async def end_soon() -> bool:
            await self._stores.queue.extend([delivery], pause)
            return True

        await self._stored(end_soon, delivery)
        fields = _fields(queue, delivery, envelope)
        _log.warning("interrupted", extra={"iii": {**fields, "retry_in_s": pause.seconds, "error": error.message}})

    async def _bury(self, queue: QueueSpec, delivery: Delivery, envelope: Envelope | None, death: Death) -> None:
        buried = await self._stored(
            lambda: self._stores.queue.bury(delivery, death.cause, death.error, death.attempts), delivery
        )
        if buried:
            self._stores.meter.add("DeadLetters", queue=queue.name)
            _log.error(
                "dead letter",
                extra={
                    "iii": {
                        **_fields(queue, delivery, envelope),
                        "cause": death.cause,
                        "error": f"{death.error.type}: {death.error.message}",
                    }
                },
            )

    async def _stored(self, write: Callable[[], Awaitable[bool]], delivery: Delivery) -> bool:
        """Write, again if the store refuses. Given up, the lease ends and the message comes back: late, never lost."""
        for attempt in range(1, _STORE_TRIES + 1):
            try:
                return await write()
            except StoreError as error:
                _log.error(
                    "store refused the outcome",
                    extra={"iii": {"message_receipt_id": delivery.receipt, "try": attempt, "error": error.message}},
                )
                if attempt < _STORE_TRIES:
                    await self._stores.clock.sleep_until(self._stores.clock.now() + _STORE_PAUSE)
        return False


def _pause(delivery: Delivery) -> timedelta:
    """Return how long a message waits whose function could not run, or not to its end: longer at each receive."""
    return timedelta(seconds=min(5 * 2 ** (delivery.receives - 1), 60))


def error_record(error: BaseException) -> ErrorRecord:
    """Return what a letter says of a failure: the handler's own exception where there is one."""
    stack = error.stacktrace or "" if isinstance(error, InvocationError) else ""
    cause = error.__cause__ if isinstance(error, InvocationError) and error.__cause__ is not None else error
    if isinstance(error, InvocationError) and error.code == "TIMEOUT":
        return bounded_error("TIMEOUT", error.message, stack)
    name = cause.type_name if isinstance(cause, RemoteHandlerError) else type(cause).__name__
    return bounded_error(name, message_of(cause), stack)


def _fields(queue: QueueSpec, delivery: Delivery, envelope: Envelope | None) -> dict[str, object]:
    fields: dict[str, object] = {"queue": queue.name}
    if envelope is not None:
        fields["function_id"] = queue.function_id or envelope.function_id
    fields |= {"message_receipt_id": delivery.receipt, "attempt": delivery.attempt}
    if envelope is not None and is_traceparent(envelope.traceparent):
        fields["trace_id"] = envelope.traceparent.split("-")[1]
    return fields
