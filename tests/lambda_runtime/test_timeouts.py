"""The deadline of Lambda, and what becomes of a function that would miss it."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.hosts.aws_lambda.executor import EXIT_CODE
from tests.lambda_runtime.built import Built
from tests.lambda_runtime.conftest import Start
from tests.lambda_runtime.events import call, message_event

pytestmark = pytest.mark.process

SHORT = timedelta(seconds=4)
"""Two seconds of it are for the outcome."""

WARM = {"do": "remember", "what": 1}
"""First of all, so that a start on a busy machine takes none of it."""


@pytest.mark.parametrize(
    ("function", "what"), [("probe::do", "hang"), ("probe::do-async", "wait"), ("probe::do-async", "block")]
)
def test_a_function_that_would_miss_the_deadline_is_ended_and_told_before_it(
    start: Start, function: str, what: str
) -> None:
    sandbox = start(function)
    sandbox.invoke(call(function, WARM))
    began = time.monotonic()
    error = sandbox.invoke(call(function, {"do": what}), timeout=SHORT).answer["error"]
    assert (error["code"], time.monotonic() - began < SHORT.total_seconds()) == ("TIMEOUT", True)
    assert "ok" in sandbox.invoke(call(function, WARM)).answer
    assert sandbox.is_running


@pytest.mark.parametrize("function", ["probe::resist", "probe::resist-async"])
def test_a_function_that_does_not_let_itself_be_ended_ends_its_process_before_the_deadline(
    start: Start, built: Built, function: str
) -> None:
    (planned,) = (each for each in built.plan.functions.values() if each.function_id == function)
    sandbox = start(function)
    began = time.monotonic()
    assert sandbox.invoke(call(function, {})).kind == "ended"
    assert time.monotonic() - began < planned.timeout.total_seconds()
    assert sandbox.exit_code() == EXIT_CODE
    assert [line["level"] for line in sandbox.log if "does not end after its timeout" in line["message"]] == ["ERROR"]


def test_the_time_out_of_a_message_is_a_failed_attempt_that_is_stored_before_the_deadline(
    start: Start, services: Clients, built: Built
) -> None:
    sandbox = start("probe::do")
    sandbox.invoke(call("probe::do", WARM))
    message = message_event(services, built, "jobs", {"do": "hang"}, function_id="probe::do")
    began = time.monotonic()
    answer = sandbox.invoke(message, timeout=SHORT).answer
    assert time.monotonic() - began < SHORT.total_seconds()
    assert answer == {"batchItemFailures": [{"itemIdentifier": message["Records"][0]["messageId"]}]}
    (line,) = [line for line in sandbox.log if line["message"].startswith("attempt failed")]
    assert (line["message"], line["attempt"], line["error"].partition(":")[0]) == ("attempt failed", 1, "TIMEOUT")
