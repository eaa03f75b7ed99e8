"""What an app registers, as data: found once by importing its code, read by synthesis and by every Lambda."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from iii_runtime.core.config.stored import config_from_json, config_to_json
from iii_runtime.core.config.values import Config
from iii_runtime.core.errors import HostError
from iii_runtime.core.frozen import frozen
from iii_runtime.core.function_options import FunctionOptions
from iii_runtime.core.payload import Json, PayloadError, to_json
from iii_runtime.core.registry import Catalog, FunctionSpec, TriggerSpec
from iii_runtime.core.trigger_config import parse_trigger, render_trigger
from iii_runtime.core.worker import Worker

if TYPE_CHECKING:
    from iii_runtime.core.workflow.registration import WorkflowOptions

MANIFEST_FORMAT = 1
MANIFEST_NAME = "iii-manifest.json"


@frozen(kw_only=True)
class Manifest:
    """An app as data.

    Attributes:
        config: Its configuration.
        catalog: Its functions, without their code and with every timeout given, and triggers.
        targets: Dotted modules whose import registers everything.
    """

    config: Config
    catalog: Catalog
    targets: tuple[str, ...]


def describe_app(config: Config, workers: Sequence[Worker], targets: Sequence[str]) -> dict[str, Json]:
    """Return the stored form of an app.

    Args:
        config: Its configuration.
        workers: Its workers, with everything registered.
        targets: Dotted modules whose import registers everything.

    Raises:
        RegistrationError: Two workers register the same function id.
        PayloadError: A registration's metadata or format is not JSON.
    """
    catalog = Catalog.of(worker.registry for worker in workers)
    defaults = {
        function.id: worker.options.invocation_timeout_ms
        for worker in workers
        for function in worker.registry.functions()
    }
    return {
        "format": MANIFEST_FORMAT,
        "targets": list(targets),
        "config": config_to_json(config),
        "functions": [_function_to_json(function, defaults[function.id]) for function in catalog.functions.values()],
        "triggers": [_trigger_to_json(trigger) for trigger in catalog.triggers],
    }


def read_manifest(stored: Mapping[str, Any]) -> Manifest:
    """Return what `describe_app` stored.

    Raises:
        HostError: `manifest_unreadable`: it was written by another version, or is damaged.
    """
    if stored.get("format") != MANIFEST_FORMAT:
        raise _unreadable(f"it has format {stored.get('format')!r}, this version reads {MANIFEST_FORMAT}")
    try:
        functions = [_function_from_json(fields) for fields in stored["functions"]]
        return Manifest(
            config=config_from_json(stored["config"]),
            catalog=Catalog(
                functions={function.id: function for function in functions},
                triggers=tuple(_trigger_from_json(fields) for fields in stored["triggers"]),
            ),
            targets=tuple(stored["targets"]),
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable(repr(error)[:200]) from error


def _function_to_json(function: FunctionSpec, default_timeout_ms: int) -> dict[str, Json]:
    timeout = function.timeout or timedelta(milliseconds=default_timeout_ms)
    return {
        "id": function.id,
        "description": function.description,
        "metadata": _checked(function.metadata, function.id),
        "request_format": _checked(function.request_format, function.id),
        "response_format": _checked(function.response_format, function.id),
        "timeout_ms": round(timeout / timedelta(milliseconds=1)),
        "source": function.source,
        "module": function.module,
        "options": to_json(asdict(function.options)),
        "workflow": None if function.workflow is None else _workflow_to_json(function.workflow),
    }


def _workflow_to_json(options: WorkflowOptions) -> dict[str, Json]:
    timeout = options.run_timeout
    return {
        "workflow_id": options.workflow_id,
        "run_timeout_ms": None if timeout is None else round(timeout / timedelta(milliseconds=1)),
        "on_failure": options.on_failure,
        "max_steps": options.max_steps,
    }


def _workflow_from_json(fields: Mapping[str, Any]) -> WorkflowOptions:
    from iii_runtime.core.workflow.registration import WorkflowOptions  # noqa: PLC0415 - apps without are spared it

    timeout_ms = fields["run_timeout_ms"]
    return WorkflowOptions(
        workflow_id=fields["workflow_id"],
        run_timeout=None if timeout_ms is None else timedelta(milliseconds=timeout_ms),
        on_failure=fields["on_failure"],
        max_steps=fields["max_steps"],
    )


def _function_from_json(fields: Mapping[str, Any]) -> FunctionSpec:
    options = dict(fields["options"])
    options["uses"] = None if options["uses"] is None else tuple(options["uses"])
    return FunctionSpec(
        id=fields["id"],
        plan=None,
        description=fields["description"],
        metadata=fields["metadata"],
        request_format=fields["request_format"],
        response_format=fields["response_format"],
        timeout=timedelta(milliseconds=fields["timeout_ms"]),
        source=fields["source"],
        options=FunctionOptions(**options),
        module=fields["module"],
        workflow=None if fields.get("workflow") is None else _workflow_from_json(fields["workflow"]),
    )


def _trigger_to_json(trigger: TriggerSpec) -> dict[str, Json]:
    type_name, config = render_trigger(trigger.kind)
    return {
        "id": trigger.id,
        "type": type_name,
        "function_id": trigger.function_id,
        "config": config,
        "metadata": _checked(trigger.metadata, trigger.function_id),
        "source": trigger.source,
    }


def _trigger_from_json(fields: Mapping[str, Any]) -> TriggerSpec:
    return TriggerSpec(
        id=fields["id"],
        kind=parse_trigger(fields["type"], fields["config"]),
        function_id=fields["function_id"],
        metadata=fields["metadata"],
        source=fields["source"],
    )


def _checked(value: Any, function_id: str) -> Json:
    try:
        return to_json(value, "metadata")
    except PayloadError as error:
        raise PayloadError(
            f"function '{function_id}': what is registered with it is not JSON: {error.message}"
        ) from error


def _unreadable(what: str) -> HostError:
    return HostError(f"the manifest cannot be read: {what}. Build the bundle again.", code="manifest_unreadable")
