"""What `make test` begins with is there."""

from __future__ import annotations

from pathlib import Path

from tests.spread import FOLDERS, LONG, place_of

ROOT = Path(__file__).resolve().parents[2]


def test_every_place_that_is_named_exists() -> None:
    assert [place for place in (*FOLDERS, *LONG) if not (ROOT / place).exists()] == []


def test_every_place_that_is_named_is_one_that_tests_are_counted_to() -> None:
    files = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))
    assert set(LONG) <= {place_of(f"{file}::test_it") for file in files}


def test_a_folder_stays_together_and_any_other_file_is_a_place_of_its_own() -> None:
    assert place_of("tests/infra/test_apis.py::TestRoutes::test_it[a/b]") == "tests/infra"
    assert place_of("tests/unit/test_cron.py::test_it[tests/infra/x]") == "tests/unit/test_cron.py"
