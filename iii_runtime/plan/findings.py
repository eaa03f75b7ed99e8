"""What is wrong with an app, as values, and the error that carries all of it."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from iii_runtime.core.config import Config
from iii_runtime.core.errors import HostError
from iii_runtime.core.queue import QueueSpec
from iii_runtime.core.registry import Catalog, FunctionSpec, TriggerSpec
from iii_runtime.core.triggers import DurableSubscriber


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something wrong with an app.

    Attributes:
        level: `error`: a host refuses to start. `warning`: it starts, and part of the app does nothing.
        where: File and line, or what is known of the place.
        message: What is wrong and what to do.
    """

    level: Literal["error", "warning"]
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


class AppInvalidError(HostError):
    """An app cannot be hosted as it is.

    Attributes:
        findings: Everything that was found, errors first, warnings too. The error's text has one line for each error.
    """

    code = "app_invalid"

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = errors_first(findings)
        super().__init__("\n".join(str(each) for each in self.findings if each.level == "error"))


def error(where: str, message: str) -> Finding:
    """Return a finding that keeps a host from starting."""
    return Finding(level="error", where=where, message=message)


def warning(where: str, message: str) -> Finding:
    """Return a finding that keeps nobody from starting."""
    return Finding(level="warning", where=where, message=message)


def as_warning(finding: Finding) -> Finding:
    """Return the finding for a host to which it does not matter yet."""
    return replace(finding, level="warning")


def errors_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings, each once, those that keep a host from starting first, else in their order."""
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: finding.level))


def located(catalog: Catalog) -> Catalog:
    """Return the catalog with the place of its function for each trigger whose own place is not known."""
    functions = catalog.functions
    return replace(
        catalog,
        triggers=tuple(
            replace(trigger, source=functions[trigger.function_id].source)
            if not trigger.source and trigger.function_id in functions
            else trigger
            for trigger in catalog.triggers
        ),
    )


def place_of_trigger(trigger: TriggerSpec) -> str:
    """Return where a trigger is registered, or whose it is if that is not known."""
    return trigger.source or f"trigger of {trigger.function_id}"


def place_of_function(function: FunctionSpec) -> str:
    """Return where a function is registered, or which one it is if that is not known."""
    return function.source or f"function {function.id}"


def place_in_config(config: Config, line: int | None = None) -> str:
    """Return the file, with the line if it is known."""
    source = config.source or "the default configuration"
    return source if line is None else f"{source}:{line}"


def place_of_queue(config: Config, catalog: Catalog, queue: QueueSpec) -> str:
    """Return where a queue is declared, or its subscription registered."""
    for trigger in catalog.triggers:
        is_its_topic = isinstance(trigger.kind, DurableSubscriber) and trigger.kind.topic == queue.topic
        if is_its_topic and trigger.function_id == queue.function_id:
            return place_of_trigger(trigger)
    return place_in_config(config, config.queues[queue.name].line)


def suggestion(name: str, known: Collection[str]) -> str:
    """Return ` (did you mean 'x'?)` with the known name that is closest, if one is close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""
