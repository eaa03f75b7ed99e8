"""What `trigger(...)` is asked to do, in every spelling the iii SDKs accept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from iii_runtime.core.errors import InvocationError
from iii_runtime.core.frozen import frozen
from iii_runtime.core.payload import Json, PayloadError, render_json, to_json

DEFAULT_TIMEOUT_MS = 30_000
MAX_TIMEOUT_MS = 2**31 - 1
MAX_METADATA_BYTES = 4096
"""Largest metadata of a request, as JSON text."""


@frozen
class TriggerActionEnqueue:
    """Put the call on a named queue and return its receipt; the function runs at least once.

    Attributes:
        queue: A queue of `iii-config.yaml`, or `default`.
        delay: Seconds until the message becomes visible, 0 to 900; an addition to iii. Refused on FIFO queues.
        dedupe_id: 1 to 256 characters; within five minutes the same id for the same queue and function returns the
            first receipt and enqueues nothing. An addition to iii.
    """

    queue: str
    delay: float = 0
    dedupe_id: str | None = None


@frozen
class TriggerActionVoid:
    """Start the call and return None at once. Best effort: not stored, errors are only logged."""


Action: TypeAlias = TriggerActionEnqueue | TriggerActionVoid


class TriggerAction:
    """The actions of `trigger`, spelled as in the iii SDK."""

    @staticmethod
    def Enqueue(  # noqa: N802 - the name is iii's
        options: Mapping[str, Any] | None = None,
        *,
        queue: str | None = None,
        delay: float = 0,
        dedupe_id: str | None = None,
    ) -> TriggerActionEnqueue:
        """Enqueue on `queue`; `Enqueue({"queue": "name"})` is accepted as well."""
        if isinstance(options, Mapping):
            return _enqueue_from(options)
        if queue is None:
            raise TypeError("TriggerAction.Enqueue needs queue='name'")
        return TriggerActionEnqueue(queue, delay, dedupe_id)

    @staticmethod
    def Void() -> TriggerActionVoid:  # noqa: N802 - the name is iii's
        """Fire and forget."""
        return TriggerActionVoid()


@frozen
class EnqueueResult:
    """The receipt as a typed value: `EnqueueResult(**worker.trigger(...))`."""

    messageReceiptId: str  # noqa: N815 - the name is iii's


@dataclass(frozen=True, slots=True)
class TriggerRequest:
    """One call: which function, with what, how.

    Attributes:
        function_id: The registered function or builtin (`state::set`, ...).
        payload: Any JSON value.
        action: None to wait for the result, or an enqueue or void action (object or dict).
        timeout_ms: How long to wait for the result; None or 0 means the worker's default, 30,000.
        metadata: A sidecar handed to handlers that declare a `metadata` parameter; see `check_metadata`.
    """

    function_id: str
    payload: Any = None
    action: Action | Mapping[str, Any] | None = None
    timeout_ms: int | None = None
    metadata: Mapping[str, Any] | None = field(default=None)


def parse_trigger_request(request: object) -> TriggerRequest:
    """Return the request as a value with its action parsed. Unknown keys are ignored, as in the iii SDK.

    Raises:
        InvocationError: `request_invalid`: no function id, an unknown action, a timeout that is no number, or metadata
            that is no object.
    """
    if not isinstance(request, TriggerRequest | Mapping):
        raise InvocationError("request_invalid", f"trigger takes a dict or a TriggerRequest, found {request!r:.60}.")
    if isinstance(request, Mapping):
        request = TriggerRequest(
            function_id=request.get("function_id", ""),
            payload=request.get("payload"),
            action=request.get("action"),
            timeout_ms=request.get("timeout_ms"),
            metadata=request.get("metadata"),
        )
    function_id: object = request.function_id
    if not isinstance(function_id, str) or not function_id.strip():
        raise InvocationError("request_invalid", "trigger needs a function_id.")
    metadata: object = request.metadata
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvocationError("request_invalid", f"metadata must be an object, found {metadata!r:.60}.", function_id)
    return TriggerRequest(
        function_id=function_id,
        payload=request.payload,
        action=parse_action(request.action, function_id),
        timeout_ms=_milliseconds(request.timeout_ms, function_id),
        metadata=request.metadata,
    )


def check_metadata(metadata: object) -> dict[str, Json] | None:
    """Return a copy of the metadata of a request as JSON.

    Its bound is the same whatever the action, and on every host: it travels beside the payload, never in a blob.

    Raises:
        PayloadError: `payload_not_json`: no object, not JSON, or larger than `MAX_METADATA_BYTES`.
    """
    if metadata is None:
        return None
    checked = to_json(metadata, "metadata")
    if not isinstance(checked, dict) or len(render_json(checked, "metadata")) > MAX_METADATA_BYTES:
        raise PayloadError(f"metadata must be an object of at most {MAX_METADATA_BYTES} bytes as JSON")
    return checked


def render_trigger_request(request: TriggerRequest) -> dict[str, Any]:
    """Return a request as `parse_trigger_request` reads it, for a host elsewhere; its payload is not checked here."""
    action = request.action
    if isinstance(action, TriggerActionEnqueue):
        rendered: Any = {
            "type": "enqueue",
            "queue": action.queue,
            "delay": action.delay,
            "dedupe_id": action.dedupe_id,
        }
    else:
        rendered = {"type": "void"} if isinstance(action, TriggerActionVoid) else action
    members = {
        "function_id": request.function_id,
        "payload": request.payload,
        "action": rendered,
        "timeout_ms": request.timeout_ms,
        "metadata": request.metadata,
    }
    return {name: value for name, value in members.items() if value is not None}


def parse_action(action: object, function_id: str | None = None) -> Action | None:
    """Return the action as a value, whatever its spelling; None means a direct call."""
    if action is None or isinstance(action, TriggerActionVoid):
        return action
    if isinstance(action, TriggerActionEnqueue):
        _check_queue(action.queue, function_id)
        return action
    if isinstance(action, Mapping):
        kind = action.get("type")
        if kind == "void":
            return TriggerActionVoid()
        if kind == "enqueue":
            return _enqueue_from(action, function_id)
    raise InvocationError(
        "request_invalid",
        f"unknown action {action!r:.60}: use TriggerAction.Enqueue(queue='name'), TriggerAction.Void() or no action.",
        function_id,
    )


def _enqueue_from(options: Mapping[str, Any], function_id: str | None = None) -> TriggerActionEnqueue:
    delay = options.get("delay")
    queue = _check_queue(options.get("queue"), function_id)
    return TriggerActionEnqueue(queue, 0 if delay is None else delay, options.get("dedupe_id"))


def _check_queue(queue: object, function_id: str | None) -> str:
    if not isinstance(queue, str):
        raise InvocationError(
            "request_invalid", f"the enqueue action needs the name of a queue, found {queue!r:.60}.", function_id
        )
    return queue


def _milliseconds(timeout: object, function_id: str) -> int | None:
    """Return the timeout, rounded up; None for 0 and None, which both mean the default."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 <= timeout <= MAX_TIMEOUT_MS:
        raise InvocationError(
            "request_invalid",
            f"timeout_ms must be a number of milliseconds from 0 to {MAX_TIMEOUT_MS}, found {timeout!r:.60}.",
            function_id,
        )
    return math.ceil(timeout) or None
