"""What happens when a run is started under a workflow id that was used before."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

from iii_runtime.core.runs.record import RunRecord


class IdReusePolicy(StrEnum):
    """Whether a workflow id whose last run is closed may be used again. Names and meaning as in Temporal."""

    ALLOW_DUPLICATE = "allow_duplicate"
    """Yes."""
    ALLOW_DUPLICATE_FAILED_ONLY = "allow_duplicate_failed_only"
    """Only if that run did not complete: it failed, timed out, was cancelled or terminated."""
    REJECT_DUPLICATE = "reject_duplicate"
    """No, for as long as that run is kept."""


class IdConflictPolicy(StrEnum):
    """What a start does while a run of the same workflow id is open. Names and meaning as in Temporal."""

    FAIL = "fail"
    """It is refused."""
    USE_EXISTING = "use_existing"
    """It starts nothing and returns the open run, whatever its input is."""
    TERMINATE_EXISTING = "terminate_existing"
    """It terminates the open run, and starts."""


Answer: TypeAlias = Literal["same", "existing", "refused", "terminate", "replace"]
"""What a start does about the run it finds: it is its own; it is used; it stands in the way; it is terminated first;
it is closed and becomes history."""


def decide_start(found: RunRecord, run_id: str, *, reuse: IdReusePolicy, conflict: IdConflictPolicy) -> Answer:
    """Return what a start of `run_id` does about the run that its workflow id has already."""
    if found.run_id == run_id:
        return "same"
    if found.is_open:
        if conflict is IdConflictPolicy.USE_EXISTING:
            return "existing"
        return "terminate" if conflict is IdConflictPolicy.TERMINATE_EXISTING else "refused"
    if reuse is IdReusePolicy.REJECT_DUPLICATE:
        return "refused"
    if reuse is IdReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY and found.status == "completed":
        return "refused"
    return "replace"
