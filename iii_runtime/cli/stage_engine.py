"""The engine of a stage on AWS, for commands with `--stage`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from iii_runtime.adapters.system import SystemClock
from iii_runtime.cli.place import Place
from iii_runtime.cli.stage import Stage
from iii_runtime.core.errors import HostError
from iii_runtime.hosts.aws_lambda.websocket_endpoint import WEBSOCKET_URL

if TYPE_CHECKING:
    from iii_runtime.adapters.aws.stage_access import StageAccess
    from iii_runtime.adapters.aws.stage_calls import StageCalls
    from iii_runtime.adapters.aws.stage_streams import StageStreams
    from iii_runtime.adapters.aws.switch import QueueSwitch

_EXTRA = frozenset({"boto3", "botocore"})


def stage_calls(place: Place, stage: Stage) -> StageCalls:
    """Return what carries out requests in a stage; see `stage_access` for errors."""
    access = stage_access(place, stage)
    from iii_runtime.adapters.aws.stage_calls import StageCalls  # noqa: PLC0415

    return StageCalls(access, SystemClock())


def queue_switch(place: Place, stage: Stage) -> QueueSwitch:
    """Return the kill switch of a stage's queues; see `stage_access` for errors."""
    access = stage_access(place, stage)
    from iii_runtime.adapters.aws.switch import QueueSwitch  # noqa: PLC0415

    return QueueSwitch(access)


def stage_streams(place: Place, stage: Stage) -> StageStreams:
    """Return where the streams of a stage are; see `stage_access` for errors."""
    access = stage_access(place, stage)
    from iii_runtime.adapters.aws.stage_streams import StageStreams  # noqa: PLC0415

    return StageStreams(access, WEBSOCKET_URL)


def stage_access(place: Place, stage: Stage) -> StageAccess:
    """Return how to reach a stage. Calls nothing yet.

    Args:
        place: Its configuration says which app, unless the stage does.
        stage: Which one.

    Raises:
        ConfigError: The configuration cannot be used.
        HostError: `extra_missing`: boto3 is not installed. `aws_region_missing`, `aws_profile_missing`.
    """
    app = stage.app if stage.app is not None else place.load_config().aws.app
    try:
        # Here because it is slow to load, and an extra.
        from iii_runtime.adapters.aws.stage_access import StageAccess  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise HostError("--stage needs the extra: pip install 'iii-runtime[aws]'", code="extra_missing") from error
    # Boto3 looks at AWS_DEFAULT_REGION alone; AWS_REGION is what every other tool takes first.
    region = stage.region or os.environ.get("AWS_REGION")
    return StageAccess(app, stage.name, region=region, profile=stage.profile)
