"""Where an app's code is, and that it is looked at from the root of its project with the variables it is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from iii_runtime.cdk.project import CONFIG, Project, default_config, discover_project
from iii_runtime.core.errors import HostError
from iii_runtime.plan.manifest import read_manifest

WORKER = """
import os
from iii_runtime import register_worker

worker = register_worker(worker_name="shop")
worker.register_function("shop::buy", print, metadata={"currency": os.environ["CURRENCY"]})
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with a file of functions and a configuration; both want a variable."""
    (tmp_path / "shop.py").write_text(WORKER)
    (tmp_path / CONFIG).write_text("workers: [{name: iii-aws, config: {app: '${APP}'}}]")
    return tmp_path


def test_a_project_is_read_in_its_own_folder_with_its_own_variables(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APP", "of-the-process")
    monkeypatch.setenv("CURRENCY", "EUR")
    found = discover_project(Project(root=root, functions=("shop.py",), environment={"APP": "corner"}))
    manifest = read_manifest(found.manifest)
    assert manifest.config.aws.app == "corner"
    assert manifest.catalog.functions["shop::buy"].metadata == {"currency": "EUR"}
    assert found.code == {"shop": root / "shop.py"}


def test_code_that_cannot_be_imported_is_refused_with_file_and_line(root: Path) -> None:
    with pytest.raises(HostError, match=r"shop\.py:6: KeyError: 'CURRENCY'"):
        discover_project(Project(root=root, functions=("shop.py",), environment={"APP": "corner"}))


def test_the_usual_configuration_is_taken_if_it_is_there(root: Path) -> None:
    assert default_config(root) == CONFIG
    assert default_config(root / "elsewhere") is None


def test_requirements_are_those_that_are_named_else_those_beside_the_code(root: Path) -> None:
    (root / "jobs").mkdir()
    beside, named = root / "jobs" / "requirements.txt", root / "wanted.txt"
    assert Project(root=root, functions=("jobs",)).requirements_file() is None
    beside.write_text("httpx\n")
    named.write_text("httpx\n")
    assert Project(root=root, functions=("jobs",)).requirements_file() == beside
    assert Project(root=root, functions=("jobs/night.py",)).requirements_file() == beside
    assert Project(root=root, functions=("jobs",), requirements="wanted.txt").requirements_file() == named


def test_requirements_that_are_named_and_missing_are_refused(root: Path) -> None:
    with pytest.raises(HostError, match=r"wanted\.txt: no such file; it should list the libraries") as refused:
        Project(root=root, requirements="wanted.txt").requirements_file()
    assert refused.value.code == "requirements_missing"
