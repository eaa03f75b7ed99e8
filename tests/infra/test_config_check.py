"""`config check --stage` and the synthesis say the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iii_runtime.core.errors import IiiError
from iii_runtime.plan.limits import ENVIRONMENT_BYTES
from tests.host.commands import run
from tests.infra.synthesis import prepared

WORKER = """
from iii_runtime import register_worker
worker = register_worker()

@worker.function("shop::pay", environment={{"NOTE": "x" * {length}}})
def pay(order):
    return order
"""
TOO_LONG = 2 * ENVIRONMENT_BYTES


def checked(length: int) -> list[str]:
    Path("functions", "shop.py").write_text(WORKER.format(length=length))
    found = json.loads(run("config", "check", "--stage", "dev", "--json").stdout)["found"]
    return [each["message"] for each in found if each["level"] == "error"]


def synthesised(*, tracing: str) -> list[str]:
    try:
        (function,) = (each for each in prepared(Path.cwd()).plan.functions.values() if each.function_id)
        assert ("III_TRACING" in function.environment) is (tracing == "true")
    except IiiError as error:
        return [line.partition(": ")[2] for line in error.message.splitlines()]
    return []


@pytest.mark.parametrize("tracing", ["false", "true"])
def test_both_count_the_same_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tracing: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("functions").mkdir()
    Path("iii-config.yaml").write_text(f"workers: [{{name: iii-aws, config: {{app: shop, tracing: {tracing}}}}}]")
    (message,) = checked(TOO_LONG)
    longest = TOO_LONG - (int(message.partition(" has ")[2].partition(" bytes")[0]) - ENVIRONMENT_BYTES)
    for length, errors in ((longest, 0), (longest + 1, 1)):
        found = checked(length)
        assert len(found) == errors
        assert synthesised(tracing=tracing) == found
