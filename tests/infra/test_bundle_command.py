"""`iii-runtime bundle`, and the same without the command line."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from iii_runtime.cdk.bundle import main
from iii_runtime.cdk.project import Project
from tests.host.commands import answer, done, refused
from tests.infra.bundles import install, new_project

CONFIG = "workers: [{name: iii-aws, config: {stages: {prod: {python: '3.13'}}}}]"
BUNDLE = r"build/lambda/arm64-(3\.1[34]): 0\.\d MB zipped, \d\.\d MB unpacked, sha256 [0-9a-f]{16}"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project in the current folder, with one file of functions and a library for each of its two platforms."""
    made = new_project(tmp_path / "project")
    (made.root / "iii-config.yaml").write_text(CONFIG)
    install(made, python="3.13")
    monkeypatch.chdir(made.root)
    monkeypatch.delenv("III_CONFIG", raising=False)
    return made


def test_it_builds_a_bundle_for_each_platform_and_says_how_large_it_is(project: Project) -> None:
    shown = done("bundle", "shop.py").splitlines()
    found = [re.fullmatch(BUNDLE, line) for line in shown]
    assert [match and match[1] for match in found] == ["3.13", "3.14"]
    assert (project.root / "build" / "lambda" / "arm64-3.13" / "shop.py").is_file()


def test_without_the_command_line_it_is_the_same(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shop.py"]) == 0
    assert capsys.readouterr().out == done("bundle", "shop.py")


def test_a_program_reads_it_as_json(project: Project) -> None:
    built = answer("bundle", "shop.py")
    assert [each["path"] for each in built] == ["build/lambda/arm64-3.13", "build/lambda/arm64-3.14"]
    for each in built:
        assert each.keys() == {"path", "sha256", "zip_bytes", "unpacked_bytes"}
        assert 0 < each["zip_bytes"] < each["unpacked_bytes"]


def test_configuration_libraries_and_further_files_are_named_by_options(project: Project) -> None:
    (project.root / "mine.yaml").write_text(CONFIG.replace("{prod: {python: '3.13'}}", "{dev: {python: '3.12'}}"))
    (project.root / "mail.txt").write_text("Dear customer")
    (project.root / "libraries.txt").write_text("small\n")
    named = replace(project, requirements="libraries.txt")
    shutil.rmtree(project.root / "build")
    install(named, python="3.12")
    options = ("--config", "mine.yaml", "--include", "mail.txt", "--requirements", "libraries.txt")
    assert len(done("bundle", "shop.py", *options).splitlines()) == 1
    assert (project.root / "build" / "lambda" / "arm64-3.12" / "mail.txt").read_text() == "Dear customer"


def test_it_says_what_is_wrong_in_words(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    missing = f"error: worker_not_found: {project.root / 'nowhere.py'}: no such file."
    assert refused(2, "bundle", "nowhere.py").startswith(missing)
    assert refused(2, "bundle", "shop.py", "--include", "x").startswith("error: include_missing: ")
    assert main(["nowhere.py"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "nowhere.py: no such file" in printed.err


@pytest.mark.process
@pytest.mark.parametrize(
    ("start", "code", "begin"),
    [
        ("from iii_runtime.cli.main import main; sys.exit(main(['bundle', 'shop.py']))", 2, "error: extra_missing: "),
        ("from iii_runtime.cdk.bundle import main; sys.exit(main(['shop.py']))", 1, ""),
    ],
)
def test_without_the_extra_it_says_what_to_install(project: Project, start: str, code: int, begin: str) -> None:
    command = [sys.executable, "-c", f"import sys; sys.modules['uv'] = None; {start}"]
    result = subprocess.run(command, check=False, capture_output=True, text=True, cwd=project.root)
    assert (result.returncode, result.stdout) == (code, "")
    assert result.stderr == f"{begin}a bundle needs the extra: pip install 'iii-runtime[cdk]'\n"


@pytest.mark.process
@pytest.mark.parametrize("name", ["IiiApp", "IiiStacks"])
def test_the_constructs_without_the_extra_say_what_to_install(tmp_path: Path, name: str) -> None:
    code = f"""import sys
sys.modules["aws_cdk"] = None
from iii_runtime.core.errors import HostError
try:
    from iii_runtime.cdk import {name}
except ImportError as error:
    assert isinstance(error, HostError)
    print(error.code, error.message)
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert result.stderr == ""
    assert result.stdout == f"extra_missing {name} needs the extra: pip install 'iii-runtime[cdk]'\n"


def test_without_targets_and_their_folder_it_asks_where_the_workers_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("bundle", "dev"):
        said = refused(2, command)
        assert "there is no folder 'functions' here. Say where the workers are" in said
        assert f"`iii-runtime {command} app.py`" in said


@pytest.mark.process
def test_it_does_without_the_cdk(project: Project) -> None:
    start = "from iii_runtime.cli.main import main; sys.exit(main(['bundle', 'shop.py']))"
    command = [sys.executable, "-c", f"import sys; sys.modules['aws_cdk'] = sys.modules['boto3'] = None; {start}"]
    result = subprocess.run(command, check=False, capture_output=True, text=True, cwd=project.root)
    assert (result.returncode, result.stderr) == (0, "")
    assert len(result.stdout.splitlines()) == 2
