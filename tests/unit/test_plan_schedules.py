"""Which of rule, schedule and minute tick each cron expression becomes on AWS, and in which words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from iii_runtime import Cron, register_worker
from iii_runtime.core.cron import CronSchedule
from iii_runtime.plan.schedules import plan_firing
from tests.unit.planning import add, planned, worker_with

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cron.md"

TABLE = [
    ("0 0 * * * *", "UTC", "rule", "cron(0 * * * ? *)"),
    ("0 */5 * * * *", "UTC", "rule", "cron(0/5 * * * ? *)"),
    ("0 5/20 * * * *", "UTC", "rule", "cron(5/20 * * * ? *)"),
    ("0 */7 * * * *", "UTC", "rule", "cron(0/7 * * * ? *)"),
    ("0 0,30 9-17 * * *", "UTC", "rule", "cron(0,30 9-17 * * ? *)"),
    ("0 10-40/15 * * * *", "UTC", "rule", "cron(10,25,40 * * * ? *)"),
    ("@daily", "UTC", "rule", "cron(0 0 * * ? *)"),
    ("@weekly", "UTC", "rule", "cron(0 0 ? * SUN *)"),
    ("0 30 9 * * MON-FRI", "UTC", "rule", "cron(30 9 ? * MON-FRI *)"),
    ("0 30 9 * * 2-6", "UTC", "rule", "cron(30 9 ? * MON-FRI *)"),
    ("0 0 3 ? * 1,7", "UTC", "rule", "cron(0 3 ? * SUN,SAT *)"),
    ("0 0 3 * * */2", "UTC", "rule", "cron(0 3 ? * SUN,TUE,THU,SAT *)"),
    ("0 0 0 1 * *", "UTC", "rule", "cron(0 0 1 * ? *)"),
    ("0 0 8 1 JAN,APR,JUL,OCT *", "UTC", "rule", "cron(0 8 1 1/3 ? *)"),
    ("0 0 0 29 2 *", "UTC", "rule", "cron(0 0 29 2 ? *)"),
    ("0 0 0 */2 * ?", "UTC", "rule", "cron(0 0 1/2 * ? *)"),
    ("0 0 12 24-26,31 12 *", "UTC", "rule", "cron(0 12 24-26,31 12 ? *)"),
    ("0 0 0 1 1 * 2030-2035", "UTC", "rule", "cron(0 0 1 1 ? 2030-2035)"),
    ("0 0 0 1 1 * 2030/10", "UTC", "rule", "cron(0 0 1 1 ? 2030,2040,2050,2060,2070,2080,2090)"),
    ("0 0 * * * *", "Etc/UTC", "rule", "cron(0 * * * ? *)"),
    ("0 30 9 * * MON-FRI", "Europe/Berlin", "schedule", "cron(30 9 ? * MON-FRI *)"),
    ("0 30 2 * * *", "America/New_York", "schedule", "cron(30 2 * * ? *)"),
    ("0 */15 * * * *", "Asia/Kathmandu", "schedule", "cron(0/15 * * * ? *)"),
    ("*/10 * * * * *", "UTC", "tick", "*/10 * * * * *"),
    ("30 0 9 * * *", "UTC", "tick", "30 0 9 * * *"),
    ("30 0 9 * * *", "Europe/Berlin", "tick", "30 0 9 * * *"),
    ("0 0 0 13 * FRI", "UTC", "tick", "0 0 0 13 * FRI"),
    ("0 0 9 1-7 * MON", "Europe/Berlin", "tick", "0 0 9 1-7 * MON"),
]
"""Expression, time zone, what it becomes, and the expression there."""


@pytest.mark.parametrize(("expression", "timezone", "kind", "text"), TABLE)
def test_an_expression_becomes_what_the_table_says(expression: str, timezone: str, kind: str, text: str) -> None:
    firing = plan_firing(CronSchedule.parse(expression, timezone))
    assert (firing.kind, firing.expression) == (kind, text)


def test_the_reference_prints_the_same_table() -> None:
    rows = re.findall(
        r"^\| `([^`]+)` \| `([^`]+)` \| (\w+) \| (?:`([^`]+)`)? ?\|$", REFERENCE.read_text(), re.MULTILINE
    )
    expected = [(text, zone, kind, "" if kind == "tick" else there) for text, zone, kind, there in TABLE]
    assert rows == expected


def test_what_is_too_long_for_eventbridge_is_left_to_the_tick() -> None:
    """Every other year, minute, hour and day, each with a gap."""
    listed = ",".join(str(year) for year in range(1970, 2098, 2) if year != 2030)
    expression = f"0 0 0 1 1 * {listed}"
    assert plan_firing(CronSchedule.parse(expression)).kind == "tick"
    assert plan_firing(CronSchedule.parse(f"0 0 0 1 1 * {listed[:199]}")).kind == "rule"


def test_a_job_starts_the_lambda_of_its_function() -> None:
    worker = worker_with(Cron("0 0 * * * *"))
    add(worker, "shop::berlin", Cron("0  0 9 * * *", timezone="Europe/Berlin"))
    add(worker, "shop::often", Cron("*/2 * * * * *"))
    hourly, daily, often = planned(worker).schedules
    assert (hourly.kind, hourly.expression, hourly.timezone) == ("rule", "cron(0 * * * ? *)", "UTC")
    assert (hourly.function, hourly.function_id) == ("shop-dev-f-shop--pay", "shop::pay")
    assert hourly.job_id == "shop::pay|0 0 * * * *|UTC"
    assert (daily.kind, daily.timezone, daily.job_id) == (
        "schedule",
        "Europe/Berlin",
        "shop::berlin|0 0 9 * * *|Europe/Berlin",
    )
    assert (often.kind, often.name, often.expression) == ("tick", often.job_id, "*/2 * * * * *")


def test_names_of_rules_fit_and_tell_jobs_apart() -> None:
    worker = register_worker()
    name = "shop::a-function-with-a-name-that-is-much-too-long-for-a-rule"
    add(worker, name, Cron("0 0 * * * *"), Cron("0 1 * * * *"), Cron("0 0 * * * *", timezone="Etc/UTC"))
    names = [schedule.name for schedule in planned(worker).schedules]
    assert len(set(names)) == 3
    assert all(re.fullmatch(r"shop-dev-[A-Za-z0-9_-]{1,55}", each) for each in names)


def test_triggers_that_are_one_job_are_planned_once() -> None:
    assert len(planned(worker_with(Cron("0 0 * * * *"), Cron("0  0 * * * *", overlap=True))).schedules) == 1
