"""Events that follow each other in one sandbox: what stays, and what must not."""

from __future__ import annotations

import pytest

from iii_runtime.adapters.aws.clients import Clients
from tests.lambda_runtime.built import Built
from tests.lambda_runtime.conftest import Start
from tests.lambda_runtime.events import call, http, message_event

pytestmark = pytest.mark.process

SECRET = "4242-4242"  # noqa: S105 - stands for what a payload may hold


def test_a_warm_sandbox_serves_event_after_event_and_each_line_of_its_log_knows_its_own(
    start: Start, services: Clients, built: Built
) -> None:
    sandbox = start("probe::do")
    first = sandbox.invoke(call("probe::do", {"do": "remember", "what": SECRET})).answer["ok"]
    failed = sandbox.invoke(call("probe::do", {"do": "fail"})).answer
    assert failed["error"]["message"] == "no luck"
    message = message_event(services, built, "jobs", {"do": "remember", "what": 2}, function_id="probe::do")
    assert sandbox.invoke(message).answer == {"batchItemFailures": []}
    sandbox.invoke({"unknown": SECRET})
    last = sandbox.invoke(call("probe::do", {"do": "remember", "what": 3})).answer["ok"]
    assert (first["seen"], last["seen"]) == ([SECRET], [SECRET, 2, 3])  # modules live as long as the process
    assert first["invocation"] != last["invocation"]
    working = [line for line in sandbox.log if line["message"] == "working"]
    requests = [f"00000000-0000-4000-8000-{number:012d}" for number in (1, 2, 3, 5)]
    assert [line["function_request_id"] for line in working] == requests
    assert {(line["service"], line["function_id"], line["level"]) for line in working} == {
        ("probe::do", "probe::do", "INFO")
    }
    # What belongs to the message is not in the lines of a call, before it and after it.
    assert ["message_receipt_id" in line for line in working] == [False, False, True, False]
    assert len({line["trace_id"] for line in working}) == len(working)
    assert SECRET not in sandbox.output


def test_what_a_function_leaves_running_holds_up_neither_its_answer_nor_the_next_event(start: Start) -> None:
    sandbox = start("probe::do")
    assert sandbox.invoke(call("probe::do", {"do": "linger"})).answer == {"ok": "answered"}
    assert sandbox.invoke(call("probe::do", {"do": "remember", "what": 1})).answer["ok"]["seen"] == [1]


def test_an_http_request_after_another_sees_nothing_of_it(start: Start) -> None:
    sandbox = start("probe::web")
    first = sandbox.invoke(http("/web", method="POST", body='{"card":"4242-4242"}')).answer
    second = sandbox.invoke(http("/web", method="POST")).answer
    assert SECRET in first["body"]
    assert second["statusCode"] == 200
    assert SECRET not in str(second)
    assert SECRET not in sandbox.output
