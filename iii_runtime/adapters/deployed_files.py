"""The files below `deployed/`, which are committed: what the last deployment of each app and stage has made.

Each app has a file of its own for each stage. `cdk deploy` cannot write that one: it leaves the outputs of whatever it
has deployed in `deployed/last-deploy.json` (`outputsFile` in cdk.json), over those of the deployment before. The next
synthesis, of whatever stage, takes the plans out of it into their files. Until then a plan in the outputs is newer than
its file, and counts.

An earlier version wrote `deployed/<stage>.json`, without the app. Such a file is read where there is no other, and the
next synthesis of its app and stage gives it its present name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from iii_runtime.core.errors import HostError
from iii_runtime.plan.deployed import (
    DEPLOYED_OUTPUT,
    DeployedPlan,
    deployed_file,
    deployed_from_json,
    deployed_to_json,
    home_of,
)

LAST_DEPLOY = PurePosixPath("deployed", "last-deploy.json")

_PART = re.compile(rf"(\w*?){DEPLOYED_OUTPUT}(\d*)")


def read_deployed(root: Path, app: str, stage: str) -> DeployedPlan | None:
    """Return what the last deployment of an app in a stage has made; None if there was none. Nothing is written.

    It is what the file with that name says, which may be about something else if somebody has moved files.

    Args:
        root: Root of the project.
        app: Name of the app.
        stage: Name of the stage.

    Raises:
        HostError: `deployed_unreadable`; the message begins with the file.
    """
    newest = [plan for plan in _plans_in(root) if (plan.app, plan.stage) == (app, stage)]
    if newest:
        return newest[-1]
    return _plan_in(root, deployed_file(app, stage)) or _earlier(root, app, stage)


def other_apps(root: Path, app: str, stage: str) -> list[str]:
    """Return which other apps of the project are deployed in a stage, in alphabetical order.

    Args:
        root: Root of the project.
        app: The app that is not meant.
        stage: Name of the stage.

    Raises:
        HostError: `deployed_unreadable`; the message begins with the file.
    """
    suffix = deployed_file("", stage).name
    named = {path.name.removesuffix(suffix) for path in (root / "deployed").glob(f"?*{suffix}")}
    earlier = _plan_in(root, _earlier_file(stage))
    told = [*_plans_in(root), *([] if earlier is None else [earlier])]
    return sorted((named | {plan.app for plan in told if plan.stage == stage}) - {app})


def remember_last_deploy(root: Path) -> None:
    """Take what the last deployment says about itself into files of their own; other outputs stay as they are.

    Once taken it is never taken again, so such a file that came from version control since then is left alone.

    Args:
        root: Root of the project.

    Raises:
        HostError: `deployed_unreadable`: the outputs are damaged; no file was changed.
    """
    plans = list(_plans_in(root))
    for plan in plans:
        _write(root / deployed_file(plan.app, plan.stage), deployed_to_json(plan))
    if plans:
        # After the files: whoever is stopped in between takes them once more.
        _write(root / LAST_DEPLOY, _without_plans(_read(root, LAST_DEPLOY)))


def deployed_at(root: Path, home: str) -> list[DeployedPlan]:
    """Return what is deployed at a place by the files; what the outputs say has to be taken before.

    Args:
        root: Root of the project.
        home: See `DeployedPlan`.

    Raises:
        HostError: `deployed_unreadable`; the message begins with the file.
    """
    files = sorted((root / "deployed").glob("?*.?*.json"))
    plans = [_plan_in(root, PurePosixPath("deployed", file.name)) for file in files]
    return [plan for plan in plans if plan is not None and plan.home == home]


def rename_earlier(root: Path, app: str, stage: str) -> None:
    """Give a file that an earlier version wrote its present name; one that has taken its place stays.

    Args:
        root: Root of the project.
        app: Name of the app.
        stage: Name of the stage.

    Raises:
        HostError: `deployed_unreadable`; the message begins with the file.
    """
    earlier, path = _earlier_file(stage), root / deployed_file(app, stage)
    plan = _plan_in(root, earlier)
    if plan is None or (plan.app, plan.stage) != (app, stage):
        return
    if path.exists():
        (root / earlier).unlink()
    else:
        (root / earlier).replace(path)


def _earlier(root: Path, app: str, stage: str) -> DeployedPlan | None:
    """Return what an earlier version wrote under the name of a stage, unless it is about another app there."""
    plan = _plan_in(root, _earlier_file(stage))
    return None if plan is not None and plan.stage == stage and plan.app != app else plan


def _earlier_file(stage: str) -> PurePosixPath:
    return PurePosixPath("deployed", f"{stage}.json")


def _plan_in(root: Path, file: PurePosixPath) -> DeployedPlan | None:
    return _plan_of(_read(root, file), file) if (root / file).is_file() else None


def _plans_in(root: Path) -> Iterator[DeployedPlan]:
    outputs = _read(root, LAST_DEPLOY) if (root / LAST_DEPLOY).is_file() else {}
    for stack, named in outputs.items():
        if not isinstance(named, Mapping):
            continue
        parts: dict[str, dict[int, str]] = {}
        for name, value in named.items():
            found = _PART.fullmatch(name)
            if found is not None and isinstance(value, str):
                parts.setdefault(found[1], {})[int(found[2] or 1)] = value
        for prefix, texts in parts.items():
            text = "".join(texts[number] for number in sorted(texts))
            plan = _plan_of(_parsed(text, LAST_DEPLOY), LAST_DEPLOY)
            yield replace(plan, home=home_of(stack, prefix))


def _without_plans(outputs: Mapping[str, object]) -> dict[str, object]:
    return {
        stack: {name: value for name, value in texts.items() if _PART.fullmatch(name) is None}
        if isinstance(texts, Mapping)
        else texts
        for stack, texts in outputs.items()
    }


def _plan_of(stored: Mapping[str, object], file: PurePosixPath) -> DeployedPlan:
    try:
        return replace(deployed_from_json(stored), source=str(file))
    except HostError as error:
        raise HostError(f"{file}: {error.message}", code=error.code) from error


def _read(root: Path, file: PurePosixPath) -> Mapping[str, object]:
    try:
        return _parsed((root / file).read_bytes(), file)
    except OSError as error:
        raise HostError(
            f"{file}: it cannot be read: {error.strerror}. Let it be read, or restore it from version control.",
            code="deployed_unreadable",
        ) from error


def _parsed(text: str | bytes, file: PurePosixPath) -> Mapping[str, object]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise HostError(
            f"{file}: it is no JSON object. Restore it from version control, or deploy the stage again.",
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
