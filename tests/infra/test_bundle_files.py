"""What is in a bundle: the code, the runtime less what no Lambda needs, the libraries, the manifest."""

from __future__ import annotations

import ast
import compileall
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import aws_cdk as cdk
import botocore.session
import pytest
from botocore.model import StringShape

from iii_runtime.cdk import IiiStacks, libraries
from iii_runtime.cdk.bundle import BUNDLES, MAX_ZIP_BYTES, Platform, build_bundle, current_bundle, platforms_of
from iii_runtime.cdk.bundle_files import LEFT_OUT, assemble, measure
from iii_runtime.cdk.project import Project, discover_project
from iii_runtime.cdk.settings import prepare
from iii_runtime.core.config.values import AwsConfig, LambdaPython, StageConfig
from iii_runtime.core.errors import HostError
from iii_runtime.hosts.embedded.manifest_discovery import DiscoveredApp
from tests.infra.bundles import WORKER, new_project
from tests.infra.synthesis import ROOT, new_app

PLATFORM = Platform("arm64", "3.14")
OLDEST_PYTHON = 11


@pytest.fixture(scope="session")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The manifest of the code, found once."""
    root = tmp_path_factory.mktemp("discovered")
    (root / "shop.py").write_text(WORKER)
    return discover_project(Project(root=root, functions=("shop.py",), config=None)).manifest


@pytest.fixture
def discovered(project: Project, manifest: dict[str, Any]) -> DiscoveredApp:
    """What the import of the project's code shows."""
    return DiscoveredApp(manifest=manifest, code={"shop": project.root / "shop.py"})


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with one file of functions, and libraries as if uv had installed them."""
    return new_project(tmp_path / "project")


def names_in(bundle: Path) -> set[str]:
    return {path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file()}


def test_a_bundle_has_code_runtime_libraries_and_manifest(project: Project, discovered: DiscoveredApp) -> None:
    bundle = build_bundle(project, PLATFORM, discovered=discovered)
    names = names_in(project.root / bundle.path)
    assert bundle.path == Path("build", "lambda", "arm64-3.14")
    assert {"shop.py", "iii_runtime/__init__.py", "small/__init__.py", "iii-manifest.json"} <= names
    manifest = json.loads((project.root / bundle.path / "iii-manifest.json").read_text())
    assert [each["id"] for each in manifest["functions"]] == ["shop::buy"]


def test_no_tests_no_cdk_no_command_line_and_no_other_host_is_there(
    project: Project, discovered: DiscoveredApp
) -> None:
    names = names_in(project.root / build_bundle(project, PLATFORM, discovered=discovered).path)
    for part in LEFT_OUT:
        assert not any(name.startswith(f"iii_runtime/{part}") for name in names), part
    assert not any("__pycache__" in name or "/tests/" in name for name in names)
    assert "iii_runtime/hosts/aws_lambda/function.py" in names


def imported_by(source: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_the_runtime_in_it_imports_nothing_that_was_left_out(project: Project, discovered: DiscoveredApp) -> None:
    root = project.root / build_bundle(project, PLATFORM, discovered=discovered).path
    for source in (root / "iii_runtime").rglob("*.py"):
        for module in imported_by(source):
            if module.partition(".")[0] == "iii_runtime":
                place = root.joinpath(*module.split("."))
                assert place.is_dir() or place.with_suffix(".py").is_file(), (source.relative_to(root), module)
            assert module.partition(".")[0] not in {"aws_cdk", "aiohttp", "click", "rich", "watchfiles", "yaml"}


def test_the_same_sources_make_the_same_bundle(project: Project, discovered: DiscoveredApp) -> None:
    place = libraries.require_libraries(project, project.root / BUNDLES, "arm64", "3.14", tracing=False)
    first = measure(assemble(discovered, project, place, project.root / "1"))
    os.utime(project.root / "shop.py", (0, 0))
    (project.root / "shop.py").chmod(0o600)
    second = measure(assemble(discovered, project, place, project.root / "2"))
    assert (first.digest, first.zip_bytes) == (second.digest, second.zip_bytes)
    (project.root / "shop.py").write_text(WORKER.replace("buy(", "sell("))
    assert measure(assemble(discovered, project, place, project.root / "3")).digest != first.digest


def test_everybody_may_read_a_bundle_whoever_built_it(project: Project, discovered: DiscoveredApp) -> None:
    before = os.umask(0o077)
    try:
        root = project.root / build_bundle(project, PLATFORM, discovered=discovered).path
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_file()}
    folders = {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_dir()}
    assert (modes, folders) == ({0o644}, {0o755})


def test_a_synthesis_brings_the_bundle_up_to_the_present_code(project: Project, discovered: DiscoveredApp) -> None:
    path = current_bundle(project, PLATFORM, discovered)
    untouched = (path / "small" / "__init__.py").stat().st_ino
    assert current_bundle(project, PLATFORM, discovered) == path
    assert (path / "small" / "__init__.py").stat().st_ino == untouched
    (project.root / "shop.py").write_text(WORKER + "\n# changed\n")
    current_bundle(project, PLATFORM, discovered)
    assert (path / "shop.py").read_text().endswith("# changed\n")


TAMPERING: dict[str, Callable[[Path], object]] = {
    "a file more": lambda path: (path / "more.py").write_text(""),
    "a hidden file more": lambda path: (path / ".env").write_text(""),
    "a file less": lambda path: (path / "shop.py").unlink(),
    "another library": lambda path: (path / "small" / "__init__.py").write_text(""),
    "another manifest": lambda path: (path / "iii-manifest.json").write_text("{}"),
    "compiled code": lambda path: compileall.compile_dir(path, quiet=2),
    "a folder more": lambda path: (path / "small" / "empty").mkdir(),
    "a link more": lambda path: (path / "away").symlink_to(path.parent),
    "a file that only its owner may read": lambda path: (path / "shop.py").chmod(0o600),
}


def everything_in(bundle: Path) -> dict[str, tuple[int, bytes]]:
    return {
        path.relative_to(bundle).as_posix(): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in bundle.rglob("*")
    }


@pytest.mark.parametrize("change", TAMPERING)
def test_a_bundle_that_was_tampered_with_is_made_anew(project: Project, discovered: DiscoveredApp, change: str) -> None:
    path = current_bundle(project, PLATFORM, discovered)
    before = everything_in(path)
    TAMPERING[change](path)
    assert everything_in(path) != before
    assert everything_in(current_bundle(project, PLATFORM, discovered)) == before


def test_libraries_that_were_tampered_with_are_not_deployed(project: Project, discovered: DiscoveredApp) -> None:
    (project.root / BUNDLES / "libraries-arm64-3.14" / "python" / "small" / "more.py").write_text("")
    with pytest.raises(HostError, match="its libraries have changed") as refused:
        current_bundle(project, PLATFORM, discovered)
    assert refused.value.code == "bundle_missing"


def test_what_python_compiles_among_the_libraries_is_left_there(project: Project, discovered: DiscoveredApp) -> None:
    place = project.root / BUNDLES / "libraries-arm64-3.14" / "python"
    before = everything_in(current_bundle(project, PLATFORM, discovered))
    compileall.compile_dir(place, quiet=2)
    assert everything_in(current_bundle(project, PLATFORM, discovered)) == before


def test_what_tools_and_people_hide_in_the_code_stays_there_unless_it_is_named(
    project: Project, discovered: DiscoveredApp
) -> None:
    package = project.root / "jobs"
    (package / ".cache").mkdir(parents=True)
    for name in ("__init__.py", ".env", ".cache/old.json", "a.b.txt"):
        (package / name).write_text("")
    wider = replace(discovered, code={**discovered.code, "jobs": package})
    bundle = build_bundle(project, PLATFORM, discovered=wider)
    found = {name for name in names_in(project.root / bundle.path) if name.startswith("jobs/")}
    assert found == {"jobs/__init__.py", "jobs/a.b.txt"}
    named = replace(project, include=("jobs/.env",))
    assert "jobs/.env" in names_in(project.root / build_bundle(named, PLATFORM, discovered=wider).path)


def test_what_is_compiled_while_stacks_are_synthesised_does_not_change_the_hash(tmp_path: Path) -> None:
    keys = []
    for name in ("Whole", "Compiled"):
        root = new_project(tmp_path / name).root
        app = new_app(tmp_path / f"{name}.out")
        make_code = prepare(app, {"project_root": root, "functions": "shop.py", "config": None}).make_code
        if name == "Compiled":
            compileall.compile_dir(root / BUNDLES / PLATFORM.name, quiet=2)
        location = make_code().bind(cdk.Stack(app, name)).s3_location
        keys.append(location and location.object_key)
    assert keys[0] is not None
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    ("changed", "command"),
    [
        ({"functions": ("functions",)}, "iii-runtime bundle"),
        ({}, "iii-runtime bundle shop.py"),
        ({"functions": ("my jobs", "shop.py")}, "iii-runtime bundle 'my jobs' shop.py"),
        ({"config": "mine.yaml"}, "iii-runtime bundle --config mine.yaml shop.py"),
        ({"requirements": "libraries.txt"}, "iii-runtime bundle --requirements libraries.txt shop.py"),
    ],
)
def test_a_synthesis_without_libraries_says_how_to_get_them(
    project: Project, discovered: DiscoveredApp, changed: dict[str, Any], command: str
) -> None:
    (project.root / "libraries.txt").write_text("small\n")
    with pytest.raises(HostError, match=f"Run `{re.escape(command)}` in the root") as refused:
        current_bundle(replace(project, **changed), Platform("x86_64", "3.13"), discovered)
    assert refused.value.code == "bundle_missing"


def test_other_requirements_make_the_libraries_stale(project: Project, discovered: DiscoveredApp) -> None:
    (project.root / "requirements.txt").write_text("httpx\n")
    with pytest.raises(HostError, match="its libraries have changed"):
        current_bundle(project, PLATFORM, discovered)


def test_what_the_code_needs_besides_is_included_by_name(project: Project, discovered: DiscoveredApp) -> None:
    (project.root / "templates").mkdir()
    (project.root / "templates" / "mail.txt").write_text("Dear customer")
    wider = Project(root=project.root, functions=("shop.py",), config=None, include=("templates",))
    assert "templates/mail.txt" in names_in(project.root / build_bundle(wider, PLATFORM, discovered=discovered).path)


def test_what_is_to_be_included_and_is_not_there_is_refused(project: Project, discovered: DiscoveredApp) -> None:
    wider = Project(root=project.root, functions=("shop.py",), config=None, include=("nothing",))
    with pytest.raises(HostError, match="nothing: no such file or folder to include") as refused:
        build_bundle(wider, PLATFORM, discovered=discovered)
    assert refused.value.code == "include_missing"


def test_code_named_like_a_library_is_refused(project: Project, discovered: DiscoveredApp) -> None:
    (project.root / "small").mkdir()
    (project.root / "small" / "__init__.py").write_text("")
    alike = replace(discovered, code={**discovered.code, "small": project.root / "small"})
    with pytest.raises(HostError, match="a library of the bundle has the name") as refused:
        build_bundle(project, PLATFORM, discovered=alike)
    assert refused.value.code == "bundle_name_taken"


def test_a_bundle_above_the_limit_is_refused_with_what_is_large(project: Project, discovered: DiscoveredApp) -> None:
    (project.root / "model.bin").write_bytes(os.urandom(MAX_ZIP_BYTES + 1))
    large = replace(project, include=("model.bin",))
    with pytest.raises(HostError, match=r"Largest, unpacked: model\.bin 10\.0 MB") as refused:
        build_bundle(large, PLATFORM, discovered=discovered)
    assert refused.value.code == "bundle_too_large"


def test_there_is_a_bundle_for_each_platform_that_a_stage_asks_for() -> None:
    stages = {"prod": StageConfig(architecture="x86_64"), "old": StageConfig(python="3.12"), "same": StageConfig()}
    assert [each.name for each in platforms_of(AwsConfig(stages=stages))] == ["arm64-3.12", "arm64-3.14", "x86_64-3.14"]


def test_a_stage_may_have_each_runtime_of_lambda_that_this_package_runs_on() -> None:
    """By the model of Lambda's own API."""
    shape = botocore.session.get_session().get_service_model("lambda").shape_for("Runtime")
    assert isinstance(shape, StringShape)
    names = shape.enum
    versions = [name.removeprefix("python") for name in names if name.startswith("python3.")]
    assert list(get_args(LambdaPython)) == [each for each in versions if int(each.partition(".")[2]) >= OLDEST_PYTHON]


