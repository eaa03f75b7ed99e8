"""`iii_runtime.Client`: durable runs from a program of its own, in the host on this machine or in a stage on AWS."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from iii_runtime.adapters.system import SystemClock, Uuid4Source
from iii_runtime.core.client.run_client import RunClient
from iii_runtime.core.payload import Json
from iii_runtime.core.trigger_request import TriggerRequest
from iii_runtime.core.worker import Worker

_THREADS = 64
"""How many calls of one client are under way at the same time; those that wait for a result count too."""


class Client(RunClient):
    """Starts durable runs and acts on them. Make one with `local`, `stage` or `inside`, and keep it.

    Every method is asynchronous; a program without an event loop calls `asyncio.run`.
    """

    @classmethod
    def local(cls, data: Path | str = "data") -> Self:
        """Return the client of the host that `iii-runtime dev` or `start` runs on a data directory.

        Nothing is connected yet. A host that is restarted is found again; while none runs, every call raises
        `HostError` `host_unreachable`.
        """
        # Here because a program on AWS needs nothing of this.
        from iii_runtime.hosts.control_client import ControlClient  # noqa: PLC0415
        from iii_runtime.hosts.host_file import HostFile  # noqa: PLC0415

        return cls(_in_threads(ControlClient(HostFile(Path(data))).call), Uuid4Source().new_id)

    @classmethod
    def stage(cls, name: str, *, app: str, region: str | None = None, profile: str | None = None) -> Self:
        """Return the client of a stage on AWS, on behalf of the caller's AWS credentials. Nothing is called yet.

        Args:
            name: The stage, as in `cdk deploy -c stage=NAME`.
            app: The app, as `aws.app` of its `iii-config.yaml` says.
            region: AWS region; that of the environment or profile if None.
            profile: Profile of the AWS configuration whose credentials are used; the usual ones if None.

        Raises:
            HostError: `aws_region_missing`, `aws_profile_missing`.
        """
        # Here because boto3 is slow to load, and an extra.
        from iii_runtime.adapters.aws.stage_access import StageAccess  # noqa: PLC0415
        from iii_runtime.adapters.aws.stage_calls import StageCalls  # noqa: PLC0415

        access = StageAccess(app, name, region=region or os.environ.get("AWS_REGION"), profile=profile)
        return cls(_in_threads(StageCalls(access, SystemClock()).call), Uuid4Source().new_id)

    @classmethod
    def inside(cls, worker: Worker) -> Self:
        """Return the client for the functions of a worker: it calls the host that runs them.

        Every call raises `NotAttachedError` while no host runs the worker.
        """
        return cls(worker.trigger_async, Uuid4Source().new_id)


def _in_threads(call: Callable[[TriggerRequest], Json]) -> Callable[[TriggerRequest], Any]:
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="iii-client")

    async def in_thread(request: TriggerRequest) -> Json:
        return await asyncio.get_running_loop().run_in_executor(pool, call, request)

    return in_thread
