"""The error of an event that is not understood."""

from __future__ import annotations

from iii_runtime.core.errors import IiiError


class EventUnknownError(IiiError):
    """An event has none of the known shapes, or one of them with a member that cannot be read."""

    code = "event_unknown"
