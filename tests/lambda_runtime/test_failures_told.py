"""What Lambda is told when an event, a function or the start of a sandbox fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lambda_runtime.conftest import Start
from tests.lambda_runtime.events import call, stored_event

pytestmark = pytest.mark.process

SECRET = "4242-4242"  # noqa: S105 - stands for what a payload may hold
BundleWith = Callable[[dict[str, str]], Path]


def test_an_error_of_an_invocation_has_type_message_and_stack_and_no_payload(start: Start) -> None:
    sandbox = start("probe::do")
    error = sandbox.invoke({"unknown": SECRET}).error
    assert error.keys() == {"errorMessage", "errorType", "requestId", "stackTrace"}
    assert error["errorType"] == "EventUnknownError"
    assert error["errorMessage"].startswith("an object with the members unknown is no event")
    assert error["requestId"] == "00000000-0000-4000-8000-000000000001"
    assert any("aws_lambda/function.py" in frame for frame in error["stackTrace"])
    (line,) = [line for line in sandbox.log if line["message"] == "the event was not handled"]
    assert (line["level"], line["code"], line["service"]) == ("ERROR", "event_unknown", "probe::do")
    assert line["function_request_id"] == error["requestId"]
    assert SECRET not in str(error)
    assert SECRET not in sandbox.output


@pytest.mark.parametrize("name", ["dispatcher", "control", "tick", "feed", "websocket"])
def test_a_lambda_of_the_runtime_refuses_what_is_not_for_it_and_lives_on(start: Start, name: str) -> None:
    sandbox = start(name)
    for _ in range(2):
        error = sandbox.invoke({"unknown": SECRET}).error
        assert error["errorType"] == "EventUnknownError"
        assert SECRET not in str(error)
    assert SECRET not in sandbox.output
    assert sandbox.is_running


def test_a_request_of_a_later_version_is_refused_with_its_code(start: Start) -> None:
    sandbox = start("probe::do")
    error = sandbox.invoke({"iii": {"v": 99, "kind": "call", "call": {"p": SECRET}}}).error
    assert (error["errorType"], "version 99" in error["errorMessage"]) == ("PayloadError", True)
    assert [line["code"] for line in sandbox.log] == ["request_unreadable"]
    assert SECRET not in sandbox.output


def test_a_function_that_raises_is_an_answer_and_no_error_of_the_invocation(start: Start) -> None:
    sandbox = start("probe::do")
    error = sandbox.invoke(call("probe::do", {"do": "fail", "card": SECRET})).answer["error"]
    assert (error["code"], error["message"], error["type"]) == ("invocation_failed", "no luck", "ValueError")
    assert "probe/__init__.py" in error["stacktrace"]
    (line,) = [line for line in sandbox.log if line["message"] == "call failed"]
    assert (line["level"], line["function_id"], line["error"]) == ("ERROR", "probe::do", "invocation_failed: no luck")
    assert SECRET not in str(error)
    assert SECRET not in sandbox.output


def test_a_function_that_wants_to_exit_does_not_end_the_sandbox(start: Start) -> None:
    sandbox = start("probe::do")
    assert sandbox.invoke(call("probe::do", {"do": "exit"})).answer["error"]["message"].endswith("SystemExit: 3")
    assert sandbox.invoke(call("probe::do", {"do": "remember", "what": 1})).answer["ok"]["seen"] == [1]


BROKEN = {
    "import no_such_module": "probe/__init__.py:2: ModuleNotFoundError: No module named 'no_such_module'",
    "raise RuntimeError('no database')": "probe/__init__.py:2: RuntimeError: no database",
    "raise SystemExit(3)": "probe/__init__.py:2: SystemExit: 3",
    "def broken(:": "probe/__init__.py:2: SyntaxError: invalid syntax",
}


@pytest.mark.parametrize("statement", BROKEN)
def test_code_that_cannot_be_imported_is_told_with_file_and_line_at_each_event(
    start: Start, bundle_with: BundleWith, statement: str
) -> None:
    bundle = bundle_with({"probe/__init__.py": f"import iii_runtime\n{statement}\n"})
    sandbox = start("probe::do", bundle=bundle)
    for _ in range(2):
        outcome = sandbox.invoke(call("probe::do", {"do": "fail", "card": SECRET}))
        assert outcome.kind == "error"
        assert outcome.error["errorType"] == "HostError"
        assert outcome.error["errorMessage"].startswith(f"{bundle}/{BROKEN[statement]}")
        assert SECRET not in str(outcome.error)
    codes = [line["code"] for line in sandbox.log if line["message"] == "the event was not handled"]
    assert codes == ["worker_import_failed"] * 2
    assert SECRET not in sandbox.output


def test_broken_code_of_one_function_leaves_the_others_alone(start: Start, bundle_with: BundleWith) -> None:
    sandbox = start("orders::notify", bundle=bundle_with({"probe/__init__.py": "import no_such_module\n"}))
    assert sandbox.invoke(stored_event("invoke/call-notify")).answer == {"ok": None}


def test_a_runtime_that_cannot_be_imported_is_an_error_of_the_start(start: Start, bundle_with: BundleWith) -> None:
    bundle = bundle_with({"iii_runtime/__init__.py": "import no_such_module\n"})
    sandbox = start("probe::do", bundle=bundle)
    outcome = sandbox.outcome()
    assert (outcome.kind, outcome.error_type) == ("init error", "Runtime.ImportModuleError")
    assert outcome.error["errorMessage"].endswith("No module named 'no_such_module'")
    assert sandbox.exit_code() == 1


def test_a_missing_variable_is_told_at_the_event(start: Start) -> None:
    sandbox = start("probe::do", variables={"III_APP": ""})
    error = sandbox.invoke(call("probe::do", {"do": "fail"})).error
    assert error["errorType"] == "HostError"
    assert error["errorMessage"].startswith("the environment variable III_APP is not set.")
