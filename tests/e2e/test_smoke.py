"""The smoke test of the deployment guide, on a stage of the emulator: only the address and the stage are others."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from tests.e2e.deployed import Deployed
from tests.e2e.emulator import ROOT
from tests.patience import eventually

_SECTION = re.compile(r"^## Smoke test\n.*?^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_STEP = re.compile(r"^# .*?Expect `(.+?)`.*\n((?:[^#\n].*\n)+)", re.MULTILINE)
_READS = re.compile(r"curl -s \S+$|iii-runtime (dlq|cron) list ")
"""Commands that change nothing: what they read may come later, so they are given again."""
_MOST = 10


def smoke_test() -> list[tuple[str, str]]:
    """Return the commands of the guide, each with what its output has to contain."""
    found = _SECTION.search((ROOT / "docs" / "deploy.md").read_text("utf-8"))
    assert found is not None
    steps = [(command.strip(), expected) for expected, command in _STEP.findall(found[1])]
    assert len(steps) == len(re.findall("^# ", found[1], re.MULTILINE)) <= _MOST
    return steps


def test_every_command_of_the_smoke_test_answers_as_the_guide_says(deployed: Deployed) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def answers(command: str, expected: str) -> bool:
        here = command.replace("--stage dev", f"--stage {deployed.project.stage}")
        said = deployed.project.run("env", f"PATH={path}", f"HTTP_URL={deployed.http_url}", "bash", "-c", here)
        # Some answers have spaces in their JSON, and others have none.
        if "".join(expected.split()) in "".join(said.split()):
            return True
        assert _READS.match(command), f"{command}\nexpected {expected!r}, printed:\n{said}"
        return False

    for command, expected in smoke_test():
        eventually(lambda c=command, e=expected: answers(c, e), f"{expected!r} of {command}")  # type: ignore[misc]