def test_the_runtime_asks_for_the_versions_that_its_package_asks_for() -> None:
    own = libraries._own_requirements(tracing=False)
    assert own[0].startswith("pydantic>=")
    assert own[-1] == "boto3"
    assert all(">=" in each or each == "tzdata" for each in own[:-1])


def test_only_stages_that_trace_pay_for_the_library_of_traces() -> None:
    def traced(*, tracing: bool) -> list[str]:
        return [each for each in libraries._own_requirements(tracing=tracing) if each.startswith("aws-xray-sdk")]

    assert len(traced(tracing=True)) == 1
    assert traced(tracing=False) == []


@pytest.mark.parametrize(
    ("architecture", "python", "platform"),
    [
        ("arm64", "3.14", "aarch64-manylinux_2_28"),
        ("x86_64", "3.12", "x86_64-manylinux_2_28"),
        ("x86_64", "3.11", "x86_64-manylinux2014"),
    ],
)
def test_wheels_fit_processor_and_system_of_the_runtime(architecture: str, python: str, platform: str) -> None:
    asked = libraries._platform(architecture, python)
    assert asked[asked.index("--python-platform") + 1] == platform
    assert asked[asked.index("--only-binary") + 1] == ":all:"


def test_every_stack_runs_the_same_bundle(project: Project, tmp_path: Path) -> None:
    (project.root / "iii-config.yaml").write_text("workers: [{name: iii-aws, config: {stacks: 2}}]")
    app = new_app(tmp_path / "cdk.out")
    stacks = IiiStacks(app, project_root=project.root, functions="shop.py").stacks
    app.synth()
    keys: list[object] = []
    for stack in stacks:
        template = json.loads((tmp_path / "cdk.out" / f"{stack.stack_name}.template.json").read_text())
        functions = [each for each in template.get("Resources", {}).values() if each["Type"] == "AWS::Lambda::Function"]
        keys += [each["Properties"]["Code"]["S3Key"] for each in functions]
    assert len(keys) == 1 + 5
    assert len(set(map(str, keys))) == 1


def test_the_code_of_this_repository_is_its_functions() -> None:
    assert discover_project(Project(root=ROOT)).code == {"functions": ROOT / "functions"}
