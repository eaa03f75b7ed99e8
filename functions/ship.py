"""`orders::ship`: hands the parcel to a carrier and tells everyone who wants to know."""

import hashlib

from functions.orders import ShipOrder
from functions.worker import failures_tracked, is_complete, order_log, track_step, worker
from iii_runtime import Queue, TriggerAction

STEP = "ship"
CARRIER = "Parcel Post"


@worker.function("orders::ship", triggers=[Queue("order-ship")])
def ship(order: ShipOrder) -> dict[str, str]:
    """Book the shipment, mark the order as fulfilled and publish `order.fulfilled`."""
    with failures_tracked(order.order_id, STEP):
        shipment = {"tracking_number": _tracking_number(order.order_id), "carrier": CARRIER}
        if not is_complete(order.order_id, STEP):
            track_step(order.order_id, STEP, "running", overall="shipping")
            order_log.info("order shipped", {"order_id": order.order_id, **shipment})
            track_step(order.order_id, STEP, "complete", shipment, overall="fulfilled")
        # Void: at most once, and nothing here waits for the subscribers or fails with them.
        worker.trigger(
            {
                "function_id": "publish",
                "payload": {"topic": "order.fulfilled", "data": {"order_id": order.order_id, **shipment}},
                "action": TriggerAction.Void(),
            }
        )
    return shipment


def _tracking_number(order_id: str) -> str:
    """Return a number that a redelivered message gets again."""
    return f"PP{int(hashlib.sha256(order_id.encode()).hexdigest(), 16) % 10**10:010d}"
