"""The options of `register_worker`, in the spellings of both iii SDKs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from iii_runtime.core.did_you_mean import did_you_mean
from iii_runtime.core.errors import RegistrationError
from iii_runtime.core.frozen import frozen
from iii_runtime.core.trigger_request import MAX_TIMEOUT_MS


@frozen(kw_only=True)
class InitOptions:
    """Options of `register_worker`, as in the iii SDK.

    The fields after `invocation_timeout_ms` are accepted so that workers written for iii run unchanged. They have no
    effect here: there is no connection to keep, and the host does the logging.

    Attributes:
        worker_name: Name in logs and listings.
        worker_description: For people.
        invocation_timeout_ms: Longest run of one attempt of a function that says nothing of its own, and the default
            wait of `trigger`.
        namespace: Without effect: a host runs one namespace.
        enable_metrics_reporting: Without effect.
        reconnection_config: Without effect.
        otel: Without effect.
        headers: Without effect.
        telemetry: Without effect.

    Raises:
        RegistrationError: A `ValueError`: `invocation_timeout_ms` is not a positive integer, or `namespace` is blank.
    """

    worker_name: str | None = None
    worker_description: str | None = None
    invocation_timeout_ms: int = 30_000
    namespace: str | None = None
    enable_metrics_reporting: bool = True
    reconnection_config: object = None
    otel: object = None
    headers: Mapping[str, str] | None = None
    telemetry: object = None

    def __post_init__(self) -> None:
        given: object = self.invocation_timeout_ms
        if isinstance(given, bool) or not isinstance(given, int) or not 0 < given <= MAX_TIMEOUT_MS:
            raise RegistrationError(
                f"invocation_timeout_ms must be an integer from 1 to {MAX_TIMEOUT_MS}, found {given!r:.60}."
            )
        namespace: object = self.namespace
        if namespace is not None and (not isinstance(namespace, str) or not namespace.strip()):
            raise RegistrationError(f"namespace must be a text that is not blank, found {namespace!r:.60}.")


def read_options(options: object, worker_name: str | None) -> InitOptions:
    """Return the options of a worker.

    Args:
        options: `InitOptions`, a dict of its fields as `worker_name` or `workerName`, or None.
        worker_name: Wins over the name in `options`.

    Raises:
        TypeError: `options` is something else, or has a key that is unknown or there in both spellings.
        RegistrationError: A value that cannot work.
    """
    if isinstance(options, Mapping):
        options = _from_mapping(options)
    elif options is None:
        options = InitOptions()
    if not isinstance(options, InitOptions):
        raise TypeError(f"options must be InitOptions or a dict, found {options!r:.60}")
    return options if worker_name is None else replace(options, worker_name=worker_name)


def _from_mapping(options: Mapping[Any, Any]) -> InitOptions:
    names = {spelling: field.name for field in fields(InitOptions) for spelling in (field.name, _camel(field.name))}
    given: dict[str, Any] = {}
    for key, value in options.items():
        if key not in names:
            raise TypeError(f"register_worker: unknown option {key!r:.60}{did_you_mean(key, names)}")
        if names[key] in given:
            raise TypeError(f"register_worker: option '{names[key]}' is given in both spellings")
        given[names[key]] = value
    return InitOptions(**given)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
