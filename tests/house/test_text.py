"""Rules about the text of the project that no linter checks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BANNED_NAMES = {"utils.py", "helpers.py", "common.py", "manager.py", "base.py", "constants.py", "misc.py"}
LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]+)(?:#[^)]*)?\)")


def files(*patterns: str) -> list[Path]:
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")
    return [ROOT / name for name in listed if name and (ROOT / name).is_file()]


def test_no_module_is_named_after_nothing() -> None:
    assert [str(path) for path in files("*.py") if path.name in BANNED_NAMES] == []


def test_no_module_of_the_runtime_grows_beyond_400_lines() -> None:
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files("iii_runtime/*.py")}
    assert {name: size for name, size in sizes.items() if size > 400} == {}


def test_every_link_in_the_documents_leads_to_a_file() -> None:
    broken = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in files("*.md")
        for target in LINK.findall(path.read_text())
        if "://" not in target and not (path.parent / target).exists()
    ]
    assert broken == []


def test_every_package_says_what_it_is() -> None:
    silent = [str(path) for path in files("iii_runtime/*__init__.py") if not path.read_text().startswith('"""')]
    assert silent == []
