"""What a deployment has made is remembered in files, and the next synthesis keeps to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from iii_runtime import Queue, Worker
from iii_runtime.adapters.deployed_files import LAST_DEPLOY, read_deployed, remember_last_deploy
from iii_runtime.core.config import Config, QueueConfig
from iii_runtime.core.config.values import AwsConfig, StageConfig, StreamConfig
from iii_runtime.core.errors import HostError
from iii_runtime.plan.app_plan import AppPlan
from iii_runtime.plan.deployed import DEPLOYED_OUTPUT, DeployedQueue, deployed_plan, deployed_to_text
from iii_runtime.plan.findings import AppInvalidError
from tests.infra.synthesis import CDK_JSON, Synthesised, manifest_of, prepared


def app_with(*, stacks: int = 1, functions: int = 1, **queue: Any) -> dict[str, Any]:
    """Return the manifest of an app with a queue `pay` and some functions."""

    def register(worker: Worker) -> None:
        worker.function("shop::pay", triggers=[Queue("pay")])(print)
        for number in range(1, functions):
            worker.function(f"shop::f{number}")(print)

    config = Config(
        queues={"pay": QueueConfig(name="pay", **queue)},
        stream=StreamConfig(auth="iam"),
        aws=AwsConfig(app="shop", defaults=StageConfig(stacks=stacks)),
    )
    return manifest_of(config, register)


def deploy(root: Path, manifest: dict[str, Any], **context: str) -> AppPlan:
    """Plan a stage as a synthesis does, and leave the file of a deployment."""
    plan = prepared(root, manifest=manifest, context=context).plan
    leave(
        root, {plan.deployment.prefix: {"HttpUrl": "https://x", DEPLOYED_OUTPUT: deployed_to_text(deployed_plan(plan))}}
    )
    return plan


def leave(root: Path, outputs: Mapping[str, Mapping[str, str]]) -> None:
    """Leave the file that `cdk deploy` leaves: the outputs of each stack, filled in."""
    file = root / LAST_DEPLOY
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(outputs, indent=2))


def test_the_file_of_the_outputs_is_the_one_that_the_command_line_is_told_to_write() -> None:
    assert CDK_JSON["outputsFile"] == LAST_DEPLOY.as_posix()


def test_a_queue_of_another_type_is_refused_once_the_stage_was_deployed(tmp_path: Path) -> None:
    deploy(tmp_path, app_with())
    with pytest.raises(AppInvalidError, match="queue 'pay' was deployed as a standard queue"):
        prepared(tmp_path, manifest=app_with(concurrency=1))


def test_the_next_synthesis_writes_a_file_for_the_stage_that_was_deployed(tmp_path: Path) -> None:
    deploy(tmp_path, app_with())
    prepared(tmp_path, manifest=app_with(), context={"stage": "test"})
    deployed = read_deployed(tmp_path, "dev")
    assert deployed is not None
    assert (deployed.app, deployed.stage) == ("shop", "dev")
    assert deployed.queues["pay"] == DeployedQueue(type="standard", stack=0)
    assert read_deployed(tmp_path, "test") is None


def test_the_deployment_of_another_stage_forgets_nothing(tmp_path: Path) -> None:
    for stage in ("dev", "test"):
        deploy(tmp_path, app_with(), stage=stage)
    prepared(tmp_path, manifest=app_with())
    names = [path.name for path in sorted((tmp_path / "deployed").iterdir())]
    assert names == ["dev.json", "last-deploy.json", "test.json"]


def test_what_was_deployed_since_the_last_synthesis_counts_without_being_written(tmp_path: Path) -> None:
    deploy(tmp_path, app_with())
    prepared(tmp_path, manifest=app_with())
    later = deploy(tmp_path, app_with(functions=3))
    before = {path: path.read_bytes() for path in (tmp_path / "deployed").iterdir()}
    assert read_deployed(tmp_path, "dev") == deployed_plan(later)
    assert {path: path.read_bytes() for path in (tmp_path / "deployed").iterdir()} == before


def test_a_deployment_is_taken_once_so_a_newer_file_from_version_control_stays(tmp_path: Path) -> None:
    deploy(tmp_path, app_with())
    remember_last_deploy(tmp_path)
    file = tmp_path / "deployed" / "dev.json"
    newer = file.read_text().replace("standard", "fifo")
    file.write_text(newer)
    remember_last_deploy(tmp_path)
    assert file.read_text() == newer
    deployed = read_deployed(tmp_path, "dev")
    assert deployed is not None
    assert deployed.queues["pay"].type == "fifo"


def test_outputs_for_people_stay_where_they_were_left(tmp_path: Path) -> None:
    deploy(tmp_path, app_with())
    leave(tmp_path, {**json.loads((tmp_path / LAST_DEPLOY).read_text()), "Site": {"Url": "https://y"}})
    remember_last_deploy(tmp_path)
    assert json.loads((tmp_path / LAST_DEPLOY).read_text()) == {
        "shop-dev": {"HttpUrl": "https://x"},
        "Site": {"Url": "https://y"},
    }


def test_a_plan_too_long_for_one_output_comes_in_parts(many: Synthesised, tmp_path: Path) -> None:
    outputs = {
        name: {key: str(template.text(each["Value"])) for key, each in template.content.get("Outputs", {}).items()}
        for name, template in many.templates.items()
    }
    parts = [text for key, text in outputs[many.core.name].items() if DEPLOYED_OUTPUT in key]
    assert len(parts) > 2
    assert max(map(len, parts)) <= 1000
    leave(tmp_path, outputs)
    remember_last_deploy(tmp_path)
    assert read_deployed(tmp_path, "dev") == deployed_plan(many.app.plan)


def test_a_function_stays_in_its_stack_when_there_are_more_stacks(tmp_path: Path) -> None:
    before = deploy(tmp_path, app_with(stacks=2, functions=12))
    after = prepared(tmp_path, manifest=app_with(stacks=3, functions=12)).plan
    assert after.stack_count == before.stack_count + 1
    assert deployed_plan(after).functions == deployed_plan(before).functions


def test_a_file_that_did_not_change_is_not_written_again(tmp_path: Path) -> None:
    deploy(tmp_path, app_with())
    remember_last_deploy(tmp_path)
    file = tmp_path / "deployed" / "dev.json"
    file.chmod(0o444)
    written = file.stat().st_mtime_ns
    remember_last_deploy(tmp_path)
    assert file.stat().st_mtime_ns == written


def test_outputs_of_an_app_inside_another_stack_are_found_too(tmp_path: Path) -> None:
    text = deployed_to_text(deployed_plan(prepared(tmp_path, manifest=app_with()).plan))
    leave(tmp_path, {"Mine": {f"App{DEPLOYED_OUTPUT}": text, "Other": "x"}})
    remember_last_deploy(tmp_path)
    assert read_deployed(tmp_path, "dev") is not None


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"\xff", b'{"s": {"DeployedPlan": "{}"}}', b'{"s": {"DeployedPlan": "{"}}']
)
def test_damaged_outputs_are_refused_by_name(tmp_path: Path, content: bytes) -> None:
    leave(tmp_path, {})
    (tmp_path / LAST_DEPLOY).write_bytes(content)
    with pytest.raises(HostError, match=r"last-deploy\.json: .* Restore it from version control") as refused:
        remember_last_deploy(tmp_path)
    assert refused.value.code == "deployed_unreadable"


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"{}", b'{"format": 1}'])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    leave(tmp_path, {})
    (tmp_path / "deployed" / "dev.json").write_bytes(content)
    with pytest.raises(HostError, match=r"deployed/dev\.json: .* Restore it from version control") as refused:
        read_deployed(tmp_path, "dev")
    assert refused.value.code == "deployed_unreadable"


def test_without_a_deployment_nothing_is_remembered(tmp_path: Path) -> None:
    remember_last_deploy(tmp_path)
    assert read_deployed(tmp_path, "dev") is None
    assert list(tmp_path.iterdir()) == []
