"""Secrets of a function in the Parameter Store of Systems Manager, and in Secrets Manager."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from botocore.config import Config

from iii_runtime.adapters.aws.clients import CONNECT_TIMEOUT_S, READ_TIMEOUT_S
from iii_runtime.core.secrets import SecretError

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.parameters import SecretsProvider, SSMProvider

KEPT = timedelta(minutes=5)
"""How long a value is kept before it is read again."""


class ParameterSecrets:
    """Reads secrets when they are asked for, and keeps them for five minutes.

    Args:
        sources: `ssm:<parameter>` or `secretsmanager:<secret>`, by the name that `secret(name)` gets.
        region: AWS region.
    """

    def __init__(self, sources: Mapping[str, str], region: str) -> None:
        self._sources = sources
        self._config = Config(
            region_name=region,
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"mode": "standard", "total_max_attempts": 3},
        )

    def get(self, name: str) -> str:
        """Return a secret.

        Raises:
            SecretError: `secret_unknown`: the function declares none of this name. `secret_unavailable`: the service
                has none, does not let the function read it, or does not answer.
        """
        source = self._sources.get(name)
        if source is None:
            raise SecretError(
                f"secret '{name}': the function declares none of this name. Add it to `secrets=` and deploy again."
            )
        found = self._read(name, source)
        if not isinstance(found, str):
            raise SecretError(f"secret '{name}': {source} is not a text.", code="secret_unavailable")
        return found

    def _read(self, name: str, source: str) -> object:
        from aws_lambda_powertools.utilities.parameters.exceptions import GetParameterError  # noqa: PLC0415 - see below

        kind, _, path = source.partition(":")
        kept_s = int(KEPT.total_seconds())
        try:
            if kind == "ssm":
                return self._ssm.get(path, max_age=kept_s, decrypt=True)
            return self._secrets_manager.get(path, max_age=kept_s)
        except GetParameterError as error:
            raise SecretError(
                f"secret '{name}' cannot be read from {source}: {str(error).rstrip('.')}. "
                "See that it exists in this account and region; the permission to read it comes with `secrets=`.",
                code="secret_unavailable",
            ) from error

    # Loaded when used: most functions have no secrets.
    @cached_property
    def _ssm(self) -> SSMProvider:
        from aws_lambda_powertools.utilities.parameters import SSMProvider  # noqa: PLC0415

        return SSMProvider(boto_config=self._config)

    @cached_property
    def _secrets_manager(self) -> SecretsProvider:
        from aws_lambda_powertools.utilities.parameters import SecretsProvider  # noqa: PLC0415

        return SecretsProvider(boto_config=self._config)
