"""Stored http responses: the memory behind the `Idempotency-Key` header."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypeAlias

RESPONSE_RETENTION = timedelta(hours=24)
"""How long a key is remembered, counted from its first request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """A response as it was sent the first time."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class Begun:
    """The key is new: run the handler, then `finish`."""


@dataclass(frozen=True, slots=True)
class InProgress:
    """The first request with this key is still running in this host."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The key was used for another request."""


Reservation: TypeAlias = Begun | InProgress | Mismatch | StoredResponse


class ResponseStore(Protocol):
    """Responses by idempotency key, kept for 24 hours."""

    async def begin(self, key: str, fingerprint: str, holder: str) -> Reservation:
        """Reserve `key` for the request with this fingerprint.

        `holder` names the running host. A reservation of another holder is one of a host that died: it is taken over.
        """
        ...

    async def finish(self, key: str, response: StoredResponse) -> None:
        """Store the response of a reserved key."""
        ...
