"""What a Lambda loads before its first event, by count: every module and every class costs time at each cold start."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

HEAVY = {
    "aiohttp",
    "aws_cdk",
    "aws_xray_sdk",
    "click",
    "constructs",
    "croniter",
    "pydantic",
    "pydantic_core",
    "rich",
    "sqlite3",
    "uvicorn",
    "watchfiles",
    "websockets",
    "yaml",
}

MODULES = {"function": 121, "dispatcher": 121, "control": 128, "feed": 133, "websocket": 141, "tick": 143}
"""How many modules of the runtime an entry may load. One of what few events need is better loaded by those."""

DATACLASSES = 24
"""How many classes of a function's entry may be frozen dataclasses in full; see `iii_runtime.core.frozen`."""

NOT_OF_EVERY_FUNCTION = {
    "a route": ["core.http", "engine.http_entry", "ports.response_store", "hosts.aws_lambda.http_event"],
    "a schedule": ["core.cron", "engine.cron", "plan.jobs", "hosts.aws_lambda.cron_event"],
    "a dead letter that is looked at": [
        "adapters.aws.dead_letter_store",
        "adapters.aws.reconciler",
        "ports.dead_letter",
    ],
    "a stream or a topic": ["adapters.aws.stream_store", "adapters.aws.topic_publisher"],
    "the change feed": ["adapters.aws.change_feed", "engine.feed_delivery", "engine.stream_push"],
    "tracing": ["hosts.aws_lambda.tracing"],
    "synthesis and the reading of the config file": [
        "core.config.expand",
        "core.config.schema",
        "core.config.sections",
        "plan.app_plan",
        "plan.checks",
        "plan.schedules",
    ],
    "another host": ["cdk", "cli", "adapters.embedded", "adapters.memory", "hosts.embedded", "testing"],
}

_LOOK = """
import json, sys
import iii_runtime.hosts.aws_lambda.{entry}
classes = {{
    f"{{value.__module__}}.{{value.__qualname__}}"
    for name, module in list(sys.modules.items()) if name.startswith("iii_runtime")
    for value in vars(module).values()
    if isinstance(value, type) and "__dataclass_params__" in vars(value) and value.__dataclass_params__.frozen
}}
print(json.dumps({{"modules": sorted(sys.modules), "dataclasses": sorted(classes)}}))
"""


def look_at(entry: str) -> dict[str, Any]:
    code = _LOOK.format(entry=entry)
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    seen: dict[str, Any] = json.loads(result.stdout)
    return seen


@pytest.mark.parametrize("entry", MODULES)
def test_a_lambda_loads_no_library_of_other_hosts_and_no_more_modules_than_it_may(entry: str) -> None:
    modules = look_at(entry)["modules"]
    assert HEAVY & set(modules) == set()
    assert len([name for name in modules if name.partition(".")[0] == "iii_runtime"]) <= MODULES[entry]


def test_a_function_starts_without_what_few_of_its_events_need() -> None:
    modules = set(look_at("function")["modules"])
    needless = {f"iii_runtime.{name}" for names in NOT_OF_EVERY_FUNCTION.values() for name in names}
    assert needless & modules == set()


def test_the_names_of_what_a_function_starts_without_are_names_of_modules() -> None:
    code = """
import importlib.util, json, sys
print(json.dumps([name for name in json.loads(sys.argv[1]) if importlib.util.find_spec(name) is None]))
"""
    names = [f"iii_runtime.{name}" for names in NOT_OF_EVERY_FUNCTION.values() for name in names]
    result = subprocess.run([sys.executable, "-c", code, json.dumps(names)], check=True, capture_output=True, text=True)
    assert json.loads(result.stdout) == []


def test_a_function_starts_with_few_classes_whose_methods_are_all_compiled_at_import() -> None:
    classes = look_at("function")["dataclasses"]
    assert "iii_runtime.core.call.Call" in classes
    assert len(classes) <= DATACLASSES, classes
