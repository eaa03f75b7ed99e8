"""One SQS event: its messages, one after the other, and which of them are done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta

from iii_runtime.adapters.aws.message_queue import ReceivedRecord
from iii_runtime.adapters.aws.receipts import Receipts
from iii_runtime.core.errors import StoreError
from iii_runtime.core.payload import Json
from iii_runtime.core.queue import QueueSpec
from iii_runtime.engine.app import App
from iii_runtime.hosts.aws_lambda.context import LambdaContext, remaining, time_for_functions
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.hosts.aws_lambda.sqs_event import queue_called, read_sqs_event
from iii_runtime.plan.limits import DISPATCH_MARGIN

_log = logging.getLogger("iii_runtime.queue")

ON_TIME = DISPATCH_MARGIN / 2
"""How long after its receive a message may arrive so that its visibility surely outlasts the invocation."""

_LAST = timedelta(milliseconds=300)
"""Kept from the store that does not take an outcome, so that the outcomes of the other messages reach SQS."""


class QueueBatch:
    """Handles the messages of one SQS event.

    What is done is deleted by Lambda, for everything else is reported: what failed and comes back after its back-off,
    and what was not touched and comes back at once. So nothing is deleted that was not done.

    - A message is started only if it can have the whole time of its function. The first one always is.
    - On an ordered queue, what follows a message that is not done is not touched, as far as its group goes.
    - Once a function does not let itself be ended, no answer can leave: no further message is started, what is done is
      deleted here, and the process ends. To Lambda that is a failed invocation, which deletes nothing.

    Args:
        sandbox: The sandbox.
        context: The invocation.
    """

    def __init__(self, sandbox: Sandbox, context: LambdaContext) -> None:
        self._sandbox = sandbox
        self._runtime = sandbox.runtime
        self._deployment = sandbox.deployment
        self._queue = sandbox.queue
        self._receipts = Receipts(sandbox.clients, sandbox.clock, deletes=False)
        self._context = context

    async def consume(self, spec: QueueSpec, records: Sequence[ReceivedRecord]) -> dict[str, Json]:
        """Handle the messages of a queue in their order; returns a partial batch response."""
        self._queue.settled.clear()
        closed: set[str | None] = set()
        needed = longest_run(self._runtime.app, spec)
        for index, record in enumerate(records):
            if reason := self._untouched(spec, record, closed, needed if index else timedelta(0)):
                await self._return(spec, record, reason=reason)
            else:
                await self._handle(spec, record)
            if record.handle not in self._queue.settled:
                closed.add(record.group)
        if not self._sandbox.can_answer:
            await self._delete(spec, [record for record in records if record.handle in self._queue.settled])
        left: list[Json] = [
            {"itemIdentifier": record.message_id} for record in records if record.handle not in self._queue.settled
        ]
        return {"batchItemFailures": left}

    def _untouched(
        self, spec: QueueSpec, record: ReceivedRecord, closed: set[str | None], needed: timedelta
    ) -> str | None:
        """Return why a message is not started now, None if it is."""
        if not self._sandbox.can_answer:
            return "the process ends"
        if time_for_functions(self._context) < needed:
            return "no time left"
        return "behind one that is not done" if spec.is_ordered and record.group in closed else None

    async def _delete(self, spec: QueueSpec, done: Sequence[ReceivedRecord]) -> None:
        url = self._deployment.queue_url(self._deployment.queue_name(spec))
        receipts = Receipts(self._sandbox.clients, self._sandbox.clock, deletes=True)
        for record in done:
            try:
                await receipts.settle(url, record.handle)
            except StoreError as error:
                fields = {"queue": spec.name, "message_id": record.message_id, "code": error.code}
                _log.error("done, and could not be deleted; it will run again", extra={"iii": fields})

    async def _handle(self, spec: QueueSpec, record: ReceivedRecord) -> None:
        fields = {"queue": spec.name, "message_id": record.message_id}
        try:
            async with asyncio.timeout((remaining(self._context) - _LAST).total_seconds()):
                delivery = await self._queue.take(spec, record)
                if delivery is not None and await self._holds(spec, record):
                    await self._runtime.deliverer.deliver(spec, delivery)
        except StoreError as error:
            fields |= {"code": error.code, "error": error.message}
            _log.error("not handled: the store refused; it comes back", extra={"iii": fields})
        except TimeoutError:
            _log.error("its outcome could not be stored in time; it comes back", extra={"iii": fields})
        except Exception:  # noqa: BLE001 - whatever it is, what is done of the other messages has to reach SQS
            _log.exception("delivery failed; it comes back", extra={"iii": fields})

    async def _holds(self, spec: QueueSpec, record: ReceivedRecord) -> bool:
        """Return whether nobody else receives the message while this invocation may run; else it is not to be run.

        Its visibility outlasts an invocation that begins when it is received. One that Lambda has throttled begins
        later: then the visibility is renewed, which SQS refuses if it has ended meanwhile.
        """
        if not may_end_early(spec, record):
            return True
        url = self._deployment.queue_url(self._deployment.queue_name(spec))
        lease = remaining(self._context) + DISPATCH_MARGIN
        if await self._receipts.hide(url, record.handle, lease, record.received_ms):
            return True
        fields = {"queue": spec.name, "message_id": record.message_id}
        _log.warning("not run: it arrived when its visibility had ended; it comes back", extra={"iii": fields})
        return False

    async def _return(self, spec: QueueSpec, record: ReceivedRecord, *, reason: str) -> None:
        fields = {"queue": spec.name, "message_id": record.message_id, "reason": reason}
        _log.info("returned untouched", extra={"iii": fields})
        url = self._deployment.queue_url(self._deployment.queue_name(spec))
        try:
            await self._receipts.hide(url, record.handle, timedelta(0), record.received_ms)
        except StoreError as error:
            fields |= {"code": error.code, "error": error.message}
            _log.warning("returned untouched; it comes back later, not at once", extra={"iii": fields})


def may_end_early(spec: QueueSpec, record: ReceivedRecord) -> bool:
    """Return whether the visibility of a message may end before the invocation that it was handed to.

    Only of a first receive it is known when it was. A later one counts as late where two runs at once break more than
    at-least-once allows: on an ordered queue, which runs one message of a group at a time.
    """
    return spec.is_ordered if record.waited is None else record.waited > ON_TIME


def longest_run(app: App, spec: QueueSpec) -> timedelta:
    """Return how long one message of a queue may take.

    A bound queue takes no function that is slower than the bound one; a shared queue takes any.
    """
    functions = app.catalog.functions
    bound = [spec.function_id] if spec.function_id is not None else app.consumers(spec.name)
    known = [functions[name] for name in bound if name in functions]
    return max((app.timeout_of(function) for function in known or functions.values()), default=timedelta(0))


def consume_event(sandbox: Sandbox, event: Mapping[str, object], context: LambdaContext) -> Json:
    """Handle an SQS event and return a partial batch response.

    Raises:
        EventUnknownError: A record cannot be read. Nothing was done, and nothing is removed.
        HostError: `queue_unknown`: likewise.
    """
    received = read_sqs_event(event, sandbox.clock.now_ms())
    spec = queue_called(received.queue_name, sandbox.deployment, sandbox.runtime.app.queues.values())
    return sandbox.run(lambda: QueueBatch(sandbox, context).consume(spec, received.records), context)
