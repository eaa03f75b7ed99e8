"""What is told when the journal of a run and the code of its workflow do not fit together."""

from __future__ import annotations

from collections.abc import Sequence

from iii_runtime.core.runs.errors import WorkflowDivergedError
from iii_runtime.core.runs.facts import (
    AttemptFailed,
    AttemptStarted,
    CancelRequested,
    Fact,
    SignalReceived,
    StepCompleted,
    StepFailed,
    TimerFired,
)
from iii_runtime.core.workflow.timers import instant

_ADVICE = "Put the old code back, or let ctx.patched choose between old and new, then resume the run."


def diverged(position: int, fact: Fact, why: str, waiting_for: Sequence[str]) -> WorkflowDivergedError:
    """Return the error for a fact that does not fit.

    Args:
        position: Its place in the journal, from 1.
        fact: The fact.
        why: What does not fit.
        waiting_for: What the workflow waits for in its place.
    """
    waits = f"the workflow waits for {'; '.join(waiting_for)}" if waiting_for else "the workflow waits for nothing"
    return WorkflowDivergedError(f"fact {position} of the journal: {told(fact)}. But {why}; {waits}. {_ADVICE}")


def told(fact: Fact) -> str:
    """Return a fact in words."""
    match fact:
        case StepCompleted():
            return f"{fact.key} completed"
        case StepFailed():
            return f"{fact.key} failed"
        case AttemptFailed():
            return f"attempt {fact.attempt} of {fact.key} failed"
        case AttemptStarted():
            return f"attempt {fact.attempt} of {fact.key} began"
        case TimerFired():
            return f"timer {fact.number} fired, which was due at {instant(fact.deadline_ms).isoformat()}"
        case SignalReceived():
            return f"signal '{fact.name}' was received"
        case CancelRequested():
            return "a cancellation was requested"
        case _:
            return type(fact).__name__
