"""What a Lambda finds in its bundle: the app as data, and the code of its own function."""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import Collection, Iterable
from pathlib import Path
from types import ModuleType

from iii_runtime.core.errors import HostError
from iii_runtime.core.registry import Catalog
from iii_runtime.core.worker import Worker, collecting_workers
from iii_runtime.hosts.module_workers import workers_in
from iii_runtime.plan.manifest import MANIFEST_NAME, Manifest, read_manifest

_log = logging.getLogger("iii_runtime.host")


def load_manifest(root: Path) -> Manifest:
    """Read the manifest at the root of a bundle.

    Raises:
        HostError: `manifest_missing`, `manifest_unreadable`.
    """
    path = root / MANIFEST_NAME
    try:
        stored = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise HostError(
            f"{path}: no such file, so nothing is known of the app. Build the bundle again and deploy it.",
            code="manifest_missing",
        ) from error
    except (OSError, ValueError) as error:
        raise HostError(
            f"{path}: {error}. Build the bundle again and deploy it.", code="manifest_unreadable"
        ) from error
    if not isinstance(stored, dict):
        raise HostError(f"{path}: it is no JSON object. Build the bundle again.", code="manifest_unreadable")
    return read_manifest(stored)


def local_functions(manifest: Manifest, function_id: str | None) -> frozenset[str]:
    """Return the functions that run in the Lambda of `function_id`: itself, and the conditions of its triggers."""
    if function_id is None:
        return frozenset()
    conditions = (trigger.kind.condition for trigger in manifest.catalog.triggers if trigger.function_id == function_id)
    known = manifest.catalog.functions
    return frozenset({function_id, *(name for name in conditions if name is not None and name in known)})


def load_workers(manifest: Manifest, function_ids: Collection[str]) -> list[Worker]:
    """Import the code of some functions and return the workers they are registered with.

    Only the modules that the manifest names for them are imported. If they do not register all of them, everything is.

    Raises:
        HostError: `worker_import_failed`, with file and line; `function_not_in_bundle`.
    """
    known = manifest.catalog.functions
    unknown = sorted(set(function_ids) - known.keys())
    if unknown:
        raise HostError(
            f"function '{unknown[0]}' is not in the manifest of the bundle. Deploy the stage again, bundle and all.",
            code="function_not_in_bundle",
        )
    modules = dict.fromkeys(known[name].module for name in sorted(function_ids) if known[name].module)
    workers = _import_all(modules)
    if not (missing := _missing(workers, function_ids)):
        return workers
    fields = {"functions": missing, "modules": list(modules)}
    _log.warning("not registered by the modules of the manifest; all are imported", extra={"iii": fields})
    workers += [worker for worker in _import_all(manifest.targets) if worker not in workers]
    if missing := _missing(workers, function_ids):
        name = missing[0]
        raise HostError(
            f"function '{name}' ({known[name].source}) is not registered by the code of the bundle: "
            f"{', '.join([*modules, *manifest.targets])} were imported. Build the bundle again and deploy it.",
            code="function_not_in_bundle",
        )
    return workers


def _missing(workers: Iterable[Worker], function_ids: Collection[str]) -> list[str]:
    found = Catalog.of(worker.registry for worker in workers).functions
    return sorted(set(function_ids) - found.keys())


def _import_all(names: Iterable[str]) -> list[Worker]:
    with collecting_workers() as workers:
        modules = [_import(name) for name in names]
    # A module that was imported before created its workers then.
    for module in modules:
        workers += [worker for worker in workers_in(module) if worker not in workers]
    return workers


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except BaseException as error:
        # All there is: nobody stops an import on Lambda, so whatever comes out of it is a fault of the code.
        from iii_runtime.hosts.import_failure import import_failed  # noqa: PLC0415 - most imports do well

        raise import_failed(name, error) from error
