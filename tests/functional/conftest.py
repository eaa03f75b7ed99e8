"""Every scenario runs on the memory stores, on the SQLite stores and on AWS, on a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest

from iii_runtime import Worker, register_worker
from iii_runtime.core.config import Config, QueueConfig
from iii_runtime.testing import Harness
from tests.aws.harness import open_harness

Store: TypeAlias = Literal["memory", "embedded", "aws"]

QUEUES = (
    QueueConfig(name="mail"),
    QueueConfig(name="quick", max_retries=1),
    QueueConfig(name="pay", max_retries=2, type="fifo", message_group_field="order_id", concurrency=4),
    QueueConfig(name="one", max_retries=2, concurrency=1),
    QueueConfig(name="few", concurrency=3),
    QueueConfig(name="patient", max_retries=6, backoff_ms=1500),
)

_DEPLOYED = "what is registered counts when the stage is deployed; a Lambda follows no later registration"
_LOOPS = "it is about the loops of the embedded host; on AWS the services of AWS do that work"
_GATEWAY = "API Gateway answers here, before any Lambda, in its own words"
_OWN_LAMBDA = "the function runs in its own Lambda, whose log has the error in other words"

NOT_ON_AWS: Mapping[str, str] = {
    # One process on one machine.
    "test_full_disk": "there is no disk",
    "test_loops_go_on": _LOOPS,
    "test_suspects": "a sandbox runs one message at a time, so none takes another one along",
    "test_a_handler_that_runs_for_long_keeps_its_message": "a visibility outlasts its Lambda, so nothing renews it",
    "test_an_outcome_that_the_store_refuses_is_written_again": "a Lambda acknowledges by what it returns",
    "test_a_message_of_a_newer_host_is_left_to_it_for_as_long_as_it_takes": (
        "SQS counts the receives of a message that is hidden; test_aws_queues has what happens"
    ),
    "test_a_message_that_kills_every_host_is_given_up_with_its_cause": (
        "a queue without a consumer of its own grants 30 receives more, and a death is noticed when the visibility ends"
    ),
    "test_a_tick_during_a_run_is_skipped": "no function outlives its Lambda, whose time is up before the next minute",
    "test_a_host_at_its_limit_of_requests_says_when_to_come_back": "the throttling of the stage takes its place",
    "test_an_answer_that_cannot_be_kept_yet_reaches_the_caller_and_is_kept_later": (
        "a Lambda keeps it before it answers, see test_lambda_http: a sandbox stands still once it has answered"
    ),
    # Registration at run time.
    "test_run_time_registration": _DEPLOYED,
    "test_an_id_that_another_worker_has_is_refused_while_the_host_runs": _DEPLOYED,
    "test_a_job_is_followed_from_its_registration_until_it_is_unregistered": _DEPLOYED,
    "test_a_message_for_a_function_that_is_gone_fails_until_it_is_a_dead_letter": _DEPLOYED,
    "test_errors_have_the_envelope_of_iii": "a trigger of a function that is not registered becomes no route",
    # The services of AWS answer.
    "test_no_route_is_404_and_no_method_is_405": _GATEWAY,
    "test_a_body_beyond_the_limit_is_413_and_runs_nothing": _GATEWAY,
    "test_a_request_without_a_route_stands_in_the_log_by_the_error_id_of_its_answer": _GATEWAY,
    "test_a_page_of_an_allowed_origin_may_read_every_answer": _GATEWAY,
    "test_a_preflight_is_answered_without_running_anything": _GATEWAY,
    "test_a_delayed_message_comes_when_it_is_due": "SQS delays by whole seconds, rounded up",
    "test_letters_are_listed_in_the_order_of_their_deaths_and_counted_exactly": (
        "the counts of SQS are estimates, and marked as such with further members; test_aws_queues compares them"
    ),
    "test_a_body_that_is_no_envelope_is_a_dead_letter_with_its_text": (
        "what is no envelope has no receipt but the id that SQS gives each message, also when it is sent again"
    ),
    "test_a_message_that_is_not_stored_for_all_subscribers_reaches_none": "SNS takes one message for all of them",
    "test_a_set_of_the_same_value_and_a_delete_of_nothing_fire_too": (
        "the stream of a DynamoDB table has no record of a delete that finds nothing"
    ),
    # Errors cross from one Lambda to another.
    "test_the_error_of_a_handler_reaches_its_caller": "an exception does not cross hosts, what it says does",
    "test_a_void_call_returns_at_once_and_its_error_is_only_logged": _OWN_LAMBDA,
    "test_publish_reaches_every_subscriber_now_and_is_not_kept": _OWN_LAMBDA,
}
"""Scenarios, by file or by name, that say something AWS has not or does otherwise, and why."""


@pytest.fixture(params=["memory", "embedded", "aws"])
def store(request: pytest.FixtureRequest) -> Store:
    name: Store = request.param
    if name == "aws":
        reason = _reason(request)
        if reason is not None:
            pytest.skip(reason)
    return name


@pytest.fixture
def worker() -> Worker:
    return register_worker(worker_name="app")


@pytest.fixture
def host(worker: Worker, store: Store, tmp_path: Path) -> Callable[..., Harness]:
    """Return how to start a harness for `worker`; takes the config of Config(**...) and `wrap`."""

    def start(*others: Worker, wrap: Callable[[Any], Any] | None = None, **config: Any) -> Harness:
        whole = Config(**{"queues": {queue.name: queue for queue in QUEUES}, **config})
        return open_harness([worker, *others], store=store, data=tmp_path / "data", config=whole, wrap=wrap)

    return start


def _reason(request: pytest.FixtureRequest) -> str | None:
    name = getattr(request.node, "originalname", request.node.name)
    return NOT_ON_AWS.get(request.path.stem) or NOT_ON_AWS.get(name)
