"""The simulated AWS itself: what the other tests rely on when they say that a handler copes with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import moto.core.utils
import pytest
from botocore.exceptions import ClientError

from iii_runtime import Cron, Http, Queue, Worker, register_worker
from iii_runtime.core.config import Config, QueueConfig
from iii_runtime.core.payload import Json
from iii_runtime.testing.clock import SkipClock
from tests.aws.calls import shared_clients
from tests.aws.cloud import REGION, Cloud
from tests.aws.cron_expression import AwsCron
from tests.aws.event_sources import reported_failures
from tests.aws.overseers import At
from tests.aws.simulator import Simulator


@pytest.fixture
def clock() -> SkipClock:
    return SkipClock()


@pytest.fixture
def cloud(clock: SkipClock) -> Iterator[Cloud]:
    with Cloud(clock) as cloud:
        yield cloud


@pytest.fixture
def worker() -> Worker:
    return register_worker(worker_name="app")


class Sqs:
    """A queue of SQS, asked over the wire."""

    def __init__(self, cloud: Cloud, **attributes: str) -> None:
        self.client = cloud.clients.sqs
        suffix = ".fifo" if "FifoQueue" in attributes else ""
        fifo: Any = {"FifoQueue": "true"} if suffix else {}
        self.letters = self.client.create_queue(QueueName=f"letters{suffix}", Attributes=fifo)["QueueUrl"]
        target = f"arn:aws:sqs:{REGION}:123456789012:letters{suffix}"
        policy = json.dumps({"deadLetterTargetArn": target, "maxReceiveCount": 2})
        given: Any = {"RedrivePolicy": policy, **attributes}
        self.url = self.client.create_queue(QueueName=f"queue{suffix}", Attributes=given)["QueueUrl"]

    def send(self, body: str, **options: Any) -> str:
        return self.client.send_message(QueueUrl=self.url, MessageBody=body, **options)["MessageId"]

    def receive(self, count: int = 10, url: str | None = None) -> list[Any]:
        answer = self.client.receive_message(
            QueueUrl=url or self.url, MaxNumberOfMessages=count, MessageSystemAttributeNames=["All"]
        )
        return list(answer.get("Messages", []))

    def hide(self, message: Any, seconds: int) -> None:
        self.client.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=seconds
        )

    def delete(self, message: Any) -> None:
        self.client.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])


def bodies(messages: list[Any]) -> list[str]:
    return [message["Body"] for message in messages]


class TestSqs:
    def test_a_message_is_visible_at_the_very_end_of_its_time_and_not_before(
        self, cloud: Cloud, clock: SkipClock
    ) -> None:
        sqs = Sqs(cloud)
        sqs.send("a", DelaySeconds=5)
        clock.advance(timedelta(seconds=4.999))
        assert sqs.receive() == []
        clock.advance(timedelta(milliseconds=1))
        [message] = sqs.receive()
        assert sqs.receive() == []
        sqs.hide(message, 10)
        clock.advance(timedelta(seconds=10))
        [again] = sqs.receive()
        assert again["Attributes"]["ApproximateReceiveCount"] == "2"
        assert again["ReceiptHandle"] != message["ReceiptHandle"]

    def test_an_older_handle_ends_nothing(self, cloud: Cloud, clock: SkipClock) -> None:
        sqs = Sqs(cloud)
        sqs.send("a")
        [first] = sqs.receive()
        clock.advance(timedelta(seconds=30))
        with pytest.raises(ClientError, match="MessageNotInflight"):
            sqs.hide(first, 60)
        [second] = sqs.receive()
        sqs.delete(first)
        with pytest.raises(ClientError, match="MessageNotInflight"):
            sqs.hide(first, 60)
        sqs.hide(second, 0)
        assert sqs.receive(url=sqs.letters) == []
        assert cloud.queue("queue").held != []

    def test_twelve_hours_of_visibility_are_counted_from_the_receive(self, cloud: Cloud, clock: SkipClock) -> None:
        sqs = Sqs(cloud)
        sqs.send("a")
        clock.advance(timedelta(hours=20))
        [message] = sqs.receive()
        clock.advance(timedelta(seconds=20))
        with pytest.raises(ClientError, match="beyond the limit"):
            sqs.hide(message, 43_200 - 19)
        sqs.hide(message, 43_200 - 20)

    def test_a_message_whose_receives_are_used_up_moves_at_the_next_receive_and_says_from_where(
        self, cloud: Cloud, clock: SkipClock
    ) -> None:
        sqs = Sqs(cloud)
        identity = sqs.send("a")
        for _ in range(2):
            assert bodies(sqs.receive()) == ["a"]
            clock.advance(timedelta(seconds=30))
        assert sqs.receive(url=sqs.letters) == []
        assert sqs.receive() == []
        [letter] = sqs.receive(url=sqs.letters)
        assert letter["MessageId"] == identity
        assert letter["Attributes"]["DeadLetterQueueSourceArn"].endswith(":queue")
        assert letter["Attributes"]["ApproximateReceiveCount"] == "3"

    def test_a_group_is_closed_while_one_of_it_is_held_or_hidden_and_others_are_open(
        self, cloud: Cloud, clock: SkipClock
    ) -> None:
        sqs = Sqs(cloud, FifoQueue="true")
        for number, group in enumerate("aab"):
            sqs.send(f"{group}{number}", MessageGroupId=group, MessageDeduplicationId=str(number))
        [head] = sqs.receive(1)
        assert head["Body"] == "a0"
        [other] = sqs.receive()
        assert other["Body"] == "b2"
        sqs.hide(head, 5)
        assert sqs.receive() == []
        clock.advance(timedelta(seconds=5))
        assert bodies(sqs.receive()) == ["a0", "a1"]

    def test_a_deduplication_id_is_remembered_for_five_minutes_even_if_its_message_is_gone(
        self, cloud: Cloud, clock: SkipClock
    ) -> None:
        sqs = Sqs(cloud, FifoQueue="true", DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
        sqs.send("a", MessageGroupId="g", MessageDeduplicationId="x")
        [message] = sqs.receive()
        sqs.delete(message)
        clock.advance(timedelta(seconds=299))
        sqs.send("a again", MessageGroupId="g", MessageDeduplicationId="x")
        sqs.send("another group", MessageGroupId="h", MessageDeduplicationId="x")
        assert bodies(sqs.receive()) == ["another group"]
        clock.advance(timedelta(seconds=1))
        sqs.send("later", MessageGroupId="g", MessageDeduplicationId="x")
        assert bodies(sqs.receive()) == ["later"]

    def test_a_body_that_xml_cannot_hold_is_refused_and_sizes_are_bytes(self, cloud: Cloud) -> None:
        sqs = Sqs(cloud)
        with pytest.raises(ClientError, match="InvalidMessageContents"):
            sqs.send("a\x00b")
        sqs.send("ü" * (512 * 1024))
        with pytest.raises(ClientError, match="must be shorter"):
            sqs.send("ü" * (512 * 1024) + "x")


class TestQueueMappings:
    @pytest.mark.parametrize(
        ("answer", "failed"),
        [
            (None, set()),
            ({}, set()),
            ({"batchItemFailures": []}, set()),
            ({"batchItemFailures": None}, set()),
            ({"batchItemFailures": [{"itemIdentifier": "b"}]}, {"b"}),
            ({"batchItemFailures": [{"itemIdentifier": "unknown"}]}, None),
            ({"batchItemFailures": [{"itemIdentifier": ""}]}, None),
            ({"batchItemFailures": [{"id": "a"}]}, None),
            ({"batchItemFailures": "a"}, None),
        ],
    )
    def test_a_partial_batch_response_is_read_as_lambda_reads_it(self, answer: Json, failed: set[str] | None) -> None:
        assert reported_failures(answer, {"a": 1, "b": 2}) == failed

    def test_what_an_invocation_that_fails_was_given_comes_back_when_its_visibility_ends(self, worker: Worker) -> None:
        seen: list[Any] = []
        worker.function("a::work", triggers=[Queue("work")])(seen.append)
        with Simulator([worker], Config(queues={"work": QueueConfig(name="work")})) as simulator:
            started = simulator.clock.now()
            simulator.trigger("a::work", 1, {"type": "enqueue", "queue": "work"})
            simulator.lambdas.overseer = At(0, lambda invocation: invocation.kill())
            simulator.settle()
            assert seen == [1, 1]
            assert simulator.clock.now() - started == simulator.plan.queues["work"].visibility

    def test_a_queue_that_is_paused_keeps_its_messages(self, worker: Worker) -> None:
        seen: list[Any] = []
        worker.function("a::work", triggers=[Queue("work")])(seen.append)
        with Simulator([worker], Config(queues={"work": QueueConfig(name="work")})) as simulator:
            simulator.source("work").is_enabled = False
            simulator.trigger("a::work", 1, {"type": "enqueue", "queue": "work"})
            simulator.settle()
            assert seen == []
            simulator.source("work").is_enabled = True
            simulator.settle()
            assert seen == [1]


class TestSchedules:
    @pytest.mark.parametrize(
        ("expression", "local", "holds"),
        [
            ("cron(0 9 * * ? *)", datetime(2026, 1, 1, 9, 0, tzinfo=UTC), True),
            ("cron(0 9 * * ? *)", datetime(2026, 1, 1, 9, 1, tzinfo=UTC), False),
            ("cron(5/20 * * * ? *)", datetime(2026, 1, 1, 3, 45, tzinfo=UTC), True),
            ("cron(0 0 ? * MON-WED *)", datetime(2026, 1, 6, tzinfo=UTC), True),
            ("cron(0 0 ? * MON-WED *)", datetime(2026, 1, 8, tzinfo=UTC), False),
            ("cron(0 0 ? * SUN *)", datetime(2026, 1, 4, tzinfo=UTC), True),
            ("cron(0 0 1,15 JAN ? 2026)", datetime(2026, 1, 15, tzinfo=UTC), True),
            ("cron(0 0 1,15 JAN ? 2026)", datetime(2027, 1, 15, tzinfo=UTC), False),
        ],
    )
    def test_an_expression_holds_at_the_minutes_that_eventbridge_fires(
        self, expression: str, local: datetime, holds: bool
    ) -> None:
        assert AwsCron.parse(expression).holds(local) is holds

    @pytest.mark.parametrize(
        "expression", ["cron(0 9 * * * *)", "cron(0 9 ? * ? *)", "cron(60 9 * * ? *)", "cron(? 9 * * ? *)", "rate(1)"]
    )
    def test_what_eventbridge_refuses_is_refused(self, expression: str) -> None:
        with pytest.raises(ValueError, match=r"."):
            AwsCron.parse(expression)

    @pytest.mark.parametrize(
        ("start", "expression", "fired"),
        [
            # Clocks skip from 2 to 3 o'clock.
            (datetime(2026, 3, 28, 12, tzinfo=UTC), "0 30 2 * * *", []),
            # Clocks go back from 3 to 2 o'clock.
            (datetime(2026, 10, 24, 12, tzinfo=UTC), "0 30 2 * * *", ["2026-10-25T00:30:00Z"]),
        ],
    )
    def test_daylight_saving_skips_and_repeats_as_aws_does(
        self, worker: Worker, start: datetime, expression: str, fired: list[str]
    ) -> None:
        seen: list[str] = []
        kind = Cron(expression, timezone="Europe/Berlin")
        worker.function("a::job", triggers=[kind])(lambda data: seen.append(data["scheduled_time"]))
        with Simulator([worker], clock=SkipClock(start)) as simulator:
            assert [schedule.kind for schedule in simulator.plan.schedules] == ["schedule"]
            simulator.advance(timedelta(hours=18))
        assert seen == fired

    def test_a_job_of_the_tick_fires_at_its_seconds(self, worker: Worker) -> None:
        seen: list[str] = []
        kind = Cron("*/20 * * * * *")
        worker.function("a::job", triggers=[kind])(lambda data: seen.append(data["actual_time"][14:19]))
        with Simulator([worker]) as simulator:
            assert [schedule.kind for schedule in simulator.plan.schedules] == ["tick"]
            simulator.advance(timedelta(minutes=2))
        assert seen == ["00:00", "00:20", "00:40", "01:00", "01:20", "01:40", "02:00"]

    def test_a_tick_while_its_job_runs_is_skipped(self, worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
        """The job holds its lease, so another tick, which EventBridge may send twice, finds it running."""
        seen: list[str] = []
        held: list[Simulator] = []

        @worker.function("a::job", triggers=[Cron("0 * * * * *")])
        def job(data: Any) -> None:
            seen.append(data["scheduled_time"])
            tick: Json = {"v": 1, "kind": "cron", "job": data["job_id"], "time": "2026-01-01T00:02:00Z"}
            name = held[0].deployment.function_name("a::job")
            assert held[0].lambdas.invoke(name, {"iii": tick}) == {"ok": None}

        with Simulator([worker]) as simulator:
            held.append(simulator)
            simulator.advance(timedelta(minutes=1))
        assert seen == ["2026-01-01T00:01:00Z"]
        skipped = [record.__dict__["iii"] for record in caplog.records if record.getMessage() == "cron tick skipped"]
        assert [fields["reason"] for fields in skipped] == ["running"]


class TestHttpApi:
    def test_a_literal_goes_before_a_parameter_and_a_path_without_route_is_404(self, worker: Worker) -> None:
        worker.function("a::one", triggers=[Http("GET", "/things/:id")])(lambda data: {"body": data["path_params"]})
        worker.function("a::best", triggers=[Http("GET", "/things/best")])(lambda data: {"body": "best"})
        with Simulator([worker]) as simulator:
            answers = {
                path: simulator.http.request("GET", path, "", (), b"")
                for path in ("/things/best", "/things/7", "/things", "/things/7/more")
            }
        assert [answer.status for answer in answers.values()] == [200, 200, 404, 404]
        assert json.loads(answers["/things/best"].body) == "best"
        assert json.loads(answers["/things/7"].body) == {"id": "7"}

    def test_a_lambda_that_dies_is_an_error_of_the_server(self, worker: Worker) -> None:
        worker.function("a::one", triggers=[Http("GET", "/one")])(lambda data: None)
        with Simulator([worker]) as simulator:
            simulator.lambdas.overseer = At(0, lambda invocation: invocation.kill())
            assert simulator.http.request("GET", "/one", "", (), b"").status == 500
            assert simulator.http.request("GET", "/one", "", (), b"").status == 200


def test_moto_is_on_real_time_again_afterwards(clock: SkipClock) -> None:
    with Cloud(clock):
        assert moto.core.utils.utcnow() == clock.now().replace(tzinfo=None)
    assert moto.core.utils.utcnow() != clock.now().replace(tzinfo=None)


def test_nothing_is_ever_sent_to_aws_itself() -> None:
    with pytest.raises(RuntimeError, match="outside of the simulator"):
        shared_clients(REGION).sqs.list_queues()
