"""The client of durable runs over calls that answer as they are told to."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from iii_runtime import InboxFullError, InvocationError, RunFailedError
from iii_runtime.core.client.run_client import RunClient
from iii_runtime.core.runs.crossing import refusal_of
from iii_runtime.core.trigger_request import TriggerRequest


@dataclass
class Wire:
    """Carries calls to a run whose inbox has little room."""

    room: int = 1_000
    taken: list[Any] = field(default_factory=list)
    requests: list[TriggerRequest] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    async def call(self, request: TriggerRequest) -> Any:
        self.requests.append(request)
        await asyncio.sleep(0)
        if request.function_id != "iii::runs::signal":
            return self.answers.pop(0)
        if self.room == 0:
            raise refusal_of(InboxFullError(request.payload["workflow_id"], 100), request.function_id)
        self.room -= 1
        self.taken.append(request.payload["payload"])
        return None

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)
        if len(self.pauses) % 3 == 0:
            self.room += 2

    def client(self) -> RunClient:
        numbers = count(1)
        return RunClient(self.call, lambda: f"id-{next(numbers)}", sleep=self.pause)


async def test_signals_to_a_full_inbox_wait_until_there_is_room_and_keep_their_order() -> None:
    wire = Wire(room=3)
    client = wire.client()
    await asyncio.gather(*(client.signal("w", "item", number) for number in range(10)))
    assert wire.taken == list(range(10))
    assert wire.pauses
    ids = [request.payload["signal_id"] for request in wire.requests]
    assert len(set(ids)) == 10, "a signal that is sent again keeps its identity"


async def test_the_pauses_before_a_full_inbox_grow_and_end_with_its_patience() -> None:
    wire = Wire(room=0)
    client = RunClient(wire.call, lambda: "id", sleep=_note(wire.pauses))
    with pytest.raises(InboxFullError, match="'w' has 100 messages waiting"):
        await client.signal("w", "item", patience=timedelta(seconds=10))
    assert wire.pauses == sorted(wire.pauses)
    assert 10 <= sum(wire.pauses) < 13
    assert len(wire.requests) == len(wire.pauses) + 1, "no pause after the last try"


async def test_signals_to_one_run_do_not_hold_up_those_to_another() -> None:
    wire = Wire()
    client = wire.client()
    await asyncio.gather(client.signal("a", "item", 1), client.signal("b", "item", 2))
    assert sorted(wire.taken) == [1, 2]


async def test_the_wait_for_a_result_asks_again_and_stays_with_the_run_it_has_found() -> None:
    running = {"workflow_id": "w", "run_id": "r1", "status": "running"}
    wire = Wire(answers=[running, {**running, "status": "completed", "result": {"$": ["decimal", "1.50"]}}])
    assert str(await wire.client().result("w")) == "1.50"
    assert [request.payload.get("run_id") for request in wire.requests] == [None, "r1"]
    for request in wire.requests:
        assert request.timeout_ms is not None
        assert request.timeout_ms > request.payload["wait_ms"], "the call outlasts the wait"


async def test_the_error_of_a_failed_run_has_its_causes_and_their_stacks() -> None:
    error = {
        "type": "StepError",
        "message": "step 'pay' failed",
        "cause": {"type": "Declined", "message": "no", "stack": "line 1", "non_retryable": True},
    }
    wire = Wire(answers=[{"workflow_id": "w", "run_id": "r", "status": "failed", "error": error}])
    with pytest.raises(RunFailedError) as failed:
        await wire.client().result("w")
    assert failed.value.failure is not None
    cause = failed.value.failure.cause
    assert cause is not None
    assert (cause.type, cause.stack, cause.non_retryable) == ("Declined", "line 1", True)


async def test_an_error_that_is_none_of_runs_comes_as_it_is() -> None:
    async def refuse(request: TriggerRequest) -> Any:
        raise InvocationError("function_not_found", "no such function", request.function_id)

    with pytest.raises(InvocationError, match="no such function"):
        await RunClient(refuse, lambda: "id").describe("w")


def _note(pauses: list[float]) -> Any:
    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    return pause
