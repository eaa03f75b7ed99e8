"""`config check --stage`: would it deploy?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.host.commands import run

pytestmark = pytest.mark.usefixtures("own_folder")

WORKER = """
from iii_runtime import Http, Queue, register_worker
worker = register_worker()

@worker.function("shop::pay", triggers=[Queue("mail"), Http("POST", "/pay")])
def pay(order):
    return order
"""
CONFIG = """
workers:
  - name: iii-aws
    config: { app: shop }
  - name: iii-queue
    config: { queue_configs: { mail: {} } }
"""


def write(*, worker: str = WORKER, config: str = CONFIG) -> None:
    Path("functions").mkdir(exist_ok=True)
    Path("functions", "stage_shop.py").write_text(worker)
    Path("iii-config.yaml").write_text(config)


def report(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    result = run("config", "check", "--json", *arguments)
    return result.exit_code, json.loads(result.stdout)["found"]


def test_a_stage_that_is_open_is_told_so_and_one_of_production_would_not_be_deployed() -> None:
    write()
    code, found = report("--stage", "dev")
    assert (code, {each["level"] for each in found}) == (0, {"warning"})
    assert found[0]["message"].startswith("everybody may call POST /pay in stage dev.")
    code, found = report("--stage", "prod")
    assert (code, [each["level"] for each in found]) == (1, ["error", "error"])
    assert found[0]["where"] == "functions/stage_shop.py:5"


def test_what_only_aws_cannot_do_is_an_error_for_a_stage_and_a_warning_without() -> None:
    slow = WORKER.replace('"shop::pay",', '"shop::pay", timeout=timedelta(hours=1),')
    write(worker="from datetime import timedelta\n" + slow)
    code, found = report()
    assert (code, {each["level"] for each in found}) == (0, {"warning"})
    assert "may run for 3600 s, on AWS 870 s is the longest" in found[0]["message"]
    code, found = report("--stage", "dev")
    assert (code, found[0]["level"]) == (1, "error")


def test_without_the_section_for_aws_nothing_is_said_of_it() -> None:
    write(config=CONFIG.replace("name: iii-aws\n    config: { app: shop }", "name: iii-cron"))
    assert report() == (0, [])


DEPLOYED = {
    "format": 1,
    "app": "shop",
    "stage": "dev",
    "stacks": 1,
    "queues": {"mail": {"type": "standard", "stack": 0}},
    "functions": {"shop::pay": 0},
}


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("shop.dev.json", DEPLOYED),
        ("dev.json", DEPLOYED),
        ("last-deploy.json", {"shop-dev": {"HttpUrl": "https://x", "DeployedPlan": json.dumps(DEPLOYED)}}),
    ],
    ids=["taken-over", "by-an-earlier-version", "since-the-last-synthesis"],
)
def test_the_last_deployment_is_compared_with(file: str, content: dict[str, Any]) -> None:
    write(config=CONFIG.replace("mail: {}", "mail: { concurrency: 1 }"))
    path = Path("deployed", file)
    path.parent.mkdir()
    path.write_text(json.dumps(content))
    code, found = report("--stage", "dev")
    assert (code, found[0]["level"], found[0]["where"]) == (1, "error", "iii-config.yaml:6")
    assert "would become a fifo queue" in found[0]["message"]
    assert report("--stage", "test")[0] == 0
    assert [each.name for each in path.parent.iterdir()] == [file]


@pytest.mark.parametrize("file", ["shop.dev.json", "last-deploy.json"])
@pytest.mark.parametrize("text", ["{", "[]", '{"shop-dev": {"DeployedPlan": "{}"}}'])
def test_a_damaged_file_of_the_last_deployment_is_told(file: str, text: str) -> None:
    write()
    Path("deployed").mkdir()
    Path("deployed", file).write_text(text)
    code, found = report("--stage", "dev")
    assert (code, found[0]["where"]) == (1, f"deployed/{file}")
    assert "Restore it from version control" in found[0]["message"]


def test_code_that_cannot_be_imported_is_told_with_its_place() -> None:
    write(worker="import nothing_like_this\n")
    code, found = report("--stage", "dev")
    assert code == 1
    assert found[0]["message"].endswith("stage_shop.py:1: ModuleNotFoundError: No module named 'nothing_like_this'")
    assert report() == (1, found)


def test_a_broken_configuration_is_told_before_the_stage() -> None:
    write(config="workers:\n  - name: iii-aws\n    config: { ap: shop }\n")
    code, found = report("--stage", "dev")
    assert code == 1
    assert "did you mean `app`?" in found[0]["message"]


def test_a_name_that_no_stage_can_have_is_a_mistake_of_usage() -> None:
    write()
    result = run("config", "check", "--stage", "Prod-1")
    assert result.exit_code == 2
    assert "'Prod-1' is no stage name" in result.stderr
