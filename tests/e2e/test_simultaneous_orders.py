"""Many orders at once, on Lambdas whose processes are killed meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tests.e2e.deployed import Deployed
from tests.patience import eventually

_ORDERS = 300
_CLIENTS = 16
_WATCHED = 20
_KILLS = 8
_BETWEEN_KILLS_S = 1.5
_ALL_S = 400.0
_ENDS = ("ship", "complete")


async def test_300_orders_end_once_each_while_lambdas_are_killed(deployed: Deployed) -> None:
    orders = [order_numbered(number) for number in range(_ORDERS)]
    ids = [str(order["order_id"]) for order in orders]
    async with deployed.watching(*ids[:_WATCHED]) as watch:
        with killing(deployed) as kills:
            await asyncio.to_thread(post_all, deployed, orders)
            stored = await asyncio.to_thread(eventually, all_fulfilled(deployed, ids), "all orders", within_s=_ALL_S)
        await watch.until(ids[:_WATCHED], ("notify", "complete"), within_s=_ALL_S)
    assert len(kills) >= _KILLS
    assert {order_id: order["status"] for order_id, order in stored.items()} == dict.fromkeys(ids, "fulfilled")
    transactions = {order["steps"]["charge-payment"]["transaction_id"] for order in stored.values()}
    assert len(transactions) == _ORDERS
    for order_id in ids[:_WATCHED]:
        ends = [step for step in watch.steps[order_id] if step[:2] == _ENDS]
        assert len(ends) == 1, (order_id, watch.steps[order_id])
    for queue in ("order-validate", "order-payment", "order-ship"):
        letters = await asyncio.to_thread(deployed.project.ask, "dlq", "list", queue)
        assert [letter for letter in letters if letter["payload"]["order_id"] in ids] == []


def order_numbered(number: int) -> dict[str, object]:
    """Return one of the orders."""
    quantity = number % 5 + 1
    items = [{"sku": "tea", "quantity": quantity}]
    return {"order_id": f"ord-many-{number:03}", "items": items, "total": 450 * quantity}


def post_all(deployed: Deployed, orders: list[dict[str, object]]) -> None:
    """Post the orders at once; a client that is answered with an error of the server sends its order again."""

    def post(order: dict[str, object]) -> None:
        def taken() -> bool:
            answer = deployed.request("POST", "/orders", order)
            assert answer.status == 202 or answer.status >= 500, answer
            return answer.status == 202

        eventually(taken, f"order {order['order_id']} to be taken")

    with ThreadPoolExecutor(_CLIENTS) as clients:
        for _ in clients.map(post, orders):
            pass


def all_fulfilled(deployed: Deployed, ids: list[str]) -> Callable[[], dict[str, dict[str, Any]] | None]:
    """Return a look at the orders: those with these ids, once all are fulfilled."""

    def look() -> dict[str, dict[str, Any]] | None:
        stored = {order_id: order for order_id, order in deployed.orders().items() if order_id in ids}
        done = sum(order["status"] == "fulfilled" for order in stored.values())
        return stored if done == len(ids) else None

    return look


@contextmanager
def killing(deployed: Deployed) -> Iterator[list[str]]:
    """Kill the process of a Lambda of the pipeline, another one each time, until the block ends; yields their names."""
    killed: list[str] = []
    ended = threading.Event()
    steps = tuple(
        f"{deployed.prefix}-{role}" for role in ("f-orders--validate", "f-orders--charge", "f-orders--ship", "x-feed")
    )

    def kill_on() -> None:
        while not ended.wait(_BETWEEN_KILLS_S) and len(killed) < 2 * _KILLS:
            running = [found for found in deployed.emulator.lambda_processes() if found[1].startswith(steps)]
            if running:
                pid, name = min(running, key=lambda found: killed.count(found[1]))
                os.kill(pid, signal.SIGKILL)
                killed.append(name)

    killer = threading.Thread(target=kill_on)
    killer.start()
    try:
        yield killed
    finally:
        ended.set()
        killer.join()
