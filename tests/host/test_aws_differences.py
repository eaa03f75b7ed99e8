"""What a stage on AWS does in its own way, where the scenarios for all hosts say something else or nothing."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from iii_runtime import OnState, Worker, register_worker
from iii_runtime.core.config import Config, QueueConfig
from iii_runtime.plan.names import FEED_FAILURES
from tests.aws.calls import Call
from tests.aws.invocations import Invocation
from tests.aws.overseers import Meddling
from tests.aws.simulator import Simulator

QUEUES = {"mail": QueueConfig(name="mail", max_retries=1)}
DAY_S = 24 * 3600


@pytest.fixture
def worker() -> Worker:
    return register_worker(worker_name="app")


@pytest.mark.parametrize(("delay", "waited_s"), [(2, 2), (2.001, 3), (2.5, 3), (0.2, 1)])
def test_a_delay_is_rounded_up_to_whole_seconds(worker: Worker, delay: float, waited_s: int) -> None:
    handled: list[datetime] = []
    worker.register_function("a::late", lambda data: handled.append(simulator.clock.now()))
    with Simulator([worker], Config(queues=QUEUES)) as simulator:
        started = simulator.clock.now()
        simulator.trigger("a::late", None, {"type": "enqueue", "queue": "mail", "delay": delay})
        simulator.settle()
        assert [instant - started for instant in handled] == [timedelta(seconds=waited_s)]


def test_a_set_of_the_same_value_fires_and_a_delete_of_nothing_does_not(worker: Worker) -> None:
    seen: list[str] = []
    worker.function("a::watches", triggers=[OnState("s")])(lambda data: seen.append(data["event_type"]))
    with Simulator([worker]) as simulator:
        put(simulator, 1)
        put(simulator, 1)
        for _ in range(2):
            simulator.trigger("state::delete", {"scope": "s", "key": "k"})
        simulator.settle()
    assert seen == ["state:created", "state:updated", "state:deleted"]


class TestAnOutageOfTheChangeFeed:
    """The feed dies at each of its requests; state can be written and read all the while."""

    def test_within_an_hour_everything_is_delivered_once_it_is_over(self, worker: Worker) -> None:
        seen = watched(worker)
        with Simulator([worker]) as simulator:
            put(simulator, 1)
            outage(simulator, timedelta(minutes=55))
            put(simulator, 2)
            simulator.advance(timedelta(minutes=2))
            assert seen == [1, 2]
            assert given_up(simulator) == 0

    def test_beyond_an_hour_trigger_runs_are_lost_and_told_of_and_never_state(self, worker: Worker) -> None:
        seen = watched(worker)
        with Simulator([worker]) as simulator:
            put(simulator, 1)
            outage(simulator, timedelta(minutes=65))
            assert simulator.trigger("state::get", {"scope": "s", "key": "k"}) == 1
            put(simulator, 2)
            simulator.advance(timedelta(minutes=2))
            assert seen == [2]
            assert given_up(simulator) == 1


def test_what_expires_says_when_and_state_and_stream_items_never_do(worker: Worker) -> None:
    def fail(_data: Any) -> None:
        raise ValueError("no")

    worker.register_function("a::fail", fail)
    with Simulator([worker], Config(queues=QUEUES)) as simulator:
        now_s = round(simulator.clock.now().timestamp())
        simulator.trigger("state::set", {"scope": "s", "key": "k", "value": 1})
        simulator.trigger("stream::set", {"stream_name": "c", "group_id": "g", "item_id": "i", "data": 1})
        simulator.trigger("a::fail", None, {"type": "enqueue", "queue": "mail"})
        simulator.settle()
        table = simulator.deployment.table_name
        items = simulator.cloud.clients.dynamodb.scan(TableName=table)["Items"]
    expires = {item["pk"]["S"][:2]: int(item["ttl"]["N"]) - now_s if "ttl" in item else None for item in items}
    assert expires == {"S#": None, "T#": None, "M#": 30 * DAY_S}


def watched(worker: Worker) -> list[Any]:
    """Return a list that fills with each value a state trigger is told of."""
    seen: list[Any] = []
    worker.function("a::watches", triggers=[OnState("s")])(lambda data: seen.append(data["new_value"]))
    return seen


def put(simulator: Simulator, value: int) -> None:
    simulator.trigger("state::set", {"scope": "s", "key": "k", "value": value})


def outage(simulator: Simulator, duration: timedelta) -> None:
    """Let time pass in which no invocation of the change feed lives to its end."""
    feed = simulator.deployment.system_name("feed")

    def kill_feed(invocation: Invocation, _call: Call) -> None:
        if invocation.function == feed:
            invocation.kill()

    simulator.lambdas.overseer = Meddling(kill_feed)
    simulator.advance(duration)
    simulator.lambdas.overseer = None


def given_up(simulator: Simulator) -> int:
    """Return how many messages tell of changes that were given up."""
    return len(simulator.cloud.queue(simulator.deployment.own_queue_name(FEED_FAILURES)).held)
