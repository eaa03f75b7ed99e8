"""The logger of handlers: iii's methods, and the invocation on every line."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable
from typing import Any

import pytest

from iii_runtime import Invocation, Logger, current_invocation
from iii_runtime.core.invocation import enter_invocation

INVOCATION = Invocation(
    id="i",
    function_id="orders::pay",
    source="queue",
    message_receipt_id="r1",
    attempt=2,
    traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
)


@pytest.fixture(autouse=True)
def everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="iii.logger")


def inside(work: Callable[[], None]) -> None:
    def run() -> None:
        enter_invocation(INVOCATION)
        work()

    contextvars.copy_context().run(run)


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = record.__dict__["iii"]
    return fields


@pytest.mark.parametrize(
    ("method", "level"), [("debug", "DEBUG"), ("info", "INFO"), ("warn", "WARNING"), ("error", "ERROR")]
)
def test_each_method_has_its_level(caplog: pytest.LogCaptureFixture, method: str, level: str) -> None:
    getattr(Logger(), method)("hello", {"n": 1})
    (record,) = caplog.records
    assert (record.name, record.levelname, record.getMessage()) == ("iii.logger", level, "hello")
    assert fields_of(record)["data"] == {"n": 1}


def test_a_line_of_a_handler_says_where_it_belongs(caplog: pytest.LogCaptureFixture) -> None:
    inside(lambda: Logger().info("paid"))
    assert fields_of(caplog.records[0]) == {
        "service": "orders::pay",
        "function_id": "orders::pay",
        "message_receipt_id": "r1",
        "attempt": 2,
        "trace_id": "a" * 32,
        "span_id": "b" * 16,
    }


def test_what_is_given_overrides_what_is_known(caplog: pytest.LogCaptureFixture) -> None:
    inside(lambda: Logger("trace", "billing", "span").info("paid"))
    fields = fields_of(caplog.records[0])
    assert (fields["trace_id"], fields["service"], fields["span_id"]) == ("trace", "billing", "span")
    assert fields["function_id"] == "orders::pay"


def test_the_span_of_the_invocation_is_not_said_to_be_in_another_trace(caplog: pytest.LogCaptureFixture) -> None:
    inside(lambda: Logger("trace").info("paid"))
    assert "span_id" not in fields_of(caplog.records[0])
    inside(lambda: Logger(span_id="span").info("paid"))
    assert (fields_of(caplog.records[1])["trace_id"], fields_of(caplog.records[1])["span_id"]) == ("a" * 32, "span")


def test_a_given_service_stands_before_the_message_as_in_iii(caplog: pytest.LogCaptureFixture) -> None:
    inside(lambda: Logger(service_name="billing").info("paid 100%"))
    inside(lambda: Logger().info("paid"))
    assert [record.getMessage() for record in caplog.records] == ["[billing] paid 100%", "paid"]


def test_outside_of_a_handler_only_the_message_is_known(caplog: pytest.LogCaptureFixture) -> None:
    assert current_invocation() is None
    Logger().info("starting 100%")
    assert caplog.records[0].getMessage() == "starting 100%"
    assert fields_of(caplog.records[0]) == {}


def test_a_logger_made_outside_belongs_to_each_invocation_it_is_used_in(caplog: pytest.LogCaptureFixture) -> None:
    logger = Logger()
    inside(lambda: logger.info("one"))
    logger.info("two")
    assert fields_of(caplog.records[0])["function_id"] == "orders::pay"
    assert fields_of(caplog.records[1]) == {}


def test_a_level_that_is_off_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="iii.logger")
    Logger().debug("hidden")
    assert caplog.records == []


def test_data_may_be_falsy(caplog: pytest.LogCaptureFixture) -> None:
    Logger().info("zero", 0)
    assert fields_of(caplog.records[0]) == {"data": 0}
