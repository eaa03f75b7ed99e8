"""Stored http responses in a dict."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from iii_runtime.ports.clock import Clock
from iii_runtime.ports.response_store import (
    RESPONSE_RETENTION,
    Begun,
    InProgress,
    Mismatch,
    Reservation,
    StoredResponse,
)


@dataclass(slots=True, kw_only=True)
class _Request:
    fingerprint: str
    holder: str
    begun_at: datetime
    response: StoredResponse | None = None


class MemoryResponseStore:
    """Responses by idempotency key."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._requests: dict[str, _Request] = {}

    async def begin(self, key: str, fingerprint: str, holder: str) -> Reservation:
        """Reserve `key`, or say what became of the first request with it."""
        now = self._clock.now()
        first = self._requests.get(key)
        if first is not None and first.begun_at > now - RESPONSE_RETENTION:
            if first.fingerprint != fingerprint:
                return Mismatch()
            if first.response is not None:
                return first.response
            if first.holder == holder:
                return InProgress()
        self._requests[key] = _Request(fingerprint=fingerprint, holder=holder, begun_at=now)
        return Begun()

    async def finish(self, key: str, response: StoredResponse) -> None:
        """Store the response of a reserved key."""
        if key in self._requests:
            self._requests[key].response = response
