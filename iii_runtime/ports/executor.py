"""How the body of a function is run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol


class Executor(Protocol):
    """Runs user code apart from the engine, so that a slow body never delays the host."""

    async def run(self, body: Callable[[], Any], *, is_async: bool, timeout: timedelta) -> Any:
        """Call `body` (and await its result if `is_async`) in a copy of the caller's context and return its value.

        Raises:
            DeadlineExceededError: The body did not end within `timeout`. A synchronous body is abandoned: it
                may go on running, but its outcome is dropped.
            FunctionBusyError: It did not begin in time, and never will. That is no attempt.
        """
        ...
