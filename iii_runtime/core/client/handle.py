"""The handle of one run."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iii_runtime.core.client.run_client import RunClient

DEFAULT_SIGNAL_PATIENCE = timedelta(seconds=30)
"""How long a client waits while the inbox of a run is full."""


class RunHandle:
    """One run, as the client that started it sees it. It works from the moment it is there.

    Attributes:
        workflow_id: Its workflow id.
        run_id: The run; None for the current one of the workflow id.
    """

    def __init__(
        self,
        client: RunClient,
        workflow_id: str,
        run_id: str | None,
        *,
        result_type: Any = None,
    ) -> None:
        self.workflow_id = workflow_id
        self.run_id = run_id
        self._client = client
        self._result_type = result_type

    def __repr__(self) -> str:
        return f"RunHandle(workflow_id={self.workflow_id!r}, run_id={self.run_id!r})"

    async def result(self, *, timeout: timedelta | None = None) -> Any:
        """Wait for the run to end, and return its result; see `RunClient.result`."""
        return await self._client.result(self.workflow_id, self.run_id, timeout=timeout, result_type=self._result_type)

    async def signal(
        self,
        name: str,
        payload: Any = None,
        *,
        signal_id: str | None = None,
        patience: timedelta = DEFAULT_SIGNAL_PATIENCE,
    ) -> None:
        """Send a signal to the run; see `RunClient.signal`."""
        await self._client.signal(
            self.workflow_id, name, payload, run_id=self.run_id, signal_id=signal_id, patience=patience
        )

    async def query(self, name: str, *arguments: Any) -> Any:
        """Return the workflow's answer to a question; see `RunClient.query`."""
        return await self._client.query(self.workflow_id, name, *arguments, run_id=self.run_id)

    async def cancel(self, *, reason: str = "") -> None:
        """Ask the run to end itself; see `RunClient.cancel`."""
        await self._client.cancel(self.workflow_id, run_id=self.run_id, reason=reason)

    async def terminate(self, *, reason: str = "") -> None:
        """End the run at once; see `RunClient.terminate`."""
        await self._client.terminate(self.workflow_id, run_id=self.run_id, reason=reason)

    async def describe(self) -> dict[str, Any]:
        """Return where the run stands; see `RunClient.describe`."""
        return await self._client.describe(self.workflow_id, run_id=self.run_id)

    async def history(self) -> list[dict[str, Any]]:
        """Return all that has happened to the run; see `RunClient.history`."""
        return await self._client.history(self.workflow_id, run_id=self.run_id)
