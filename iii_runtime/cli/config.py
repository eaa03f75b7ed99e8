"""`iii-runtime config check`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

import click

from iii_runtime.adapters.deployed_files import other_apps, read_deployed
from iii_runtime.adapters.system import SystemClock
from iii_runtime.cli.output import print_json, visible
from iii_runtime.cli.place import Place, with_place, worker_option
from iii_runtime.cli.stage import checked_name
from iii_runtime.core.config import Config, ConfigError
from iii_runtime.core.config.problem import render_at
from iii_runtime.core.errors import HostError, IiiError
from iii_runtime.core.payload import Json
from iii_runtime.core.registry import Catalog
from iii_runtime.hosts.embedded.discovery import discover_workers
from iii_runtime.hosts.embedded.manifest_discovery import discover_manifest
from iii_runtime.plan.app import plan_app
from iii_runtime.plan.checks import check_app
from iii_runtime.plan.findings import AppInvalidError, Finding
from iii_runtime.plan.manifest import read_manifest
from iii_runtime.plan.names import Deployment

Level = Literal["error", "warning", "notice"]


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing to say about an app."""

    level: Level
    where: str
    message: str


@click.group()
def config() -> None:
    """Look after the configuration."""


@config.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@worker_option
# Under another name than that of the commands that go to a stage: this one only looks whether it could be deployed.
@click.option(
    "--stage", "checked_stage", metavar="NAME", callback=checked_name, help="Check for this stage on AWS too."
)
@with_place
@click.pass_context
def check(ctx: click.Context, place: Place, file: Path | None, checked_stage: str | None) -> None:
    """Check configuration and workers, and print all that is wrong at once.

    Exit code 1 if anything would keep a host from starting; with --stage, also if anything would keep `cdk deploy` from
    deploying to that stage. Nothing is asked of AWS.
    """
    place = place if file is None else replace(place, config=file)
    remarks = _remarks(place, checked_stage)
    is_sound = all(remark.level != "error" for remark in remarks)
    if place.as_json:
        _print_report(place, remarks, is_sound=is_sound)
    else:
        _print_lines(place, remarks)
    if not is_sound:
        ctx.exit(1)


def _print_report(place: Place, remarks: list[Remark], *, is_sound: bool) -> None:
    found: list[Json] = [{"level": each.level, "where": each.where, "message": each.message} for each in remarks]
    source = None if place.config is None else str(place.config)
    print_json(
        {"ok": is_sound, "config": source, "workers": cast("Json", list(place.targets)), "found": found}, compact=True
    )


def _print_lines(place: Place, remarks: list[Remark]) -> None:
    for remark in remarks:
        print(visible(f"{remark.level}: {render_at(remark.where, None, '', remark.message)}"))
    looked_at = [str(place.config or "the default configuration"), *place.targets]
    errors = sum(remark.level == "error" for remark in remarks)
    print(f"{', '.join(looked_at)}: {errors or 'no'} error{'' if errors == 1 else 's'}")


def _remarks(place: Place, stage: str | None) -> list[Remark]:
    settings, remarks = _read(place)
    if not place.targets:
        remarks.append(Remark("notice", "workers", "none were looked at; name them with --worker."))
    elif stage is None or settings is None:
        remarks += _check(place, settings)
    else:
        remarks += _check_stage(place, settings, stage)
    return sorted(remarks, key=lambda remark: ("error", "warning", "notice").index(remark.level))


def _read(place: Place) -> tuple[Config | None, list[Remark]]:
    try:
        settings = place.load_config()
    except ConfigError as error:
        return None, [Remark("error", render_at(p.source, p.line, p.key, ""), p.message) for p in error.problems]
    return settings, [Remark("notice", render_at(n.source, n.line, n.key, ""), n.message) for n in settings.notices]


def _check(place: Place, settings: Config | None) -> list[Remark]:
    try:
        catalog = Catalog.of(worker.registry for worker in discover_workers(place.targets))
    except IiiError as error:
        return [_unreadable(place, error)]
    # Without a configuration that can be used nothing is known of its queues.
    return [] if settings is None else _as_remarks(check_app(settings, catalog))


def _check_stage(place: Place, settings: Config, stage: str) -> list[Remark]:
    """Make the plan of a stage as `cdk deploy` does, and return what it says."""
    # Tokens as at synthesis: where it is deployed is known to neither, and both count names of the same length.
    deployment = Deployment(
        app=settings.aws.app,
        stage=stage,
        region="${AWS::Region}",
        account="${AWS::AccountId}",
        partition="${AWS::Partition}",
    )
    try:
        previous = read_deployed(Path(), deployment.app, stage)
        others = other_apps(Path(), deployment.app, stage)
    except HostError as error:
        file, _, message = error.message.partition(": ")
        return [Remark("error", file, message)]
    try:
        stored = discover_manifest(place.targets, place.config, project_root=Path.cwd(), env=os.environ)
        manifest = read_manifest(stored)
        plan = plan_app(manifest, deployment, previous=previous, others=others, now=SystemClock().now())
    except AppInvalidError as error:
        return _as_remarks(error.findings)
    except IiiError as error:
        return [_unreadable(place, error)]
    return _as_remarks(plan.warnings)


def _unreadable(place: Place, error: IiiError) -> Remark:
    # Without the stack that follows the message of what code raised in a child: a remark is one line, here as well.
    return Remark("error", ", ".join(place.targets), error.message.partition("\nTraceback ")[0])


def _as_remarks(findings: Iterable[Finding]) -> list[Remark]:
    return [Remark(each.level, each.where, each.message) for each in findings]
