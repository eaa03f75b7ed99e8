"""The bundle as `make bundle` builds it, for the interpreter of the tests, and what Lambda has beside it."""

from __future__ import annotations

import json
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from iii_runtime.cdk.bundle import Platform, build_bundle, current_bundle
from iii_runtime.cdk.project import Project, discover_project
from iii_runtime.core.config.values import Architecture
from iii_runtime.core.errors import HostError
from iii_runtime.plan.app import plan_app
from iii_runtime.plan.app_plan import AppPlan
from iii_runtime.plan.manifest import MANIFEST_NAME, read_manifest
from iii_runtime.plan.names import Deployment

ROOT = Path(__file__).absolute().parents[2]
PLACE = ROOT / "build" / "lambda-runtime"
"""What is built here stays from run to run, and is built anew where it differs."""

DEPLOYMENT = Deployment(app="orders", stage="dev", region="eu-central-1", account="123456789012")

_PROBE = Path(__file__).with_name("app") / "probe"
_PROVIDED = (
    "awslambdaric",
    "boto3",
    "botocore",
    "jmespath",
    "python-dateutil",
    "s3transfer",
    "simplejson",
    "six",
    "snapshot-restore-py",
    "urllib3",
)
"""What Lambda's runtime for Python brings along."""

_ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What is deployed.

    Attributes:
        bundle: The folder that is `/var/task` on Lambda.
        provided: A folder with what Lambda's runtime brings along, and nothing else.
        plan: The Lambdas, with their environments.
    """

    bundle: Path
    provided: Path
    plan: AppPlan


def build(place: Path = PLACE) -> Built:
    """Bring the bundle up to the present code. The first time, and when libraries change, it needs the registry."""
    _write_project(place)
    project = Project(root=place, functions=("functions", "probe"))
    discovered = discover_project(project)
    target = Platform(_architecture(), f"{sys.version_info.major}.{sys.version_info.minor}")
    try:
        bundle = current_bundle(project, target, discovered)
    except HostError as error:
        if error.code != "bundle_missing":
            raise
        bundle = place / _built(project, target)
    manifest = read_manifest(json.loads((bundle / MANIFEST_NAME).read_bytes()))
    return Built(bundle=bundle, provided=_provide(place / "provided"), plan=plan_app(manifest, DEPLOYMENT))


def _built(project: Project, target: Platform) -> Path:
    try:
        return build_bundle(project, target).path
    except HostError as error:
        if error.code != "libraries_unavailable":
            raise
        pytest.fail(f"These tests need the libraries of a bundle once, from where PyPI can be reached.\n{error}", False)


def _write_project(place: Path) -> None:
    """Copy what a project consists of: the order pipeline, its configuration, and the functions of these tests."""
    place.mkdir(parents=True, exist_ok=True)
    for source in (ROOT / "functions", _PROBE):
        shutil.rmtree(place / source.name, ignore_errors=True)
        shutil.copytree(source, place / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "constraints.txt", place)
    config: dict[str, Any] = yaml.safe_load((ROOT / "iii-config.yaml").read_text("utf-8"))
    sections = {worker["name"]: worker.setdefault("config", {}) for worker in config["workers"]}
    sections["iii-queue"]["queue_configs"]["jobs"] = {"max_retries": 2, "backoff_ms": 1000}
    # Filled in where the configuration of the product is read; here there is nobody to keep out.
    for name, port in (("iii-http", 3111), ("iii-stream", 3112)):
        sections[name].update(port=port, auth="none")
    (place / "iii-config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")


def _architecture() -> Architecture:
    found = _ARCHITECTURES[platform.machine().lower()]
    (known,) = (each for each in get_args(Architecture) if each == found)
    architecture: Architecture = known
    return architecture


def _provide(folder: Path) -> Path:
    """Make a folder that has the packages of some distributions of this environment, and only these."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in _PROVIDED:
        for source in _roots(metadata.distribution(name)):
            (folder / source.name).symlink_to(source)
    return folder


def _roots(distribution: metadata.Distribution) -> Iterator[Path]:
    names = {file.parts[0] for file in distribution.files or ()}
    for name in sorted(names - {"..", "__pycache__"}):
        yield Path(str(distribution.locate_file(name)))
