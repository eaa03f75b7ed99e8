"""An order on AWS survives whatever dies: a sandbox at any moment, or a second one that runs beside it at any moment.

The moments are all requests to AWS, and the end of every handler: nothing that another process can see happens between
two of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

from tests.aws.invocations import Invocation
from tests.aws.orders import STEPS, OrderStage, deployed_orders
from tests.aws.overseers import At

QUEUES = ("order-validate", "order-payment", "order-ship")


def send(stage: OrderStage, name: str) -> None:
    """Send an order as a client does: again, until it is accepted."""
    reply = stage.post(name)
    while reply.status != 202:
        assert reply.status in {409, 500, 503}, reply
        stage.simulator.advance(timedelta(minutes=1))
        reply = stage.post(name)
    stage.simulator.settle()


def run(name: str, overseer: At, prepare: Callable[[OrderStage], None] = lambda _: None) -> Counter[str]:
    """Send an order with an overseer, check that it ends once and nothing is left; return how often steps completed.

    The steps are told of in their order. Notifications are at most once for each time the parcel is announced.
    """
    order_id = name.replace("order-", "ord-")
    with deployed_orders() as stage:
        prepare(stage)
        stage.simulator.lambdas.overseer = overseer
        send(stage, name)
        stage.simulator.lambdas.overseer = None
        where = f"point {overseer.point}: {overseer.where}"
        assert overseer.passed > overseer.point, "it is never reached"
        assert stage.order(order_id)["status"] == "fulfilled", where
        assert len(stage.call("state::list", scope="payments")) == 1, where
        assert [stage.letters(queue) for queue in QUEUES] == [[], [], []], where
        assert stage.simulator.used_queues() == [], where
        steps = stage.steps(order_id)
        first = list(dict.fromkeys(step for step in steps if step[1] != "retrying"))
        assert first in (STEPS, STEPS[:-1]), (where, steps)
        return Counter(step for step, status in steps if status == "complete")


def points_of(name: str, counts: Callable[[Invocation], bool] = lambda _: True) -> int:
    """Return how many points an undisturbed order has."""
    overseer = At(10_000, lambda _: None, counts)
    with deployed_orders() as stage:
        stage.simulator.lambdas.overseer = overseer
        send(stage, name)
    return overseer.passed


def test_an_order_ends_once_whichever_sandbox_dies_at_whatever_moment() -> None:
    """Its payment fails twice, so failures and back-offs are among the moments."""
    count = points_of("order-payment-flaky")
    assert count > 40
    for point in range(count):
        overseer = At(point, lambda invocation: invocation.kill())
        completed = run("order-payment-flaky", overseer)
        # A change feed that dies tells again what it had told of its batch.
        is_of_feed = overseer.where.startswith("shop-dev-x-feed")
        steps = [completed[step] for step in ("create", "validate", "charge-payment", "ship")]
        assert is_of_feed or steps == [1, 1, 1, 1], (overseer, completed)


def test_an_order_ends_once_whenever_a_second_invocation_handles_the_same_message() -> None:
    def holds_a_message(invocation: Invocation) -> bool:
        return invocation.function.endswith(("--validate", "--charge-payment", "--ship"))

    count = points_of("order-ok", holds_a_message)
    assert count > 15
    for point in range(count):
        stages: list[OrderStage] = []

        def deliver_again(invocation: Invocation, stages: list[OrderStage] = stages) -> None:
            assert stages[0].simulator.deliver_again(invocation.function) == 1

        run("order-ok", At(point, deliver_again, holds_a_message), stages.append)


def test_an_order_that_dies_is_a_letter_whichever_sandbox_dies_at_whatever_moment() -> None:
    """A declined card is final: its message is listed once, with its cause, and redriven once."""
    count = points_of("order-declined")
    for point in range(count):
        overseer = At(point, lambda invocation: invocation.kill())
        with deployed_orders() as stage:
            stage.simulator.lambdas.overseer = overseer
            send(stage, "order-declined")
            stage.simulator.lambdas.overseer = None
            where = f"point {point}: {overseer.where}"
            stage.simulator.advance(timedelta(minutes=5))
            [letter] = stage.letters("order-payment")
            assert (letter["error"], letter["cause"]) == ("the card was declined", "failed"), where
            assert letter["payload"]["order_id"] == "ord-declined", where
            assert len(stage.simulator.letters("order-payment")) == 1, where
            assert json.loads(stage.simulator.letters("order-payment")[0])["id"] == letter["id"], where
            assert stage.order("ord-declined")["status"] == "failed", where
