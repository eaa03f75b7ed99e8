"""What a workflow wants from outside, as the machine tells it. Nothing here has happened yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from iii_runtime.core.frozen import frozen
from iii_runtime.core.runs.facts import Key
from iii_runtime.core.workflow.options import StepOptions


@frozen(kw_only=True)
class RunStep:
    """Run a step until it has an outcome: `StepCompleted` or `StepFailed`.

    Attributes:
        key: Its identity.
        function: What to call; synchronous or asynchronous.
        arguments: Positional arguments, as the workflow passed them.
        keywords: Keyword arguments.
        options: Retries and timeouts.
        requested_ms: The workflow's time when it asked, from which schedule-to-close counts.
    """

    key: Key
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    options: StepOptions
    requested_ms: int


@frozen(kw_only=True)
class WithdrawStep:
    """Nobody waits for a step any more. Its outcome, if there will be one, counts for nothing."""

    key: Key


@frozen(kw_only=True)
class SetTimer:
    """Feed `TimerFired` when `deadline_ms` has come."""

    number: int
    deadline_ms: int


@frozen(kw_only=True)
class WithdrawTimer:
    """A timer is not needed any more."""

    number: int


@frozen(kw_only=True)
class RecordPatch:
    """Record that the run has taken the new branch of a change."""

    patch_id: str


@frozen(kw_only=True)
class Complete:
    """The workflow returned `value`, not encoded yet."""

    value: Any


@frozen(kw_only=True)
class Fail:
    """The workflow raised."""

    error: BaseException


@frozen(kw_only=True)
class EndCancelled:
    """The workflow let its cancellation pass."""

    error: BaseException


Command: TypeAlias = "RunStep | WithdrawStep | SetTimer | WithdrawTimer | RecordPatch | Complete | Fail | EndCancelled"
