"""The guarantees name the tests that prove them: every named test exists, and every clause names one and its kind.

Those of AWS have more to say: every clause has its word about AWS, the tests that are named there run on AWS, and what
is not provable without AWS is marked in the clause, in the table, and with the clause of the embedded host.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.contract.aws_services import NOT_FAITHFUL
from tests.functional.conftest import NOT_ON_AWS

ROOT = Path(__file__).resolve().parents[2]
GUARANTEES = ROOT / "docs" / "guarantees.md"
ON_AWS = ROOT / "docs" / "guarantees-aws.md"
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
PROOF = re.compile(r"^Proof: ([\w, ]+)\.", re.MULTILINE)
PROOF_ON_AWS = re.compile(r"^Proof: [\w, ]+\.\sOn AWS: ([^.]+)\.", re.MULTILINE)
KIND = re.compile(r"^\| ([a-z]+) \| ", re.MULTILINE)
NEEDS_AWS = "Not provable without AWS: "
IN_PART = "; in part not provable without AWS"
ROW = re.compile(r"^\| (\S.+?) \| (.+) \| (.+?) \|(?: (in part))? \|$", re.MULTILINE)
LINK = re.compile(r"\]\(#([^)]+)\)")

NOTHING_TO_PROVE = {"A host does not serve on with one of its loops missing"}
"""Clauses of the embedded host about what there is not on AWS."""

LAX_EMULATOR = {
    "A function ends at its timeout": "it ends Lambdas in a way of its own",
    "A function is told who calls by nobody but API Gateway": "it checks no signatures",
    "A Lambda may do what it does, and no more": "it enforces no policies",
    "A ticket opens one WebSocket, within a minute": "it has items that never expire",
    "A redrive from the AWS console is one like any other": "it has no such redrive",
    "API Gateway answers by itself what reaches no function": "it answers in its own way",
    "Things are kept for other times": "it forgets the time to live of the table",
    "What was given up raises an alarm": "it takes no alarms that add metrics up",
}
"""Clauses that the emulator cannot show, whatever a test on it does, and why."""

EMBEDDED_PROOFS = {
    r"tests/(unit|property)/": "unit",
    r"tests/contract/": "contract",
    r"tests/functional/": "functional",
    r"tests/host/": "host",
    r"tests/protocol/": "model",
}
"""What a test proves with on one machine, by where it is."""

PROOFS = {
    r"tests/e2e/": "emulator",
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


def proof_of(path: str, proofs: Mapping[str, str] = PROOFS) -> str | None:
    """Return what a test proves with; None if it is none of these."""
    return next((proof for pattern, proof in proofs.items() if re.match(pattern, path)), None)


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def glance() -> dict[str, tuple[str, str, bool]]:
    """Return each row of the table at a glance: what is said, the proofs, whether some of it needs AWS."""
    table = ON_AWS.read_text().partition("## At a glance")[2].partition("\n## ")[0]
    return {row[0]: (row[1], row[2], bool(row[3])) for row in ROW.findall(table) if not row[0].startswith(("**", "-"))}


def proofs_in(text: str) -> set[str]:
    """Return the marks of a clause."""
    return {mark for told in PROOF.findall(text) for mark in told.split(", ")}


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
    said = glance()
    assert [heading for heading, _ in clauses(GUARANTEES) if heading not in said] == []


def test_what_is_named_for_aws_runs_on_aws() -> None:
    named = NAMED_TEST.findall(ON_AWS.read_text())
    others = [f"{path}::{name}" for path, name in named if proof_of(path) is None or left_out_on_aws(path, name)]
    assert others == []


@pytest.mark.parametrize(("page", "proofs"), [(GUARANTEES, EMBEDDED_PROOFS), (ON_AWS, PROOFS)])
def test_the_marks_are_explained_and_no_others(page: Path, proofs: Mapping[str, str]) -> None:
    legend = page.read_text().partition("| Proof | Means |")[2].partition("\n\n")[0]
    assert set(KIND.findall(legend)) == set(proofs.values())


@pytest.mark.parametrize(
    ("heading", "text", "proofs"),
    [
        (*clause, proofs)
        for page, proofs in ((GUARANTEES, EMBEDDED_PROOFS), (ON_AWS, PROOFS))
        for clause in clauses(page)
    ],
)
def test_every_clause_says_how_it_is_proven(heading: str, text: str, proofs: Mapping[str, str]) -> None:
    """A mark without such a test is none, and neither is a test without its mark."""
    told = PROOF.findall(text)
    assert len(told) == 1, heading
    named = {str(proof_of(path, proofs)) for path, _ in NAMED_TEST.findall(text)}
    assert sorted(told[0].split(", ")) == sorted(named)


@pytest.mark.parametrize(("heading", "text"), clauses(ON_AWS), ids=[heading for heading, _ in clauses(ON_AWS)])
def test_what_only_aws_can_show_is_said_in_one_way(heading: str, text: str) -> None:
    assert "Rests on" not in text, heading
    assert text.count("\n" + NEEDS_AWS) == text.count("Not provable") <= 1, heading


def test_no_clause_is_proven_by_an_emulator_that_is_lax_about_it() -> None:
    told = dict(clauses(ON_AWS))
    assert [heading for heading in LAX_EMULATOR if "emulator" in proofs_in(told[heading])] == []


@pytest.mark.parametrize(("heading", "row"), glance().items(), ids=glance())
def test_the_table_at_a_glance_has_the_marks_of_the_clauses_it_leads_to(
    heading: str, row: tuple[str, str, bool]
) -> None:
    said, proofs, is_in_part = row
    texts = {slug(heading): text for heading, text in clauses(ON_AWS)}
    found = [texts[anchor] for anchor in LINK.findall(said)]
    assert bool(found) != (heading in NOTHING_TO_PROVE)
    expected = set().union(*map(proofs_in, found)) if found else {"none needed"}
    assert sorted(proofs.split(", ")) == sorted(expected)
    assert is_in_part == any(NEEDS_AWS in text for text in found)


@pytest.mark.parametrize(("heading", "text"), clauses(GUARANTEES), ids=[heading for heading, _ in clauses(GUARANTEES)])
def test_a_clause_of_the_embedded_host_has_its_marks_on_aws(heading: str, text: str) -> None:
    _, proofs, is_in_part = glance()[heading]
    told = [" ".join(each.split()) for each in PROOF_ON_AWS.findall(text)]
    assert told == [proofs + (IN_PART if is_in_part else "")]
