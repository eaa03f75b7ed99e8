"""What the environment variables of a Lambda say."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from iii_runtime.core.errors import HostError
from iii_runtime.core.frozen import frozen
from iii_runtime.plan.names import Deployment, partition_of

_BUNDLE = Path(__file__).resolve().parents[3]
"""The folder beside `iii_runtime`."""


@frozen(kw_only=True)
class Environment:
    """Where a Lambda runs, and as what.

    Attributes:
        deployment: App, stage, region and account: all names.
        function_id: The registered function it runs; None for the runtime's own Lambdas.
        root: Root of the bundle.
        log_level: Lowest level of the lines that are logged.
        secrets: Where the function's secrets are kept, by name.
        is_tracing: Whether it traces with X-Ray.
    """

    deployment: Deployment
    function_id: str | None = None
    root: Path = _BUNDLE
    log_level: str = "INFO"
    secrets: Mapping[str, str] = field(default_factory=dict)
    is_tracing: bool = False


def read_environment(variables: Mapping[str, str]) -> Environment:
    """Read the environment variables of a Lambda.

    `III_APP`, `III_STAGE`, `III_ACCOUNT` and `AWS_REGION` are needed. `III_FUNCTION` names the function,
    `III_LOG_LEVEL` is `INFO` by default, `III_SECRETS` is JSON, `III_TRACING` turns tracing on with `1` or `true`, and
    `LAMBDA_TASK_ROOT` is the bundle, which otherwise is the folder that this package lies in.

    Raises:
        HostError: `environment_invalid`: one is missing or cannot be read.
    """
    region = _needed(variables, "AWS_REGION")
    return Environment(
        deployment=Deployment(
            app=_needed(variables, "III_APP"),
            stage=_needed(variables, "III_STAGE"),
            region=region,
            account=_needed(variables, "III_ACCOUNT"),
            partition=partition_of(region),
        ),
        function_id=variables.get("III_FUNCTION") or None,
        root=Path(variables.get("LAMBDA_TASK_ROOT") or _BUNDLE),
        log_level=_log_level(variables.get("III_LOG_LEVEL") or "INFO"),
        secrets=_secrets(variables.get("III_SECRETS")),
        is_tracing=variables.get("III_TRACING", "").lower() in {"1", "true"},
    )


def _needed(variables: Mapping[str, str], name: str) -> str:
    value = variables.get(name)
    if not value:
        raise HostError(
            f"the environment variable {name} is not set. The constructs of iii_runtime.cdk set it; deploy the stage "
            "again.",
            code="environment_invalid",
        )
    return value


def _log_level(name: str) -> str:
    if name.upper() not in logging.getLevelNamesMapping():
        raise HostError(
            f"the environment variable III_LOG_LEVEL is no level: {name!r:.40}.", code="environment_invalid"
        )
    return name.upper()


def _secrets(text: str | None) -> dict[str, str]:
    try:
        sources = json.loads(text or "{}")
    except ValueError:
        sources = None
    if not isinstance(sources, dict) or not all(isinstance(source, str) for source in sources.values()):
        raise HostError(
            "the environment variable III_SECRETS is no JSON object of texts. Deploy the stage again.",
            code="environment_invalid",
        )
    return sources
