"""What a deployment has made is remembered in files, and the next synthesis keeps to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from iii_runtime import Queue, Worker
from iii_runtime.adapters.deployed_files import LAST_DEPLOY, other_apps, read_deployed, remember_last_deploy
from iii_runtime.core.config import Config, QueueConfig
from iii_runtime.core.config.values import AwsConfig, StageConfig, StreamConfig
from iii_runtime.core.errors import HostError
from iii_runtime.plan.app_plan import AppPlan
from iii_runtime.plan.deployed import DEPLOYED_OUTPUT, DeployedQueue, deployed_plan, deployed_to_text
from iii_runtime.plan.findings import AppInvalidError
from tests.infra.synthesis import CDK_JSON, Synthesised, manifest_of, prepared


def app_with(*, app: str = "shop", stacks: int = 1, functions: int = 1, **queue: Any) -> dict[str, Any]:
    """Return the manifest of an app with a queue `pay` and some functions."""

    def register(worker: Worker) -> None:
        worker.function("shop::pay", triggers=[Queue("pay")])(print)
        for number in range(1, functions):
            worker.function(f"shop::f{number}")(print)

    config = Config(
        queues={"pay": QueueConfig(name="pay", **queue)},
        stream=StreamConfig(auth="iam"),
        aws=AwsConfig(app=app, defaults=StageConfig(stacks=stacks)),
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
    deployed = read_deployed(tmp_path, "shop", "dev")
    assert deployed is not None
    assert (deployed.app, deployed.stage) == ("shop", "dev")
    assert deployed.queues["pay"] == DeployedQueue(type="standard", stack=0)
    assert read_deployed(tmp_path, "shop", "test") is None


def test_the_deployment_of_another_stage_forgets_nothing(tmp_path: Path) -> None:
    for stage in ("dev", "test"):
        deploy(tmp_path, app_with(), stage=stage)
    prepared(tmp_path, manifest=app_with())
    names = [path.name for path in sorted((tmp_path / "deployed").iterdir())]
    assert names == ["last-deploy.json", "shop.dev.json", "shop.test.json"]


def test_what_was_deployed_since_the_last_synthesis_counts_without_being_written(tmp_path: Path) -> None:
    deploy(tmp_path, app_with())
    prepared(tmp_path, manifest=app_with())
    later = deploy(tmp_path, app_with(functions=3))
    before = {path: path.read_bytes() for path in (tmp_path / "deployed").iterdir()}
    assert read_deployed(tmp_path, "shop", "dev") == deployed_plan(later)
    assert {path: path.read_bytes() for path in (tmp_path / "deployed").iterdir()} == before


def test_a_deployment_is_taken_once_so_a_newer_file_from_version_control_stays(tmp_path: Path) -> None:
    deploy(tmp_path, app_with())
    remember_last_deploy(tmp_path)
    file = tmp_path / "deployed" / "shop.dev.json"
    newer = file.read_text().replace("standard", "fifo")
    file.write_text(newer)
    remember_last_deploy(tmp_path)
    assert file.read_text() == newer
    deployed = read_deployed(tmp_path, "shop", "dev")
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
    assert read_deployed(tmp_path, "many", "dev") == deployed_plan(many.app.plan)


def test_a_function_stays_in_its_stack_when_there_are_more_stacks(tmp_path: Path) -> None:
    before = deploy(tmp_path, app_with(stacks=2, functions=12))
    after = prepared(tmp_path, manifest=app_with(stacks=3, functions=12)).plan
    assert after.stack_count == before.stack_count + 1
    assert deployed_plan(after).functions == deployed_plan(before).functions


def test_a_file_that_did_not_change_is_not_written_again(tmp_path: Path) -> None:
    deploy(tmp_path, app_with())
    remember_last_deploy(tmp_path)
    file = tmp_path / "deployed" / "shop.dev.json"
    file.chmod(0o444)
    written = file.stat().st_mtime_ns
    remember_last_deploy(tmp_path)
    assert file.stat().st_mtime_ns == written


def test_outputs_of_an_app_inside_another_stack_are_found_too(tmp_path: Path) -> None:
    text = deployed_to_text(deployed_plan(prepared(tmp_path, manifest=app_with()).plan))
    leave(tmp_path, {"Mine": {f"App{DEPLOYED_OUTPUT}": text, "Other": "x"}})
    remember_last_deploy(tmp_path)
    assert read_deployed(tmp_path, "shop", "dev") is not None


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
    (tmp_path / "deployed" / "shop.dev.json").write_bytes(content)
    with pytest.raises(HostError, match=r"deployed/shop\.dev\.json: .* Restore it from version control") as refused:
        read_deployed(tmp_path, "shop", "dev")
    assert refused.value.code == "deployed_unreadable"


def test_two_apps_of_a_project_are_deployed_to_one_stage_and_each_keeps_to_its_own(tmp_path: Path) -> None:
    plans = [prepared(tmp_path, manifest=app_with(app=app)).plan for app in ("last", "shop")]
    leave(tmp_path, {p.deployment.prefix: {DEPLOYED_OUTPUT: deployed_to_text(deployed_plan(p))} for p in plans})
    for plan in plans:
        app = plan.deployment.app
        assert prepared(tmp_path, manifest=app_with(app=app)).plan.warnings == plan.warnings
        assert read_deployed(tmp_path, app, "dev") == deployed_plan(plan)
        with pytest.raises(AppInvalidError, match="queue 'pay' was deployed as a standard queue"):
            prepared(tmp_path, manifest=app_with(app=app, concurrency=1))
    names = [path.name for path in sorted((tmp_path / "deployed").iterdir())]
    assert names == ["last-deploy.json", "last.dev.json", "shop.dev.json"]


def test_an_app_under_a_new_name_is_told_that_it_would_be_another_one(tmp_path: Path) -> None:
    deploy(tmp_path, app_with())
    (finding,) = prepared(tmp_path, manifest=app_with(app="store")).plan.warnings
    assert finding.where == "deployed/store.dev.json"
    assert "first deployment of app 'store' in stage dev, beside 'shop'." in finding.message
    assert "set `app` of iii-aws back" in finding.message
    assert other_apps(tmp_path, "store", "test") == []


def earlier_file(root: Path, manifest: dict[str, Any], stage: str = "dev") -> Path:
    """Leave what an earlier version has remembered, under the name of the stage alone."""
    leave(root, {})
    file = root / "deployed" / f"{stage}.json"
    file.write_text(deployed_to_text(deployed_plan(prepared(root, manifest=manifest).plan)))
    return file


def test_a_file_under_the_name_of_its_stage_counts_and_gets_the_name_of_its_app(tmp_path: Path) -> None:
    earlier = earlier_file(tmp_path, app_with())
    text = earlier.read_text()
    assert read_deployed(tmp_path, "shop", "dev") is not None
    assert earlier.exists()
    with pytest.raises(AppInvalidError, match="queue 'pay' was deployed as a standard queue"):
        prepared(tmp_path, manifest=app_with(concurrency=1))
    assert not earlier.exists()
    assert (tmp_path / "deployed" / "shop.dev.json").read_text() == text


def test_a_file_under_the_name_of_its_stage_gives_way_to_a_newer_deployment(tmp_path: Path) -> None:
    earlier = earlier_file(tmp_path, app_with())
    later = deploy(tmp_path, app_with(functions=3))
    prepared(tmp_path, manifest=app_with(functions=3))
    assert not earlier.exists()
    assert read_deployed(tmp_path, "shop", "dev") == deployed_plan(later)


def test_a_file_under_the_name_of_its_stage_is_left_to_its_own_app(tmp_path: Path) -> None:
    earlier = earlier_file(tmp_path, app_with())
    (finding,) = prepared(tmp_path, manifest=app_with(app="store")).plan.warnings
    assert "beside 'shop'." in finding.message
    assert earlier.exists()


@pytest.mark.parametrize("name", ["shop.test.json", "test.json"])
def test_a_file_under_a_wrong_name_is_refused_by_its_own_name(tmp_path: Path, name: str) -> None:
    earlier_file(tmp_path, app_with()).rename(tmp_path / "deployed" / name)
    with pytest.raises(AppInvalidError) as refused:
        prepared(tmp_path, manifest=app_with(), context={"stage": "test"})
    (finding,) = [each for each in refused.value.findings if each.level == "error"]
    assert finding.where == f"deployed/{name}"
    assert finding.message.startswith("it tells of app 'shop' in stage dev, and by its name it is that of app 'shop'")


def test_without_a_deployment_nothing_is_remembered(tmp_path: Path) -> None:
    remember_last_deploy(tmp_path)
    assert read_deployed(tmp_path, "shop", "dev") is None
    assert list(tmp_path.iterdir()) == []
