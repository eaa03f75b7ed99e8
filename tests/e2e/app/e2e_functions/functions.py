"""Schedules that count their ticks, a queue that keeps an order, and a durable topic that anybody may listen to."""

from __future__ import annotations

from typing import Any

from iii_runtime import (
    ApiRequest,
    ApiResponse,
    Cron,
    DurableSubscriber,
    Http,
    Queue,
    Subscribe,
    TriggerAction,
    current_invocation,
    register_worker,
)

worker = register_worker(worker_name="e2e")


def _append(scope: str, key: str, entry: Any) -> None:
    ops = [{"type": "append", "path": "entries", "value": {"note": entry}}]
    worker.trigger({"function_id": "state::update", "payload": {"scope": scope, "key": key, "ops": ops}})


@worker.function("e2e::every-minute", triggers=[Cron("0 * * * * *")])
def every_minute(tick: dict[str, Any]) -> None:
    """Note the time of the tick."""
    _append("ticks", "minute", tick["scheduled_time"])


@worker.function("e2e::every-20-seconds", triggers=[Cron("*/20 * * * * *")])
def every_20_seconds(tick: dict[str, Any]) -> None:
    """Note the time of the tick."""
    _append("ticks", "20-seconds", tick["scheduled_time"])


@worker.function("e2e::pay-parts", triggers=[Http("POST", "/e2e/parts")])
def pay_parts(request: ApiRequest[Any]) -> ApiResponse[dict[str, Any]]:
    """Enqueue the parts of payments in the order of the body."""
    parts: list[dict[str, Any]] = request.body or []
    for part in parts:
        worker.trigger(
            {"function_id": "e2e::pay-part", "payload": part, "action": TriggerAction.Enqueue(queue="e2e-parts")}
        )
    return ApiResponse(status_code=202, body={"parts": len(parts)})


@worker.function("e2e::pay-part", triggers=[Queue("e2e-parts")])
def pay_part(part: dict[str, Any]) -> None:
    """Note a part with its order, after as many failures as it asks for."""
    invocation = current_invocation()
    assert invocation is not None
    if invocation.attempt <= part.get("failures", 0):
        raise RuntimeError(f"part {part['number']} of {part['order_id']} fails (attempt {invocation.attempt})")
    _append("parts", "all", [part["order_id"], part["number"]])


@worker.function("e2e::announce", triggers=[Subscribe("order.fulfilled")])
def announce(event: dict[str, Any]) -> None:
    """Pass an event of the pipeline on to a durable topic, which is an SNS topic."""
    worker.trigger({"function_id": "iii::durable::publish", "payload": {"topic": "e2e.fulfilled", "data": event}})


@worker.function("e2e::heard", triggers=[DurableSubscriber("e2e.fulfilled")])
def heard(event: dict[str, Any]) -> None:
    """Note what the durable topic delivered."""
    _append("heard", event["order_id"], event["tracking_number"])
