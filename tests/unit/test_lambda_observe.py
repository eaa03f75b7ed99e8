"""What a Lambda tells of itself: log lines, and measurements in the embedded metric format."""

from __future__ import annotations

import contextvars
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from iii_runtime import Invocation, Logger
from iii_runtime.core.invocation import enter_invocation
from iii_runtime.hosts.aws_lambda.observe import EmfMeter, start_logging
from iii_runtime.plan.names import Deployment

DEPLOYMENT = Deployment(app="shop", stage="dev", region="eu-central-1", account="123456789012")


@pytest.fixture
def service(request: pytest.FixtureRequest) -> str:
    """Return a name of the test's own: a logger of Powertools is configured once in a process."""
    return str(request.node.name)


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Give the loggers of the process back as they were."""
    before = {}
    for name in ("iii_runtime", "iii"):
        logger = logging.getLogger(name)
        before[logger] = (list(logger.handlers), logger.level, logger.propagate)
    yield io.StringIO()
    for logger, (handlers, level, propagate) in before.items():
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def logged(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_of_the_runtime_is_json_with_what_it_is_about_as_members(lines: io.StringIO, service: str) -> None:
    logger = start_logging(service, "INFO", stream=lines)
    logger.append_keys(function_request_id="r-1")
    fields = {"queue": "mail", "message_receipt_id": "m-1", "attempt": 2, "trace_id": "t-1", "name": "no clash"}
    logging.getLogger("iii_runtime.queue").warning("attempt %s", "failed", extra={"iii": fields})
    (line,) = logged(lines)
    assert line.pop("timestamp").endswith("+00:00")
    assert line == {
        "level": "WARNING",
        "message": "attempt failed",
        "service": service,
        "name": "iii_runtime.queue",
        "function_request_id": "r-1",
        "queue": "mail",
        "message_receipt_id": "m-1",
        "attempt": 2,
        "trace_id": "t-1",
    }


def test_a_line_of_a_function_carries_its_invocation_and_the_data_it_gives(lines: io.StringIO, service: str) -> None:
    start_logging(service, "INFO", stream=lines)
    trace = "0af7651916cd43dd8448eb211c80319c"
    invocation = Invocation(
        id="i-1",
        function_id="shop::pay",
        message_receipt_id="m-1",
        attempt=3,
        traceparent=f"00-{trace}-b7ad6b7169203331-01",
    )

    def handle() -> None:
        enter_invocation(invocation)
        Logger().error("declined", {"card": "visa"})

    contextvars.copy_context().run(handle)
    (line,) = logged(lines)
    assert {name: line[name] for name in ("level", "message", "function_id", "message_receipt_id", "attempt")} == {
        "level": "ERROR",
        "message": "declined",
        "function_id": "shop::pay",
        "message_receipt_id": "m-1",
        "attempt": 3,
    }
    assert line["trace_id"] == trace
    assert line["data"] == {"card": "visa"}


def test_lines_below_the_level_are_not_written_and_a_stack_is_a_member(lines: io.StringIO, service: str) -> None:
    start_logging(service, "ERROR", stream=lines)
    logger = logging.getLogger("iii_runtime.host")
    logger.warning("quiet")
    try:
        int("broken")
    except ValueError:
        logger.exception("loud")
    (line,) = logged(lines)
    assert line["message"] == "loud"
    assert line["exception_name"] == "ValueError"
    assert "test_lambda_observe.py" in line["exception"]


def test_a_measurement_counts_for_app_and_stage_and_for_what_it_is_about() -> None:
    written: list[str] = []
    meter = EmfMeter(DEPLOYMENT, written.append)
    meter.add("DeadLetters", queue="mail")
    meter.add("FunctionErrors", 2, function_id="shop::pay")
    meter.add("FeedLag", 1500)
    dead, failed, lag = (json.loads(line) for line in written)
    assert measured(dead) == ("DeadLetters", "Count", [["App", "Stage"], ["App", "Stage", "Queue"]])
    assert (dead["App"], dead["Stage"], dead["Queue"], dead["DeadLetters"]) == ("shop", "dev", "mail", [1.0])
    assert measured(failed) == ("FunctionErrors", "Count", [["App", "Stage"], ["App", "Stage", "Function"]])
    assert (failed["Function"], failed["FunctionErrors"]) == ("shop::pay", [2.0])
    assert measured(lag) == ("FeedLag", "Milliseconds", [["App", "Stage"]])


def measured(line: dict[str, Any]) -> tuple[str, str, list[list[str]]]:
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "iii"
    (metric,) = directive["Metrics"]
    return metric["Name"], metric["Unit"], directive["Dimensions"]


def test_a_service_name_of_powertools_makes_no_other_metric_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "somebody-else")
    written: list[str] = []
    EmfMeter(DEPLOYMENT, written.append).add("TooManyHops")
    assert measured(json.loads(written[0]))[2] == [["App", "Stage"]]


def test_measurements_go_to_standard_output_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    EmfMeter(DEPLOYMENT).add("SkippedTicks", function_id="shop::pay")
    assert json.loads(capsys.readouterr().out)["SkippedTicks"] == [1.0]
