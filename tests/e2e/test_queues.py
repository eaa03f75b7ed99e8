"""Queues of a deployed stage that the pipeline itself does not show: order within a group, topics with subscribers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.e2e.deployed import Deployed
from tests.patience import eventually

_PARTS = [
    {"order_id": "slow", "number": 1, "failures": 2},
    {"order_id": "slow", "number": 2},
    {"order_id": "quick", "number": 1},
    {"order_id": "slow", "number": 3},
    {"order_id": "quick", "number": 2},
    {"order_id": "quick", "number": 3},
]


def test_payments_of_one_order_stay_in_order_while_those_of_others_pass(deployed: Deployed) -> None:
    answer = deployed.request("POST", "/e2e/parts", _PARTS)
    assert answer.status == 202, answer

    def all_handled() -> list[list[object]] | None:
        found = deployed.entries("parts", "all")
        return found if len(found) >= len(_PARTS) else None

    handled = eventually(all_handled, "all parts to be handled")
    for order_id in ("slow", "quick"):
        assert [number for of, number in handled if of == order_id] == [1, 2, 3]
    # Sent after it, and handled before it: the first part of the other order was waiting for its next attempt.
    assert handled.index(["quick", 1]) < handled.index(["slow", 1])


def test_a_subscriber_of_the_sns_topic_hears_of_a_fulfilled_order_and_so_does_a_function(deployed: Deployed) -> None:
    order_id = "ord-heard"
    with subscribed(deployed, "e2e.fulfilled") as messages:
        deployed.post_order({"order_id": order_id, "items": [{"sku": "tea", "quantity": 1}], "total": 450})
        order = deployed.order_in(order_id, "fulfilled")
        heard = eventually(lambda: next(messages), "the subscriber to hear")
    shipment = {key: order["steps"]["ship"][key] for key in ("tracking_number", "carrier")}
    assert heard["p"] == {"order_id": order_id, **shipment}
    assert eventually(lambda: deployed.entries("heard", order_id) or None, "the function to hear") == [
        shipment["tracking_number"]
    ]


@contextmanager
def subscribed(deployed: Deployed, topic: str) -> Iterator[Iterator[dict[str, Any] | None]]:
    """Subscribe a queue of nobody's to a topic, as another application would; yields what it has heard, or None."""
    sqs, sns = deployed.emulator.client("sqs"), deployed.emulator.client("sns")
    url = sqs.create_queue(QueueName="listener")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    found = [each["TopicArn"] for page in sns.get_paginator("list_topics").paginate() for each in page["Topics"]]
    named = [each for each in found if each.rpartition(":")[2].endswith(topic.replace(".", "-"))]
    assert len(named) == 1, (topic, found)
    subscription = sns.subscribe(
        TopicArn=named[0], Protocol="sqs", Endpoint=arn, Attributes={"RawMessageDelivery": "true"}
    )["SubscriptionArn"]

    def messages() -> Iterator[dict[str, Any] | None]:
        while True:
            received = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1).get("Messages", [])
            yield from (json.loads(each["Body"]) for each in received)
            yield None

    try:
        yield messages()
    finally:
        sns.unsubscribe(SubscriptionArn=subscription)
        sqs.delete_queue(QueueUrl=url)
