"""What the last deployment of each stage has made, kept in files below `deployed/` to be committed.

`cdk deploy` leaves the outputs of the stacks in `deployed/last-deploy.json` (`outputsFile` in cdk.json). The next
synthesis takes from it what is to be remembered, into one file for each stage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from iii_runtime.core.errors import HostError
from iii_runtime.plan.deployed import DeployedPlan, deployed_file, deployed_from_json, deployed_to_json

LAST_DEPLOY = Path("deployed") / "last-deploy.json"
OUTPUT = "DeployedPlan"
"""Name of the outputs that carry a plan, each a part of it; from the second on they are numbered."""

_PART = re.compile(rf"(\w*?){OUTPUT}(\d*)")


def remember_last_deploy(root: Path) -> None:
    """Take what the last deployment says about itself into the files of its stages.

    Raises:
        HostError: `deployed_unreadable`: the outputs are damaged.
    """
    path = root / LAST_DEPLOY
    if not path.is_file():
        return
    for plan in _plans_in(_read(path), path):
        file = root / deployed_file(plan.stage)
        text = json.dumps(deployed_to_json(plan), indent=2, sort_keys=True) + "\n"
        if not file.is_file() or file.read_text("utf-8") != text:
            file.write_text(text, "utf-8")


def read_deployed(root: Path, stage: str) -> DeployedPlan | None:
    """Return what the last deployment of a stage has made; None if there was none.

    Raises:
        HostError: `deployed_unreadable`.
    """
    path = root / deployed_file(stage)
    return _plan_of(_read(path), path) if path.is_file() else None


def output_texts(plan: DeployedPlan) -> str:
    """Return a plan as the text of its outputs, in one piece."""
    return json.dumps(deployed_to_json(plan), separators=(",", ":"), sort_keys=True)


def _plans_in(outputs: Mapping[str, object], path: Path) -> Iterator[DeployedPlan]:
    for stack in outputs.values():
        if not isinstance(stack, Mapping):
            continue
        parts: dict[str, dict[int, str]] = {}
        for name, value in stack.items():
            found = _PART.fullmatch(name)
            if found is not None and isinstance(value, str):
                parts.setdefault(found[1], {})[int(found[2] or 1)] = value
        for texts in parts.values():
            yield _plan_of(_parsed("".join(texts[number] for number in sorted(texts)), path), path)


def _plan_of(stored: Mapping[str, object], path: Path) -> DeployedPlan:
    try:
        return deployed_from_json(stored)
    except HostError as error:
        raise HostError(f"{path}: {error.message}", code=error.code) from error


def _read(path: Path) -> Mapping[str, object]:
    return _parsed(path.read_bytes(), path)


def _parsed(text: str | bytes, path: Path) -> Mapping[str, object]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise HostError(
            f"{path}: it is no JSON object. Restore it from version control, or deploy the stage again.",
            code="deployed_unreadable",
        )
    return value
