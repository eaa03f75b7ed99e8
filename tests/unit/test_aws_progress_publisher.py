"""Stream changes on the SNS topic of progress."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.stub import ANY, Stubber

from iii_runtime.adapters.aws.failures import ATTEMPTS
from iii_runtime.adapters.aws.progress_publisher import MOST_BYTES, MOST_MESSAGES, SnsProgressPublisher
from iii_runtime.core.change import StreamChange
from iii_runtime.core.payload import Json
from tests.contract.aws_services import DEPLOYMENT, HastyClock, Services, fake_clients, running_services

ARN = DEPLOYMENT.progress_topic_arn


def change(data: Json, *, group: str = "g1", kind: Any = "update", stream: str = "orders") -> StreamChange:
    event_type = "progress" if kind == "event" else None
    item = None if kind == "event" else "i1"
    return StreamChange(
        at_ms=7, kind=kind, stream_name=stream, group_id=group, item_id=item, data=data, event_type=event_type
    )


class Subscribed:
    """The topic, and a queue that takes everything published on it."""

    def __init__(self, services: Services) -> None:
        clients = services.clients
        clients.sns.create_topic(Name=ARN.rpartition(":")[2])
        self.url = clients.sqs.create_queue(QueueName="listener")["QueueUrl"]
        arn = services.deployment.queue_arn("listener")
        clients.sns.subscribe(TopicArn=ARN, Protocol="sqs", Endpoint=arn)
        self.services = services
        self.publisher = SnsProgressPublisher(clients.sns, ARN, HastyClock())

    def messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            answer = self.services.clients.sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10)
            bodies = [json.loads(message["Body"]) for message in answer.get("Messages", [])]
            if not bodies:
                return found
            found += bodies


@pytest.fixture
def here() -> Iterator[Subscribed]:
    with running_services() as services:
        yield Subscribed(services)


async def test_a_change_is_published_as_a_client_would_see_it_with_its_names_as_attributes(here: Subscribed) -> None:
    assert await here.publisher.publish([change({"n": 1})]) == frozenset()
    (message,) = here.messages()
    assert json.loads(message["Message"]) == change({"n": 1}).to_payload()
    attributes = {name: attribute["Value"] for name, attribute in message["MessageAttributes"].items()}
    assert attributes == {"stream": "orders", "group": "g1"}


async def test_up_to_ten_changes_share_a_request(here: Subscribed) -> None:
    here.services.calls.clear()
    assert await here.publisher.publish([change(number) for number in range(2 * MOST_MESSAGES + 1)]) == frozenset()
    assert here.services.calls == ["sns:PublishBatch"] * 3
    data = sorted(json.loads(message["Message"])["event"]["data"] for message in here.messages())
    assert data == list(range(21))


async def test_nothing_is_asked_for_no_changes(here: Subscribed) -> None:
    here.services.calls.clear()
    assert await here.publisher.publish([]) == frozenset()
    assert here.services.calls == []


@pytest.mark.parametrize("kind", ["update", "event"])
async def test_a_change_too_large_for_a_message_is_published_without_its_data(here: Subscribed, kind: str) -> None:
    assert await here.publisher.publish([change(1), change("x" * MOST_BYTES, kind=kind), change(3)]) == frozenset()
    messages = [json.loads(message["Message"]) for message in here.messages()]
    (large,) = [message for message in messages if "data_omitted" in json.dumps(message)]
    event = large.pop("event")
    assert event == (
        {"type": "update", "data_omitted": True}
        if kind == "update"
        else {"type": "event", "event": {"type": "progress", "data_omitted": True}}
    )
    assert large == {key: value for key, value in change("", kind=kind).to_payload().items() if key != "event"}
    assert len(messages) == 3


async def test_characters_that_no_message_may_have_are_escaped_in_the_attributes_only(here: Subscribed) -> None:
    await here.publisher.publish([change(1, group="a\x07\ufffe\U0001f600%", stream="\t")])
    (message,) = here.messages()
    attributes = {name: attribute["Value"] for name, attribute in message["MessageAttributes"].items()}
    assert attributes == {"stream": "\t", "group": "a%07%EF%BF%BE\U0001f600%"}
    assert json.loads(message["Message"])["groupId"] == "a\x07\ufffe\U0001f600%"


class Stubbed:
    """The topic, answering with what a test has put in."""

    def __init__(self) -> None:
        self.client = fake_clients().sns
        self.stub = Stubber(self.client)
        self.stub.activate()
        self.clock = HastyClock()
        self.publisher = SnsProgressPublisher(self.client, ARN, self.clock)

    def answer(self, *places: int, failed: dict[int, bool] | None = None) -> None:
        """Expect the messages `places`; `failed` are refused, with whether that is the sender's fault."""
        entries = [{"Id": str(place), "Message": ANY, "MessageAttributes": ANY} for place in places]
        refused = failed or {}
        self.stub.add_response(
            "publish_batch",
            {
                "Successful": [{"Id": str(place), "MessageId": "m"} for place in places if place not in refused],
                "Failed": [
                    {"Id": str(place), "Code": "no", "SenderFault": is_sender} for place, is_sender in refused.items()
                ],
            },
            {"TopicArn": ARN, "PublishBatchRequestEntries": entries},
        )


