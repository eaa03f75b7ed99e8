"""Where a command works: data directory, configuration, workers. The options that most commands share."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from iii_runtime.cli.stage import Stage, taken_stage
from iii_runtime.core.config import Config

DEFAULT_DATA = Path("data")
DEFAULT_CONFIG = "iii-config.yaml"
DEFAULT_TARGET = "functions"
_EMPTY = "it is empty; is a shell variable not set?"

Handler = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a command works on.

    Attributes:
        data: Data directory, of a running host or of none.
        config: Configuration file; None for the defaults.
        targets: Files, folders or modules with workers; used when no host runs.
        as_json: Whether stdout is for a program.
        stage: The stage on AWS in place of all of this but the configuration; None for this machine.
    """

    data: Path
    config: Path | None
    targets: tuple[str, ...] = ()
    as_json: bool = False
    stage: Stage | None = None

    @property
    def of_stage(self) -> str:
        """What a sentence about the place adds, `` of stage 'NAME'``; nothing on this machine."""
        return "" if self.stage is None else f" of stage '{self.stage.name}'"

    def load_config(self) -> Config:
        """Read the configuration.

        Raises:
            ConfigError: The file cannot be read or used.
        """
        # Here because most commands reach a running host and read no YAML.
        from iii_runtime.adapters.config_file import load_config  # noqa: PLC0415

        return load_config(self.config, os.environ)


def with_place(handler: Handler) -> Handler:
    """Add `--data`, `--config` and `--json` to a command, and pass it a `Place` first."""

    @data_option
    @config_option
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @functools.wraps(handler)
    def command(
        *args: Any, data: Path, config: Path | None, as_json: bool, targets: tuple[str, ...] = (), **kwargs: Any
    ) -> None:
        stage = taken_stage(kwargs)
        place = Place(data=data, config=config_or_default(config), targets=targets, as_json=as_json, stage=stage)
        handler(place, *args, **kwargs)

    return command


class FilledPath(click.Path):
    """A path that is not empty: the empty one would be the current directory."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Return the path; a usage error if it is empty."""
        if value == "":
            self.fail(_EMPTY, param, ctx)
        return super().convert(value, param, ctx)


def filled(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of workers; a usage error if one is empty, as for a path."""
    if "" in values:
        raise click.BadParameter(_EMPTY)
    return values


def data_option(handler: Handler) -> Handler:
    """Add `--data`."""
    return click.option(
        "--data",
        type=FilledPath(file_okay=False, path_type=Path),
        default=DEFAULT_DATA,
        envvar="III_DATA",
        show_default="./data",
        show_envvar=True,
        help="Data directory.",
    )(handler)


def config_option(handler: Handler) -> Handler:
    """Add `--config`."""
    return click.option(
        "--config",
        type=FilledPath(dir_okay=False, path_type=Path),
        envvar="III_CONFIG",
        show_default=f"{DEFAULT_CONFIG} if it exists",
        show_envvar=True,
        help="Configuration file.",
    )(handler)


def worker_option(handler: Handler) -> Handler:
    """Add `--worker`, which `with_place` puts into the place."""
    return click.option(
        "--worker",
        "targets",
        multiple=True,
        default=default_targets,
        callback=filled,
        show_default=f"{DEFAULT_TARGET} if it exists",
        help="File, folder or module with workers, repeatable; used when no host runs.",
    )(handler)


def config_or_default(config: Path | None) -> Path | None:
    """Return the file given, else the default one if it exists."""
    default = Path(DEFAULT_CONFIG)
    return config if config is not None else default if default.is_file() else None


def default_targets() -> tuple[str, ...]:
    """Return the default folder of workers, if it exists."""
    return (DEFAULT_TARGET,) if Path(DEFAULT_TARGET).is_dir() else ()


def required_targets(given: tuple[str, ...], command: str) -> tuple[str, ...]:
    """Return the targets given to a command, else the default ones; a usage error if there are none."""
    targets = given or default_targets()
    if not targets:
        raise click.UsageError(
            f"there is no folder '{DEFAULT_TARGET}' here. Say where the workers are: `iii-runtime {command} app.py`, "
            "or a folder, or a module."
        )
    return targets
