"""`iii::runs::*`: durable runs from outside, for the client, the command line and other functions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from enum import StrEnum
from typing import TypeVar, get_args

from iii_runtime.core.errors import IiiError, InvocationError
from iii_runtime.core.invocation import Invocation
from iii_runtime.core.payload import Json
from iii_runtime.core.runs.crossing import refusal_of
from iii_runtime.core.runs.description import summary
from iii_runtime.core.runs.policies import IdConflictPolicy, IdReusePolicy
from iii_runtime.core.runs.record import Status
from iii_runtime.engine.builtins.payload import Fields
from iii_runtime.engine.builtins.state import Builtin
from iii_runtime.engine.runs.runs import Runs
from iii_runtime.engine.runs.starts import Start, Started
from iii_runtime.ports.run_store import RunQuery

MAX_WAIT = timedelta(minutes=5)
"""Longest wait for a result; whoever wants to wait longer asks again."""
MAX_LISTED = 1000
MAX_DELAY = timedelta(days=366)
"""Longest delay of a start, as of any timer."""
MAX_RUN_TIMEOUT = timedelta(days=3660)
_LATEST_MS = 1 << 53

PolicyT = TypeVar("PolicyT", bound=StrEnum)


class RunBuiltins:
    """The functions over an app's runs. Each takes an object; an error of a run keeps its code, see `core.runs.errors`.

    A `workflow_id` names its current run, or the last one; with `run_id` an operation is about that run alone.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def by_id(self) -> Mapping[str, Builtin]:
        """Return the functions by id."""
        return {
            "iii::runs::start": self.start,
            "iii::runs::signal_with_start": self.signal_with_start,
            "iii::runs::signal": self.signal,
            "iii::runs::query": self.query,
            "iii::runs::result": self.result,
            "iii::runs::cancel": self.cancel,
            "iii::runs::terminate": self.terminate,
            "iii::runs::resume": self.resume,
            "iii::runs::describe": self.describe,
            "iii::runs::history": self.history,
            "iii::runs::list": self.list_runs,
        }

    async def start(self, payload: Json, caller: Invocation | None) -> Json:
        """Start a run -> `{workflow_id, run_id, status, is_new}`.

        Of `{workflow, input?, workflow_id?, request_id?, id_reuse?, id_conflict?, delay_ms?, run_timeout_ms?}`.
        The same `request_id` names the same run, however often it comes; without a `workflow_id` it is that too.
        """
        function_id = "iii::runs::start"
        fields = _fields(function_id, payload)
        async with _refusing(function_id):
            workflow, start = _start_of(fields, function_id, caller)
            return _started(await self._runs.start(workflow, start))

    async def signal_with_start(self, payload: Json, caller: Invocation | None) -> Json:
        """`{...as start, workflow_id, signal: {name, payload?, signal_id?}}` -> as start.

        Signals the open run of the workflow id, or starts one that has the signal from the beginning.
        """
        function_id = "iii::runs::signal_with_start"
        fields = _fields(function_id, payload)
        signal = _fields(f"the signal of {function_id}", fields.value("signal"))
        async with _refusing(function_id):
            workflow, start = _start_of(fields, function_id, caller)
            item = await self._runs.control.signal_item(
                fields.name("workflow_id"),
                signal.name("name"),
                signal.optional("payload"),
                signal.optional_name("signal_id"),
            )
            return _started(await self._runs.signal_with_start(workflow, start, item))

    async def signal(self, payload: Json, _caller: Invocation | None) -> Json:
        """`{workflow_id, run_id?, name, payload?, signal_id?}` -> null; the same `signal_id` is received once."""
        function_id = "iii::runs::signal"
        fields = _fields(function_id, payload)
        async with _refusing(function_id):
            await self._runs.control.signal(
                fields.name("workflow_id"),
                fields.name("name"),
                fields.optional("payload"),
                run_id=fields.optional_name("run_id"),
                signal_id=fields.optional_name("signal_id"),
            )
        return None

    async def query(self, payload: Json, _caller: Invocation | None) -> Json:
        """`{workflow_id, run_id?, name, arguments?: []}` -> the answer, as `encode_value` writes it."""
        function_id = "iii::runs::query"
        fields = _fields(function_id, payload)
        arguments = [] if fields.optional("arguments") is None else fields.array("arguments")
        async with _refusing(function_id):
            return await self._runs.query(
                fields.name("workflow_id"), fields.name("name"), arguments, fields.optional_name("run_id")
            )

    async def result(self, payload: Json, _caller: Invocation | None) -> Json:
        """`{workflow_id, run_id?, wait_ms?}` -> `{workflow_id, run_id, status, result? | error? | reason?}`.

        Waits at most that long, without it not at all; the status is `running` if the run has not ended by then.
        """
        function_id = "iii::runs::result"
        fields = _fields(function_id, payload)
        within = _duration(fields, "wait_ms", most=MAX_WAIT)
        async with _refusing(function_id):
            return await self._runs.ending(
                fields.name("workflow_id"), fields.optional_name("run_id"), within or timedelta(0)
            )

    async def cancel(self, payload: Json, _caller: Invocation | None) -> Json:
        """`{workflow_id, run_id?, reason?}` -> null. The run is asked to end itself; a second time changes nothing."""
        function_id = "iii::runs::cancel"
        fields = _fields(function_id, payload)
        async with _refusing(function_id):
            await self._runs.control.cancel(
                fields.name("workflow_id"), run_id=fields.optional_name("run_id"), reason=_reason(fields)
            )
        return None

    async def terminate(self, payload: Json, _caller: Invocation | None) -> Json:
        """`{workflow_id, run_id?, reason?}` -> null. The run ends at once, and cleans up nothing."""
        function_id = "iii::runs::terminate"
        fields = _fields(function_id, payload)
        async with _refusing(function_id):
            await self._runs.control.terminate(
                fields.name("workflow_id"), run_id=fields.optional_name("run_id"), reason=_reason(fields)
            )
        return None

    async def resume(self, payload: Json, _caller: Invocation | None) -> Json:
        """`{workflow_id}` -> null. A parked run is executed again; one that is not parked goes on by itself."""
        function_id = "iii::runs::resume"
        fields = _fields(function_id, payload)
        async with _refusing(function_id):
            await self._runs.control.resume(fields.name("workflow_id"))
        return None

    async def describe(self, payload: Json, _caller: Invocation | None) -> Json:
        """`{workflow_id, run_id?}` -> where the run stands, see `core.runs.description.describe`."""
        function_id = "iii::runs::describe"
        fields = _fields(function_id, payload)
        async with _refusing(function_id):
            return await self._runs.describe(fields.name("workflow_id"), fields.optional_name("run_id"))

    async def history(self, payload: Json, _caller: Invocation | None) -> Json:
        """`{workflow_id, run_id?}` -> all that has happened to the run, see `core.runs.description.history`."""
        function_id = "iii::runs::history"
        fields = _fields(function_id, payload)
        async with _refusing(function_id):
            return await self._runs.history(fields.name("workflow_id"), fields.optional_name("run_id"))

    async def list_runs(self, payload: Json, _caller: Invocation | None) -> Json:
        """`{workflow?, status?, workflow_id?, before_ms?, limit?}` -> runs, newest first, see `summary`."""
        function_id = "iii::runs::list"
        fields = _fields(function_id, payload)
        before = fields.optional("before_ms")
        query = RunQuery(
            workflow=fields.optional_name("workflow"),
            status=_status(fields, function_id),
            workflow_id=fields.optional_name("workflow_id"),
            before_ms=None if before is None else fields.integer("before_ms", 0, most=_LATEST_MS),
            limit=fields.integer("limit", 50, most=MAX_LISTED),
        )
        async with _refusing(function_id):
            return [summary(record) for record in await self._runs.list_runs(query)]


