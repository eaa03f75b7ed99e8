"""`orders::list`, `orders::get`, `orders::steps`: what can be read over http, in iii's own spelling."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from functions.orders import ORDER_ID_PATTERN
from functions.responses import error_response
from functions.stored import stored_orders
from functions.worker import worker


def list_orders(_request: dict[str, Any]) -> dict[str, Any]:
    """Return where every order stands."""
    shown = ("order_id", "status", "current_step")
    orders = [{name: order[name] for name in shown} for order in stored_orders()]
    return {"status_code": 200, "body": {"orders": orders}}


def get_order(request: dict[str, Any]) -> Any:
    """Return an order as it is stored."""
    order_id = request["path_params"]["order_id"]
    is_id = re.fullmatch(ORDER_ID_PATTERN, order_id) is not None
    order = is_id and worker.trigger({"function_id": "state::get", "payload": {"scope": "orders", "key": order_id}})
    if not order:
        return error_response(404, "ORDER_NOT_FOUND", f"no order '{order_id}'")
    return {"status_code": 200, "body": order}


def get_steps(request: dict[str, Any]) -> Any:
    """Return the steps of an order: status, attempt, receipt, time and result of each."""
    found = get_order(request)
    if not isinstance(found, dict):
        return found
    body = {"order_id": request["path_params"]["order_id"], "steps": found["body"]["steps"]}
    return {"status_code": 200, "body": body}


HANDLERS: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "orders::list": list_orders,
    "orders::get": get_order,
    "orders::steps": get_steps,
}

ENDPOINTS = (
    {"path": "/orders", "id": "orders::list"},
    {"path": "/orders/:order_id", "id": "orders::get"},
    {"path": "/orders/:order_id/steps", "id": "orders::steps"},
)

for endpoint in ENDPOINTS:
    worker.register_function(endpoint["id"], HANDLERS[endpoint["id"]])
    worker.register_trigger(
        {
            "type": "http",
            "function_id": endpoint["id"],
            "config": {"api_path": endpoint["path"], "http_method": "GET"},
        }
    )
