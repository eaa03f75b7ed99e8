"""The guarantees name the tests that prove them: every named test exists, and every clause names one.

Those of AWS have more to say: every clause has its word about AWS, the tests that are named there run on AWS, and each
clause says truly how it is proven.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.aws_services import NOT_FAITHFUL
from tests.functional.conftest import NOT_ON_AWS

ROOT = Path(__file__).resolve().parents[2]
GUARANTEES = ROOT / "docs" / "guarantees.md"
ON_AWS = ROOT / "docs" / "guarantees-aws.md"
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
PROOF = re.compile(r"^Proof: ([\w, ]+)\.", re.MULTILINE)

PROOFS = {
    r"tests/functional/": "simulator",
    r"tests/host/test_aws_": "simulator",
    r"tests/contract/": "moto",
    r"tests/host/test_(lambda|cli_stage)_": "moto",
    r"tests/unit/test_aws_": "moto",
    r"tests/(unit|property)/": "unit",
    r"tests/protocol/test_sqs_": "model",
    r"tests/infra/": "template",
}
"""What a test proves with, by where it is; the first that fits counts. Other tests are not about AWS."""

BACKENDS = {"host", "harness", "store", "stores", "jobs"}
"""Fixtures of scenarios and contracts that are there once for each backend."""


def functions_in(file: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield name and definition of each function and method of a file, methods as `Class::name`."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}::{method.name}", method


def declared_in(file: Path) -> set[str]:
    """Return what can be named in a test file: `test_...`, `Class::test_...`, and classes that are assigned."""
    found = {name for name, _ in functions_in(file)}
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {name for name in found if name.rpartition("::")[2].startswith("test") or name.startswith("Test")}


def clauses(page: Path) -> list[tuple[str, str]]:
    """Return heading and text of each clause."""
    parts = re.split(r"^###? (.+)$", page.read_text(), flags=re.MULTILINE)
    found = zip(parts[1::2], parts[2::2], strict=True)
    headings = set(re.findall(r"^### (.+)$", page.read_text(), flags=re.MULTILINE))
    return [(heading, text) for heading, text in found if heading in headings]


def proof_of(path: str) -> str | None:
    """Return what a test proves with; None if it is not about AWS."""
    return next((proof for pattern, proof in PROOFS.items() if re.match(pattern, path)), None)


def left_out_on_aws(path: str, name: str) -> bool:
    """Return whether a scenario or a contract test does not run on AWS."""
    test = name.rpartition("::")[2]
    if path.startswith("tests/functional/"):
        is_left_out = Path(path).stem in NOT_ON_AWS or test in NOT_ON_AWS
    elif path.startswith("tests/contract/"):
        is_left_out = test in NOT_FAITHFUL
    else:
        return False
    arguments = {argument.arg for argument in dict(functions_in(ROOT / path))[name].args.args}
    return is_left_out or not arguments & BACKENDS


@pytest.mark.parametrize("page", [GUARANTEES, ON_AWS], ids=lambda page: page.stem)
def test_every_test_that_the_guarantees_name_exists(page: Path) -> None:
    named = NAMED_TEST.findall(page.read_text())
    missing = [
        f"{path}::{name}" for path, name in named if not (ROOT / path).is_file() or name not in declared_in(ROOT / path)
    ]
    assert missing == []


@pytest.mark.parametrize("page", [GUARANTEES, ON_AWS], ids=lambda page: page.stem)
def test_there_are_clauses_to_check(page: Path) -> None:
    assert len(clauses(page)) > 20


@pytest.mark.parametrize(
    ("heading", "text"),
    [*clauses(GUARANTEES), *clauses(ON_AWS)],
    ids=[heading for page in (GUARANTEES, ON_AWS) for heading, _ in clauses(page)],
)
def test_every_clause_names_a_test(heading: str, text: str) -> None:
    assert NAMED_TEST.search(text), heading


def test_every_clause_has_its_word_about_aws() -> None:
    said = re.findall(r"^\| (.+?) \| .+ \|$", ON_AWS.read_text(), flags=re.MULTILINE)
    assert [heading for heading, _ in clauses(GUARANTEES) if heading not in said] == []


def test_what_is_named_for_aws_runs_on_aws() -> None:
    named = NAMED_TEST.findall(ON_AWS.read_text())
    others = [f"{path}::{name}" for path, name in named if proof_of(path) is None or left_out_on_aws(path, name)]
    assert others == []


@pytest.mark.parametrize(("heading", "text"), clauses(ON_AWS), ids=[heading for heading, _ in clauses(ON_AWS)])
def test_every_clause_about_aws_says_how_it_is_proven(heading: str, text: str) -> None:
    told = PROOF.findall(text)
    assert len(told) == 1, heading
    assert sorted(told[0].split(", ")) == sorted({str(proof_of(path)) for path, _ in NAMED_TEST.findall(text)})
