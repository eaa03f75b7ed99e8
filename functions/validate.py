"""`orders::validate`: whether an order can be fulfilled at all."""

from typing import Any

from functions.orders import Product, ValidateOrder
from functions.worker import failures_tracked, is_complete, order_log, track_step, worker
from iii_runtime import NonRetryableError, Queue, TriggerAction

STEP = "validate"


class UnknownProductError(Exception):
    """A product is not in the catalogue. It may be there at the next attempt, or when the message is redriven."""


@worker.function("orders::validate", triggers=[Queue("order-validate")])
def validate(order: ValidateOrder) -> dict[str, Any]:
    """Check items and total against the catalogue, then enqueue the payment."""
    with failures_tracked(order.order_id, STEP):
        if not is_complete(order.order_id, STEP):
            track_step(order.order_id, STEP, "running", overall="validating")
            _check(order)
            order_log.info("order is valid", {"order_id": order.order_id, "total": order.total})
            track_step(order.order_id, STEP, "complete", overall="validated")
        # order-payment: fifo by order_id, max_retries 5 (attempts in total), backoff_ms 2000, concurrency 2.
        # The dedupe_id makes a second delivery of this message, after a crash here, enqueue nothing more.
        worker.trigger(
            {
                "function_id": "orders::charge-payment",
                "payload": order.model_dump(exclude={"items"}),
                "action": TriggerAction.Enqueue(queue="order-payment", dedupe_id=order.order_id),
            }
        )
    return {"valid": True}


def _check(order: ValidateOrder) -> None:
    if not order.items:
        raise NonRetryableError("the order has no items")
    cost = sum(item.quantity * _product(item.sku).price for item in order.items)
    if cost != order.total:
        raise NonRetryableError(f"the total is {order.total}, but the items cost {cost}")


def _product(sku: str) -> Product:
    entry = worker.trigger({"function_id": "state::get", "payload": {"scope": "catalogue", "key": sku}})
    if entry is None:
        raise UnknownProductError(f"product '{sku}' is not in the catalogue")
    return Product.model_validate(entry)
