"""The client of durable runs, on whatever carries its calls to a host."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, TypeAlias, cast
from weakref import WeakValueDictionary

from iii_runtime.core.client.handle import DEFAULT_SIGNAL_PATIENCE, RunHandle
from iii_runtime.core.client.messages import (
    Workflow,
    ended,
    plain_json,
    result_type_of,
    signal_message,
    start_message,
    workflow_name,
)
from iii_runtime.core.errors import InvocationError
from iii_runtime.core.payload import Json
from iii_runtime.core.runs.crossing import run_error_of
from iii_runtime.core.runs.errors import InboxFullError
from iii_runtime.core.runs.policies import IdConflictPolicy, IdReusePolicy
from iii_runtime.core.runs.record import Status
from iii_runtime.core.runs.values import decode_value
from iii_runtime.core.trigger_request import TriggerRequest

Call: TypeAlias = Callable[[TriggerRequest], Awaitable[Any]]

_WAIT = timedelta(seconds=20)
"""How long one call for a result waits; the client asks again until its own time is up."""
_MARGIN_MS = 10_000
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0


class RunClient:
    """Starts runs and acts on them. Every method may raise what its calls do: `InvocationError`, `HostError`.

    Args:
        call: Carries out a trigger request in the host.
        new_id: Returns an id that nobody else has.
        sleep: Waits for so many seconds.
    """

    def __init__(
        self, call: Call, new_id: Callable[[], str], *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._call = call
        self._new_id = new_id
        self._sleep = sleep
        self._sending: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def start(
        self,
        workflow: Workflow,
        input: Any = None,  # noqa: A002 - the word of the field
        *,
        workflow_id: str | None = None,
        request_id: str | None = None,
        id_reuse: IdReusePolicy = IdReusePolicy.ALLOW_DUPLICATE,
        id_conflict: IdConflictPolicy = IdConflictPolicy.FAIL,
        delay: timedelta | None = None,
        run_timeout: timedelta | None = None,
    ) -> RunHandle:
        """Start a run. It is durable when this returns, and the handle works at once.

        Args:
            workflow: Its id, or the function that was registered with `@worker.workflow`.
            input: JSON, or models and dataclasses that become their fields.
            workflow_id: Unique among open runs; a fresh one if None.
            request_id: Identity of this request. One that is repeated names the same run, closed or not; a fresh one
                if None.
            id_reuse: Whether the workflow id of a closed run may be used again.
            id_conflict: What to do if it has an open run.
            delay: How long the run waits before it begins, 366 days at most.
            run_timeout: Longest life of the run; the workflow's own if None.

        Raises:
            RunAlreadyStartedError: The workflow id has a run that the policies do not allow beside it.
            InvocationError: `function_not_found`, `workflow_not_found`; `VALIDATION_FAILED`, the input does not fit.
            PayloadError: The input is no JSON. Nothing was started.
        """
        identity = request_id or self._new_id()
        start = start_message(
            workflow, input, workflow_id, identity, id_reuse=id_reuse, delay=delay, run_timeout=run_timeout
        )
        started = await self._ask("iii::runs::start", **start, id_conflict=id_conflict.value)
        return self._handle_of(started, workflow)

    async def execute(
        self,
        workflow: Workflow,
        input: Any = None,  # noqa: A002 - the word of the field
        *,
        workflow_id: str | None = None,
        request_id: str | None = None,
        id_reuse: IdReusePolicy = IdReusePolicy.ALLOW_DUPLICATE,
        id_conflict: IdConflictPolicy = IdConflictPolicy.FAIL,
        run_timeout: timedelta | None = None,
        timeout: timedelta | None = None,
    ) -> Any:
        """Start a run and return its result: `start`, then `result`; see there.

        Raises:
            TimeoutError: It has not ended within `timeout`. It goes on.
            RunNotCompletedError: It has ended without a result.
        """
        handle = await self.start(
            workflow,
            input,
            workflow_id=workflow_id,
            request_id=request_id,
            id_reuse=id_reuse,
            id_conflict=id_conflict,
            run_timeout=run_timeout,
        )
        return await handle.result(timeout=timeout)

    async def signal_with_start(
        self,
        workflow: Workflow,
        input: Any = None,  # noqa: A002 - the word of the field
        *,
        workflow_id: str,
        signal: str,
        payload: Any = None,
        signal_id: str | None = None,
        request_id: str | None = None,
        id_reuse: IdReusePolicy = IdReusePolicy.ALLOW_DUPLICATE,
    ) -> RunHandle:
        """Signal the open run of a workflow id, or start one that has the signal from the beginning.

        Raises:
            RunAlreadyStartedError: The run is closed, and `id_reuse` allows no other one.
            InboxFullError: The open run takes no more at present. Nothing was stored.
        """
        start = start_message(workflow, input, workflow_id, request_id or self._new_id(), id_reuse=id_reuse)
        sent = signal_message(signal, payload, signal_id or self._new_id())
        started = await self._ask("iii::runs::signal_with_start", **start, signal=sent)
        return self._handle_of(started, workflow)

    async def signal(
        self,
        workflow_id: str,
        name: str,
        payload: Any = None,
        *,
        run_id: str | None = None,
        signal_id: str | None = None,
        patience: timedelta = DEFAULT_SIGNAL_PATIENCE,
    ) -> None:
        """Send a signal to the open run. It is durable when this returns, and received once.

        The signals that one client sends to a workflow id arrive in the order in which they were sent: while its inbox
        is full, the first waits and the others behind it.

        Args:
            workflow_id: Whose run.
            name: Name of the signal.
            payload: JSON, or models and dataclasses that become their fields.
            run_id: That run alone.
            signal_id: Identity of the signal: one that is sent again is received once; a fresh one if None.
            patience: How long to wait while the inbox is full.

        Raises:
            RunNotFoundError: There is no such run.
            RunClosedError: It is closed.
            InboxFullError: It has taken none of its messages for as long as `patience`.
        """
        sent = signal_message(name, payload, signal_id or self._new_id())
        await self._send(workflow_id, {"workflow_id": workflow_id, "run_id": run_id, **sent}, patience)

    async def query(self, workflow_id: str, name: str, *arguments: Any, run_id: str | None = None) -> Any:
        """Return the workflow's answer to a question, of all that is stored of the run, open or closed.

        Raises:
            RunNotFoundError: There is no such run.
            QueryError: It has no such query, the arguments do not fit, or its handler raised.
        """
        sent = [plain_json(argument, f"argument {index} of query '{name}'") for index, argument in enumerate(arguments)]
        answer = await self._ask("iii::runs::query", workflow_id=workflow_id, run_id=run_id, name=name, arguments=sent)
        return decode_value(answer, None, f"the answer of query '{name}'")

    async def result(
        self,
        workflow_id: str,
        run_id: str | None = None,
        *,
        timeout: timedelta | None = None,
        result_type: Any = None,
    ) -> Any:
        """Wait for a run to end, and return its result.

        Args:
            workflow_id: Whose run.
            run_id: That run; the current one if None.
            timeout: How long to wait; for ever if None.
            result_type: The type that the result has; plain values if None.

        Raises:
            TimeoutError: It has not ended within `timeout`. It goes on.
            RunFailedError: The workflow raised; the chain of causes is `__cause__`. Other ends are `RunCancelledError`,
                `RunTerminatedError` and `RunTimedOutError`.
            RunNotFoundError: There is no such run.
        """
        end = None if timeout is None else time.monotonic() + timeout.total_seconds()
        while True:
            left = _WAIT if end is None else timedelta(seconds=max(end - time.monotonic(), 0))
            wait_ms = round(min(left, _WAIT) / timedelta(milliseconds=1))
            told = await self._ask("iii::runs::result", workflow_id=workflow_id, run_id=run_id, wait_ms=wait_ms)
            if told["status"] != "running":
                return ended(told, result_type)
            run_id = cast(str, told["run_id"])
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"run '{workflow_id}' ({run_id}) has not ended within {timeout}. It goes on.")

    async def cancel(self, workflow_id: str, *, run_id: str | None = None, reason: str = "") -> None:
        """Ask the open run to end itself; it may clean up first. A second request changes nothing.

        Raises:
            RunNotFoundError: There is no such run.
            RunClosedError: It is closed.
        """
        await self._ask("iii::runs::cancel", workflow_id=workflow_id, run_id=run_id, reason=reason)

    async def terminate(self, workflow_id: str, *, run_id: str | None = None, reason: str = "") -> None:
        """End the open run at once, without another line of its code.

        Raises:
            RunNotFoundError: There is no such run.
            RunClosedError: It is closed.
        """
        await self._ask("iii::runs::terminate", workflow_id=workflow_id, run_id=run_id, reason=reason)

    async def resume(self, workflow_id: str) -> None:
        """Let a run that was parked be executed again; one that is not parked goes on by itself.

        Raises:
            RunNotFoundError: There is no such run.
            RunClosedError: It is closed.
        """
        await self._ask("iii::runs::resume", workflow_id=workflow_id)

    async def describe(self, workflow_id: str, *, run_id: str | None = None) -> dict[str, Any]:
        """Return where a run stands: its status, last step, what is retried, what it waits for.

        The members are those of `core.runs.description.describe`.

        Raises:
            RunNotFoundError: There is no such run.
        """
        return cast("dict[str, Any]", await self._ask("iii::runs::describe", workflow_id=workflow_id, run_id=run_id))

    async def history(self, workflow_id: str, *, run_id: str | None = None) -> list[dict[str, Any]]:
        """Return all that has happened to a run, in order, with the values; see `core.runs.description.history`.

        Raises:
            RunNotFoundError: There is no such run.
        """
        told = await self._ask("iii::runs::history", workflow_id=workflow_id, run_id=run_id)
        return cast("list[dict[str, Any]]", told)

    async def list(
        self,
        *,
        workflow: Workflow | None = None,
        status: Status | None = None,
        workflow_id: str | None = None,
        before_ms: int | None = None,
        limit: int = 50,
    ) -> list[dict[str, Any]]:
        """Return runs, newest first; see `core.runs.description.summary` for the members.

        Args:
            workflow: Only those of this workflow.
            status: Only those that are this.
            workflow_id: Only those of this workflow id: its history.
            before_ms: Only those created before, Unix milliseconds; for the next page.
            limit: How many at most, 1,000 at most.
        """
        listed = await self._ask(
            "iii::runs::list",
            workflow=None if workflow is None else workflow_name(workflow),
            status=status,
            workflow_id=workflow_id,
            before_ms=before_ms,
            limit=limit,
        )
        return cast("list[dict[str, Any]]", listed)

    def handle(self, workflow_id: str, run_id: str | None = None, *, result_type: Any = None) -> RunHandle:
        """Return a handle of a run that was started elsewhere. It asks nobody, so there may be no such run."""
        return RunHandle(self, workflow_id, run_id, result_type=result_type)

    def _handle_of(self, started: Any, workflow: Workflow) -> RunHandle:
        hint = None if isinstance(workflow, str) else result_type_of(workflow)
        return RunHandle(self, started["workflow_id"], started["run_id"], result_type=hint)

    async def _send(self, workflow_id: str, signal: Mapping[str, Json], patience: timedelta) -> None:
        """Send a signal after those that were sent to the same workflow id before."""
        lock = self._sending.get(workflow_id)
        if lock is None:
            lock = self._sending[workflow_id] = asyncio.Lock()
        pause_s, waited_s = _FIRST_PAUSE_S, 0.0
        async with lock:
            while True:
                try:
                    await self._ask("iii::runs::signal", **signal)
                except InboxFullError:
                    if waited_s >= patience.total_seconds():
                        raise
                else:
                    return
                await self._sleep(pause_s)
                waited_s += pause_s
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _ask(self, function_id: str, /, **payload: Json) -> Any:
        wait_ms = payload.get("wait_ms")
        timeout_ms = _MARGIN_MS + wait_ms if isinstance(wait_ms, int) else None
        members = {name: value for name, value in payload.items() if value is not None}
        try:
            return await self._call(TriggerRequest(function_id, members, timeout_ms=timeout_ms))
        except InvocationError as error:
            raise run_error_of(error) from error.__cause__
