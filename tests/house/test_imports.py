"""What an import loads is part of what it costs."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = ["aiohttp", "aws_cdk", "boto3", "click", "croniter", "pydantic", "rich", "sqlite3", "watchfiles", "yaml"]


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(json.loads(result.stdout))


def test_the_root_loads_no_heavy_library() -> None:
    assert loaded_by("import iii_runtime") & set(HEAVY) == set()


def test_registering_every_kind_of_trigger_loads_no_heavy_library() -> None:
    statement = """
from iii_runtime import *
worker = register_worker()
triggers = [Http("POST", "/a"), Cron("0 0 * * * *"), Queue("default"), Subscribe("t"), OnState()]
@worker.function("a::b", triggers=triggers)
def handler(data): ...
"""
    assert loaded_by(statement) & set(HEAVY) == set()


def test_the_entry_point_loads_no_heavy_library() -> None:
    assert loaded_by("import iii_runtime.cli.entry") & set(HEAVY) == set()


def test_the_command_line_loads_libraries_only_in_the_commands_that_need_them() -> None:
    loaded = loaded_by("import iii_runtime.cli.main")
    assert loaded & {"aiohttp", "rich", "watchfiles", "pydantic", "sqlite3", "yaml", "croniter"} == set()


def test_the_test_kit_loads_no_server_and_no_library_that_a_test_may_not_need() -> None:
    assert loaded_by("import iii_runtime.testing") & set(HEAVY) <= {"sqlite3"}


def test_the_root_runs_no_work_and_starts_no_thread() -> None:
    code = "import threading, iii_runtime; print(threading.active_count())"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "1"
