"""How every order of the demo is to end, and what differs from that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedLetter:
    """A dead letter: its queue, its failed attempts, a part of its error."""

    queue: str
    attempts: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The end of one order.

    Attributes:
        answer: Http status of the request.
        error_code: Code in the answer, of a refused request.
        status: Status of the order; None if nothing is stored.
        attempts: The last attempt of steps.
        letter: What is on a dead-letter queue because of it.
    """

    answer: int = 202
    error_code: str | None = None
    status: str | None = "fulfilled"
    attempts: Mapping[str, int] = field(default_factory=dict)
    letter: ExpectedLetter | None = None


UNKNOWN_PRODUCT = "order-unknown-product"

EXPECTED: Mapping[str, Expected] = {
    "order-ok": Expected(attempts={"validate": 1, "charge-payment": 1, "ship": 1}),
    "order-payment-flaky": Expected(attempts={"validate": 1, "charge-payment": 3, "ship": 1}),
    UNKNOWN_PRODUCT: Expected(
        status="failed",
        attempts={"validate": 2},
        letter=ExpectedLetter(queue="order-validate", attempts=2, error="product 'kettle' is not in the catalogue"),
    ),
    "order-declined": Expected(
        status="failed",
        attempts={"validate": 1, "charge-payment": 1},
        letter=ExpectedLetter(queue="order-payment", attempts=1, error="the card was declined"),
    ),
    "order-invalid": Expected(answer=422, error_code="VALIDATION_FAILED", status=None),
    "order-malformed": Expected(answer=400, error_code="BAD_REQUEST", status=None),
}
"""By the name of the event file, in the order in which they are sent."""

AFTER_REDRIVE = Expected(attempts={"validate": 1, "charge-payment": 1, "ship": 1})
"""Of the order whose product was missing."""


def answer_differences(name: str, expected: Expected, status: int, body: Any) -> Iterator[str]:
    """Return what is wrong with the answer to a request."""
    if status != expected.answer:
        yield f"{name}: answered {status}, expected {expected.answer}: {body}"
    elif expected.error_code is not None and body["error"]["code"] != expected.error_code:
        yield f"{name}: answered with code {body['error']['code']}, expected {expected.error_code}"


def order_differences(name: str, expected: Expected, order: dict[str, Any] | None) -> Iterator[str]:
    """Return what is wrong with a stored order; None means nothing is stored."""
    if order is None or expected.status is None:
        if order is not None or expected.status is not None:
            found = "nothing" if order is None else f"an order that is {order['status']}"
            yield f"{name}: {found} is stored, expected {expected.status or 'nothing'}"
        return
    if order["status"] != expected.status:
        yield f"{name}: is {order['status']} at step {order['current_step']}, expected {expected.status}"
    for step, attempt in expected.attempts.items():
        found_attempt = order["steps"].get(step, {}).get("attempt")
        if found_attempt != attempt:
            yield f"{name}: step {step} ended with attempt {found_attempt}, expected {attempt}"


def letter_differences(expected: Mapping[str, ExpectedLetter], letters: list[dict[str, Any]]) -> Iterator[str]:
    """Return what is wrong on the dead-letter queues; `expected` is by order id."""
    found = {letter["payload"]["order_id"]: letter for letter in letters}
    for order_id in found.keys() - expected.keys():
        yield f"{order_id}: an unexpected dead letter on {found[order_id]['queue']}: {found[order_id]['error']}"
    for order_id, wanted in expected.items():
        letter = found.get(order_id)
        if letter is None:
            yield f"{order_id}: no dead letter, expected one on {wanted.queue}"
            continue
        facts = (letter["queue"], letter["retries"])
        if facts != (wanted.queue, wanted.attempts) or wanted.error not in letter["error"]:
            yield (
                f"{order_id}: dead letter on {facts[0]} after {facts[1]} attempts: {letter['error']}; "
                f"expected {wanted.queue}, {wanted.attempts}, {wanted.error}"
            )
