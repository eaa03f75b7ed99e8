"""Messages whose Lambda begins late, because Lambda was throttled: none outlives its visibility in a function."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime import Queue, Worker, register_worker
from iii_runtime.core.config import Config, QueueConfig
from iii_runtime.core.payload import Json
from iii_runtime.hosts.aws_lambda import function
from iii_runtime.plan.limits import DISPATCH_MARGIN
from tests.aws.event_sources import Work
from tests.aws.simulator import Simulator
from tests.host import lambda_app
from tests.host.lambda_kit import Context, Stage, again, failures, running_stage

TIMEOUT = timedelta(seconds=35)
RENEWED_S = (TIMEOUT + DISPATCH_MARGIN).seconds
FAIL: Json = {"do": "fail"}


@pytest.fixture
def stage() -> Iterator[Stage]:
    with running_stage() as stage:
        yield stage


class TestRequests:
    """What is asked of SQS before the function runs."""

    @pytest.mark.parametrize("queue", ["mail", "ordered"])
    @pytest.mark.parametrize(("waited_s", "renewed"), [(0, []), (15, []), (15.001, [RENEWED_S]), (60, [RENEWED_S])])
    def test_the_visibility_of_a_first_receive_is_renewed_if_it_comes_late(
        self, stage: Stage, queue: str, waited_s: float, renewed: list[int]
    ) -> None:
        assert self._renewals(stage, queue, receives=1, waited=timedelta(seconds=waited_s)) == renewed

    @pytest.mark.parametrize(("queue", "renewed"), [("mail", []), ("ordered", [RENEWED_S])])
    def test_that_of_a_later_one_is_where_messages_run_in_order(
        self, stage: Stage, queue: str, renewed: list[int]
    ) -> None:
        """When it was received is not known, only when it was the first time."""
        assert self._renewals(stage, queue, receives=2, waited=timedelta(hours=1)) == renewed

    def test_a_first_receive_whose_time_is_not_told_counts_as_a_later_one(self, stage: Stage) -> None:
        assert self._renewals(stage, "ordered", receives=1, waited=None) == [RENEWED_S]

    def test_each_message_of_a_batch_is_renewed_for_as_long_as_the_invocation_may_still_take(
        self, stage: Stage
    ) -> None:
        for number in range(2):
            stage.put("batch", {"n": number}, "app::batch")
        event = received(stage, "batch", timedelta(minutes=1))
        lambda_app.meanwhile.append(lambda: stage.clock.advance(timedelta(seconds=10)))
        changes = stage.watch_visibility()
        assert failures(function.handle(stage.sandbox("app::batch"), event, Context(stage.clock, TIMEOUT))) == []
        assert [seconds for _, seconds in changes] == [RENEWED_S, RENEWED_S - 10]

    def test_a_message_whose_visibility_cannot_be_renewed_is_not_run(
        self, stage: Stage, caplog: pytest.LogCaptureFixture
    ) -> None:
        stage.put("mail", {"n": 1}, "app::mail")
        event = received(stage, "mail", timedelta(minutes=1))
        url = event["Records"][0]["eventSourceARN"].rpartition(":")[2]
        stage.services.clients.sqs.delete_queue(QueueUrl=stage.services.deployment.queue_url(url))
        with caplog.at_level(logging.ERROR):
            assert len(failures(function.handle(stage.sandbox("app::mail"), event, Context(stage.clock)))) == 1
        assert lambda_app.seen == []
        assert [record.getMessage() for record in caplog.records] == ["not handled: the store refused; it comes back"]

    def _renewals(self, stage: Stage, queue: str, *, receives: int, waited: timedelta | None) -> list[int]:
        stage.put(queue, {"group": "a"}, f"app::{queue}")
        event = again(received(stage, queue, waited), receives)
        changes = stage.watch_visibility()
        assert failures(function.handle(stage.sandbox(f"app::{queue}"), event, Context(stage.clock, TIMEOUT))) == []
        assert len(lambda_app.seen) == 1
        return [seconds for _, seconds in changes]


def received(stage: Stage, queue: str, waited: timedelta | None) -> dict[str, Any]:
    """Return the event of messages that were first received so long ago."""
    event = stage.receive(queue)
    for record in event["Records"]:
        del record["attributes"]["ApproximateFirstReceiveTimestamp"]
        if waited is not None:
            first_ms = stage.clock.now_ms() - waited // timedelta(milliseconds=1)
            record["attributes"]["ApproximateFirstReceiveTimestamp"] = str(first_ms)
    return event


class OneAtATime:
    """A queue with `concurrency: 1`, whose function looks what else SQS would hand out while it runs.

    Attributes:
        seen: Payloads, in the order in which they were begun.
        beside: What was handed out while a function was running.
        fails: How many of the next runs fail.
    """

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.beside: list[Work] = []
        self.fails = 0
        worker = register_worker(worker_name="app")
        worker.function("a::one", triggers=[Queue("one")], timeout=timedelta(seconds=60))(self._run)
        self.worker: Worker = worker
        self.simulator = Simulator([worker], Config(queues={"one": QueueConfig(name="one", concurrency=1)}))

    def send(self, *payloads: Json) -> None:
        for payload in payloads:
            self.simulator.trigger("a::one", payload, {"type": "enqueue", "queue": "one"})

    def begin_late(self, late: timedelta) -> None:
        """Let the mapping receive a message, and Lambda take it so much later."""
        work = self.simulator.source("one").poll()
        assert work is not None
        self.simulator.clock.advance(late)
        self.simulator.perform(work)

    def _run(self, payload: Any) -> None:
        self.seen.append(payload)
        self.simulator.clock.advance(timedelta(seconds=59))
        other = self.simulator.source("one").poll()
        self.beside += [] if other is None else [other]
        if self.fails:
            self.fails -= 1
            raise ValueError("no")


@pytest.fixture
def one() -> Iterator[OneAtATime]:
    running = OneAtATime()
    with running.simulator:
        yield running


class TestOneAtATime:
    @pytest.mark.parametrize("late_s", [0, 31, 60, 104])
    def test_a_message_that_begins_late_runs_alone(self, one: OneAtATime, late_s: int) -> None:
        one.send(1, 2)
        one.begin_late(timedelta(seconds=late_s))
        assert (one.seen, one.beside) == ([1], [])
        one.simulator.settle()
        assert (one.seen, one.beside) == ([1, 2], [])

    def test_one_whose_visibility_has_ended_is_left_to_the_next_receive(
        self, one: OneAtATime, caplog: pytest.LogCaptureFixture
    ) -> None:
        one.send(1, 2)
        with caplog.at_level(logging.WARNING, logger="iii_runtime"):
            one.begin_late(timedelta(seconds=105))
        assert one.seen == []
        assert "not run: it arrived when its visibility had ended; it comes back" in caplog.messages
        one.simulator.settle()
        assert (one.seen, one.beside) == ([1, 2], [])
        assert one.simulator.used_queues() == []

    def test_a_repeated_attempt_that_begins_late_runs_alone_too(self, one: OneAtATime) -> None:
        one.fails = 1
        one.send(1, 2)
        one.begin_late(timedelta(0))
        one.simulator.clock.advance(timedelta(seconds=1))
        one.begin_late(timedelta(seconds=90))
        assert (one.seen, one.beside) == ([1, 1], [])
        one.simulator.settle()
        assert (one.seen, one.beside) == ([1, 1, 2], [])
