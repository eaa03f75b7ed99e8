"""`orders::create`: takes an order and starts its pipeline."""

import hashlib
from typing import Any

from functions.orders import NewOrder
from functions.responses import error_response
from functions.worker import order_log, track_step, worker
from iii_runtime import ApiRequest, ApiResponse, Http, TriggerAction, current_invocation


@worker.function("orders::create", triggers=[Http("POST", "/orders")])
def create(order: NewOrder, request: ApiRequest[Any]) -> ApiResponse[dict[str, Any]]:
    """Store the order and enqueue its validation. Answers 202 before anything was checked or charged.

    The same order under the same id is answered again, another one under that id is refused with 409. So a client that
    got no answer may simply send its request again, and an order that was stored but not enqueued is enqueued then. An
    error that was answered under an Idempotency-Key is repeated under that key; then the client takes a new one.
    """
    order_id = order.order_id or _new_order_id(request)
    content = {"order_id": order_id, **order.model_dump(mode="json", exclude={"order_id"})}
    known = worker.trigger({"function_id": "state::get", "payload": {"scope": "orders", "key": order_id}})
    is_new = known is None or "order_id" not in known
    if not is_new and {**known, **content} != known:
        return error_response(409, "ORDER_EXISTS", f"order '{order_id}' exists with another content")
    if is_new:
        known = {**content, "status": "created", "current_step": "create", "steps": {}}
        worker.trigger({"function_id": "state::set", "payload": {"scope": "orders", "key": order_id, "value": known}})
    if not known["steps"]:
        track_step(order_id, "create", "complete", overall="created")
    receipt = known.get("message_receipt_id") or _enqueue(order_id, content)
    order_log.info("order accepted", {"order_id": order_id, "message_receipt_id": receipt})
    return ApiResponse(
        status_code=202,
        body={"order_id": order_id, "status": known["status"], "message_receipt_id": receipt},
        headers={"Location": f"/orders/{order_id}"},
    )


def _enqueue(order_id: str, content: dict[str, Any]) -> str:
    # order-validate: standard, max_retries 2 (two attempts in total), backoff_ms 1000.
    enqueued = worker.trigger(
        {
            "function_id": "orders::validate",
            "payload": content,
            "action": TriggerAction.Enqueue(queue="order-validate", dedupe_id=order_id),
        }
    )
    receipt: str = enqueued["messageReceiptId"]
    # The dead-letter queue lists the message under this id. An update, not a set: validation may already be running.
    ops = [{"type": "set", "path": "message_receipt_id", "value": receipt}]
    worker.trigger({"function_id": "state::update", "payload": {"scope": "orders", "key": order_id, "ops": ops}})
    return receipt


def _new_order_id(request: ApiRequest[Any]) -> str:
    """Return an id that is the same for every delivery of a request with an Idempotency-Key, else a new one."""
    invocation = current_invocation()
    if invocation is None:
        raise RuntimeError("an order without an order_id gets one inside an invocation only")
    seed = request.headers.get("idempotency-key") or invocation.id
    return f"ord-{hashlib.sha256(seed.encode()).hexdigest()[:12]}"
