"""Functions that run in a host of their own."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from iii_runtime.core.call import Call
from iii_runtime.core.payload import Json


class RemoteFunctions(Protocol):
    """Calls functions whose code is not in this process."""

    async def invoke(self, call: Call, timeout: timedelta) -> Json:
        """Run the function in its own host, wait at most `timeout` for its end, and return its result.

        Never repeated: a lost answer is an error, for the function may have run.

        Raises:
            FunctionBusyError: It was not started.
            InvocationError: As `FunctionInvoker.invoke` raises it there; `__cause__` is a `RemoteHandlerError` if the
                handler raised.
        """
        ...

    async def start(self, call: Call) -> None:
        """Start the function and do not wait for it. It runs at most once.

        Raises:
            InvocationError: It was not accepted.
        """
        ...
