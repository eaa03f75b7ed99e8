"""Synthesis learns what an app registers from a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from iii_runtime.cdk.project import Project, describe
from iii_runtime.core.errors import HostError
from iii_runtime.plan.manifest import read_manifest

WORKER = """
import os
import prices
from iii_runtime import Http, Queue, register_worker

print("being imported")
os.write(1, b"past Python\\n")
worker = register_worker(worker_name="shop")
assert os.environ["III_DISCOVERY"] == "1"

@worker.function("shop::buy", triggers=[Http("POST", "/buy"), Queue("default")], timeout_ms=5000)
def buy(order: dict) -> dict:
    return {"price": prices.PRICE}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with a file of functions, and a module and a package that it imports."""
    (tmp_path / "shop.py").write_text(WORKER)
    (tmp_path / "prices").mkdir()
    (tmp_path / "prices" / "__init__.py").write_text("from prices.list import PRICE\n")
    (tmp_path / "prices" / "list.py").write_text("PRICE = 3\n")
    (tmp_path / "unused.py").write_text("raise RuntimeError('nobody imports this')\n")
    return tmp_path


def test_it_finds_functions_and_triggers(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    manifest = read_manifest(describe(Project(root=root, functions=("shop.py",), config=None)).manifest)
    assert list(manifest.catalog.functions) == ["shop::buy"]
    assert [trigger.type_name for trigger in manifest.catalog.triggers] == ["http", "queue"]
    assert manifest.targets == ("shop",)
    printed = capfd.readouterr()
    assert "being imported" in printed.err
    assert "past Python" in printed.err
    assert printed.out == ""


def test_places_are_told_from_the_root_of_the_project(root: Path) -> None:
    manifest = describe(Project(root=root, functions=("shop.py",), config=None)).manifest
    assert manifest["functions"][0]["source"].startswith("shop.py:")
    assert str(root) not in str(manifest)


def test_the_code_is_the_targets_and_what_they_import_of_the_project(root: Path) -> None:
    described = describe(Project(root=root, functions=("shop.py",), config=None))
    assert described.code == {"prices": root / "prices", "shop": root / "shop.py"}


def test_a_package_is_found_as_a_whole(root: Path) -> None:
    (root / "jobs").mkdir()
    (root / "jobs" / "__init__.py").write_text("")
    (root / "jobs" / "night.py").write_text(WORKER)
    described = describe(Project(root=root, functions=("jobs",), config=None))
    assert described.manifest["targets"] == ["jobs", "jobs.night"]
    assert described.code == {"jobs": root / "jobs", "prices": root / "prices"}


def test_the_configuration_is_part_of_it(root: Path) -> None:
    (root / "iii-config.yaml").write_text("workers: [{name: iii-aws, config: {app: '${APP}'}}]")
    project = Project(root=root, functions=("shop.py",), environment={"APP": "corner"})
    assert read_manifest(describe(project).manifest).config.aws.app == "corner"


def test_the_import_sees_no_credentials_and_no_harm_comes_of_clients(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the real one")
    monkeypatch.setenv("AWS_PROFILE", "mine")
    (root / "shop.py").write_text(
        WORKER + "import boto3\nboto3.client('s3')\nassert 'AWS_PROFILE' not in os.environ\n"
        "assert os.environ['AWS_SECRET_ACCESS_KEY'] == 'none'\n"
    )
    describe(Project(root=root, functions=("shop.py",), config=None))


def test_code_that_fails_when_it_is_imported_is_reported_with_file_and_line(root: Path) -> None:
    (root / "shop.py").write_text("import os\nKEY = os.environ['STRIPE_KEY']\n")
    with pytest.raises(HostError, match=r"shop\.py:2: KeyError: 'STRIPE_KEY'") as refused:
        describe(Project(root=root, functions=("shop.py",), config=None))
    assert refused.value.code == "discovery_failed"


def test_a_configuration_with_mistakes_is_reported_with_its_lines(root: Path) -> None:
    (root / "iii-config.yaml").write_text("workers:\n  - name: iii-http\n    config: {port: many}\n")
    with pytest.raises(HostError, match=r"iii-config\.yaml:3"):
        describe(Project(root=root, functions=("shop.py",)))
