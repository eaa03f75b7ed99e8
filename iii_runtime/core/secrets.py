"""Secrets of functions: `secret(name)`, wherever a host keeps them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from iii_runtime.core.errors import IiiError


class SecretError(IiiError):
    """A secret cannot be had.

    Codes: `secret_unknown`, there is none of this name; `secret_unavailable`, the service that keeps it refused.
    """

    code = "secret_unknown"


class SecretSource(Protocol):
    """Where a host keeps the secrets of its functions."""

    def get(self, name: str) -> str:
        """Return a secret.

        Raises:
            SecretError: There is none of this name, or it cannot be read.
        """
        ...


class EnvironmentSecrets:
    """The environment variables of the process."""

    def get(self, name: str) -> str:
        """Return the environment variable `name`."""
        value = os.environ.get(name)
        if value is None:
            raise SecretError(f"secret '{name}': the environment variable {name} is not set. Set it for the host.")
        return value


# Of the process, not of a context: a thread that a handler starts has to find it too.
_sources: list[SecretSource] = [EnvironmentSecrets()]


def secret(name: str) -> str:
    """Return a secret of the running function, by the name under which `secrets=` declares it.

    On a laptop it is the environment variable of that name. On AWS it is read from where `secrets=` says, and kept for
    five minutes. Call it inside the function, not while its module is imported.

    Args:
        name: Such as `CARD_KEY`.

    Raises:
        IiiError: `secret_unknown`: there is none of this name. `secret_unavailable`: it could not be read.
    """
    return _sources[-1].get(name)


@contextmanager
def secrets_from(source: SecretSource) -> Iterator[None]:
    """Let `secret` look in `source` while the block runs, in every thread. For hosts."""
    _sources.append(source)
    try:
        yield
    finally:
        _sources.remove(source)
