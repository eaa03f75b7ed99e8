"""Finds the workers of files and packages by importing them."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from iii_runtime.core.errors import HostError
from iii_runtime.core.worker import Worker, collecting_workers


def discover_workers(targets: Sequence[str]) -> list[Worker]:
    """Import every target and return the workers they create, in order.

    Args:
        targets: Python files, package folders, or dotted module names. Every module of a package is imported, but no
            `__main__`.

    Raises:
        HostError: `worker_not_found`: no such file or module, or it creates no worker. `worker_import_failed`: the
            import raised; the message names file and line.
    """
    with collecting_workers() as workers:
        for target in targets:
            _import_target(target)
    if not workers:
        raise HostError(
            f"{', '.join(targets)}: no worker found. A worker file calls `worker = register_worker(...)`.",
            code="worker_not_found",
        )
    return workers


def _import_target(target: str) -> None:
    path = Path(target)
    try:
        if path.is_dir():
            _import_package(path.resolve())
        elif path.suffix == ".py":
            _import_file(path.resolve())
        else:
            _put_first(Path.cwd())
            _import_modules(importlib.import_module(target))
    except HostError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and target.split(".", maxsplit=1)[0] == error.name:
            raise HostError(f"{target}: no such file, folder or module.", code="worker_not_found") from error
        raise _import_failed(target, error) from error
    except Exception as error:
        raise _import_failed(target, error) from error
    except SystemExit as error:
        raise _import_failed(target, error) from error


def _import_package(folder: Path) -> None:
    if not (folder / "__init__.py").is_file():
        files = sorted(folder.glob("*.py"))
        if not files:
            raise HostError(f"{folder}: no Python file in this folder.", code="worker_not_found")
        for file in files:
            _import_file(file)
        return
    top = folder
    while (top.parent / "__init__.py").is_file():
        top = top.parent
    _put_first(top.parent)
    _import_modules(importlib.import_module(".".join(folder.relative_to(top.parent).parts)))


def _import_modules(module: ModuleType) -> None:
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), f"{module.__name__}.", onerror=_raise):
        if not found.name.endswith(".__main__"):
            importlib.import_module(found.name)


def _raise(_name: str) -> None:
    """Let the error of a package's import through: by default `walk_packages` swallows it."""
    raise  # noqa: PLE0704 - called inside the except block of walk_packages


def _import_file(file: Path) -> None:
    if not file.is_file():
        raise HostError(f"{file}: no such file.", code="worker_not_found")
    _put_first(file.parent)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise HostError(f"{file}: not a Python file.", code="worker_not_found")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)


def _put_first(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _import_failed(target: str, error: BaseException) -> HostError:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame.filename)]
    if isinstance(error, SyntaxError):
        where = f"{error.filename}:{error.lineno}"
    else:
        where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else target
    return HostError(f"{where}: {type(error).__name__}: {error}", code="worker_import_failed")


def _is_ours(filename: str) -> bool:
    package = str(Path(__file__).resolve().parents[2])
    return filename.startswith((package, "<frozen")) or filename in {importlib.__file__, pkgutil.__file__}
