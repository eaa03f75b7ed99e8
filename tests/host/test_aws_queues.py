"""Messages on AWS that take another way: by the dispatcher, to a busy function, from a newer host."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime import OnState, Queue, Subscribe, Worker, current_invocation, register_worker
from iii_runtime.core.config import Config, QueueConfig
from iii_runtime.core.payload import Json
from tests.aws.invocations import Invocation
from tests.aws.overseers import At
from tests.aws.simulator import Simulator

QUEUES = {
    "bound": QueueConfig(name="bound", max_retries=2),
    "shared": QueueConfig(name="shared", max_retries=2),
}


@pytest.fixture
def worker() -> Worker:
    return register_worker(worker_name="app")


@contextmanager
def deployed(worker: Worker) -> Iterator[Simulator]:
    with Simulator([worker], Config(queues=QUEUES)) as simulator:
        yield simulator


def attempts(seen: list[Any]) -> Callable[[Any], None]:
    """Return a handler that remembers its payload and the number of its attempt."""

    def handle(data: Any) -> None:
        invocation = current_invocation()
        assert invocation is not None
        seen.append((data, invocation.attempt))

    return handle


def letters(simulator: Simulator, queue: str) -> list[Any]:
    found: Any = simulator.trigger("engine::queue::dlq_messages", {"queue": queue})
    return list(found)


def killing(function: str) -> At:
    """Return what kills the next invocation of a Lambda."""
    return At(0, lambda invocation: invocation.kill(), lambda invocation: invocation.function == function)


class Invoked(At):
    """Remembers which Lambdas were invoked."""

    def __init__(self, simulator: Simulator) -> None:
        super().__init__(10_000, lambda _: None)
        self.names: list[str] = []
        self._prefix = simulator.deployment.prefix

    def ends(self, invocation: Invocation) -> None:
        self.names.append(invocation.function.removeprefix(self._prefix + "-"))


class TestRouting:
    def test_a_message_for_another_function_goes_from_the_bound_consumer_by_the_dispatcher(
        self, worker: Worker
    ) -> None:
        seen: list[Any] = []
        worker.function("a::bound", triggers=[Queue("bound")])(lambda data: None)
        worker.register_function("b::other", attempts(seen))
        with deployed(worker) as simulator:
            simulator.trigger("b::other", 1, {"type": "enqueue", "queue": "bound"})
            simulator.lambdas.overseer = invoked = Invoked(simulator)
            simulator.settle()
            assert seen == [(1, 1)]
            assert invoked.names == ["f-b--other", "x-dispatcher", "f-a--bound"]
            assert simulator.used_queues() == []

    def test_a_function_that_is_busy_was_not_attempted(self, worker: Worker) -> None:
        seen: list[Any] = []
        worker.register_function("b::other", attempts(seen))
        with deployed(worker) as simulator:
            name = simulator.deployment.function_name("b::other")
            simulator.lambdas.throttled.add(name)
            simulator.trigger("b::other", 1, {"type": "enqueue", "queue": "shared"})
            simulator.advance(timedelta(minutes=5))
            assert seen == []
            assert letters(simulator, "shared") == []
            simulator.lambdas.throttled.clear()
            simulator.settle()
            assert seen == [(1, 1)]

    def test_a_function_that_is_killed_keeps_its_attempt(self, worker: Worker) -> None:
        """The dispatcher sees it die, and it counts no more than on a queue of the function's own."""
        seen: list[Any] = []
        worker.register_function("b::other", attempts(seen))
        with deployed(worker) as simulator:
            name = simulator.deployment.function_name("b::other")
            simulator.trigger("b::other", 1, {"type": "enqueue", "queue": "shared"})
            for _ in range(4):
                simulator.lambdas.overseer = killing(name)
                simulator.settle_next()
            simulator.lambdas.overseer = None
            simulator.settle()
            assert seen == [(1, 1)] * 5
            assert letters(simulator, "shared") == []

    @pytest.mark.parametrize("queue", ["shared", "bound"])
    def test_a_function_that_is_killed_each_time_is_given_up_by_its_receives(self, worker: Worker, queue: str) -> None:
        worker.function("a::bound", triggers=[Queue("bound")])(lambda data: None)
        worker.register_function("b::other", lambda data: None)
        with deployed(worker) as simulator:
            simulator.trigger("b::other", 1, {"type": "enqueue", "queue": queue})
            for _ in range(simulator.plan.queues[queue].max_receives):
                simulator.lambdas.overseer = killing(simulator.deployment.function_name("b::other"))
                simulator.settle_next()
            [letter] = letters(simulator, queue)
            assert (letter["cause"], letter["retries"]) == ("receives", 0)

    def test_a_function_whose_lambda_is_gone_fails_until_its_message_is_a_dead_letter(self, worker: Worker) -> None:
        worker.register_function("b::other", lambda data: None)
        with deployed(worker) as simulator:
            simulator.trigger("b::other", 1, {"type": "enqueue", "queue": "shared"})
            simulator.lambdas.remove(simulator.deployment.function_name("b::other"))
            simulator.settle()
            [letter] = letters(simulator, "shared")
            assert (letter["cause"], letter["retries"]) == ("failed", 2)


