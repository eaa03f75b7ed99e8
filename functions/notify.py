"""`orders::notify`: tells the customer that the parcel is on its way."""

from functions.orders import OrderFulfilled
from functions.worker import order_log, track_step, worker
from iii_runtime import Subscribe


@worker.function("orders::notify", triggers=[Subscribe("order.fulfilled")])
def notify(event: OrderFulfilled) -> None:
    """Send the notification and record it with the order. At most once, as events of a topic are."""
    text = f"Your order {event.order_id} is on its way: {event.carrier} {event.tracking_number}."
    order_log.info("customer notified", {"order_id": event.order_id})
    track_step(event.order_id, "notify", "complete", {"text": text}, overall="fulfilled")
