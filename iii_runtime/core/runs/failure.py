"""A failure as it is stored: what went wrong, by what, and because of what."""

from __future__ import annotations

from iii_runtime.core.frozen import frozen


@frozen(kw_only=True)
class Failure:
    """An error of a step or of a run, with its causes.

    Attributes:
        type: Name of the exception's class, or the type the user gave it.
        message: Its text.
        stack: Its traceback, from the user's first frame on; cut to bounds.
        non_retryable: Whether it said itself that no further attempt can succeed.
        cause: What it was raised from.
    """

    type: str
    message: str
    stack: str = ""
    non_retryable: bool = False
    cause: Failure | None = None
