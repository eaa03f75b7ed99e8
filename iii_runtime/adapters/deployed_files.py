"""The files below `deployed/`, which are committed: what the last deployment of each stage has made.

Each stage has a file of its own. `cdk deploy` cannot write that one: it leaves the outputs of whatever it has deployed
in `deployed/last-deploy.json` (`outputsFile` in cdk.json), over those of the deployment before. The next synthesis, of
whatever stage, takes the plans out of it into the files of their stages. Until then a plan in the outputs is newer than
the file of its stage, and counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from iii_runtime.core.errors import HostError
from iii_runtime.plan.deployed import (
    DEPLOYED_OUTPUT,
    DeployedPlan,
    deployed_file,
    deployed_from_json,
    deployed_to_json,
)

LAST_DEPLOY = Path("deployed") / "last-deploy.json"

_PART = re.compile(rf"(\w*?){DEPLOYED_OUTPUT}(\d*)")


def read_deployed(root: Path, stage: str) -> DeployedPlan | None:
    """Return what the last deployment of a stage has made; None if there was none. Nothing is written.

    Args:
        root: Root of the project.
        stage: Name of the stage.

    Raises:
        HostError: `deployed_unreadable`; the message begins with the file.
    """
    newest = [plan for plan in _plans_in(root / LAST_DEPLOY) if plan.stage == stage]
    if newest:
        return newest[-1]
    path = root / deployed_file(stage)
    return _plan_of(_read(path), path) if path.is_file() else None


def remember_last_deploy(root: Path) -> None:
    """Take what the last deployment says about itself into the files of its stages; other outputs stay as they are.

    Once taken it is never taken again, so a file of a stage that came from version control since then is left alone.

    Args:
        root: Root of the project.

    Raises:
        HostError: `deployed_unreadable`: the outputs are damaged; no file was changed.
    """
    path = root / LAST_DEPLOY
    plans = list(_plans_in(path))
    for plan in plans:
        _write(root / deployed_file(plan.stage), deployed_to_json(plan))
    if plans:
        # After the stages: whoever is stopped in between takes them once more.
        _write(path, _without_plans(_read(path)))


def _plans_in(path: Path) -> Iterator[DeployedPlan]:
    for stack in (_read(path) if path.is_file() else {}).values():
        if not isinstance(stack, Mapping):
            continue
        parts: dict[str, dict[int, str]] = {}
        for name, value in stack.items():
            found = _PART.fullmatch(name)
            if found is not None and isinstance(value, str):
                parts.setdefault(found[1], {})[int(found[2] or 1)] = value
        for texts in parts.values():
            yield _plan_of(_parsed("".join(texts[number] for number in sorted(texts)), path), path)


def _without_plans(outputs: Mapping[str, object]) -> dict[str, object]:
    return {
        stack: {name: value for name, value in texts.items() if _PART.fullmatch(name) is None}
        if isinstance(texts, Mapping)
        else texts
        for stack, texts in outputs.items()
    }


def _plan_of(stored: Mapping[str, object], path: Path) -> DeployedPlan:
    try:
        return deployed_from_json(stored)
    except HostError as error:
        raise HostError(f"{path}: {error.message}", code=error.code) from error


def _read(path: Path) -> Mapping[str, object]:
    try:
        return _parsed(path.read_bytes(), path)
    except OSError as error:
        raise HostError(
            f"{path}: it cannot be read: {error.strerror}. Let it be read, or restore it from version control.",
            code="deployed_unreadable",
        ) from error


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


def _write(path: Path, content: Mapping[str, object]) -> None:
    """Write a file as a whole or not at all, and only if it changes."""
    text = json.dumps(content, indent=2, sort_keys=True) + "\n"
    if path.is_file() and path.read_text("utf-8") == text:
        return
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, "utf-8")
    part.replace(path)
