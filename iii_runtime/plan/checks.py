"""What cannot work in an app, found before it runs."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from iii_runtime.core.config import Config
from iii_runtime.core.http import Route, RouteConflictError, RouteTable, parse_route
from iii_runtime.core.registry import Catalog, TriggerSpec
from iii_runtime.core.triggers import Http, Queue, UnknownTrigger


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


def check_app(config: Config, catalog: Catalog) -> list[Finding]:
    """Return everything that cannot work, errors first."""
    findings: list[Finding] = []
    routes: list[Route[TriggerSpec]] = []
    for trigger in catalog.triggers:
        findings.extend(_check_function(trigger, catalog))
        if isinstance(trigger.kind, UnknownTrigger):
            findings.append(
                _finding("warning", trigger, f"trigger type '{trigger.kind.type}' is unknown; it never fires.")
            )
        if isinstance(trigger.kind, Queue) and trigger.kind.name not in config.queues:
            findings.append(
                _finding(
                    "error",
                    trigger,
                    f"queue '{trigger.kind.name}' is not in queue_configs{_suggest(trigger.kind.name, config.queues)}. "
                    "Declare it in iii-config.yaml.",
                )
            )
        if isinstance(trigger.kind, Http):
            route = parse_route(trigger.kind.method, trigger.kind.path, trigger)
            try:
                RouteTable([*routes, route])
                routes.append(route)
            except RouteConflictError as error:
                findings.append(_finding("error", trigger, error.message))
    return sorted(findings, key=lambda finding: finding.level)


def _check_function(trigger: TriggerSpec, catalog: Catalog) -> list[Finding]:
    named = [(trigger.function_id, "its function"), (trigger.kind.condition, "its condition")]
    return [
        _finding(
            "warning",
            trigger,
            f"{what} '{function_id}' is not registered{_suggest(function_id, catalog.functions)}; it cannot run.",
        )
        for function_id, what in named
        if function_id is not None and function_id not in catalog.functions
    ]


def _finding(level: Literal["error", "warning"], trigger: TriggerSpec, message: str) -> Finding:
    where = trigger.source or f"trigger of {trigger.function_id}"
    return Finding(
        level=level, where=where, message=f"{trigger.type_name} trigger of '{trigger.function_id}': {message}"
    )


def _suggest(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""
