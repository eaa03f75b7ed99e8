"""The orders in state scope `orders`, all of them."""

from typing import Any

from functions.worker import worker


def stored_orders() -> list[dict[str, Any]]:
    """Return what `orders::create` stored, ordered by id.

    A document that holds progress only, of an order that was deleted meanwhile, is left out.
    """
    documents = worker.trigger({"function_id": "state::list", "payload": {"scope": "orders"}})
    return [document for document in documents if isinstance(document, dict) and "order_id" in document]
