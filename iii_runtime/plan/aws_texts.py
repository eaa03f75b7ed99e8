"""Texts of an app that a laptop takes and AWS does not: parts of names, variables, sources of secrets, time zones."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterable, Iterator

from iii_runtime.core.registry import FunctionSpec
from iii_runtime.plan.basis import Basis
from iii_runtime.plan.findings import (
    Finding,
    error,
    place_in_config,
    place_of_function,
    place_of_queue,
    place_of_trigger,
)
from iii_runtime.plan.permissions import filled
from iii_runtime.plan.schedules import cron_jobs, plan_firing

RESERVED_APPS = ("amzn-s3-demo-", "sthree-", "xn--")
"""How the name of no bucket begins, and so that of no app."""

VARIABLE = re.compile(r"[A-Za-z][A-Za-z0-9_]+")
"""What Lambda calls an environment variable."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SOURCE = re.compile(r"[A-Za-z0-9/_+=.@:-]+")
_OF_THE_MACHINE = frozenset({"Factory", "localtime", "posixrules"})


def check_texts(basis: Basis) -> Iterator[Finding]:
    """Yield each text of an app that AWS would refuse, most of them in the middle of a deployment."""
    begin = next((each for each in RESERVED_APPS if basis.deployment.app.startswith(each)), None)
    if begin is not None:
        yield error(
            place_in_config(basis.config, basis.config.aws.line),
            f"app '{basis.deployment.app}' begins with '{begin}', as the name of no bucket may. Choose another name.",
        )
    functions = basis.catalog.functions.values()
    yield from _check_names("function", ((each.id, place_of_function(each)) for each in functions))
    yield from _check_names(
        "topic",
        (
            (queue.topic, place_of_queue(basis.config, basis.catalog, queue))
            for queue in basis.queues.values()
            if queue.topic is not None
        ),
    )
    for function in functions:
        yield from _check_variables(function)
        yield from _check_secrets(basis, function)
    yield from _check_zones(basis)


def _check_names(what: str, names: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    known: dict[str, str] = {}
    for name, where in names:
        if _CONTROL.search(name):
            yield error(
                where, f"{what} {name!a}: a control character is in no description or alarm on AWS. Take it out."
            )
        # A construct's id has no slash, and `|` stands in its place.
        other = known.setdefault(name.replace("/", "|"), name)
        if other != name:
            yield error(where, f"the {what}s '{other}' and '{name}' differ in '/' and '|' alone. Rename one.")


def _check_variables(function: FunctionSpec) -> Iterator[Finding]:
    begin = f"function '{function.id}': its `environment` has"
    for name, value in function.options.environment.items():
        if not VARIABLE.fullmatch(name):
            yield error(
                place_of_function(function), f"{begin} '{name}', and Lambda wants two letters or more. Rename it."
            )
        if "\0" in value:
            yield error(
                place_of_function(function), f"{begin} a NUL character in '{name}', which ends a variable. Take it out."
            )


def _check_secrets(basis: Basis, function: FunctionSpec) -> Iterator[Finding]:
    for name, source in function.options.secrets.items():
        text = filled(source, basis.deployment.stage)
        if not _SOURCE.fullmatch(text):
            yield error(
                place_of_function(function),
                f"function '{function.id}': its secret {name} is read from {text!a}, and no parameter or secret can be "
                "called so: their names have letters, digits and '/_+=.@-'. Only `{stage}` is filled in.",
            )


def _check_zones(basis: Basis) -> Iterator[Finding]:
    timed = [each for each in cron_jobs(basis).values() if plan_firing(each[0]).kind == "schedule"]
    if not timed:
        return
    known = zoneinfo.available_timezones() - _OF_THE_MACHINE
    for schedule, trigger in timed:
        if schedule.timezone not in known:
            yield error(
                place_of_trigger(trigger),
                f"cron trigger of '{trigger.function_id}': time zone '{schedule.timezone}' is of this machine, and "
                "EventBridge does not know it. Take a name of the IANA database such as 'Europe/Berlin'.",
            )
