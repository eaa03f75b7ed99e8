"""The guarantees name the tests that prove them: every named test exists, and every clause names one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUARANTEES = ROOT / "docs" / "guarantees.md"
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")


def declared_in(file: Path) -> set[str]:
    """Return what can be named in a test file: `test_...`, `Class::test_...`, and classes that are assigned."""
    found: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            found |= {f"{node.name}::{method.name}" for method in methods}
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {name for name in found if name.rpartition("::")[2].startswith("test") or name.startswith("Test")}


def clauses() -> list[tuple[str, str]]:
    """Return heading and text of each clause."""
    parts = re.split(r"^### (.+)$", GUARANTEES.read_text(), flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def test_every_test_that_the_guarantees_name_exists() -> None:
    named = NAMED_TEST.findall(GUARANTEES.read_text())
    missing = [
        f"{path}::{name}" for path, name in named if not (ROOT / path).is_file() or name not in declared_in(ROOT / path)
    ]
    assert missing == []


def test_there_are_clauses_to_check() -> None:
    assert len(clauses()) > 20


@pytest.mark.parametrize(("heading", "text"), clauses(), ids=[heading for heading, _ in clauses()])
def test_every_clause_names_a_test(heading: str, text: str) -> None:
    assert NAMED_TEST.search(text), heading
