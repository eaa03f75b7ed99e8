"""Connects a worker's `trigger` to the engine's loop, from handler threads and from other loops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

from iii_runtime.core.errors import NotAttachedError
from iii_runtime.core.invocation import current_invocation
from iii_runtime.core.trigger_request import TriggerRequest
from iii_runtime.engine.runtime import Runtime


class LoopInvoker:
    """What a host attaches to its workers."""

    def __init__(self, runtime: Runtime, loop: asyncio.AbstractEventLoop) -> None:
        self._runtime = runtime
        self._loop = loop

    def trigger(self, request: TriggerRequest) -> Any:
        """Carry out the request on the engine's loop and wait for its result."""
        pending = self._submit(request)
        try:
            return pending.result()
        except BaseException:
            # A body whose time is up waits no longer, and what it asked for must not go on behind its back.
            pending.cancel()
            raise

    async def trigger_async(self, request: TriggerRequest) -> Any:
        """Carry out the request on the engine's loop."""
        return await asyncio.wrap_future(self._submit(request))

    def _submit(self, request: TriggerRequest) -> Future[Any]:
        if self._loop.is_closed():
            raise NotAttachedError(f"trigger('{request.function_id}'): the host has stopped.")
        work: Coroutine[Any, Any, Any] = self._runtime.trigger(request, current_invocation())
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:
            work.close()
            raise NotAttachedError(f"trigger('{request.function_id}'): the host has stopped.") from error
