"""Attempts of steps: running a body, and what follows from how it ended."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from iii_runtime.core.invocation import Invocation, enter_invocation
from iii_runtime.core.payload import PayloadError
from iii_runtime.core.runs.errors import INTERRUPTED, SCHEDULE_TO_CLOSE
from iii_runtime.core.runs.facts import AttemptFailed, StepCompleted, StepFailed
from iii_runtime.core.runs.failure import Failure
from iii_runtime.core.runs.failures import failure_of
from iii_runtime.core.runs.record import RunRecord
from iii_runtime.core.runs.values import encode_value
from iii_runtime.core.trace import child_traceparent
from iii_runtime.core.workflow.commands import RunStep
from iii_runtime.core.workflow.retry import Retry, next_attempt
from iii_runtime.engine.runs.outcome import Outcome
from iii_runtime.ports.clock import Clock, IdSource
from iii_runtime.ports.executor import Executor

_MARGIN = timedelta(seconds=2)
"""What an attempt leaves of its function's timeout, for writing down its outcome."""
_LEAST = timedelta(milliseconds=100)


class Attempts:
    """Runs bodies of steps and decides what follows from their outcomes.

    Args:
        executor: Where bodies run.
        clock: Where the time comes from.
        ids: Where identities come from.
        timeout_of: The timeout of a workflow's function, by its id: what one execution may take at most.
        random: A number from 0 to below 1, for the jitter of retries.
    """

    def __init__(
        self,
        executor: Executor,
        clock: Clock,
        ids: IdSource,
        timeout_of: Callable[[str], timedelta],
        random: Callable[[], float] = random.random,
    ) -> None:
        self._executor = executor
        self._clock = clock
        self._ids = ids
        self._timeout_of = timeout_of
        self._random = random

    def limit(self, record: RunRecord, command: RunStep) -> timedelta:
        """Return the longest time of one attempt: start-to-close, or the workflow's timeout less a margin."""
        limit = command.options.start_to_close
        if limit is None:
            limit = max(self._timeout_of(record.workflow) - _MARGIN, _LEAST)
        left = command.options.schedule_to_close
        if left is None:
            return limit
        spent = timedelta(milliseconds=self._clock.now_ms() - command.requested_ms)
        return max(min(limit, left - spent), _LEAST)

    async def run(self, record: RunRecord, command: RunStep, attempt: int) -> Outcome:
        """Run the body once. Whatever it raises is its outcome."""
        limit = self.limit(record, command)
        invocation = self._invocation(record, attempt)

        def begin() -> None:
            enter_invocation(replace(invocation, ends_at=time.monotonic() + limit.total_seconds()))

        def body() -> Any:
            begin()
            return command.function(*command.arguments, **command.keywords)

        def rest() -> Any:
            begin()
            return result

        is_async, began_ms = iscoroutinefunction(command.function), self._clock.now_ms()
        try:
            result = await self._executor.run(body, is_async=is_async, timeout=limit)
            if isawaitable(result):  # a plain function may return a coroutine: a decorator around `async def` does
                result = await self._executor.run(rest, is_async=True, timeout=limit)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the outcome of this attempt
            return Outcome(error=error, elapsed_ms=self._clock.now_ms() - began_ms)
        return Outcome(value=result, elapsed_ms=self._clock.now_ms() - began_ms)

    def fact_of(
        self, command: RunStep, outcome: Outcome, attempt: int, now_ms: int
    ) -> StepCompleted | StepFailed | AttemptFailed:
        """Return what an outcome means: the step has ended, or another attempt follows."""
        elapsed_ms = max(outcome.elapsed_ms, 0)
        if outcome.error is None:
            try:
                value = encode_value(outcome.value, f"the result of {command.key}")
            except PayloadError as error:  # another attempt would return the same
                failure = failure_of(error)
                return StepFailed(
                    key=command.key, at_ms=now_ms, failure=failure, attempts=attempt, elapsed_ms=elapsed_ms
                )
            return StepCompleted(key=command.key, at_ms=now_ms, value=value, attempts=attempt, elapsed_ms=elapsed_ms)
        decision = next_attempt(
            command.options.retry,
            outcome.error,
            attempt,
            now_ms=now_ms,
            requested_ms=command.requested_ms,
            schedule_to_close=command.options.schedule_to_close,
            random=self._random(),
        )
        failure = failure_of(outcome.error)
        if isinstance(decision, Retry):
            return AttemptFailed(
                key=command.key,
                at_ms=now_ms,
                attempt=attempt,
                failure=failure,
                next_at_ms=decision.at_ms,
                elapsed_ms=elapsed_ms,
            )
        if decision.is_late:
            message = f"no attempt of {command.key} may begin any more within its schedule-to-close"
            failure = Failure(type=SCHEDULE_TO_CLOSE, message=message, cause=failure)
        return StepFailed(key=command.key, at_ms=now_ms, failure=failure, attempts=attempt, elapsed_ms=elapsed_ms)

    def interrupted(self, command: RunStep, now_ms: int, attempt: int) -> StepFailed:
        """Return what became of an attempt that must not be repeated, and that nobody saw the end of."""
        message = f"the host died while attempt {attempt} of {command.key} ran; nobody knows how far it came"
        failure = Failure(type=INTERRUPTED, message=message, non_retryable=True)
        return StepFailed(key=command.key, at_ms=now_ms, failure=failure, attempts=attempt)

    def _invocation(self, record: RunRecord, attempt: int) -> Invocation:
        identity = self._ids.new_id()
        return Invocation(
            id=identity,
            function_id=record.workflow,
            attempt=attempt,
            traceparent=child_traceparent(record.traceparent, identity),
        )