def _fields(what: str, payload: Json) -> Fields:
    return Fields(what, "run_request_invalid", payload)


def _start_of(fields: Fields, function_id: str, caller: Invocation | None) -> tuple[str, Start]:
    workflow, request_id = fields.name("workflow"), fields.optional_name("request_id")
    start = Start(
        payload=fields.optional("input"),
        workflow_id=fields.optional_name("workflow_id") or request_id,
        request_id=request_id,
        reuse=_policy(fields, "id_reuse", IdReusePolicy.ALLOW_DUPLICATE, function_id),
        conflict=_policy(fields, "id_conflict", IdConflictPolicy.FAIL, function_id),
        delay=_duration(fields, "delay_ms", most=MAX_DELAY) or timedelta(0),
        run_timeout=_duration(fields, "run_timeout_ms", most=MAX_RUN_TIMEOUT),
        traceparent=None if caller is None else caller.traceparent,
    )
    return workflow, start


def _started(started: Started) -> Json:
    record = started.record
    return {
        "workflow_id": record.workflow_id,
        "run_id": record.run_id,
        "status": record.status,
        "is_new": started.is_new,
    }


def _policy(fields: Fields, key: str, default: PolicyT, function_id: str) -> PolicyT:
    name = fields.optional_name(key)
    try:
        return default if name is None else type(default)(name)
    except ValueError as error:
        raise _not_one_of(key, name, [policy.value for policy in type(default)], function_id) from error


def _status(fields: Fields, function_id: str) -> Status | None:
    name, known = fields.optional_name("status"), get_args(Status)
    found: Status | None = next((status for status in known if status == name), None)
    if name is not None and found is None:
        raise _not_one_of("status", name, list(known), function_id)
    return found


def _not_one_of(key: str, found: str | None, known: list[str], function_id: str) -> InvocationError:
    message = f"'{key}' of {function_id} must be one of {', '.join(known)}; found '{found}'."
    return InvocationError("run_request_invalid", message, function_id)


def _duration(fields: Fields, key: str, *, most: timedelta) -> timedelta | None:
    if fields.optional(key) is None:
        return None
    return timedelta(milliseconds=fields.integer(key, 0, most=most // timedelta(milliseconds=1)))


def _reason(fields: Fields) -> str:
    reason = fields.optional("reason")
    return "" if reason is None else str(reason)


@asynccontextmanager
async def _refusing(function_id: str) -> AsyncIterator[None]:
    try:
        yield
    except InvocationError:
        raise
    except IiiError as error:
        raise refusal_of(error, function_id) from error
