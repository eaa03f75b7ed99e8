"""`python -m iii_runtime.cdk.describe REQUEST`: imports an app's code and prints what it registers, as JSON.

A process of its own, so that user code has no part in synthesis. It is run in the root of the project.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from iii_runtime.adapters.config_file import load_config
from iii_runtime.core.errors import HostError, IiiError
from iii_runtime.hosts.embedded.discovery import discover_workers
from iii_runtime.plan.manifest import describe_app

_OURS = "iii_runtime"


def main(arguments: Sequence[str]) -> int:
    """Print the description of the app that `arguments[0]` asks for; return the exit code."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # Whatever the code prints, also past Python, is no part of the answer.
    os.dup2(2, 1)
    request = json.loads(arguments[0])
    try:
        answer = describe_here(request["functions"], request["config"], dict(os.environ))
    except IiiError as error:
        cause = error.__cause__
        if cause is not None:
            traceback.print_exception(cause)
        sys.stderr.write(f"{error}\n")
        return 1
    with answers:
        json.dump(answer, answers)
    return 0


def describe_here(functions: Sequence[str], config: str | None, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return manifest and code of the app in the current folder.

    Args:
        functions: Files, folders or dotted modules that register the functions.
        config: The configuration file, if there is one.
        environment: Variables for the configuration.

    Raises:
        IiiError: The code or the configuration cannot be read.
    """
    root = Path.cwd().resolve()
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    settings = load_config(None if config is None else Path(config), environment)
    workers = discover_workers(functions)
    targets = sorted({name for target in functions for name in _modules_of(target)})
    manifest = describe_app(settings, workers, targets)
    for registered in ("functions", "triggers"):
        entries: list[dict[str, Any]] = manifest[registered]  # type: ignore[assignment]
        for entry in entries:
            entry["source"] = str(entry["source"]).removeprefix(f"{root}{os.sep}")
    return {"manifest": manifest, "code": _code(root, targets)}


def _modules_of(target: str) -> list[str]:
    """Return the imported modules that a target stands for."""
    path = Path(target)
    if not path.is_dir() and path.suffix != ".py":
        return [name for name in sys.modules if name == target or name.startswith(f"{target}.")]
    place = path.resolve()
    files = {name: file for name, module in list(sys.modules.items()) if (file := _file_of(module)) is not None}
    return [name for name, file in files.items() if file == place or place in file.parents]


def _code(root: Path, targets: Sequence[str]) -> dict[str, str]:
    """Return what the bundle needs of the project: the targets, and what else of it they have imported."""
    found: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        file = _file_of(module)
        top = name.partition(".")[0]
        if file is None or top in {"__main__", _OURS}:
            continue
        if name in targets or (root in file.parents and not _is_installed(file)):
            found[top] = str(_top_of(name, file))
    if not found:
        raise HostError(f"{root}: the code is not in files, so it cannot be bundled.", code="code_not_in_files")
    return found


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if file else None


def _is_installed(file: Path) -> bool:
    return Path(sys.prefix).resolve() in file.parents or "site-packages" in file.parts


def _top_of(name: str, file: Path) -> Path:
    """Return the folder of the outermost package, or the file of a module that is in none."""
    depth = name.count(".") + (1 if file.name == "__init__.py" else 0)
    return file if depth == 0 else file.parents[depth - 1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
