"""Durable runs in one piece: starting them, acting on them, and what a call of a workflow's function means."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from iii_runtime.core.call import Call
from iii_runtime.core.errors import InvocationError
from iii_runtime.core.http.prefer import applied_wait, preferred_wait
from iii_runtime.core.invocation import Source
from iii_runtime.core.payload import Json, PayloadError, check_name
from iii_runtime.core.registry import FunctionSpec
from iii_runtime.core.runs.description import describe, history
from iii_runtime.core.runs.errors import RunAlreadyStartedError, RunNotCompletedError
from iii_runtime.core.runs.policies import IdConflictPolicy
from iii_runtime.core.runs.record import InboxItem, RunRecord
from iii_runtime.core.runs.values import encode_value
from iii_runtime.engine.app import App
from iii_runtime.engine.runs.control import RunControl
from iii_runtime.engine.runs.endings import ending_of, result_of
from iii_runtime.engine.runs.executor import RunExecutor
from iii_runtime.engine.runs.journal import Journal
from iii_runtime.engine.runs.starts import Start, Started, Starter, start_contended
from iii_runtime.engine.stores import Stores
from iii_runtime.ports.run_dispatch import RunDispatch
from iii_runtime.ports.run_store import RunQuery, RunStore

_TRIES = 20
_CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization", "x-amz-security-token", "x-api-key"})
"""Headers of a request that are not stored with the run it starts."""


class Runs:
    """Starts runs and acts on them.

    Attributes:
        control: Signals, cancellation, termination, records.
    """

    def __init__(self, app: App, stores: Stores, runs: RunStore, executor: RunExecutor, dispatch: RunDispatch) -> None:
        self._app = app
        self._stores = stores
        self._runs = runs
        self._executor = executor
        self._journal = Journal(runs)
        self._starter = Starter(stores, runs, self._journal, dispatch)
        self.control = RunControl(stores, runs, self._journal, dispatch)

    async def start(self, workflow: str, start: Start) -> Started:
        """Start a run of a workflow; see `Starter.start`.

        Raises:
            InvocationError: `function_not_found`: there is no such workflow; `VALIDATION_FAILED`: the input does not
                fit it.
        """
        function = self._workflow(workflow)
        assert function.plan is not None  # noqa: S101 - looked at by `_workflow`
        function.plan.bind(start.payload, "direct", None)  # models are validated here
        return await self._starter.start(function, start)

    async def result(self, workflow_id: str, run_id: str | None = None, within: timedelta | None = None) -> Any:
        """Wait for a run to end and return its result.

        Raises:
            TimeoutError: It has not ended `within` that time.
            RunNotCompletedError: It has ended without a result.
            RunNotFoundError: There is no such run.
        """
        record = await self.control.closed(workflow_id, run_id, within)
        if record is None:
            raise TimeoutError(f"run '{workflow_id}' has not ended within {within}.")
        return await result_of(self._journal, record)

    async def signal_with_start(self, workflow: str, start: Start, signal: InboxItem) -> Started:
        """Signal the open run of a workflow id, or start one that has the signal from the beginning.

        Args:
            workflow: What is started if no run is open.
            start: With a workflow id; its policy for conflicts has no part in it.
            signal: See `RunControl.signal_item`.

        Raises:
            InboxFullError: The open run has not taken its earlier signals yet. Nothing was stored.
            RunAlreadyStartedError: The run is closed, and the policy of the start allows no other one.
            InvocationError: As `start`.
        """
        workflow_id = start.workflow_id
        assert workflow_id is not None  # noqa: S101 - the contract
        start = replace(start, signal=signal, conflict=IdConflictPolicy.FAIL)
        for _ in range(_TRIES):
            known = await self.control.offer(workflow_id, signal)
            if known is not None:
                return Started(record=known, is_new=False)
            try:
                return await self.start(workflow, start)
            except RunAlreadyStartedError as error:
                if error.status != "running":
                    raise
        raise start_contended(workflow_id)

    async def ending(self, workflow_id: str, run_id: str | None, within: timedelta) -> Json:
        """Wait for a run to end; return its ids, its status and what it ended with, see `endings.ending_of`.

        Raises:
            RunNotFoundError: There is no such run.
        """
        closed = await self.control.closed(workflow_id, run_id, within)
        record = closed or await self.control.record(workflow_id, run_id)
        ids: dict[str, Json] = {"workflow_id": record.workflow_id, "run_id": record.run_id}
        return ids | ({"status": "running"} if closed is None else await ending_of(self._journal, closed))

    async def describe(self, workflow_id: str, run_id: str | None = None) -> Json:
        """Return where a run stands, see `core.runs.description.describe`.

        Raises:
            RunNotFoundError: There is no such run.
        """
        record = await self.control.record(workflow_id, run_id)
        facts = await self._journal.facts(record)
        waiting_for = await self._executor.waiting_for(record, facts) if record.is_open else []
        return describe(record, facts, waiting_for, self._stores.clock.now_ms())

    async def history(self, workflow_id: str, run_id: str | None = None) -> Json:
        """Return all that has happened to a run, see `core.runs.description.history`.

        Raises:
            RunNotFoundError: There is no such run.
        """
        record = await self.control.record(workflow_id, run_id)
        payload = await self._journal.value(record, record.input)
        return history(record, payload, await self._journal.facts(record), await ending_of(self._journal, record))

    async def query(self, workflow_id: str, name: str, arguments: list[Json], run_id: str | None = None) -> Json:
        """Return the workflow's answer to a question, of everything that is stored of it; nothing changes.

        Raises:
            QueryError: It has no such query, the arguments do not fit, or its handler raised.
            RunNotFoundError: There is no such run.
        """
        record = await self.control.record(workflow_id, run_id)
        return encode_value(await self._executor.query(record, name, arguments), f"the answer of query '{name}'")

    async def list_runs(self, query: RunQuery) -> list[RunRecord]:
        """Return runs, newest first."""
        return await self._runs.list_runs(query)

    async def invoke(self, function: FunctionSpec, call: Call, within: timedelta) -> Any:
        """Do what a call of a workflow's function means: start a run; a caller who waits for an answer gets its result.

        Raises:
            InputInvalidError: The input does not fit the workflow.
            RunNotCompletedError: To a caller who waits: the run has ended without a result.
            DeadlineExceededError: It has not ended in time. It goes on.
        """
        record = (await self.begin(function, call)).record
        ids: dict[str, Json] = {"workflow_id": record.workflow_id, "run_id": record.run_id}
        if call.source == "http":
            return await self._answer(record, call)
        if call.source != "direct":
            return ids
        try:
            return await self.result(record.workflow_id, record.run_id, within)
        except TimeoutError as error:
            message = (
                f"run '{record.workflow_id}' of workflow '{function.id}' goes on; it did not end within "
                f"{within.total_seconds():g} s."
            )
            raise InvocationError("TIMEOUT", message, function.id) from error
        except RunNotCompletedError as error:
            raise InvocationError(error.code, error.message, function.id) from error

    async def _answer(self, record: RunRecord, call: Call) -> Json:
        """Return the answer to an http request: its result if the client prefers to wait and the run ends in time."""
        ids: dict[str, Json] = {"workflow_id": record.workflow_id, "run_id": record.run_id}
        headers = call.payload.get("headers") if isinstance(call.payload, dict) else None
        prefer = headers.get("prefer") if isinstance(headers, dict) else None
        wait = preferred_wait(prefer if isinstance(prefer, str) else None)
        if wait is None:
            return {"status_code": 202, "body": ids}
        name, value = applied_wait(wait)
        within = wait if call.timeout is None else min(wait, call.timeout)
        try:
            result = await self.result(record.workflow_id, record.run_id, within)
        except TimeoutError:
            return {"status_code": 202, "body": ids, "headers": {name: value}}
        except RunNotCompletedError as error:
            raise InvocationError(error.code, error.message, record.workflow) from error
        return {"status_code": 200, "body": encode_value(result, "the result"), "headers": {name: value}}

    async def begin(self, function: FunctionSpec, call: Call) -> Started:
        """Start the run that a call asks for, and wait for nothing.

        Raises:
            InputInvalidError: The input does not fit the workflow.
        """
        assert function.plan is not None  # noqa: S101 - a workflow that runs elsewhere is not invoked here
        function.plan.bind(call.payload, call.source, call.metadata)
        return await self._starter.start(function, self._start_of(function, call))

    def _start_of(self, function: FunctionSpec, call: Call) -> Start:
        identity = call.receipt or call.identity
        return Start(
            payload=_without_credentials(call.payload) if call.source == "http" else call.payload,
            workflow_id=_workflow_id(function, call.payload, call.source) or identity,
            request_id=identity,
            conflict=IdConflictPolicy.USE_EXISTING,
            traceparent=call.traceparent,
        )

    def _workflow(self, workflow: str) -> FunctionSpec:
        function = self._app.function(workflow)
        if function.workflow is None or function.plan is None:
            message = f"'{workflow}' is a function, not a workflow: register it with `@worker.workflow`."
            raise InvocationError("workflow_not_found", message, workflow)
        return function


def _workflow_id(function: FunctionSpec, payload: Json, source: Source) -> str | None:
    """Return the workflow id that the input names, as the workflow says where; None if it does not say.

    Raises:
        PayloadError: It says where, and no name is there.
    """
    path = None if function.workflow is None else function.workflow.workflow_id
    if path is None:
        return None
    found: Json = payload.get("body") if source == "http" and isinstance(payload, dict) else payload
    for member in path.split("."):
        found = found.get(member) if isinstance(found, dict) else None
    if isinstance(found, int) and not isinstance(found, bool):
        found = str(found)
    try:
        return check_name(found, f"the workflow id of '{function.id}', which is '{path}' of the input,")
    except PayloadError as error:
        raise InvocationError("workflow_id_invalid", error.message, function.id) from error


def _without_credentials(request: Json) -> Json:
    """Return an http request as it may be stored."""
    headers = request.get("headers") if isinstance(request, dict) else None
    if not isinstance(request, dict) or not isinstance(headers, dict):
        return request
    return {**request, "headers": {name: value for name, value in headers.items() if name not in _CREDENTIALS}}
