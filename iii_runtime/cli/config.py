"""`iii-runtime config check`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

import click

from iii_runtime.cli.output import print_json, visible
from iii_runtime.cli.place import Place, with_place, worker_option
from iii_runtime.core.config import Config, ConfigError
from iii_runtime.core.config.problem import render_at
from iii_runtime.core.errors import IiiError
from iii_runtime.core.payload import Json
from iii_runtime.core.registry import Catalog
from iii_runtime.hosts.embedded.discovery import discover_workers
from iii_runtime.plan.checks import check_app

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
@with_place
@click.pass_context
def check(ctx: click.Context, place: Place, file: Path | None) -> None:
    """Check configuration and workers, and print all that is wrong at once.

    Exit code 1 if anything would keep a host from starting.
    """
    place = place if file is None else replace(place, config=file)
    remarks = [*_remarks(place)]
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


def _remarks(place: Place) -> list[Remark]:
    settings, remarks = _read(place)
    catalog, more = _discover(place)
    remarks += more
    # Without a configuration that can be used nothing is known of its queues.
    if settings is not None and catalog is not None:
        remarks += [Remark(each.level, each.where, each.message) for each in check_app(settings, catalog)]
    return sorted(remarks, key=lambda remark: ("error", "warning", "notice").index(remark.level))


def _read(place: Place) -> tuple[Config | None, list[Remark]]:
    try:
        settings = place.load_config()
    except ConfigError as error:
        return None, [Remark("error", render_at(p.source, p.line, p.key, ""), p.message) for p in error.problems]
    return settings, [Remark("notice", render_at(n.source, n.line, n.key, ""), n.message) for n in settings.notices]


def _discover(place: Place) -> tuple[Catalog | None, list[Remark]]:
    if not place.targets:
        return None, [Remark("notice", "workers", "none were looked at; name them with --worker.")]
    try:
        workers = discover_workers(place.targets)
        return Catalog.of(worker.registry for worker in workers), []
    except IiiError as error:
        return None, [Remark("error", ", ".join(place.targets), error.message)]
