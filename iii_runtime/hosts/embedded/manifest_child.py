"""`python -m iii_runtime.hosts.embedded.manifest_child`: imports an app and prints what it registers, as JSON.

A process of its own, so that no code of the user's runs where its manifest is read. It is started in the root of the
project by `manifest_discovery`, with a request on stdin: `{"targets": [...], "config": {...}}`. On stdout there is one
answer: `{"manifest": {...}, "code": {...}}`, or `{"error": {code, message}}`. What the user's code prints is on stderr.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import resource
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from iii_runtime.core.config.stored import config_from_json
from iii_runtime.core.errors import IiiError
from iii_runtime.core.payload import Json
from iii_runtime.hosts.embedded.discovery import discover
from iii_runtime.hosts.import_failure import import_failed
from iii_runtime.plan.manifest import describe_app

_OURS = "iii_runtime"
_MAX_TRACEBACK = 10_000


def main() -> None:
    """Answer the request on stdin and end the process, whatever the user's code has started or broken."""
    # What kills the process says first where it was; the parent kills with SIGABRT what takes too long.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable(file=os.dup(2), all_threads=False)
    end = os._exit
    try:
        request = json.load(sys.stdin)
        sys.stdin = io.StringIO()
        # The descriptor, not only `sys.stdout`: a library or a child process may write to it as well.
        answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        answer = _answer(request, Path.cwd())
        json.dump(answer, answers)
        answers.close()
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the user's code may have closed or replaced them
                stream.flush()
    except BaseException:  # noqa: BLE001 - the parent is told, and the process ends
        traceback.print_exc(file=sys.__stderr__)
        end(1)
    end(0)


def _answer(request: Mapping[str, Any], root: Path) -> dict[str, Json]:
    try:
        with _exits_raise():
            return describe(request, root)
    except IiiError as error:
        return {"error": {"code": error.code, "message": _told(error)}}
    except BaseException as error:  # noqa: BLE001 - nobody interrupts the child: it is a fault of the code
        failure = import_failed(", ".join(request["targets"]), error)
        failure.__cause__ = error
        return {"error": {"code": failure.code, "message": _told(failure)}}


@contextmanager
def _exits_raise() -> Iterator[None]:
    """Let `os._exit` raise here, so that there is a line to tell. In a process that the code forks it ends that one."""
    end, own = os._exit, os.getpid()

    def refuse(code: int) -> None:
        if os.getpid() != own:
            end(code)
        raise SystemExit(f"os._exit({code})")

    os._exit = refuse  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = end


def describe(request: Mapping[str, Any], root: Path) -> dict[str, Json]:
    """Return manifest and code of the app that a request asks for.

    Args:
        request: Targets and the stored configuration.
        root: Root of the project. Places in it are named from there, so that the manifest is the same on any machine.

    Raises:
        IiiError: The targets cannot be imported, or register what cannot be described.
    """
    found = discover(request["targets"])
    manifest = describe_app(config_from_json(request["config"]), found.workers, found.modules)
    for registered in ("functions", "triggers"):
        for entry in cast("list[dict[str, Json]]", manifest[registered]):
            entry["source"] = str(entry["source"]).removeprefix(f"{root}{os.sep}")
    return {"manifest": manifest, "code": _code(root, found.modules)}


def _told(error: IiiError) -> str:
    """Return the message and, if the user's code raised, its traceback without the runtime's frames."""
    cause = error.__cause__
    if cause is None:
        return error.message
    start = cause.__traceback__
    while start is not None and start.tb_next is not None and _is_import(start.tb_frame.f_code.co_filename):
        start = start.tb_next
    lines = "".join(traceback.format_exception(type(cause), cause, start))
    return f"{error.message}\n{lines if len(lines) <= _MAX_TRACEBACK else lines[:_MAX_TRACEBACK] + '...'}".rstrip()


def _is_import(filename: str) -> bool:
    return filename.startswith("<frozen ") or f"{os.sep}{_OURS}{os.sep}" in filename or "importlib" in filename


def _code(root: Path, targets: Sequence[str]) -> dict[str, Json]:
    """Return what a bundle needs of the project: the targets, and what else of it they have imported.

    Each file or folder, absolute, has the name it is imported by; in the root of the bundle it is found under that.
    """
    found: dict[str, Json] = {}
    for name, module in sorted(sys.modules.items()):
        file, top = _file_of(module), name.partition(".")[0]
        if file is None or top in {"__main__", "__mp_main__", _OURS}:
            continue
        if name in targets or (root in file.parents and not _is_installed(file)):
            found[top] = str(_top_of(name, file))
    return found


def _file_of(module: ModuleType) -> Path | None:
    # Not by `getattr`: a module that loads itself only when it is asked for something may fail to.
    file = getattr(module, "__dict__", {}).get("__file__")
    return Path(file).resolve() if isinstance(file, str) else None


def _is_installed(file: Path) -> bool:
    return Path(sys.prefix).resolve() in file.parents or "site-packages" in file.parts


def _top_of(name: str, file: Path) -> Path:
    """Return the folder of the outermost package, or the file of a module that is in none."""
    depth = name.count(".") + (1 if file.name == "__init__.py" else 0)
    return file if depth == 0 else file.parents[depth - 1]


if __name__ == "__main__":
    main()
