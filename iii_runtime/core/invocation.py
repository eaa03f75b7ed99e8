"""The invocation a handler runs in: where it came from and which message it serves."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Source: TypeAlias = Literal["http", "queue", "cron", "topic", "state", "stream", "direct"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One call of one function.

    Attributes:
        id: Identity of the call; the `error_id` of an http error names it.
        function_id: The function that runs.
        source: What started it.
        queue: The queue its message came from.
        message_receipt_id: The receipt of that message: what the dead-letter queue lists it under.
        attempt: Number of this attempt, from 1.
        max_attempts: Attempts the queue grants in total, None outside a queue.
        hops: Length of the chain of enqueues behind it.
        depth: How many functions wait for this one in direct calls.
        traceparent: W3C trace context.
        baggage: W3C baggage.
        ends_at: When its time is up, on the monotonic clock in seconds; None where that is not known.
    """

    id: str
    function_id: str
    source: Source = "direct"
    queue: str | None = None
    message_receipt_id: str | None = None
    attempt: int = 1
    max_attempts: int | None = None
    hops: int = 0
    depth: int = 0
    traceparent: str | None = None
    baggage: str | None = None
    ends_at: float | None = field(default=None, compare=False, repr=False)

    @property
    def is_last_attempt(self) -> bool:
        """Whether a failure now has no further attempt behind it."""
        return self.max_attempts is None or self.attempt >= self.max_attempts

    @property
    def trace_id(self) -> str | None:
        """The trace id within `traceparent`."""
        return self.traceparent.split("-")[1] if self.traceparent else None

    @property
    def span_id(self) -> str | None:
        """The span id within `traceparent`: this call's own."""
        return self.traceparent.split("-")[2] if self.traceparent else None


_current: ContextVar[Invocation | None] = ContextVar("iii_invocation", default=None)


def current_invocation() -> Invocation | None:
    """Return the invocation the calling code runs in, None outside a handler."""
    return _current.get()


def enter_invocation(invocation: Invocation) -> None:
    """Make `invocation` the current one in this context. For executors, in a context of their own."""
    _current.set(invocation)
