"""How a step is carried out: retries, timeouts, at most once."""

from __future__ import annotations

from datetime import timedelta

from iii_runtime.core.frozen import frozen
from iii_runtime.core.workflow.retry import DEFAULT_RETRY, RetryPolicy


@frozen(kw_only=True)
class StepOptions:
    """How a step is carried out.

    Attributes:
        retry: When a failed attempt is followed by another one.
        start_to_close: Longest time of one attempt; None leaves it to the host: the function's timeout less a margin.
        schedule_to_close: Longest time from the request to the outcome, back-offs included; None for no limit.
        at_most_once: Whether an interrupted attempt is reported as failed in place of being repeated.
    """

    retry: RetryPolicy = DEFAULT_RETRY
    start_to_close: timedelta | None = None
    schedule_to_close: timedelta | None = None
    at_most_once: bool = False
