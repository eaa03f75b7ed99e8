"""What a deployment is made of: an app as data, modules that register it, requests from outside as data."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType

from iii_runtime.core.config import Config
from iii_runtime.core.payload import Json, to_json
from iii_runtime.core.trigger_request import TriggerActionEnqueue, TriggerActionVoid, TriggerRequest
from iii_runtime.core.worker import Worker
from iii_runtime.plan.manifest import Manifest, describe_app, read_manifest


def describe(workers: Sequence[Worker], config: Config, modules: Sequence[str], module: str | None) -> Manifest:
    """Return an app as it is bundled, after the way through its stored form.

    Args:
        workers: Its workers.
        config: Its configuration.
        modules: The modules that register everything.
        module: The one module where all workers are to be found instead, see `importable`.
    """
    manifest = read_manifest(describe_app(config, workers, [module] if module is not None else modules))
    if module is None:
        return manifest
    functions = {name: replace(spec, module=module) for name, spec in manifest.catalog.functions.items()}
    return replace(manifest, catalog=replace(manifest.catalog, functions=functions))


@contextmanager
def importable(name: str, workers: Sequence[Worker]) -> Iterator[None]:
    """Let an import of `name` find the workers of a test, which are in no module."""
    module = ModuleType(name)
    module.__dict__.update({f"worker_{number}": worker for number, worker in enumerate(workers)})
    sys.modules[name] = module
    try:
        yield
    finally:
        del sys.modules[name]


def request_fields(request: TriggerRequest) -> dict[str, Json]:
    """Return a trigger request as JSON.

    Raises:
        PayloadError: It is none.
    """
    action: Json = None
    if isinstance(request.action, TriggerActionEnqueue):
        action = {"type": "enqueue", "queue": request.action.queue}
        extra = {"delay": to_json(request.action.delay), "dedupe_id": to_json(request.action.dedupe_id)}
        action |= {name: value for name, value in extra.items() if value is not None}
    elif isinstance(request.action, TriggerActionVoid):
        action = {"type": "void"}
    members: dict[str, Json] = {
        "function_id": request.function_id,
        "payload": to_json(request.payload),
        "metadata": to_json(request.metadata, "metadata"),
        "timeout_ms": request.timeout_ms,
        "action": action,
    }
    return {name: value for name, value in members.items() if value is not None}
