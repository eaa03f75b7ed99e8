"""Finds the workers of files and packages by importing them."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from iii_runtime.core.errors import HostError
from iii_runtime.core.worker import Worker, collecting_workers
from iii_runtime.hosts.import_failure import import_failed
from iii_runtime.hosts.module_workers import workers_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovered:
    """What importing some targets has shown.

    Attributes:
        workers: The workers, in the order of their creation.
        modules: Dotted names of the imported modules that the targets stand for, in order. Importing them again,
            with their folders on the path, registers everything again.
    """

    workers: tuple[Worker, ...]
    modules: tuple[str, ...]


def discover_workers(targets: Sequence[str]) -> list[Worker]:
    """Import every target and return the workers they create, in order; see `discover`."""
    return list(discover(targets).workers)


def discover(targets: Sequence[str]) -> Discovered:
    """Import every target and return what that shows.

    Args:
        targets: Python files, folders, or dotted module names. A folder with `__init__.py` is a package: all its
            modules are imported by their dotted names, but no `__main__`. A folder without is its files, which import
            each other by their bare names. A file of a package is imported as part of it.

    Raises:
        HostError: `worker_not_found`: no such file or module, or it creates no worker. `worker_import_failed`: the
            import raised; the message names file and line. `module_name_taken`: two files, or a file and an installed
            module, have one name.
    """
    before = set(sys.modules)
    with collecting_workers() as workers:
        names = [name for target in targets for name in _import_target(target)]
    # A module that was imported earlier in this process created its workers then.
    for name in [name for name in names if name in before]:
        workers += [worker for worker in workers_in(sys.modules.get(name)) if worker not in workers]
    if not workers:
        raise HostError(
            f"{', '.join(targets)}: no worker found. A worker file calls `worker = register_worker(...)`.",
            code="worker_not_found",
        )
    return Discovered(workers=tuple(workers), modules=tuple(dict.fromkeys(names)))


def _import_target(target: str) -> list[str]:
    path = Path(target)
    is_module = not path.is_dir() and path.suffix != ".py"
    try:
        if is_module:
            _put_on_path(Path.cwd())
            return _import_modules(importlib.import_module(target))
        return _import_folder(path.resolve()) if path.is_dir() else [_import_file(path.resolve())]
    except (HostError, KeyboardInterrupt):
        # The second is a developer who will not wait.
        raise
    except ModuleNotFoundError as error:
        if is_module and error.name is not None and f"{target}.".startswith(f"{error.name}."):
            raise HostError(f"{target}: no such file, folder or module.", code="worker_not_found") from error
        raise import_failed(target, error) from error
    except BaseException as error:
        raise import_failed(target, error) from error


def _import_folder(folder: Path) -> list[str]:
    if (folder / "__init__.py").is_file():
        return _import_modules(importlib.import_module(_dotted_name(folder)))
    files = sorted(folder.glob("*.py"))
    if not files:
        raise HostError(f"{folder}: no Python file in this folder.", code="worker_not_found")
    return [_import_file(file) for file in files]


def _import_modules(module: ModuleType) -> list[str]:
    names = [module.__name__]
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), f"{module.__name__}.", onerror=_raise):
        if not found.name.endswith(".__main__"):
            importlib.import_module(found.name)
            names.append(found.name)
    return names


def _raise(_name: str) -> None:
    """Let the error of a package's import through: by default `walk_packages` swallows it."""
    raise  # noqa: PLE0704 - called inside the except block of walk_packages


def _import_file(file: Path) -> str:
    if not file.is_file():
        raise HostError(f"{file}: no such file.", code="worker_not_found")
    if (file.parent / "__init__.py").is_file():
        return importlib.import_module(
            _dotted_name(file.parent if file.stem == "__init__" else file.with_suffix(""))
        ).__name__
    # Whether this process has imported Python's own already must not decide.
    if file.stem in sys.stdlib_module_names:
        raise _name_taken(file, "Python's own")
    _put_on_path(file.parent)
    module = importlib.import_module(file.stem)
    if Path(getattr(module, "__file__", None) or "").resolve() != file:
        raise _name_taken(file, getattr(module, "__file__", None) or "built in")
    return module.__name__


def _name_taken(file: Path, other: str) -> HostError:
    return HostError(
        f"{file}: another module is called '{file.stem}' ({other}). Rename the file, or make its folder a package with "
        "an __init__.py.",
        code="module_name_taken",
    )


def _dotted_name(path: Path) -> str:
    """Return the name under which a package or one of its modules is imported, and make that possible."""
    top = path.parent
    while (top / "__init__.py").is_file():
        top = top.parent
    _put_on_path(top)
    return ".".join(path.relative_to(top).parts)


def _put_on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
