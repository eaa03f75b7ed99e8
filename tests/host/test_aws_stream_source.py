"""The simulated mapping of the table's stream, and the change feed behind it when a change is poisoned."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime import OnState, Worker, register_worker
from iii_runtime.plan.names import FEED_FAILURES
from tests.aws.calls import Call
from tests.aws.invocations import Invocation
from tests.aws.overseers import Meddling
from tests.aws.simulator import Simulator
from tests.aws.stream_batches import GivenUp, StreamBatches, StreamRules
from tests.aws.stream_source import is_wanted

HOUR_MS = 3600 * 1000
LARGE = "x" * (400 * 1024)
"""A value that is kept beside the table, so that reading its change takes a request of its own."""


def records(*numbers: int, at_ms: int = 0) -> list[dict[str, Any]]:
    return [
        {"dynamodb": {"SequenceNumber": str(number), "ApproximateCreationDateTime": at_ms / 1000}} for number in numbers
    ]


def batches(*numbers: int, **rules: Any) -> StreamBatches:
    waiting = StreamBatches(StreamRules(**rules))
    waiting.add(records(*numbers))
    return waiting


def told(given_up: Sequence[GivenUp]) -> list[tuple[str, list[int], int]]:
    return [(each.condition, [int(number) for number in each.batch.numbers], each.batch.tries) for each in given_up]


def begun(waiting: StreamBatches) -> list[int]:
    return [int(number) for number in waiting.begin().numbers]


class TestBatches:
    def test_they_are_as_large_as_the_mapping_says_and_take_in_what_comes_until_they_are_tried(self) -> None:
        waiting = batches(1, 2, batch_size=3)
        waiting.add(records(3, 4))
        assert begun(waiting) == [1, 2, 3]
        waiting.add(records(5))
        waiting.succeeded()
        assert begun(waiting) == [4, 5]
        waiting.add(records(6))
        waiting.failed_from(1, now_ms=0)
        assert begun(waiting) == [5]
        waiting.succeeded()
        assert begun(waiting) == [6]
        waiting.succeeded()
        assert waiting.is_empty

    def test_a_failure_halves_one_until_the_record_that_fails_is_alone(self) -> None:
        waiting = batches(1, 2, 3, 4, 5, 6)
        tried: list[list[int]] = []
        for _ in range(20):
            if waiting.is_empty:
                break
            tried.append(begun(waiting))
            if 5 in tried[-1] and (len(tried[-1]) > 1 or tried.count([5]) < 3):
                assert waiting.failed(now_ms=0) == []
            else:
                waiting.succeeded()
        assert tried == [[1, 2, 3, 4, 5, 6], [1, 2, 3], [4, 5, 6], [4], [5, 6], [5], [5], [5], [6]]

    def test_without_halving_all_of_it_is_tried_again(self) -> None:
        waiting = batches(1, 2, bisects=False)
        for _ in range(3):
            assert begun(waiting) == [1, 2]
            waiting.failed(now_ms=0)

    def test_what_stands_before_the_first_reported_record_is_done_and_the_rest_comes_again(self) -> None:
        waiting = batches(1, 2, 3, 4)
        assert begun(waiting) == [1, 2, 3, 4]
        waiting.failed_from(2, now_ms=0)
        assert begun(waiting) == [3, 4]
        waiting.failed_from(0, now_ms=0)
        assert begun(waiting) == [3, 4]

    def test_retries_are_counted_and_halving_is_none(self) -> None:
        waiting = batches(1, 2, max_retries=2)
        assert begun(waiting) == [1, 2]
        assert waiting.failed(now_ms=0) == []
        for _ in range(2):
            assert begun(waiting) == [1]
            assert waiting.failed(now_ms=0) == []
        assert begun(waiting) == [1]
        assert told(waiting.failed(now_ms=0)) == [("RetryAttemptsExhausted", [1], 4)]
        assert begun(waiting) == [2]

    def test_without_retries_a_batch_that_cannot_be_cut_is_tried_once(self) -> None:
        waiting = batches(1, 2, max_retries=0, bisects=False)
        waiting.begin()
        assert told(waiting.failed(now_ms=0)) == [("RetryAttemptsExhausted", [1, 2], 1)]
        assert waiting.is_empty

    @pytest.mark.parametrize("is_tried", [True, False])
    def test_a_record_is_given_up_when_it_is_too_old_and_a_younger_one_beside_it_is_not(self, is_tried: bool) -> None:
        waiting = batches(1, 2, bisects=False)
        waiting.add(records(3, 4, at_ms=1000))
        if is_tried:
            assert begun(waiting) == [1, 2, 3, 4]
            assert waiting.failed(now_ms=HOUR_MS) == []
        assert waiting.expired(HOUR_MS) == []
        assert told(waiting.expired(HOUR_MS + 1)) == [("RecordAgeExceeded", [1, 2], int(is_tried))]
        assert begun(waiting) == [3, 4]

    def test_what_is_too_old_is_given_up_through_all_batches_each_by_itself(self) -> None:
        waiting = batches(1, 2, 3, batch_size=2)
        waiting.add(records(4, at_ms=1))
        waiting.begin()
        gone = waiting.failed(now_ms=HOUR_MS + 1)
        assert told(gone) == [("RecordAgeExceeded", [number], tries) for number, tries in ((1, 1), (2, 1), (3, 0))]
        assert begun(waiting) == [4]


class Watched:
    """A stage whose state changes are watched, and whose feed dies of some of them.

    Attributes:
        seen: Keys and values a trigger was told of, in order; a large one as its first letter.
        deaths: How often the feed has died.
    """

    def __init__(self, simulator: Simulator, seen: list[tuple[str, Any]]) -> None:
        self.simulator = simulator
        self.seen = seen
        self.deaths = 0
        self._feed = simulator.deployment.system_name("feed")

    def put(self, key: str, *values: Any) -> None:
        for value in values:
            self.simulator.trigger("state::set", {"scope": "s", "key": key, "value": value})

    def die_of_large_values(self) -> None:
        """Let the feed die whenever it reads one, as it would for want of memory."""

        def kill(invocation: Invocation, call: Call) -> None:
            if invocation.function == self._feed and call.service == "s3":
                self.deaths += 1
                invocation.kill()

        self.simulator.lambdas.overseer = Meddling(kill)

    def failures(self) -> list[dict[str, Any]]:
        name = self.simulator.deployment.own_queue_name(FEED_FAILURES)
        return [json.loads(message.body) for message in self.simulator.cloud.queue(name).held]

    def stream(self) -> list[dict[str, Any]]:
        """Return what DynamoDB tells of each change of state, in order."""
        return [dict(record["dynamodb"]) for record in self.simulator.cloud.stream_records(0) if is_wanted(record)]


@pytest.fixture
def seen() -> list[tuple[str, Any]]:
    return []


@pytest.fixture
def worker(seen: list[tuple[str, Any]]) -> Worker:
    worker = register_worker(worker_name="app")

    @worker.function("on::state", triggers=[OnState("s")])
    def watch(data: Any) -> None:
        value = data["new_value"]
        seen.append((data["key"], value[0] if isinstance(value, str) else value))

    return worker


class TestTheFeed:
    def test_a_poisoned_change_is_isolated_and_given_up_and_all_others_are_delivered_once_and_in_order(
        self, worker: Worker, seen: list[tuple[str, Any]]
    ) -> None:
        with Simulator([worker]) as simulator:
            stage = Watched(simulator, seen)
            stage.die_of_large_values()
            stage.put("a", 1, 2)
            stage.put("b", 1)
            stage.put("poison", LARGE)
            simulator.clock.advance(timedelta(minutes=5))
            for number in (3, 4):
                stage.put("a", number)
                stage.put("b", number)
            simulator.advance(timedelta(minutes=54))
            before = [("a", 1), ("a", 2), ("b", 1)]
            assert sorted(seen) == before
            assert stage.failures() == []
            deaths = stage.deaths
            simulator.advance(timedelta(minutes=3))
            assert sorted(seen[:3]) == before
            for key in ("a", "b"):
                assert [value for name, value in seen[3:] if name == key] == [3, 4]
            assert len(seen) == 7
            (failure,) = stage.failures()
            (poison,) = (record for record in stage.stream() if record["Keys"]["sk"]["S"] == "poison")
            assert failure["requestContext"]["condition"] == "RecordAgeExceeded"
            assert failure["requestContext"]["approximateInvokeCount"] == stage.deaths
            assert stage.deaths - deaths <= 2
            info = failure["DDBStreamBatchInfo"]
            assert (info["startSequenceNumber"], info["endSequenceNumber"]) == (poison["SequenceNumber"],) * 2
            assert info["batchSize"] == 1

    def test_a_batch_that_fails_comes_again_in_halves_until_all_of_it_is_delivered_in_order(
        self, worker: Worker, seen: list[tuple[str, Any]]
    ) -> None:
        with Simulator([worker]) as simulator:
            stage = Watched(simulator, seen)
            stage.put("k", *range(8))
            sizes: list[int] = []

            def kill_thrice(invocation: Invocation, _call: Call) -> None:
                if invocation.function == simulator.deployment.system_name("feed") and len(sizes) < 3:
                    sizes.append(len(seen))
                    invocation.kill()

            simulator.lambdas.overseer = Meddling(kill_thrice)
            simulator.advance(timedelta(minutes=1))
            assert len(sizes) == 3
            assert seen == [("k", number) for number in range(8)]

    def test_it_gets_what_changed_in_state_and_streams_and_events_when_they_are_made(self) -> None:
        """Moto has a record of a write that changes nothing, DynamoDB has none."""

        def record(kind: str, partition: str, old: str | None, new: str | None) -> dict[str, Any]:
            keys = {"pk": {"S": partition}, "sk": {"S": "k"}}
            images = {"OldImage": old, "NewImage": new}
            written = {name: {**keys, "v": {"S": value}} for name, value in images.items() if value is not None}
            return {"eventName": kind, "dynamodb": {"Keys": keys, **written}}

        assert is_wanted(record("MODIFY", "S#s", "1", "2"))
        assert not is_wanted(record("MODIFY", "S#s", "1", "1"))
        assert is_wanted(record("REMOVE", "T#s#g", "1", None))
        assert is_wanted(record("INSERT", "E#s#g", None, "1"))
        assert not is_wanted(record("REMOVE", "E#s#g", "1", None))
        assert not is_wanted(record("INSERT", "M#receipt", None, "1"))
