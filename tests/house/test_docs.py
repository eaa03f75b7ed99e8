"""What the documents show is true: examples run, commands exist, names are those of the code."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest

from iii_runtime.adapters.config_file import load_config
from iii_runtime.cli.main import cli
from iii_runtime.core.registry import Catalog
from iii_runtime.hosts.embedded.discovery import discover_workers
from iii_runtime.plan.checks import check_app

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
REFERENCE = ROOT / "docs" / "reference"

PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED_BLOCK = re.compile(r"^`([\w.-]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXCERPT = re.compile(r"\[`[\w./]+`\]\(([\w./]+\.py)\):\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def python_blocks() -> list[tuple[str, str]]:
    return [(name_of(path), block) for path in DOCUMENTS for block in PYTHON_BLOCK.findall(path.read_text())]


@pytest.fixture(autouse=True)
def imports_undone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Forget the modules of the examples; they are imported by name, from folders of their own."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "").is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.mark.parametrize("block", [block for _, block in python_blocks()], ids=[name for name, _ in python_blocks()])
def test_every_python_example_compiles_and_a_worker_example_can_be_run(block: str, tmp_path: Path) -> None:
    compile(block, "example", "exec")
    if "register_worker(" in block:
        file = tmp_path / "documented_example.py"
        file.write_text(block)
        catalog = Catalog.of(worker.registry for worker in discover_workers([str(file)]))
        assert catalog.functions


def test_the_quickstart_example_passes_its_own_test(tmp_path: Path) -> None:
    files = dict(NAMED_BLOCK.findall((ROOT / "docs" / "quickstart.md").read_text()))
    assert sorted(files) == ["iii-config.yaml", "mail.py", "test_mail.py"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    catalog = Catalog.of(worker.registry for worker in discover_workers([str(tmp_path / "mail.py")]))
    assert check_app(load_config(tmp_path / "iii-config.yaml", env={}), catalog) == []
    module = ModuleType("test_mail")
    module.__file__ = str(tmp_path / "test_mail.py")
    exec(compile(files["test_mail.py"], module.__file__, "exec"), module.__dict__)  # noqa: S102 - our own document
    cases = [value for name, value in vars(module).items() if name.startswith("test_")]
    assert len(cases) == 2
    for case in cases:
        case()


def test_the_tests_of_the_testing_guide_pass_as_they_are_written(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "how-to" / "testing.md").read_text()
    files = dict(NAMED_BLOCK.findall(text))
    assert sorted(files) == ["iii-config.yaml", "newsletter.py", "pytest.ini"]
    cases = [block for block in PYTHON_BLOCK.findall(text) if block != files["newsletter.py"]]
    for name, content in {**files, "test_newsletter.py": "\n\n".join(cases)}.items():
        (tmp_path / name).write_text(content)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    assert f"{sum(block.count('def test_') for block in cases)} passed" in result.stdout
    assert result.stderr == ""


def excerpts() -> list[tuple[str, Path, str]]:
    """Return what a document shows of a file: the document, the file, the lines."""
    return [
        (name_of(path), (path.parent / target).resolve(), block)
        for path in DOCUMENTS
        for target, block in EXCERPT.findall(path.read_text())
    ]


def test_the_pipeline_guide_shows_code_of_the_example() -> None:
    assert len([name for name, _, _ in excerpts() if name == "docs/how-to/pipelines.md"]) == 5


@pytest.mark.parametrize(("name", "file", "block"), excerpts())
def test_an_excerpt_is_what_the_file_has(name: str, file: Path, block: str) -> None:
    """But for its indentation."""
    shown, source = ("\n".join(line.strip() for line in text.splitlines()) for text in (block, file.read_text()))
    assert shown in source, (name, file)


def commands(group: click.Group, prefix: str) -> Iterator[tuple[str, click.Command]]:
    """Yield each command with its full name, groups included."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{prefix} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix} {name}")


@pytest.mark.parametrize("name", [name for name, _ in commands(cli, "iii-runtime")])
def test_the_command_line_reference_has_every_command_and_option(name: str) -> None:
    text = (REFERENCE / "cli.md").read_text()
    command = dict(commands(cli, "iii-runtime"))[name]
    top = name.split()[1]
    sections = dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    shared = text.partition("## Exit codes")[0]
    is_bare_group = isinstance(command, click.Group) and not command.invoke_without_command
    assert is_bare_group or name in sections[top]
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert any(option in sections[top] + shared for option in parameter.opts), parameter.opts


def test_the_command_line_reference_names_no_command_that_does_not_exist() -> None:
    known = {name for name, _ in commands(cli, "iii-runtime")}
    shown: set[str] = set()
    for path in DOCUMENTS:
        shown |= set(re.findall(r"iii-runtime (?:dlq|state|stream|runs|cron|config|queues) [a-z]+", path.read_text()))
    assert shown - known == set()


def anchors_of(path: Path) -> set[str]:
    """Return what a link may lead to: ids, and headings as GitHub names them."""
    text = path.read_text()
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_link_to_a_heading_leads_to_one(path: Path) -> None:
    broken = [
        f"{target}#{anchor}"
        for target, anchor in LINK.findall(path.read_text())
        if "://" not in target and anchor not in anchors_of((path.parent / target) if target else path)
    ]
    assert broken == []


def test_the_names_in_the_architecture_are_those_of_the_code() -> None:
    text = FENCED.sub("", (ROOT / "docs" / "architecture.md").read_text())
    sources = {path: path.read_text() for path in (ROOT / "iii_runtime").rglob("*.py")}
    everything = "\n".join(sources.values())
    files = set(re.findall(r"`([\w/]+\.py)`", text))
    known = [str(path.relative_to(ROOT)) for path in [*sources, *(ROOT / "functions").glob("*.py")]]
    assert [file for file in sorted(files) if not any(f"/{path}".endswith(f"/{file}") for path in known)] == []
    for owner, member in re.findall(r"`([A-Z]\w+)\.(\w+)`", text):
        assert re.search(rf"^class {owner}\b", everything, re.MULTILINE), owner
        assert re.search(rf"def {member}\b", everything), f"{owner}.{member}"
