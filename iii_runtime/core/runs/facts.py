"""The facts of a run: what its journal holds, in the order in which it happened.

A machine that is fed the same facts in the same order comes to the same place, so what a run has done is never stored
in any other way. Times are Unix milliseconds; they never go back from one fact to the next.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from iii_runtime.core.frozen import frozen
from iii_runtime.core.payload import Json
from iii_runtime.core.runs.failure import Failure

Kind: TypeAlias = Literal["step"]
"""What a key names. Calls and children will have kinds of their own."""


@frozen
class Key:
    """Identity of something a workflow asked for: equal on every replay.

    Attributes:
        kind: What it is.
        name: The name it was given, or that of its function.
        occurrence: How many of the same kind and name were asked for before it.
    """

    kind: Kind
    name: str
    occurrence: int = 0

    def __str__(self) -> str:
        return f"{self.kind} '{self.name}'" + (f" (occurrence {self.occurrence})" if self.occurrence else "")


@frozen(kw_only=True)
class StepCompleted:
    """A step returned.

    Attributes:
        value: Its result, as `encode_value` wrote it.
        attempts: How many attempts it took, failed ones included.
        elapsed_ms: How long the last attempt took.
    """

    key: Key
    at_ms: int
    value: Json = None
    attempts: int = 1
    elapsed_ms: int = 0


@frozen(kw_only=True)
class StepFailed:
    """A step will not be tried again.

    Attributes:
        attempts: How many of its attempts failed.
        elapsed_ms: How long the last attempt took, as far as anybody saw.
    """

    key: Key
    at_ms: int
    failure: Failure
    attempts: int
    elapsed_ms: int = 0


@frozen(kw_only=True)
class AttemptFailed:
    """An attempt of a step failed, and another one follows at `next_at_ms`, which was chosen once.

    Attributes:
        elapsed_ms: How long the attempt took.
    """

    key: Key
    at_ms: int
    attempt: int
    failure: Failure
    next_at_ms: int
    elapsed_ms: int = 0


@frozen(kw_only=True)
class AttemptStarted:
    """An attempt that must not be repeated has begun: without an outcome behind it, it was interrupted."""

    key: Key
    at_ms: int
    attempt: int


@frozen(kw_only=True)
class TimerFired:
    """A timer ended.

    Attributes:
        number: Which one, in the order in which the workflow set them.
        deadline_ms: When it was due.
        at_ms: When that was noticed; never before `deadline_ms`.
    """

    number: int
    deadline_ms: int
    at_ms: int


@frozen(kw_only=True)
class SignalReceived:
    """A signal reached the run.

    Attributes:
        id: Its identity; a signal that was sent twice is received once.
        name: Its name.
        value: Its payload, as `encode_value` wrote it.
    """

    id: str
    name: str
    at_ms: int
    value: Json = None


@frozen(kw_only=True)
class CancelRequested:
    """Somebody asked the run to end itself."""

    id: str
    at_ms: int
    reason: str = ""


@frozen(kw_only=True)
class Patched:
    """The run has taken the new branch of a change of its code."""

    patch_id: str
    at_ms: int


@frozen(kw_only=True)
class Suspended:
    """The run was put to sleep before anything else had happened, so that its beginning counts as history."""

    at_ms: int


Fact: TypeAlias = (
    "StepCompleted | StepFailed | AttemptFailed | AttemptStarted | TimerFired | SignalReceived | CancelRequested"
    " | Patched | Suspended"
)
