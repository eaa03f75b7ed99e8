"""`orders::cleanup-stale`: marks the orders that got stuck."""

from datetime import datetime, timedelta
from typing import Any

from functions.orders import CronTick
from functions.stored import stored_orders
from functions.worker import order_log, worker
from iii_runtime import Cron

STALE_AFTER = timedelta(hours=24)
ENDED = frozenset({"fulfilled", "failed", "stale"})


@worker.function("orders::cleanup-stale", triggers=[Cron("0 0 * * * *")])
def cleanup_stale(tick: CronTick) -> dict[str, int]:
    """Give every order without progress for 24 hours before the tick the status `stale`; returns how many.

    Failed orders are left alone: their message waits on a dead-letter queue. A stale order that moves again gets the
    status of its step.
    """
    stale = [order for order in stored_orders() if _is_stale(order, tick.scheduled_time)]
    for order in stale:
        ops = [
            {"type": "set", "path": "status", "value": "stale"},
            {"type": "set", "path": "stale_at", "value": tick.scheduled_time.isoformat()},
        ]
        worker.trigger(
            {"function_id": "state::update", "payload": {"scope": "orders", "key": order["order_id"], "ops": ops}}
        )
        order_log.warn("order is stale", {"order_id": order["order_id"], "step": order["current_step"]})
    return {"cleaned": len(stale)}


def _is_stale(order: dict[str, Any], now: datetime) -> bool:
    if order["status"] in ENDED:
        return False
    step = order["steps"].get(order["current_step"])
    # Without any step its creation was cut short: the order is not even enqueued, unless its client sends it again.
    return step is None or now - datetime.fromisoformat(step["at"]) > STALE_AFTER
