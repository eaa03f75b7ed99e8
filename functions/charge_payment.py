"""`orders::charge-payment`: takes the money, once."""

from typing import Any, cast

from functions.orders import ChargePayment
from functions.worker import failures_tracked, is_complete, order_log, track_step, worker
from iii_runtime import NonRetryableError, Queue, TriggerAction, current_invocation

STEP = "charge-payment"


class PaymentUnavailableError(Exception):
    """The payment provider did not answer. The next attempt may succeed."""


@worker.function("orders::charge-payment", triggers=[Queue("order-payment")])
def charge_payment(order: ChargePayment) -> dict[str, Any]:
    """Charge the card unless an earlier attempt already did, then enqueue the shipping."""
    with failures_tracked(order.order_id, STEP):
        # No other attempt runs meanwhile: the queue is fifo by order_id.
        payment = _known_payment(order.order_id)
        if payment is None or not is_complete(order.order_id, STEP):
            track_step(order.order_id, STEP, "running", overall="charging")
            payment = payment or _charge(order)
            track_step(order.order_id, STEP, "complete", payment, overall="paid")
        # order-ship: standard, max_retries 3 (attempts in total), backoff_ms 1000.
        worker.trigger(
            {
                "function_id": "orders::ship",
                "payload": {"order_id": order.order_id, "transaction_id": payment["transaction_id"]},
                "action": TriggerAction.Enqueue(queue="order-ship", dedupe_id=order.order_id),
            }
        )
    return payment


def _known_payment(order_id: str) -> dict[str, Any] | None:
    found = worker.trigger({"function_id": "state::get", "payload": {"scope": "payments", "key": order_id}})
    return cast("dict[str, Any] | None", found)


def _charge(order: ChargePayment) -> dict[str, Any]:
    # Every attempt and every redelivery of the message has the same receipt, hence the same transaction id. A real
    # provider takes it as its idempotency key, which covers a crash between its charge and the write below.
    invocation = current_invocation()
    receipt = invocation.message_receipt_id if invocation else None
    payment = {"transaction_id": f"txn-{receipt or order.order_id}", "charged": order.total}
    _ask_provider(order, attempt=invocation.attempt if invocation else 1)
    worker.trigger(
        {"function_id": "state::set", "payload": {"scope": "payments", "key": order.order_id, "value": payment}}
    )
    order_log.info("card charged", {"order_id": order.order_id, **payment})
    return payment


def _ask_provider(order: ChargePayment, *, attempt: int) -> None:
    """Stand in for the payment provider."""
    if order.card == "declined":
        raise NonRetryableError("the card was declined")
    if attempt <= order.fail_payment_times:
        raise PaymentUnavailableError(f"the payment provider did not answer (attempt {attempt})")
