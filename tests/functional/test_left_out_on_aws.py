"""The table of scenarios that AWS does not run stays true to the scenarios there are."""

from __future__ import annotations

import re
from pathlib import Path

from tests.functional.conftest import NOT_ON_AWS

FOLDER = Path(__file__).parent


def test_every_scenario_that_is_left_out_exists() -> None:
    files = sorted(FOLDER.glob("test_*.py"))
    known = {file.stem for file in files}
    for file in files:
        known.update(re.findall(r"def (test_\w+)", file.read_text()))
    assert sorted(set(NOT_ON_AWS) - known) == []


def test_every_scenario_that_is_left_out_says_why() -> None:
    assert [name for name, reason in NOT_ON_AWS.items() if len(reason.split()) < 4] == []
