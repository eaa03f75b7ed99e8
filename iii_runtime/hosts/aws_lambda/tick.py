"""The Lambda that looks at the app each minute: fires what EventBridge cannot time, and tidies the dead-letter queues.

At minute M a rule starts it. It sends the ticks of minute M + 1 to a queue of its own, each delayed to its second;
when one becomes visible, it starts the Lambda of the job's function. So the rule, which may come at any second of its
minute, makes no tick late.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from iii_runtime.adapters.aws.message_queue import ReceivedRecord
from iii_runtime.adapters.aws.minute_ticks import DelayedTick, MinuteTicks
from iii_runtime.adapters.aws.receipts import Receipts
from iii_runtime.adapters.aws.reconciler import LIMIT
from iii_runtime.core.cron import CronJob
from iii_runtime.core.errors import IiiError, StoreError, message_of
from iii_runtime.core.payload import Json, PayloadError, decode_json
from iii_runtime.core.remote import RemoteTick, decode_request
from iii_runtime.hosts.aws_lambda.bootstrap import entry_point
from iii_runtime.hosts.aws_lambda.context import LambdaContext, remaining
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.hosts.aws_lambda.sqs_event import is_sqs_event, read_sqs_event
from iii_runtime.hosts.events import CronTick, parse_event
from iii_runtime.hosts.unknown_event import EventUnknownError
from iii_runtime.plan.names import TICK_QUEUE
from iii_runtime.plan.ticks import plan_ticks, tick_jobs

_log = logging.getLogger("iii_runtime.cron")
_MINUTE = timedelta(minutes=1)
_TIDYING = LIMIT + timedelta(seconds=5)
"""What one dead-letter queue may take."""

_AGAIN = timedelta(seconds=5)
"""After it a tick that could not be started is tried again: by the visibility of its queue it would come too late."""


def handle(sandbox: Sandbox, event: object, context: LambdaContext) -> Json:
    """Plan the next minute for a tick of the rule; start functions for the messages of the own queue.

    Raises:
        EventUnknownError: Neither of these.
        StoreError: Not all ticks could be sent. The others were; a repetition makes none of them fire twice.
    """
    if is_sqs_event(event):
        received = read_sqs_event(event, sandbox.clock.now_ms())
        if received.queue_name != sandbox.deployment.own_queue_name(TICK_QUEUE):
            raise EventUnknownError(f"this Lambda consumes its own queue, and not '{received.queue_name}'.")
        return sandbox.run(lambda: _start_all(sandbox, received.records), context)
    tick = parse_event(event)
    if not isinstance(tick, CronTick):
        raise EventUnknownError("this Lambda handles the tick of its rule and messages of its queue, and nothing else.")
    minute = tick.scheduled_at.replace(second=0, microsecond=0) + _MINUTE
    return sandbox.run(lambda: _minute(sandbox, minute, context), context)


async def _minute(sandbox: Sandbox, minute: datetime, context: LambdaContext) -> Json:
    sent = await _send_ahead(sandbox, minute)
    await _tidy(sandbox, context)
    return {"minute": minute.isoformat(), "ticks": sent}


async def _send_ahead(sandbox: Sandbox, minute: datetime) -> int:
    now = sandbox.clock.now()
    if now >= minute + _MINUTE:
        _log.warning("cron ticks skipped", extra={"iii": {"minute": minute.isoformat(), "reason": "late"}})
        return 0
    ahead = [
        DelayedTick(
            tick=RemoteTick(job_id=planned.job.job_id, time=planned.instant),
            delay=max(planned.instant - now, timedelta(0)),
        )
        for planned in plan_ticks(tick_jobs(sandbox.runtime.app.catalog), minute)
    ]
    await _ticks(sandbox).send(ahead)
    return len(ahead)


async def _tidy(sandbox: Sandbox, context: LambdaContext) -> None:
    """Reconcile the dead-letter queues, as many as there is time for. What fails is tried again in a minute."""
    for queue in sandbox.runtime.app.queues.values():
        if remaining(context) < _TIDYING:
            _log.warning("no time left for all dead-letter queues", extra={"iii": {"first_left": queue.name}})
            return
        try:
            done = await sandbox.reconciler.sweep([queue])
        except Exception as error:  # noqa: BLE001 - whatever it is, the ticks are sent and the other queues wait
            fields = {"queue": queue.name, "error": message_of(error)}
            _log.error("dead letters not reconciled", exc_info=not isinstance(error, IiiError), extra={"iii": fields})
            continue
        for name, result in done.items():
            counts = {"kept": result.kept, "adopted": result.adopted, "deleted": result.deleted}
            _log.info("dead letters reconciled", extra={"iii": {"queue": name, **counts}})


async def _start_all(sandbox: Sandbox, records: tuple[ReceivedRecord, ...]) -> Json:
    jobs = {job.job_id: job for job in tick_jobs(sandbox.runtime.app.catalog)}
    failed = [record for record in records if not await _start(sandbox, jobs, record)]
    for record in failed:
        await _hide(sandbox, record)
    left: list[Json] = [{"itemIdentifier": record.message_id} for record in failed]
    return {"batchItemFailures": left}


async def _start(sandbox: Sandbox, jobs: dict[str, CronJob], record: ReceivedRecord) -> bool:
    """Start the function of a tick; False if its message has to come back."""
    fields: dict[str, object] = {"message_id": record.message_id}
    try:
        tick = _read(record.body)
        fields |= {"job_id": tick.job_id, "nominal": tick.time.isoformat()}
        job = jobs.get(tick.job_id)
        if job is None:
            _log.warning("cron tick skipped", extra={"iii": {**fields, "reason": "its trigger has changed"}})
            return True
        await _ticks(sandbox).start(job.function_id, tick)
    except PayloadError as error:
        # It would be no better the next time.
        _log.error("cron tick unreadable", extra={"iii": {**fields, "error": error.message}})
        return True
    except IiiError as error:
        _log.error("cron tick not started", extra={"iii": {**fields, "code": error.code, "error": error.message}})
        return False
    return True


async def _hide(sandbox: Sandbox, record: ReceivedRecord) -> None:
    url = sandbox.deployment.queue_url(sandbox.deployment.own_queue_name(TICK_QUEUE))
    try:
        await Receipts(sandbox.clients, sandbox.clock, deletes=False).hide(
            url, record.handle, _AGAIN, record.received_ms
        )
    except StoreError as error:
        fields = {"message_id": record.message_id, "code": error.code, "error": error.message}
        _log.warning("the tick comes again later, not at once", extra={"iii": fields})


def _read(body: str) -> RemoteTick:
    fields = decode_json(body, "the tick")
    tick = decode_request(fields) if isinstance(fields, dict) else None
    if not isinstance(tick, RemoteTick):
        raise PayloadError("the message of the tick queue is no cron tick.", code="request_unreadable")
    return tick


def _ticks(sandbox: Sandbox) -> MinuteTicks:
    return MinuteTicks(sandbox.clients, sandbox.deployment, sandbox.clock)


handler = entry_point(handle, "tick")
