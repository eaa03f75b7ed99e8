"""What a function asks of its host besides being called: memory, secrets, whom it may call."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from typing import TypedDict, cast

from iii_runtime.core.errors import RegistrationError
from iii_runtime.core.frozen import frozen

MIN_MEMORY_MB, MAX_MEMORY_MB = 128, 10_240
SECRET_SOURCES = ("ssm:", "secretsmanager:")
QUEUE_USE, TOPIC_USE = "queue:", "topic:"

_VARIABLE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_WILDCARDS = frozenset("*?$")
_RESERVED_VARIABLES = ("AWS_", "LAMBDA_", "III_", "_")


class FunctionSettings(TypedDict, total=False):
    """The keywords of `Worker.function` and `Worker.register_function` that become `FunctionOptions`."""

    memory_mb: int | None
    reserved_concurrency: int | None
    environment: Mapping[str, str]
    secrets: Mapping[str, str]
    uses: Collection[str] | None


@frozen(kw_only=True)
class FunctionOptions:
    """What a function asks of its host. On a laptop only `uses` and `secrets` have an effect.

    Attributes:
        memory_mb: Memory of its Lambda, 128 to 10,240 MB; the stage's default if None.
        reserved_concurrency: Lambda's reserved concurrency; it is taken from the account's pool. None reserves nothing.
        environment: Environment variables of its Lambda.
        secrets: What `iii_runtime.secret(name)` returns, by name: `ssm:<parameter>` or `secretsmanager:<secret>`;
            `{stage}` in it is the stage's name. On a laptop the environment variable `name` is read.
        uses: Whom it may call: function ids, `queue:<name>`, `topic:<name>`. None allows everything of its own app.
            State and streams are open to every function.
    """

    memory_mb: int | None = None
    reserved_concurrency: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    uses: tuple[str, ...] | None = None

    def allows(self, use: str) -> bool:
        """Return whether the function may call `use`, written as in `uses`."""
        return self.uses is None or use in self.uses


def read_options(settings: FunctionSettings, function_id: str) -> FunctionOptions:
    """Return the options that a registration gives.

    Raises:
        RegistrationError: A value that no host could work with.
    """
    uses = settings.get("uses")
    return FunctionOptions(
        memory_mb=_integer(settings.get("memory_mb"), "memory_mb", function_id, MIN_MEMORY_MB, MAX_MEMORY_MB),
        reserved_concurrency=_integer(
            settings.get("reserved_concurrency"), "reserved_concurrency", function_id, 1, 100_000
        ),
        environment=_variables(settings.get("environment"), "environment", function_id),
        secrets=_secrets(settings.get("secrets"), function_id),
        uses=None if uses is None else _uses(uses, function_id),
    )


def _integer(value: object, name: str, function_id: str, least: int, most: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise RegistrationError(
            f"function '{function_id}': {name} must be an integer from {least} to {most}, found {value!r:.60}."
        )
    return value


def _variables(given: object, name: str, function_id: str) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise RegistrationError(f"function '{function_id}': {name} must be a mapping of texts, found {given!r:.60}.")
    for key, value in given.items():
        if not isinstance(key, str) or not _VARIABLE.fullmatch(key) or key.startswith(_RESERVED_VARIABLES):
            raise RegistrationError(
                f"function '{function_id}': {name} has the key {key!r:.60}; a variable is named with letters, digits "
                "and '_', and does not start with AWS_, LAMBDA_ or III_."
            )
        if not isinstance(value, str):
            raise RegistrationError(f"function '{function_id}': {name}.{key} must be a text, found {value!r:.60}.")
    return dict(given)


def _secrets(given: object, function_id: str) -> dict[str, str]:
    secrets = _variables(given, "secrets", function_id)
    for key, source in secrets.items():
        if not any(source.startswith(prefix) and len(source) > len(prefix) for prefix in SECRET_SOURCES):
            raise RegistrationError(
                f"function '{function_id}': secrets.{key} must be 'ssm:<parameter>' or 'secretsmanager:<secret>'."
            )
        if not _WILDCARDS.isdisjoint(source):
            raise RegistrationError(
                f"function '{function_id}': secrets.{key} must name one secret; '*', '?' and '$' are in no name, and "
                "would let the role of the function read others."
            )
    return secrets


def _uses(given: object, function_id: str) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise RegistrationError(f"function '{function_id}': uses must be a list of texts, found {given!r:.60}.")
    uses = tuple(given)
    if not all(isinstance(use, str) and use.strip() and use not in (QUEUE_USE, TOPIC_USE) for use in uses):
        raise RegistrationError(
            f"function '{function_id}': uses lists function ids, 'queue:<name>' and 'topic:<name>', found {uses!r:.80}."
        )
    return cast("tuple[str, ...]", uses)