class TestStrangeMessages:
    def test_a_message_of_a_newer_version_is_not_run_and_not_lost(self, worker: Worker) -> None:
        """SQS counts its receives, so after a while it waits on the dead-letter queue, as it was sent."""
        seen: list[Any] = []
        worker.function("a::bound", triggers=[Queue("bound")])(seen.append)
        with deployed(worker) as simulator:
            planned = simulator.plan.queues["bound"]
            url = simulator.deployment.queue_url(planned.name)
            body = '{"v":2,"id":"r1","fn":"a::bound","q":"bound","at":0,"hops":0,"p":1}'
            simulator.cloud.clients.sqs.send_message(QueueUrl=url, MessageBody=body)
            started = simulator.clock.now()
            simulator.settle()
            assert simulator.clock.now() - started >= timedelta(minutes=1) * (planned.max_receives - 1)
            simulator.advance(timedelta(minutes=10))
            assert seen == []
            assert simulator.letters("bound") == [body]

    def test_a_body_that_is_no_envelope_is_a_dead_letter_with_its_text_and_can_be_sent_again(
        self, worker: Worker
    ) -> None:
        worker.function("a::bound", triggers=[Queue("bound")])(lambda data: None)
        with deployed(worker) as simulator:
            url = simulator.deployment.queue_url(simulator.plan.queues["bound"].name)
            sent = simulator.cloud.clients.sqs.send_message(QueueUrl=url, MessageBody="no envelope")
            simulator.settle()
            [letter] = letters(simulator, "bound")
            assert (letter["id"], letter["cause"], letter["function_id"]) == (sent["MessageId"], "unreadable", None)
            assert json.loads(simulator.letters("bound")[0])["raw"] == "no envelope"
            assert simulator.trigger("iii::queue::redrive", {"queue": "bound"}) == {"queue": "bound", "redriven": 1}
            simulator.settle()
            assert [again["cause"] for again in letters(simulator, "bound")] == ["unreadable"]


def test_counts_that_sqs_estimates_say_so_and_dead_letters_are_exact(worker: Worker) -> None:
    def fail(_data: Any) -> None:
        raise ValueError("no")

    worker.function("a::bound", triggers=[Queue("bound")])(fail)
    with deployed(worker) as simulator:
        for number in range(3):
            simulator.trigger("a::bound", number, {"type": "enqueue", "queue": "bound"})
        simulator.settle()
        stats: Any = simulator.trigger("engine::queue::topic_stats", {"queue": "bound"})
        assert (stats["dlq_depth"], stats["depth"], stats["consumer_count"]) == (3, 0, 1)
        assert (stats["sqs_visible"], stats["unindexed"]) == (3, 0)
        topics: Any = simulator.trigger("engine::queue::dlq_topics")
        assert [(topic["topic"], topic["message_count"]) for topic in topics] == [("bound", 3)]
        assert [letter["payload"] for letter in letters(simulator, "bound")] == [0, 1, 2]
        page: Json = {"queue": "bound", "offset": 1, "limit": 1}
        shown: Any = simulator.trigger("engine::queue::dlq_messages", page)
        assert [letter["payload"] for letter in shown] == [1]


class TestNobodyWaits:
    def test_what_nobody_waits_for_fails_once_and_its_own_lambda_logs_it(
        self, worker: Worker, caplog: pytest.LogCaptureFixture
    ) -> None:
        runs: list[str] = []

        def fail(name: str) -> Callable[[Any], None]:
            def handle(_data: Any) -> None:
                runs.append(name)
                raise ValueError(f"{name} fails")

            return handle

        worker.register_function("a::void", fail("void"))
        worker.function("a::hears", triggers=[Subscribe("news")])(fail("hears"))
        worker.function("a::watches", triggers=[OnState("s")])(fail("watches"))
        with deployed(worker) as simulator:
            simulator.trigger("a::void", None, {"type": "void"})
            simulator.trigger("publish", {"topic": "news", "data": 1})
            simulator.trigger("state::set", {"scope": "s", "key": "k", "value": 1})
            simulator.settle()
        assert sorted(runs) == ["hears", "void", "watches"]
        told = [record.__dict__["iii"] for record in caplog.records if record.getMessage() == "call failed"]
        assert {fields["function_id"]: fields["error"].partition(": ")[2] for fields in told} == {
            "a::void": "void fails",
            "a::hears": "hears fails",
            "a::watches": "watches fails",
        }
