"""Durable topics on SNS: one publish reaches the queue of every subscription, with one body for all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from iii_runtime.adapters.aws.topic_publisher import SnsTopicPublisher
from iii_runtime.core.errors import StoreError
from iii_runtime.core.message import INLINE_LIMIT, TOPIC_FUNCTION, Envelope, encode_envelope
from iii_runtime.core.payload import encode_json
from iii_runtime.core.queue import QueueSpec
from iii_runtime.ports.message_queue import OutgoingMessage
from tests.contract.sqs_stage import LEASE, Stage, open_stage

RECEIPT = "5b2f0d3e-8f3a-4c55-9b6d-0a4b8a1f7c11"
MAIL = QueueSpec(name="topic/paid/mail::send", topic="paid", function_id="mail::send")
BOOKS = QueueSpec(name="topic/paid/books::add", topic="paid", function_id="books::add")
SHIPS = QueueSpec(name="topic/paid/ships::go", topic="paid", function_id="ships::go", concurrency=1)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with open_stage(monkeypatch, specs=(MAIL, BOOKS, SHIPS)) as opened:
        yield opened


def subscribe(stage: Stage, *specs: QueueSpec, ordered: bool) -> SnsTopicPublisher:
    clients, deployment = stage.services.clients, stage.services.deployment
    attributes = {"FifoTopic": "true"} if ordered else {}
    clients.sns.create_topic(Name=deployment.topic_name("paid", ordered=ordered), Attributes=attributes)
    for spec in specs:
        clients.sns.subscribe(
            TopicArn=deployment.topic_arn("paid", ordered=ordered),
            Protocol="sqs",
            Endpoint=deployment.queue_arn(deployment.queue_name(spec)),
            Attributes={"RawMessageDelivery": "true"},
        )
    return SnsTopicPublisher(clients, deployment, stage.clock)


def message(text: str = '"é\\u0000"') -> OutgoingMessage:
    envelope = Envelope(receipt=RECEIPT, function_id=TOPIC_FUNCTION, queue="paid", accepted_ms=1, payload=text)
    return OutgoingMessage(receipt=RECEIPT, function_id=TOPIC_FUNCTION, body=encode_envelope(envelope))


async def test_one_publish_reaches_every_subscription_as_it_is(stage: Stage) -> None:
    publisher = subscribe(stage, MAIL, BOOKS, ordered=False)
    stage.services.calls.clear()
    await publisher.publish("paid", message(), ordered=False)
    assert stage.counted() == {"sns:Publish": 1}
    deliveries = [await stage.receive_one(spec) for spec in (MAIL, BOOKS)]
    assert [delivery.body for delivery in deliveries] == [message().body] * 2
    assert len({RECEIPT, *[delivery.receipt for delivery in deliveries]}) == 3


async def test_an_ordered_topic_keeps_its_order_and_swallows_repetitions(stage: Stage) -> None:
    publisher = subscribe(stage, SHIPS, ordered=True)
    first = message()
    second = replace(first, receipt="0" + RECEIPT[1:], body=first.body.replace(RECEIPT, "0" + RECEIPT[1:]))
    for each in (first, second, first):
        await publisher.publish("paid", each, ordered=True)
    order = []
    while deliveries := await stage.queue.receive(SHIPS, 10, LEASE):
        for delivery in deliveries:
            order.append(delivery.body)
            await stage.queue.acknowledge(delivery)
    assert order == [first.body, second.body]


async def test_the_largest_message_that_is_not_a_link_fits(stage: Stage) -> None:
    publisher = subscribe(stage, MAIL, ordered=False)
    large = message(encode_json("x" * (INLINE_LIMIT - 400)))
    await publisher.publish("paid", large, ordered=False)
    assert (await stage.receive_one(MAIL)).body == large.body


async def test_a_topic_that_is_not_deployed_is_told(stage: Stage) -> None:
    publisher = SnsTopicPublisher(stage.services.clients, stage.services.deployment, stage.clock)
    with pytest.raises(StoreError, match="topic paid") as caught:
        await publisher.publish("paid", message(), ordered=False)
    assert caught.value.code == "store_missing"


async def test_a_throttled_publish_is_repeated(stage: Stage) -> None:
    publisher = subscribe(stage, MAIL, ordered=False)
    left = ["Throttling", "InternalError"]

    def refuse(**_: Any) -> None:
        if left:
            raise ClientError({"Error": {"Code": left.pop(), "Message": "later"}}, "Publish")

    stage.services.clients.sns.meta.events.register("before-call.sns.Publish", refuse)
    await publisher.publish("paid", message(), ordered=False)
    assert len(stage.clock.pauses) == 2
    assert (await stage.receive_one(MAIL)).attempt == 1
