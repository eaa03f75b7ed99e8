"""Functions that do what a test of the runtime interface client wants."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

from iii_runtime import ApiRequest, Http, Logger, Queue, current_invocation, register_worker

worker = register_worker(worker_name="probe")

_seen: list[Any] = []


@worker.function("probe::echo")
def echo(payload: Any) -> Any:
    """Return what it gets."""
    return payload


@worker.function("probe::do", triggers=[Queue("jobs")], timeout=timedelta(seconds=20))
def do(order: dict[str, Any]) -> Any:
    """Do what it is told with `do`, and say something in its log."""
    Logger().info("working", {"size": len(str(order))})
    return _DEEDS[order["do"]](order)


@worker.function("probe::do-async", timeout=timedelta(seconds=20))
async def do_async(order: dict[str, Any]) -> str:
    """Wait, or hold up the loop that it runs on."""
    if order["do"] == "wait":
        await asyncio.sleep(60)
    if order["do"] == "block":
        time.sleep(60)  # noqa: ASYNC251 - what it is for
    return "done"


@worker.function("probe::resist", timeout=timedelta(seconds=1))
def resist(_: Any) -> None:
    """Go on, whatever ends it."""
    while True:
        try:
            time.sleep(60)
        except BaseException:  # noqa: BLE001, S112 - what it is for
            continue


@worker.function("probe::resist-async", timeout=timedelta(seconds=1))
async def resist_async(_: Any) -> None:
    """Do the same where nothing else can run."""
    resist(_)


@worker.function("probe::web", triggers=[Http("POST", "/web"), Http("GET", "/web")])
def web(request: ApiRequest[Any]) -> Any:
    """Answer with a body of some kind."""
    query = request.query_params
    if size := query.get("size"):
        unit = query.get("unit", "x")
        return {"status_code": 200, "body": str(unit) * int(str(size)), "headers": {"Content-Type": "text/plain"}}
    match query.get("bad"):
        case "header":
            return {"status_code": 200, "body": "", "headers": {"X-Bad": "\ud800"}}
        case "name":
            return {"status_code": 200, "body": "", "headers": {"X-\ud800": "1"}}
        case "raise":
            raise ValueError("\ud800")
    if query.get("bytes"):
        return {"status_code": 200, "body": b"\x00\xff\x10"}
    return {"status_code": 200, "body": {"got": request.body}}


def _fail(order: dict[str, Any]) -> None:
    raise ValueError(order.get("says", "no luck"))


def _exit(_: dict[str, Any]) -> None:
    raise SystemExit(3)


def _hang(_: dict[str, Any]) -> None:
    while True:
        time.sleep(0.01)


def _return(order: dict[str, Any]) -> object:
    values = {"nan": math.nan, "infinity": math.inf, "decimal": Decimal("1.10"), "set": {1}, "bytes": b"\xff"}
    return values[order["what"]]


def _remember(order: dict[str, Any]) -> dict[str, Any]:
    _seen.append(order["what"])
    invocation = current_invocation()
    return {"seen": list(_seen), "invocation": invocation.id if invocation else None}


def _linger(_: dict[str, Any]) -> str:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    return "answered"


def _say(order: dict[str, Any]) -> str:
    Logger().warn("as told", {"what": order["what"]})
    return "said"


_DEEDS: dict[str, Callable[[dict[str, Any]], object]] = {
    "fail": _fail,
    "exit": _exit,
    "hang": _hang,
    "return": _return,
    "remember": _remember,
    "linger": _linger,
    "say": _say,
    "repeat": lambda order: order["unit"] * order["count"],
}
