"""Driving a workflow machine by hand: facts in, commands out, on a clock of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iii_runtime.core.runs.facts import (
    CancelRequested,
    Fact,
    Key,
    SignalReceived,
    StepCompleted,
    StepFailed,
    TimerFired,
)
from iii_runtime.core.runs.failure import Failure
from iii_runtime.core.workflow.commands import (
    Command,
    Complete,
    EndCancelled,
    Fail,
    RecordPatch,
    RunStep,
    SetTimer,
    WithdrawStep,
    WithdrawTimer,
)
from iii_runtime.core.workflow.machine import Machine

T0 = 1_000_000


def new_machine(function: Callable[..., Any], run_id: str = "run-1", max_steps: int = 10_000) -> Machine:
    return Machine(
        function, workflow="test::flow", workflow_id="flow-1", run_id=run_id, started_ms=T0, max_steps=max_steps
    )


def done(name: str, value: Any = None, occurrence: int = 0, at_ms: int = T0) -> StepCompleted:
    return StepCompleted(key=Key("step", name, occurrence), at_ms=at_ms, value=value)


def failed(name: str, occurrence: int = 0, message: str = "no", attempts: int = 3) -> StepFailed:
    failure = Failure(type="ValueError", message=message)
    return StepFailed(key=Key("step", name, occurrence), at_ms=T0, failure=failure, attempts=attempts)


def fired(machine: Machine) -> TimerFired:
    timer = machine.next_timer()
    assert timer is not None
    return TimerFired(number=timer.number, deadline_ms=timer.deadline_ms, at_ms=max(timer.deadline_ms, machine.now_ms))


def signal(name: str, value: Any = None, at_ms: int = T0) -> SignalReceived:
    return SignalReceived(id=f"{name}-{value}", name=name, at_ms=at_ms, value=value)


def cancel(reason: str = "") -> CancelRequested:
    return CancelRequested(id="cancel", at_ms=T0, reason=reason)


def told(commands: list[Command]) -> list[str]:
    """Return commands as short texts."""
    return [_told(command) for command in commands]


def _told(command: Command) -> str:
    match command:
        case RunStep():
            arguments = ", ".join(map(repr, command.arguments))
            return f"run {command.key.name}:{command.key.occurrence}({arguments})"
        case WithdrawStep():
            return f"withdraw {command.key.name}:{command.key.occurrence}"
        case SetTimer():
            return f"timer {command.number} +{command.deadline_ms - T0}"
        case WithdrawTimer():
            return f"withdraw timer {command.number}"
        case RecordPatch():
            return f"patch {command.patch_id}"
        case Complete():
            return f"complete {command.value!r}"
        case Fail():
            return f"fail {type(command.error).__name__}: {command.error}"
        case EndCancelled():
            return f"cancelled {command.error}".strip()


def run(function: Callable[..., Any], *facts: Fact) -> list[str]:
    """Return what a workflow wants after each of these facts, and dispose of it."""
    machine = new_machine(function)
    try:
        commands = machine.start()
        for fact in facts:
            commands += machine.feed(fact)
        return told(commands)
    finally:
        machine.dispose()


def a(*_args: object) -> Any:
    """Do what a step does. It is never called."""


def b(*_args: object) -> Any:
    """Do what another step does."""


def c(*_args: object) -> Any:
    """Do what a third step does."""