async def test_what_is_refused_for_now_is_sent_again_and_the_rest_is_not() -> None:
    here = Stubbed()
    here.answer(0, 1, 2, failed={0: False, 2: False})
    here.answer(0, 2, failed={2: False})
    here.answer(2)
    assert await here.publisher.publish([change(number) for number in range(3)]) == frozenset()
    here.stub.assert_no_pending_responses()
    assert len(here.clock.pauses) == 2


async def test_what_is_refused_for_good_is_not_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    here = Stubbed()
    here.answer(0, 1, failed={0: False, 1: True})
    here.answer(0)
    assert await here.publisher.publish([change(0), change(1)]) == {1}
    here.stub.assert_no_pending_responses()
    assert "cannot be published" in caplog.text


async def test_what_is_refused_again_and_again_is_given_up() -> None:
    here = Stubbed()
    for _ in range(ATTEMPTS):
        here.answer(0, failed={0: False})
    assert await here.publisher.publish([change(0)]) == {0}
    here.stub.assert_no_pending_responses()


async def test_a_request_that_is_refused_fails_its_changes_and_not_those_of_others() -> None:
    here = Stubbed()
    here.answer(*range(10))
    here.stub.add_client_error("publish_batch", "AuthorizationErrorException", "no", http_status_code=403)
    here.answer(20)
    assert await here.publisher.publish([change(number) for number in range(21)]) == set(range(10, 20))


def sizes(requests: list[list[Any]]) -> list[int]:
    return [
        sum(
            len(entry["Message"])
            + sum(
                len(name) + len(attribute["DataType"]) + len(attribute["StringValue"].encode())
                for name, attribute in entry["MessageAttributes"].items()
            )
            for entry in entries
        )
        for entries in requests
    ]


async def test_no_request_is_larger_than_the_service_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Stubbed()
    requests: list[list[Any]] = []

    def publish_batch(**request: Any) -> dict[str, Any]:
        requests.append(request["PublishBatchRequestEntries"])
        return {"Failed": []}

    monkeypatch.setattr(here.client, "publish_batch", publish_batch)
    around = sizes([[_entry(change(""))]])[0]
    largest = "x" * (MOST_BYTES - around)
    await here.publisher.publish([change(data) for data in ("x" * 130_000, "x" * 130_000, "x" * 130_000, largest)])
    assert [len(entries) for entries in requests] == [2, 1, 1]
    assert max(sizes(requests)) == MOST_BYTES
    assert not any("data_omitted" in entry["Message"] for entries in requests for entry in entries)


def _entry(of: StreamChange) -> dict[str, Any]:
    names = {"stream": of.stream_name, "group": of.group_id}
    attributes = {name: {"DataType": "String", "StringValue": value} for name, value in names.items()}
    return {"Message": json.dumps(of.to_payload(), separators=(",", ":")), "MessageAttributes": attributes}
