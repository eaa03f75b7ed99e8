"""An app for the tests of the Lambda entry points."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from iii_runtime import (
    ApiRequest,
    ApiResponse,
    Cron,
    DurableSubscriber,
    Http,
    Logger,
    NonRetryableError,
    Queue,
    TriggerAction,
    current_invocation,
    register_worker,
    secret,
)
from iii_runtime.core.config import Config, QueueConfig

CONFIG = Config(
    queues={
        "mail": QueueConfig(name="mail", max_retries=2, backoff_ms=5000),
        "batch": QueueConfig(name="batch", max_retries=2, backoff_ms=3000),
        "ordered": QueueConfig(
            name="ordered", type="fifo", message_group_field="group", max_retries=2, backoff_ms=4000
        ),
        "shared": QueueConfig(name="shared", max_retries=2),
    }
)

worker = register_worker(worker_name="lambda-app")

seen: list[Any] = []
"""What ran, in order."""

release = threading.Event()
"""Ends what hangs."""

meanwhile: list[Callable[[], None]] = []
"""What happens while a function runs."""


@worker.function("app::mail", triggers=[Queue("mail")], timeout=timedelta(seconds=20))
def mail(data: Any) -> Any:
    return _do(data)


@worker.function("app::batch", triggers=[Queue("batch", batch_size=10)], timeout=timedelta(seconds=20))
def batch(data: Any) -> Any:
    return _do(data)


@worker.function("app::ordered", triggers=[Queue("ordered", batch_size=10)], timeout=timedelta(seconds=20))
def ordered(data: Any) -> Any:
    return _do(data)


@worker.function("app::asynchronous", timeout=timedelta(seconds=20))
async def asynchronous(data: Any) -> Any:
    await asyncio.sleep(0)
    return _do(data)


@worker.function("app::subscriber", triggers=[DurableSubscriber("news", condition="app::is-wanted")])
def subscriber(data: Any) -> Any:
    return _do(data)


@worker.function("app::is-wanted")
def is_wanted(data: Any) -> bool:
    return data.get("wanted", True) is True


@worker.function("app::caller")
def caller(request: dict[str, Any]) -> Any:
    """Do what it is told with `trigger`."""
    seen.append("called")
    return worker.trigger(request)


@worker.function("app::void")
def void(data: Any) -> Any:
    """Start another function and do not wait."""
    worker.trigger({"function_id": "app::mail", "payload": data, "action": TriggerAction.Void()})
    return "started"


@worker.function("app::secretive", secrets={"CARD_KEY": "ssm:/app/{stage}/card-key", "TOKEN": "secretsmanager:token"})
def secretive(name: str) -> str:
    return secret(name)


class Order(BaseModel):
    """A body."""

    order_id: str


@worker.function("app::orders", triggers=[Http("POST", "/orders/:shop")])
def orders(order: Order, request: ApiRequest[Any]) -> ApiResponse[Any]:
    _note(order.order_id)
    body = {"order_id": order.order_id, "shop": request.path_params["shop"], "query": request.query_params}
    return ApiResponse(status_code=201, body=body, headers={"Location": f"/orders/{order.order_id}"})


@worker.function("app::raw", triggers=[Http("POST", "/raw"), Http("GET", "/raw"), Http("HEAD", "/raw")])
def raw(request: ApiRequest[Any]) -> Any:
    if request.query_params.get("slow"):
        release.wait(10)
    if size := request.query_params.get("size"):
        return {"status_code": 200, "body": "x" * int(size), "headers": {"Content-Type": "text/plain"}}
    _note(request.body)
    cookies = ["Set-Cookie: a=1", "Set-Cookie: b=2; Path=/", "X-Many: 1", "X-Many: 2"]
    return {"status_code": 200, "body": b"\x00\xff\x10", "headers": cookies}


@worker.function("app::hourly", triggers=[Cron("0 0 * * * *", condition="app::is-due")])
def hourly(tick: dict[str, Any]) -> Any:
    return _do(tick)


@worker.function("app::is-due")
def is_due(tick: dict[str, Any]) -> bool:
    return "scheduled" in str(tick)


@worker.function("app::often", triggers=[Cron("*/20 * * * * *"), Cron("5 0 0 13 * FRI", overlap=True)])
def often(tick: dict[str, Any]) -> Any:
    return _do(tick)


@worker.function("app::unsteady", triggers=[Cron("30 * * * * *")])
def unsteady(_tick: dict[str, Any]) -> Any:
    raise ValueError("cannot")


def _do(data: Any) -> Any:
    invocation = current_invocation()
    _note(data)
    what = data.get("do") if isinstance(data, dict) else None
    if what == "fail":
        raise ValueError("no luck")
    if what == "give up":
        raise NonRetryableError("never")
    if what == "hang":
        release.wait(10)
    if what == "log":
        Logger().info("working", {"step": 1})
    return {"did": data, "attempt": invocation.attempt if invocation else None}


def _note(what: Any) -> None:
    seen.append(what)
    for happen in meanwhile:
        happen()
