"""What a client sends of a start or a signal, and what it makes of an end. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, TypeAlias, cast, get_type_hints

from iii_runtime.core.errors import IiiError
from iii_runtime.core.payload import Json, to_json
from iii_runtime.core.runs.crossing import NOT_COMPLETED, failure_told
from iii_runtime.core.runs.policies import IdReusePolicy
from iii_runtime.core.runs.record import Status
from iii_runtime.core.runs.values import decode_value

Workflow: TypeAlias = "str | Callable[..., Awaitable[Any]]"
"""A workflow as a client names it: its id, or the function that was registered."""

WORKFLOW_ATTRIBUTE = "__iii_workflow__"
"""Where a function that was registered as a workflow keeps its id."""


def workflow_name(workflow: Workflow) -> str:
    """Return the id of a workflow.

    Raises:
        IiiError: `workflow_unknown`: the function was not registered as a workflow.
    """
    if isinstance(workflow, str):
        return workflow
    name = getattr(workflow, WORKFLOW_ATTRIBUTE, None)
    if isinstance(name, str):
        return name
    what = getattr(workflow, "__qualname__", repr(workflow))
    message = f"{what} is no workflow: register it with `@worker.workflow`, or name the workflow by its id."
    raise IiiError(message, code="workflow_unknown")


def result_type_of(workflow: Callable[..., Any]) -> Any:
    """Return the type that a workflow says it returns; None if it says nothing that can be read."""
    try:
        return get_type_hints(workflow).get("return")
    except Exception:  # noqa: BLE001 - annotations are the user's; without a type the result is plain values
        return None


def start_message(
    workflow: Workflow,
    payload: object,
    workflow_id: str | None,
    request_id: str,
    *,
    id_reuse: IdReusePolicy,
    delay: timedelta | None = None,
    run_timeout: timedelta | None = None,
) -> dict[str, Json]:
    """Return a start as it is sent; it has an identity, so it can be sent again."""
    return {
        "workflow": workflow_name(workflow),
        "input": plain_json(payload, "the input of the run"),
        "workflow_id": workflow_id,
        "request_id": request_id,
        "id_reuse": id_reuse.value,
        "delay_ms": None if delay is None else _ms(delay),
        "run_timeout_ms": None if run_timeout is None else _ms(run_timeout),
    }


def signal_message(name: str, payload: object, signal_id: str) -> dict[str, Json]:
    """Return a signal as it is sent; it has an identity, so it can be sent again."""
    content = plain_json(payload, f"the payload of signal '{name}'")
    return {"name": name, "payload": content, "signal_id": signal_id}


def ended(told: Mapping[str, Any], result_type: Any) -> Any:
    """Return the result of a run that has ended.

    Raises:
        RunNotCompletedError: It has none; each way of ending has a class of its own.
    """
    if told["status"] == "completed":
        return decode_value(told.get("result"), result_type, "the result of the run")
    error = told.get("error")
    failure = None if error is None else failure_told(error)
    status = cast(Status, told["status"])
    raise NOT_COMPLETED[status](told["workflow_id"], told["run_id"], failure, told.get("reason") or "")


def plain_json(value: object, where: str) -> Json:
    """Return a value as JSON that shares nothing with it.

    A pydantic model is dumped in its JSON mode, a dataclass becomes its fields; both may be anywhere within.

    Raises:
        PayloadError: A part of it is no JSON; the message has its path.
    """
    return to_json(_plain(value), where)


def _plain(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _ms(duration: timedelta) -> int:
    return round(duration / timedelta(milliseconds=1))
